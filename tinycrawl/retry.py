"""Asking again: faults as Scrapy does, 429 and 503 with patience."""

from email.utils import parsedate_to_datetime
from time import time
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.retry import RetryMiddleware, get_retry_request
from scrapy.http import Response
from scrapy.settings import BaseSettings

from tinycrawl.failures import is_final
from tinycrawl.politeness import delay_of, push_back

OVERLOADED = frozenset({429, 503})


class PatientRetryMiddleware(RetryMiddleware):
    """429, 503 and any other redirect or error with `Retry-After` push the host's next request back.

    The wait is what `Retry-After` says, at most *longest_wait* seconds; a 429 or 503 without it waits for the host's
    delay, doubled each time. These two have a budget of their own. A certificate that is refused is not asked for
    again.
    """

    def __init__(self, settings: BaseSettings, patience: int, longest_wait: float) -> None:
        super().__init__(settings)
        self.patience = patience
        self.longest_wait = longest_wait

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "PatientRetryMiddleware":
        settings = crawler.settings
        middleware = cls(
            settings, settings.getint("TINYCRAWL_PATIENCE"), settings.getfloat("TINYCRAWL_RETRY_AFTER_MAX")
        )
        middleware.crawler = crawler
        crawler.signals.connect(middleware.response_downloaded, signal=signals.response_downloaded)
        return middleware

    def response_downloaded(self, response: Response, request: Request, spider: Spider) -> None:
        """Push back here: before `process_response` the downloader would send what waits in the host's slot."""
        if response.status < 300:
            return
        wait = retry_after(response.headers.get("Retry-After"))
        if wait is None and response.status in OVERLOADED:
            wait = delay_of(self.crawler, request) * 2 ** request.meta.get("overloaded_times", 0)
        if wait is not None:
            push_back(self.crawler, request, min(wait, self.longest_wait))

    def process_response(
        self, request: Request, response: Response, spider: Spider | None = None
    ) -> Request | Response:
        if response.status not in OVERLOADED or request.meta.get("dont_retry", False):
            return super().process_response(request, response)
        times = request.meta.get("overloaded_times", 0)
        if times >= self.patience:
            return response
        assert self.crawler.spider is not None
        again = get_retry_request(
            request,
            spider=self.crawler.spider,
            reason=f"{response.status} overloaded",
            max_retry_times=request.meta.get("retry_times", 0) + 1,  # this budget is not that one
            priority_adjust=self.priority_adjust,
        )
        assert again is not None
        again.meta["retry_times"] -= 1
        again.meta["overloaded_times"] = times + 1
        return again

    def process_exception(
        self, request: Request, exception: Exception, spider: Spider | None = None
    ) -> Request | Response | None:
        if is_final(exception):
            return None
        return super().process_exception(request, exception)


def retry_after(value: bytes | None, now: float | None = None) -> float | None:
    """Seconds to wait by a `Retry-After` header (RFC 9110, 10.2.3): a number or a date; None if it says neither.

    >>> retry_after(b"3"), retry_after(b" 0 "), retry_after(b"-5"), retry_after(b"soon"), retry_after(None)
    (3.0, 0.0, None, None, None)
    >>> retry_after(b"Thu, 01 Jan 1970 00:01:40 GMT", now=40.0)
    60.0
    """
    text = (value or b"").decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        date: Any = parsedate_to_datetime(text)
        return max(0.0, float(date.timestamp()) - (time() if now is None else now))
    except (ValueError, TypeError, OverflowError):
        return None
