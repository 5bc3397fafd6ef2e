"""ReceiveMiddleware: has each answer read, and its page written, before it goes to the spider's callback."""

from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response


class ReceiveMiddleware:
    """The outermost downloader middleware. What it got is left in ``request.meta["answer"]``."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "ReceiveMiddleware":
        return cls(crawler)

    async def process_response(self, request: Request, response: Response, spider: Spider | None = None) -> Response:
        ours: Any = self.crawler.spider
        ask = request.meta.get("ask")
        if ask is not None and hasattr(ours, "receive"):
            response.request = request  # as Scrapy does later; it is what `meta` is taken from
            try:
                request.meta["answer"] = await ours.receive(ask, response)
            except Exception as error:
                ours.abort(f"internal error: {error!r}")  # else the crawl would wait for it for ever
                raise
        return response
