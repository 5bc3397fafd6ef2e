"""Cookies live for one redirect chain, so that no page depends on which page was fetched before it."""

from collections.abc import Iterator
from contextlib import contextmanager

from scrapy import Request, Spider
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.http import Response
from scrapy.http.cookies import CookieJar


class ChainCookiesMiddleware(CookiesMiddleware):
    """Sends the cookies in ``request.meta["chain_cookies"]`` (a tuple) and those of the operator (``request.cookies``).

    What the response makes of them is left in ``request.meta["cookies_after"]`` for the next request of the chain.
    Scrapy's own middleware keeps every jar of a crawl for ever.
    """

    def process_request(self, request: Request, spider: Spider | None = None) -> None:
        if request.meta.get("chain_cookies") or request.cookies:
            with self._jar(request):
                super().process_request(request)

    def process_response(self, request: Request, response: Response, spider: Spider | None = None) -> Response:
        if "Set-Cookie" in response.headers:
            with self._jar(request) as jar:
                super().process_response(request, response)
                request.meta["cookies_after"] = tuple(jar)
        else:
            request.meta["cookies_after"] = request.meta.get("chain_cookies", ())
        return response

    @contextmanager
    def _jar(self, request: Request) -> Iterator[CookieJar]:
        jar = CookieJar()
        for cookie in request.meta.get("chain_cookies", ()):
            jar.set_cookie(cookie)
        request.meta["cookiejar"] = jar
        self.jars[jar] = jar
        try:
            yield jar
        finally:
            del self.jars[request.meta.pop("cookiejar")]
