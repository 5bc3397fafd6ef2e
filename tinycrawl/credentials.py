"""What lets a crawl in: HTTP authentication, a proxy, cookies of the operator's. Used, and written nowhere.

Scrapy logs those of its own settings that are not at their default, FTP_PASSWORD too, and the URLs of feeds: what is
secret there is hidden, see `hide_settings` and `Mask`. Our own settings it does not know.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import ada_url
from scrapy import Request, Spider
from scrapy.core.downloader.handlers.http11 import TunnelError
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.http import Response
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings, default_settings

from tinycrawl.arguments import USER_INFO, Arguments
from tinycrawl.cookies import CookiesFile, OperatorCookie, read_cookies_file, seed_cookies
from tinycrawl.exceptions import UsageError
from tinycrawl.failures import FailedResponse, reason_of
from tinycrawl.settingcheck import is_secret
from tinycrawl.urls import site_of

PROXY_REFUSED = 407  # Proxy Authentication Required
BAD_GATEWAY = 502  # what a proxy answers for what lies behind it; RetryMiddleware asks again

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TUNNEL_STATUS = re.compile(r"'status': ([0-9]{3})")
_SECRET_HEADER = re.compile(r"auth|cookie|key|secret|token", re.IGNORECASE)
_SHORTEST_HIDDEN = 5  # characters; what is shorter is a part of too many words
_HIDDEN = "***"


@dataclass(frozen=True)
class Credentials:
    """What one crawl was given, checked. Its text shows nothing of it.

    :param seed: normalised; *authorization* is for its site alone.
    :param authorization: the header's value; None is none, like below.
    :param proxy: ``http://host:port``, perhaps with ``user:password@``.
    :param cookies: those of *cookies_file* too.
    """

    seed: str
    authorization: bytes | None = field(default=None, repr=False)
    proxy: str | None = field(default=None, repr=False)
    cookies: tuple[OperatorCookie, ...] = field(default=(), repr=False)
    cookies_file: CookiesFile | None = field(default=None, repr=False)

    def authorization_for(self, url: str) -> bytes | None:
        """The header for *url*, normalised: on the seed's host and port, where http on 80 and https on 443 are one.

        What an https seed was given never goes over http.
        """
        is_safe = url.startswith("https:") or self.seed.startswith("http:")
        return self.authorization if is_safe and site_of(url) == site_of(self.seed) else None


class _Secret(str):
    """Text that is used as any other, and does not show in Scrapy's list of the settings."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(_HIDDEN)


class Mask:
    """Takes the secrets of a crawl's settings out of a text: in logs, and where a failure is told.

    >>> Mask(BaseSettings({"FTP_PASSWORD": "pa/ss"}))("ftp://me:pw@h.test/x: pa/ss pa%2Fss, http://h.test/@x")
    'ftp://***@h.test/x: *** ***, http://h.test/@x'
    """

    def __init__(self, settings: BaseSettings) -> None:
        forms: set[str] = set()
        for secret in _find_secrets(settings):
            for text in (secret, unquote(secret)):
                forms |= {text, quote(text, safe=""), quote(text), repr(text)[1:-1], json.dumps(text)[1:-1]}
        longest_first = sorted((form for form in forms if len(form) >= _SHORTEST_HIDDEN), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __call__(self, text: str) -> str:
        if "@" in text:
            text = USER_INFO.sub(rf"\1{_HIDDEN}@", text)
        return self._pattern.sub(_HIDDEN, text) if self._pattern else text


def hide_settings(settings: BaseSettings) -> None:
    """Let Scrapy's list of the settings show no secret."""
    for name in list(settings):
        value = settings[name]
        if isinstance(value, str) and value and (is_secret(name) or USER_INFO.search(value)):
            settings.set(name, _Secret(value), priority=settings.getpriority(name) or 0)


def _find_secrets(settings: BaseSettings) -> Iterator[str]:
    for name in settings:
        value = settings[name]
        if value == getattr(default_settings, name, None):
            continue
        if name == "DEFAULT_REQUEST_HEADERS":
            headers = settings.getdict(name).items()
            yield from (str(text) for header, text in headers if _SECRET_HEADER.search(str(header)))
        elif is_secret(name) and isinstance(value, str) and "://" not in value and not name.endswith("_USER"):
            yield value
        for text in _texts(value):
            for _, user_info in USER_INFO.findall(text):
                yield user_info.partition(":")[2]


def _texts(value: Any) -> Iterator[str]:
    """All texts within a setting's value; the keys of FEEDS are URLs."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _texts(key)
            yield from _texts(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _texts(entry)


def read_credentials(settings: BaseSettings, arguments: Arguments) -> Credentials:
    """Check the settings that hold credentials, and let Scrapy show none of them; those in the seed win.

    :raises UsageError: one of them is wrong. No value is in the message.
    """
    for name, ours in (("HTTPAUTH_USER", "TINYCRAWL_HTTP_USER"), ("HTTPAUTH_PASS", "TINYCRAWL_HTTP_PASSWORD")):
        if settings[name]:
            raise UsageError(f"setting `{name}`: Scrapy would log it, expected `{ours}` in its place")
    user, password = (_text(settings, f"TINYCRAWL_HTTP_{word}") for word in ("USER", "PASSWORD"))
    if ":" in user or _CONTROL.search(user + password):
        raise UsageError("setting `TINYCRAWL_HTTP_USER`: expected one without a colon, and no control characters")
    if arguments.credentials is not None:
        seed_user, seed_password = arguments.credentials
        if seed_password or (user and user != seed_user):
            password = seed_password
        user = seed_user
    elif password and not user:
        raise UsageError("setting `TINYCRAWL_HTTP_USER`: expected the user of `TINYCRAWL_HTTP_PASSWORD`, got nothing")
    proxy = _parse_proxy(_text(settings, "TINYCRAWL_PROXY"))
    if proxy and not settings.getbool("HTTPPROXY_ENABLED"):
        raise UsageError(
            "settings `TINYCRAWL_PROXY` and `HTTPPROXY_ENABLED`: expected one or the other, got a proxy and 0"
        )
    cookies = seed_cookies(settings.getdict("TINYCRAWL_COOKIES"), arguments.seed)
    path = _text(settings, "TINYCRAWL_COOKIES_FILE")
    try:
        file = read_cookies_file(Path(path).expanduser().absolute()) if path else None
    except RuntimeError:
        raise UsageError("setting `TINYCRAWL_COOKIES_FILE`: no such home directory") from None
    if file is not None:
        cookies += file.cookies
    if cookies and not settings.getbool("COOKIES_ENABLED"):
        raise UsageError("setting `COOKIES_ENABLED`: expected 1 where cookies are given, got 0")
    hide_settings(settings)
    return Credentials(
        seed=arguments.seed,
        authorization=_basic(user, password) if user or password else None,
        proxy=proxy,
        cookies=cookies,
        cookies_file=file,
    )


def _text(settings: BaseSettings, name: str) -> str:
    value = settings[name]
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value:
        raise UsageError(f"setting `{name}`: expected text")
    return value


def _basic(user: str, password: str) -> bytes:
    """RFC 7617, in UTF-8."""
    return b"Basic " + b64encode(f"{user}:{password}".encode(errors="surrogateescape"))


def _parse_proxy(value: str) -> str | None:
    """Return the URL of a proxy in the one form that Scrapy reads as it is meant.

    >>> _parse_proxy("http://me:p@ss@Proxy.test:3128/"), _parse_proxy("http://token@proxy.test")
    ('http://me:p%40ss@proxy.test:3128', 'http://token:@proxy.test')
    >>> _parse_proxy("") is None
    True
    """
    if not value.strip():
        return None
    try:
        url = ada_url.URL(value.strip())
    except ValueError:
        url = None
    if (
        url is None
        or url.protocol != "http:"  # Scrapy tunnels through no other
        or not url.hostname
        or url.pathname != "/"
        or url.search
        or url.hash
        or (url.password and not url.username)
    ):
        raise UsageError(
            "setting `TINYCRAWL_PROXY`: expected http://host:port or http://user:password@host:port, with what is"
            " special in user and password percent-encoded; what it got is not shown"
        )
    user = f"{url.username}:{url.password}@" if url.username else ""
    return f"http://{user}{url.host}"


class SeedAuthMiddleware:
    """Sends user and password to the seed's host.

    Scrapy's HttpAuthMiddleware would send them to every subdomain, every port, and from https to http.
    """

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "SeedAuthMiddleware":
        plan = getattr(crawler.spider, "plan", None)
        if plan is None or plan.credentials.authorization is None:
            raise NotConfigured
        return cls(plan.credentials)

    def process_request(self, request: Request, spider: Spider | None = None) -> None:
        authorization = self.credentials.authorization_for(request.url)
        if authorization is not None:
            request.headers["Authorization"] = authorization


class ProxyMiddleware(HttpProxyMiddleware):
    """Scrapy's, with one proxy for all requests of a crawl; without TINYCRAWL_PROXY, the environment's as ever.

    - User and password are sent in UTF-8: Scrapy's Latin-1 lacks most letters, and it then does without the proxy.
    - What the proxy itself refuses is told from what the site does, and is no answer of the site: a 407 to robots.txt
      does not mean that all may be fetched.
    """

    proxy: str | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "ProxyMiddleware":
        settings = crawler.settings
        if not settings.getbool("HTTPPROXY_ENABLED"):
            raise NotConfigured
        is_chosen = (settings.getpriority("HTTPPROXY_AUTH_ENCODING") or 0) > SETTINGS_PRIORITIES["default"]
        middleware = cls(settings["HTTPPROXY_AUTH_ENCODING"] if is_chosen else "utf-8")
        plan = getattr(crawler.spider, "plan", None)
        middleware.proxy = plan.credentials.proxy if plan else None
        return middleware

    def process_request(self, request: Request, spider: Spider | None = None) -> None:
        if self.proxy is not None:
            request.meta["proxy"] = self.proxy  # user and password do not stay there
        super().process_request(request)

    def process_response(self, request: Request, response: Response, spider: Spider | None = None) -> Response:
        # Of https only the site can answer: what the proxy says is a TunnelError.
        if response.status == PROXY_REFUSED and request.meta.get("proxy") and request.url.startswith("http:"):
            return self._failed(request, f"http {PROXY_REFUSED}")
        return response

    def process_exception(
        self, request: Request, exception: Exception, spider: Spider | None = None
    ) -> Response | None:
        if not request.meta.get("proxy") or isinstance(exception, IgnoreRequest):
            return None
        if isinstance(exception, TunnelError):
            status = _TUNNEL_STATUS.search(str(exception))
            reason = f"http {status[1]}" if status else "not an HTTP answer"
            return self._failed(request, reason, again=reason != f"http {PROXY_REFUSED}")
        reason, is_offline = reason_of(exception)
        if is_offline and reason != "timeout":  # which may be the site's
            return self._failed(request, reason, again=True)
        return None

    def _failed(self, request: Request, reason: str, *, again: bool = False) -> Response:
        """The network may be gone: no server of the site has answered."""
        status = BAD_GATEWAY if again else 0
        return FailedResponse(request.url, reason=f"proxy: {reason}", is_offline=True, status=status, request=request)

    def _basic_auth_header(self, username: str, password: str | None) -> bytes:
        """Scrapy's own fails at a user without a password."""
        return super()._basic_auth_header(username, password or "")
