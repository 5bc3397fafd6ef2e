"""HTTP downloads without requests that nobody asked for, and with delays that hold on the wire."""

from typing import Any
from weakref import WeakSet

from scrapy import Request, Spider, signals
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.crawler import Crawler
from scrapy.http import Headers, Response
from twisted.internet.defer import Deferred

from tinycrawl.certificates import ExplainingPolicy
from tinycrawl.politeness import has_started


class PoliteHTTPHandler(HTTP11DownloadHandler):
    """Scrapy's handler, but polite about its connections.

    - A GET whose kept-alive connection died is not repeated behind our back: Twisted does so within a millisecond,
      outside the downloader slots and RetryMiddleware.
    - The delay to a host's next request counts from when this one is sent, not from when connecting began. On a new
      connection, where a TLS handshake comes first, from when its answer begins: else the next one would be early.

    Pool and context factory are private attributes of Scrapy's; `tests/test_politeness.py` and `tests/test_network.py`
    fail if this stops working.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._pool.retryAutomatically = False
        policy: Any = ExplainingPolicy(self._contextFactory)  # zope's interfaces mean nothing to mypy
        self._contextFactory = policy
        self._get_connection = self._pool.getConnection
        self._pool.getConnection = self._connect  # type: ignore[method-assign]  # Scrapy makes the pool, not we
        self._used = WeakSet[Any]()  # connections
        crawler.signals.connect(self._headers_received, signal=signals.headers_received)

    async def download_request(self, request: Request) -> Response:
        self._request = request  # for _connect, which is called before anything is awaited
        return await super().download_request(request)

    def _connect(self, key: Any, endpoint: Any) -> "Deferred[Any]":
        connecting: Deferred[Any] = self._get_connection(key, endpoint)
        return connecting.addCallback(self._connected, self._request)

    def _connected(self, connection: Any, request: Request) -> Any:
        has_started(self._crawler, request)
        request.meta["is_new_connection"] = connection not in self._used
        self._used.add(connection)
        return connection

    def _headers_received(self, headers: Headers, body_length: int, request: Request, spider: Spider) -> None:
        if request.meta.get("is_new_connection"):
            has_started(self._crawler, request)
