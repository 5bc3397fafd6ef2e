"""robots.txt by RFC 9309: unreachable means that nothing may be fetched."""

import asyncio
import codecs
import logging
import re
from typing import Any
from urllib.parse import urlsplit

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import Headers, Response
from scrapy.http.request import NO_CALLBACK
from scrapy.robotstxt import ProtegoRobotParser, RobotParser
from scrapy.utils.misc import build_from_crawler, load_object

from tinycrawl.content import looks_like_html
from tinycrawl.failures import FailedResponse, Unsent, reason_of
from tinycrawl.guard import PRIVATE_ADDRESS
from tinycrawl.politeness import lengthen_delay
from tinycrawl.publisher import DISALLOWED
from tinycrawl.urls import join_location

logger = logging.getLogger(__name__)

UNREACHABLE = "robots.txt unreachable"

_NON_ASCII = re.compile(rb"[\x80-\xff]")
_ANY_AGENT = re.compile(rb"\*[ \t]*(?:#.*)?", re.DOTALL)
_USER_AGENT_LINE = re.compile(rb"(?:\A|(?<=[\r\n]))([ \t]*user-agent[ \t]*:[ \t]*)([^\r\n]*)", re.IGNORECASE)


class RobotsRefusal(IgnoreRequest):
    """Raised for a request that robots.txt does not permit. *is_offline*: it could not be had, nobody answered."""

    def __init__(self, reason: str, *, is_offline: bool = False) -> None:
        super().__init__(reason)
        self.is_offline = is_offline


class RobotsParser(ProtegoRobotParser):
    """Protego, where of two rules that match the one with more octets wins as it is written (RFC 9309, 2.2.2).

    Protego counts them escaped, so that ``?`` is three and ``Allow: /*?`` would win over ``Disallow: /ab/``. Its rules
    are private; `tests/test_properties.py` fails if this stops working.
    """

    def __init__(self, robotstxt_body: bytes, spider: Spider | None = None) -> None:
        super().__init__(robotstxt_body, spider)
        for written, pattern in self.rp._url_patterns.items():
            if pattern is not None:
                pattern.priority = len(written)
        for rules in self.rp._user_agents.values():
            rules.finalize_rules()


class Rules:
    """What may be fetched from one origin: what *parser* allows; without one, all, unless there is a *refusal*."""

    def __init__(self, parser: RobotParser | None = None, refusal: str = "", *, is_offline: bool = False) -> None:
        self.parser = parser
        self.refusal = refusal
        self.is_offline = is_offline


class PoliteRobotsMiddleware(RobotsTxtMiddleware):
    """Obeys robots.txt and its `Crawl-delay`.

    - 2xx: the rules for our product token, in the first *max_bytes* bytes. A page of HTML is no robots.txt: all may.
    - 4xx (429 was asked again before), a redirect that leads nowhere, in a circle or too far: all may.
    - 5xx, any failure, a body that was cut: nothing may.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        settings = crawler.settings
        self._load_parser = load_object(settings["ROBOTSTXT_PARSER"])
        self._longest_delay = settings.getfloat("TINYCRAWL_CRAWL_DELAY_MAX")
        self._max_bytes = settings.getint("TINYCRAWL_ROBOTSTXT_MAXSIZE")
        self._max_lines = settings.getint("TINYCRAWL_ROBOTSTXT_MAX_LINES")
        self._max_redirects = settings.getint("REDIRECT_MAX_TIMES")
        self._agent = settings["ROBOTSTXT_USER_AGENT"] or product_token(settings["USER_AGENT"])
        self._origins: dict[str, asyncio.Future[Rules]] = {}
        crawler.signals.connect(self._headers_received, signal=signals.headers_received)
        crawler.signals.connect(self._bytes_received, signal=signals.bytes_received)

    async def process_request(self, request: Request, spider: Spider | None = None) -> None:
        if request.meta.get("dont_obey_robotstxt"):
            return
        parts = urlsplit(request.url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._origins:
            self._origins[origin] = asyncio.ensure_future(self._fetch(origin))
        rules = await asyncio.shield(self._origins[origin])
        if rules.refusal:
            raise RobotsRefusal(rules.refusal, is_offline=rules.is_offline)
        if rules.parser is not None and not rules.parser.allowed(request.url, self._agent):
            self._stats.inc_value("robotstxt/forbidden")
            raise RobotsRefusal(DISALLOWED)

    async def _fetch(self, origin: str) -> Rules:
        url = f"{origin}/robots.txt"
        cookies: tuple[Any, ...] = ()
        asked: list[tuple[str, tuple[Any, ...]]] = []
        while (url, cookies) not in asked and len(asked) <= self._max_redirects:
            asked.append((url, cookies))
            request = Request(
                url,
                priority=self.DOWNLOAD_PRIORITY,
                meta={"dont_obey_robotstxt": True, "dont_redirect": True, "is_robots": True, "chain_cookies": cookies},
                callback=NO_CALLBACK,
            )
            self._stats.inc_value("robotstxt/request_count")
            try:
                response = await self.crawler.engine.download_async(request)
            except Unsent:
                del self._origins[origin]
                raise
            except Exception as error:  # noqa: BLE001  # whatever it was, the file could not be had: recorded as such
                return self._unreachable(origin, *reason_of(error))
            if not 300 <= response.status < 400:
                return self._read(origin, response)
            cookies = response.meta.get("cookies_after", ())
            try:
                url = join_location(url, response.headers.get("Location") or b"")
            except ValueError:
                break
        return Rules()

    def _unreachable(self, origin: str, cause: str, is_offline: bool = False) -> Rules:
        if cause == PRIVATE_ADDRESS:
            return Rules(refusal=cause)
        logger.warning("%s/robots.txt could not be had (%s): nothing is fetched from there", origin, cause)
        return Rules(refusal=f"{UNREACHABLE}: {cause}", is_offline=is_offline)

    def _read(self, origin: str, response: Response) -> Rules:
        if isinstance(response, FailedResponse):
            return self._unreachable(origin, response.reason, response.is_offline)
        if response.status >= 500:
            return self._unreachable(origin, f"http {response.status}")
        if response.status >= 300 or looks_like_html(response.body):
            return Rules()
        body = first_lines(response.body, self._max_bytes, self._max_lines)
        parser: RobotParser = build_from_crawler(self._load_parser, self.crawler, own_groups(body, self._agent))
        delay = parser.crawl_delay(self._agent)
        if delay:
            lengthen_delay(self.crawler, Request(origin), min(delay, self._longest_delay))
        return Rules(parser)

    def _headers_received(self, headers: Headers, body_length: int, request: Request, spider: Spider) -> None:
        """Read no more of a robots.txt than is looked at, instead of refusing one beyond DOWNLOAD_MAXSIZE.

        What is compressed is decoded whole or not at all, so it keeps that limit.
        """
        if "is_robots" not in request.meta:
            return
        if "Content-Encoding" in headers:
            request.meta.pop("robots_bytes", None)  # of an earlier try
            request.meta.pop("download_maxsize", None)
        else:
            request.meta["robots_bytes"] = request.meta["download_maxsize"] = 0

    def _bytes_received(self, data: bytes, request: Request, spider: Spider) -> None:
        if "robots_bytes" in request.meta:
            request.meta["robots_bytes"] += len(data)
            if request.meta["robots_bytes"] > self._max_bytes:
                raise StopDownload(fail=False)


def first_lines(body: bytes, size: int, lines: int = 0) -> bytes:
    """The whole lines in the first *size* bytes of *body*: half a line may be a rule that forbids everything.

    No more than the first *lines* of them; 0 is no limit.

    >>> first_lines(b"Disallow: /a\\nDisallow: /b\\n", 23)
    b'Disallow: /a\\n'
    """
    if len(body) > size:
        body = body[:size]
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    if lines and body.count(b"\n") + body.count(b"\r") > lines:
        return b"".join(body.splitlines(keepends=True)[:lines])
    return body


def own_groups(body: bytes, agent: str) -> bytes:
    """Rename the groups of *body* so that a parser takes those for the product token *agent* and no others for ours.

    RFC 9309, 2.2.1: the whole token must match, in any case; a version may follow it. Protego also takes ``tiny`` for
    ``tinycrawl``, and does not know ``tinycrawl/0.1`` again. What is not ASCII is escaped: Scrapy drops what is not
    UTF-8, and ``/\xe9`` would forbid everything.

    >>> own_groups(b"User-agent: Tinycrawl/0.1\\nUser-agent: tiny\\nUser-agent: *", "tinycrawl")
    b'User-agent: tinycrawl\\nUser-agent: -\\nUser-agent: *'
    """
    own = re.compile(re.escape(agent.encode()) + rb"(?![\w-])", re.IGNORECASE)

    def rename(match: re.Match[bytes]) -> bytes:
        if own.match(match[2]):
            return match[1] + agent.encode()
        return match[1] + (b"*" if _ANY_AGENT.fullmatch(match[2]) else b"-")

    body = _NON_ASCII.sub(lambda match: b"%%%02X" % match[0][0], body.removeprefix(codecs.BOM_UTF8))
    return _USER_AGENT_LINE.sub(rename, body)


def product_token(user_agent: str) -> str:
    """The name by which robots.txt knows us (RFC 9309, 2.2.1).

    >>> product_token("tinycrawl/0.1 (+https://example.org/bot)")
    'tinycrawl'
    """
    match = re.match(r"[A-Za-z_-]+", user_agent.strip())
    return match[0] if match else "*"
