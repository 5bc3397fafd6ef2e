"""HTTP downloads without requests that nobody asked for."""

from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.crawler import Crawler


class PoliteHTTPHandler(HTTP11DownloadHandler):
    """Scrapy's handler, but a GET whose kept-alive connection died is not repeated behind our back.

    Twisted repeats it within a millisecond, outside the downloader slots and RetryMiddleware. The pool is a private
    attribute of the handler; `tests/test_politeness.py` counts the requests and fails if this stops working.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._pool.retryAutomatically = False
