"""robots.txt by RFC 9309: unreachable means that nothing may be fetched."""

import asyncio
import logging
import re
from urllib.parse import urlsplit

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.robotstxt import RobotParser
from scrapy.utils.misc import build_from_crawler, load_object

from tinycrawl.content import looks_like_html
from tinycrawl.failures import FailedResponse, reason_of
from tinycrawl.politeness import lengthen_delay
from tinycrawl.urls import join_location

logger = logging.getLogger(__name__)

DISALLOWED = "robots"
UNREACHABLE = "robots.txt unreachable"


class RobotsRefusal(IgnoreRequest):
    """Raised for a request that robots.txt does not permit. *is_offline*: it could not be had, nobody answered."""

    def __init__(self, reason: str, *, is_offline: bool = False) -> None:
        super().__init__(reason)
        self.is_offline = is_offline


class Rules:
    """What may be fetched from one origin: what *parser* allows; without one, all, unless there is a *refusal*."""

    def __init__(self, parser: RobotParser | None = None, refusal: str = "", *, is_offline: bool = False) -> None:
        self.parser = parser
        self.refusal = refusal
        self.is_offline = is_offline


class PoliteRobotsMiddleware(RobotsTxtMiddleware):
    """Obeys robots.txt and its `Crawl-delay`.

    - 2xx: the rules for our product token, in the first *max_bytes* bytes. A page of HTML is no robots.txt: all may.
    - 4xx (429 was asked again before), a redirect that leads nowhere or too far: all may.
    - 5xx, any failure, a body that was cut: nothing may.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        settings = crawler.settings
        self._load_parser = load_object(settings["ROBOTSTXT_PARSER"])
        self._longest_delay = settings.getfloat("TINYCRAWL_CRAWL_DELAY_MAX")
        self._max_bytes = settings.getint("TINYCRAWL_ROBOTSTXT_MAXSIZE")
        self._max_redirects = settings.getint("REDIRECT_MAX_TIMES")
        self._agent = settings["ROBOTSTXT_USER_AGENT"] or product_token(settings["USER_AGENT"])
        self._origins: dict[str, asyncio.Future[Rules]] = {}
        crawler.signals.connect(self._cut, signal=signals.bytes_received)

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
        for _ in range(self._max_redirects + 1):
            request = Request(
                url,
                priority=self.DOWNLOAD_PRIORITY,
                meta={"dont_obey_robotstxt": True, "dont_redirect": True, "robots_bytes": 0},
                callback=NO_CALLBACK,
            )
            self._stats.inc_value("robotstxt/request_count")
            try:
                response = await self.crawler.engine.download_async(request)
            except Exception as error:  # noqa: BLE001  # whatever it was, the file could not be had: recorded as such
                return self._unreachable(origin, *reason_of(error))
            if not 300 <= response.status < 400:
                return self._read(origin, response)
            try:
                url = join_location(url, response.headers.get("Location") or b"")
            except ValueError:
                break
        return Rules()

    def _unreachable(self, origin: str, cause: str, is_offline: bool = False) -> Rules:
        logger.warning("%s/robots.txt could not be had (%s): nothing is fetched from there", origin, cause)
        return Rules(refusal=f"{UNREACHABLE}: {cause}", is_offline=is_offline)

    def _read(self, origin: str, response: Response) -> Rules:
        if isinstance(response, FailedResponse):
            return self._unreachable(origin, response.reason, response.is_offline)
        if response.status >= 500:
            return self._unreachable(origin, f"http {response.status}")
        body = response.body[: self._max_bytes]
        if response.status >= 300 or looks_like_html(body):
            return Rules()
        parser: RobotParser = build_from_crawler(self._load_parser, self.crawler, body)
        delay = parser.crawl_delay(self._agent)
        if delay:
            lengthen_delay(self.crawler, Request(origin), min(delay, self._longest_delay))
        return Rules(parser)

    def _cut(self, data: bytes, request: Request, spider: Spider) -> None:
        """Stop reading a robots.txt that is larger than what is looked at."""
        if "robots_bytes" in request.meta:
            request.meta["robots_bytes"] += len(data)
            if request.meta["robots_bytes"] > self._max_bytes:
                raise StopDownload(fail=False)


def product_token(user_agent: str) -> str:
    """The name by which robots.txt knows us (RFC 9309, 2.2.1).

    >>> product_token("tinycrawl/0.1 (+https://example.org/bot)")
    'tinycrawl'
    """
    match = re.match(r"[A-Za-z_-]+", user_agent.strip())
    return match[0] if match else "*"
