"""HTTP downloads without requests that nobody asked for, and with delays that hold on the wire."""

from time import monotonic
from typing import Any
from weakref import WeakSet

from scrapy import Request, Spider, signals
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.crawler import Crawler
from scrapy.http import Headers, Response
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.task import LoopingCall

from tinycrawl.certificates import ExplainingPolicy
from tinycrawl.content import SAVED_STATUS
from tinycrawl.failures import TooSlow, Unsent
from tinycrawl.guard import GuardedReactor, PrivateAddress, is_private_host
from tinycrawl.politeness import has_started, is_closing
from tinycrawl.urls import host_of
from tinycrawl.wire import make_factory

_TICK = 5.0  # seconds


class PoliteHTTPHandler(HTTP11DownloadHandler):
    """Scrapy's handler, but polite about its connections.

    - A GET whose kept-alive connection died is not repeated behind our back: Twisted does so within a millisecond,
      outside the downloader slots and RetryMiddleware. A retry has a connection of its own: one that the server is
      about to close must not make its last try fail.
    - The delay to a host's next request counts from when this one is sent, not from when connecting began. On a new
      connection, where a TLS handshake comes first, from when its answer begins: else the next one would be early.
    - Nothing is begun once the crawl is being stopped, and nothing goes on beyond the time of its page.
    - No connection is made to a private address where the crawl is guarded. A proxy is the operator's own choice.

    Pool and context factory are private attributes of Scrapy's, and so is what an endpoint connects by of Twisted's;
    `tests/test_politeness.py`, `tests/test_network.py` and `tests/test_guard.py` fail if this stops working.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._pool.retryAutomatically = False
        policy: Any = ExplainingPolicy(self._contextFactory)  # zope's interfaces mean nothing to mypy
        self._contextFactory = policy
        self._get_connection = self._pool.getConnection
        self._pool.getConnection = self._connect  # type: ignore[method-assign]  # Scrapy makes the pool, not we
        put_connection: Any = self._pool._putConnection
        self._put_connection = put_connection
        self._pool._putConnection = self._put  # type: ignore[method-assign]
        self._used = WeakSet[Any]()  # connections
        self._page_timeout = crawler.settings.getfloat("TINYCRAWL_PAGE_TIMEOUT")
        self._pool._factory = make_factory(crawler.settings.getint("TINYCRAWL_HEADERS_MAXSIZE"))
        plan = getattr(crawler.spider, "plan", None)
        self._is_guarded = plan is not None and plan.is_guarded
        crawler.signals.connect(self._headers_received, signal=signals.headers_received)
        # The reactor forgets timeouts that were cancelled, two for each request, when another is due: that may take
        # minutes and megabytes.
        self._tick = LoopingCall(lambda: None)
        self._tick.start(_TICK, now=False)

    async def close(self) -> None:
        self._tick.stop()
        await super().close()

    async def download_request(self, request: Request) -> Response:
        if is_closing(self._crawler):
            raise Unsent("the crawl is being stopped")
        if self._is_guarded and is_private_host(host_of(request.url)):  # by proxy too
            raise PrivateAddress
        self._request = request  # for _connect, which is called before anything is awaited
        ask = request.meta.get("ask")
        left = self._page_timeout - ask.seconds if self._page_timeout and ask is not None else 0.0
        if left < 0:
            raise TooSlow("timeout")
        if left and left < float(request.meta.get("download_timeout") or left + 1):
            request.meta["download_timeout"] = left
        started = monotonic()
        try:
            return await super().download_request(request)
        finally:
            if ask is not None:
                ask.seconds += monotonic() - started

    def _connect(self, key: Any, endpoint: Any) -> "Deferred[Any]":
        if self._is_guarded and not self._request.meta.get("proxy"):
            _guard(endpoint)
        connect = self._pool._newConnection if self._request.meta.get("retry_times") else self._get_connection
        connecting: Deferred[Any] = connect(key, endpoint)
        return connecting.addCallback(self._connected, self._request)

    def _put(self, key: Any, connection: Any) -> None:
        """Keep a connection for the next request, unless it is being closed.

        That of a download stopped at its headers is; where the body had come with them, Twisted would keep it.
        """
        if not connection.transport.disconnecting:
            self._put_connection(key, connection)

    def _connected(self, connection: Any, request: Request) -> Any:
        has_started(self._crawler, request)
        request.meta["is_new_connection"] = connection not in self._used
        self._used.add(connection)
        connection.head_received = lambda status: request.meta.update(
            status=status,
            download_fail_on_dataloss=status in SAVED_STATUS,  # nobody reads the body of a redirect or an error
        )
        return connection

    def _headers_received(self, headers: Headers, body_length: int, request: Request, spider: Spider) -> None:
        if request.meta.get("is_new_connection"):
            has_started(self._crawler, request)


def _guard(endpoint: Any) -> None:
    """Have *endpoint* connect through a GuardedReactor; one of TLS wraps another."""
    inner = getattr(endpoint, "_wrappedEndpoint", endpoint)
    if isinstance(inner, HostnameEndpoint) and not isinstance(inner._reactor, GuardedReactor):
        inner._reactor = GuardedReactor(inner._reactor)
