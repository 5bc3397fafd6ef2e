"""Cookies live for one redirect chain, so that no page depends on which page was fetched before it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.cookiejar import Cookie, DefaultCookiePolicy
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.http import Response
from scrapy.http.cookies import CookieJar

from tinycrawl.urls import host_of, is_public_suffix


class ChainCookiesMiddleware(CookiesMiddleware):
    """Sends the cookies in ``request.meta["chain_cookies"]`` (a tuple), and to the seed's host the *operator*'s.

    What the response makes of them is left in ``request.meta["cookies_after"]`` for the next request of the chain.
    Scrapy's own middleware keeps every jar of a crawl for ever.
    """

    operator: dict[Any, Any]  # name -> value

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "ChainCookiesMiddleware":
        middleware = super().from_crawler(crawler)
        middleware.operator = crawler.settings.getdict("TINYCRAWL_COOKIES")
        return middleware

    def process_request(self, request: Request, spider: Spider | None = None) -> None:
        if self.operator and host_of(request.url) == self._seed_host():
            request.cookies = self.operator
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
        # As in browsers, a cookie without a domain is for its host alone, not for the hosts below it.
        jar = CookieJar(DefaultCookiePolicy(strict_ns_domain=DefaultCookiePolicy.DomainStrictNonDomain))
        for cookie in request.meta.get("chain_cookies", ()):
            jar.set_cookie(cookie)
        request.meta["cookiejar"] = jar
        self.jars[jar] = jar
        try:
            yield jar
        finally:
            del self.jars[request.meta.pop("cookiejar")]

    def _process_cookies(self, cookies: Iterable[Cookie], *, jar: CookieJar, request: Request) -> None:
        """As Scrapy does, but with the packaged list of public suffixes: Scrapy's downloads one at the first cookie."""
        host = host_of(request.url)
        for cookie in cookies:
            domain = cookie.domain.removeprefix(".")
            if is_public_suffix(domain):
                if domain != host:
                    continue
                cookie.domain = host
            jar.set_cookie_if_ok(cookie, request)

    def _seed_host(self) -> str:
        plan = getattr(self.crawler.spider, "plan", None)
        return host_of(plan.arguments.seed) if plan else ""
