"""Cookies live for one redirect chain, so that no page depends on which page was fetched before it.

Those that the operator gave are sent always, whatever the site sets.
"""

import logging
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookiejar import Cookie, DefaultCookiePolicy
from pathlib import Path
from time import time
from urllib.parse import urlsplit

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.http import Response
from scrapy.http.cookies import CookieJar

from tinycrawl.arguments import show_value
from tinycrawl.exceptions import UsageError
from tinycrawl.urls import host_of, is_public_suffix, normalise_url

logger = logging.getLogger(__name__)

# Without surrogates, which stand for what is no UTF-8.
_NAME = re.compile(r"[^\x00-\x1f\x7f;=\ud800-\udfff]*")
_VALUE = re.compile(r"[^\x00-\x1f\x7f;\ud800-\udfff]*")
_DOMAIN = re.compile(r"[^\s/\\?#@:]+|\[[0-9A-Fa-f:.]+\]")
_EXPIRES = re.compile(r"-?[0-9]{1,18}(\.[0-9]*)?|")
_HTTP_ONLY = "#HttpOnly_"  # hidden from scripts; to us a cookie like any other
_FLAGS = {"TRUE": True, "FALSE": False}


@dataclass(frozen=True)
class OperatorCookie:
    """A cookie that the operator gave.

    :param host: normalised.
    :param name: empty for a cookie that has none and is sent as its value alone.
    :param subdomains: is it for the hosts below *host* too?
    :param expires: seconds since 1970; None is never.
    """

    host: str
    name: str
    value: str = field(repr=False)
    path: str = "/"
    subdomains: bool = False
    is_secure: bool = False
    expires: float | None = None

    @property
    def pair(self) -> str:
        return f"{self.name}={self.value}" if self.name else self.value

    def is_for(self, url: str, now: float) -> bool:
        """Is it sent with a request for *url*, normalised? RFC 6265, 5.4."""
        host = host_of(url)
        if host != self.host and not (self.subdomains and host.endswith(f".{self.host}")):
            return False
        path = urlsplit(url).path
        if path != self.path and not path.startswith(self.path if self.path[-1] == "/" else f"{self.path}/"):
            return False
        return (not self.is_secure or url.startswith("https:")) and (self.expires is None or self.expires > now)


@dataclass(frozen=True)
class CookiesFile:
    """What a cookies.txt holds; *is_exposed*: every user of the machine may read it."""

    path: Path
    cookies: tuple[OperatorCookie, ...]
    is_exposed: bool


def seed_cookies(cookies: Mapping[str, object], seed: str) -> tuple[OperatorCookie, ...]:
    """Make cookies for the host of *seed* of TINYCRAWL_COOKIES. One for https stays away from http.

    :raises UsageError: a name or value is none that can be sent.
    """
    for name, value in cookies.items():
        if not name or not _NAME.fullmatch(name) or not isinstance(value, str | int | float):
            raise UsageError(
                f"setting `TINYCRAWL_COOKIES`: expected names and values as text, not so {show_value(name)}"
            )
        if not _VALUE.fullmatch(str(value)):
            raise UsageError(
                f"setting `TINYCRAWL_COOKIES`: expected values without ; and control characters, not so"
                f" {show_value(name)}"
            )
    host, is_secure = host_of(seed), seed.startswith("https:")
    return tuple([OperatorCookie(host, name, str(value), is_secure=is_secure) for name, value in cookies.items()])


def read_cookies_file(path: Path) -> CookiesFile:
    """Read a cookies.txt in Netscape's format, as browsers' extensions, curl, wget and yt-dlp write it.

    :raises UsageError: it cannot be read, or a line is no cookie; with path and line, and nothing of what is in it.
    """
    where = f"cookies file {show_value(str(path))}"
    try:
        mode = path.stat().st_mode
        # It is read more than once, and a pipe can be read only once.
        if not stat.S_ISREG(mode):
            raise UsageError(f"{where}: expected a regular file")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{where}: cannot be read: {error.strerror}") from None
    cookies = {}
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            cookie = parse_cookie_line(line.decode())
        except UnicodeDecodeError:
            raise UsageError(f"{where}, line {number}: expected UTF-8") from None
        except ValueError as error:
            raise UsageError(f"{where}, line {number}: expected {error}") from None
        if cookie is not None:
            cookies[cookie.host, cookie.path, cookie.name] = cookie
    return CookiesFile(path, tuple(cookies.values()), bool(mode & stat.S_IROTH))


def parse_cookie_line(line: str) -> OperatorCookie | None:
    r"""Read one line of a cookies.txt; None for a comment or an empty line.

    Fields, separated by tabs: domain, for its subdomains too?, path, https only?, when it expires (seconds since 1970;
    0, empty or negative: never), name, value. Where the second disagrees with a dot before the domain, it wins, as
    with curl.

    >>> parse_cookie_line(".h.test\tTRUE\t/a\tFALSE\t0\tname\tvalue")
    OperatorCookie(host='h.test', name='name', path='/a', subdomains=True, is_secure=False, expires=None)
    >>> parse_cookie_line("#HttpOnly_h.test\tFALSE\t/\tTRUE\t2000000000\tname\tvalue")
    OperatorCookie(host='h.test', name='name', path='/', subdomains=False, is_secure=True, expires=2000000000.0)

    :raises ValueError: with what is expected.
    """
    line = line.removesuffix("\r").removeprefix(_HTTP_ONLY)
    if not line.strip() or line.startswith("#"):
        return None
    fields = line.split("\t")
    if len(fields) == 6:
        fields.append("")  # an empty value whose tab an editor took away
    if len(fields) != 7:
        raise ValueError(f"seven fields separated by tabs, got {len(fields)}")
    domain, subdomains, path, secure, expires, name, value = fields
    domain = domain.strip().removeprefix(".")
    try:
        host = host_of(normalise_url(f"http://{domain}/")) if _DOMAIN.fullmatch(domain) else ""
    except ValueError:
        host = ""
    if not host:
        raise ValueError("a domain in the first field")
    if subdomains.upper() not in _FLAGS or secure.upper() not in _FLAGS:
        raise ValueError("TRUE or FALSE in the second and fourth fields")
    if not path.startswith("/"):
        raise ValueError("a path in the third field")
    if not _EXPIRES.fullmatch(expires):
        raise ValueError("seconds since 1970, or 0, in the fifth field")
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise ValueError("a name and a value without ; and control characters in the last fields")
    if not name and (not value or "=" in value):
        raise ValueError("a name in the sixth field")
    end = float(expires or 0)
    return OperatorCookie(
        host, name, value, path, _FLAGS[subdomains.upper()], _FLAGS[secure.upper()], end if end > 0 else None
    )


class ChainCookiesMiddleware(CookiesMiddleware):
    """Sends the *operator*'s cookies and those in ``request.meta["chain_cookies"]`` (a tuple).

    What the response makes of the latter is left in ``request.meta["cookies_after"]`` for the next request of the
    chain. Scrapy's own middleware keeps every jar of a crawl for ever.
    """

    operator: dict[str, list[OperatorCookie]]  # by host

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "ChainCookiesMiddleware":
        middleware = super().from_crawler(crawler)
        middleware.operator = {}
        plan = getattr(crawler.spider, "plan", None)  # `scrapy shell` has none
        if plan is None:
            return middleware
        for cookie in plan.credentials.cookies:
            middleware.operator.setdefault(cookie.host, []).append(cookie)
        file = plan.credentials.cookies_file
        if file is not None:
            now = time()
            expired = sum(cookie.expires is not None and cookie.expires <= now for cookie in file.cookies)
            logger.info("Cookies file %s: %d cookies, %d expired", file.path, len(file.cookies), expired)
            if file.is_exposed:
                logger.warning("Cookies file %s: every user of this machine can read it", file.path)
        return middleware

    def process_request(self, request: Request, spider: Spider | None = None) -> None:
        if request.meta.get("chain_cookies") or request.cookies:
            with self._jar(request):
                super().process_request(request)
        given = self._given(request.url) if self.operator else []
        if not given:
            return
        pairs = [cookie.pair for cookie in given]
        if request.meta.get("chain_cookies") or request.cookies:
            names = {cookie.name for cookie in given}
            header = (request.headers.get("Cookie") or b"").decode()
            pairs += [pair for pair in header.split("; ") if pair and pair.partition("=")[0] not in names]
        request.headers["Cookie"] = "; ".join(pairs)
        self._debug_cookie(request)

    def _given(self, url: str) -> list[OperatorCookie]:
        """The operator's cookies for *url*; of several, as RFC 6265 says, the one with the longest path first."""
        host, now = host_of(url), time()
        above = [host, *[host[dot.end() :] for dot in re.finditer(r"\.", host)]]
        cookies = [cookie for name in above for cookie in self.operator.get(name, ()) if cookie.is_for(url, now)]
        return sorted(cookies, key=lambda cookie: -len(cookie.path))

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

    def _debug_cookie(self, request: Request) -> None:
        """With COOKIES_DEBUG the names are logged, never the values."""
        if self.debug:
            pairs = (request.headers.get("Cookie") or b"").decode(errors="replace").split("; ")
            logger.debug("Cookies sent to %s: %s", request, _names(pairs))

    def _debug_set_cookie(self, response: Response) -> None:
        if self.debug:
            cookies = [value.decode(errors="replace") for value in response.headers.getlist("Set-Cookie")]
            logger.debug("Cookies received from %s: %s", response, _names(cookies))


def _names(cookies: Iterable[str]) -> str:
    pairs = [cookie.partition(";")[0].partition("=") for cookie in cookies]
    return ", ".join([name if equals else "one without a name" for name, equals, _ in pairs])
