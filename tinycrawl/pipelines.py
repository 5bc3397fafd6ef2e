"""PageDirectoryPipeline: assigns docIDs, calls pagedir."""

import asyncio
from typing import Any

from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem

from tinycrawl.content import XHTML_TYPE
from tinycrawl.exceptions import DirectoryError
from tinycrawl.exporters import wants_title
from tinycrawl.items import Page, Unsaved
from tinycrawl.markup import as_html, read_title


class PageDirectoryPipeline:
    """Writes what was settled, in its order: the only place that does.

    A page that cannot be stored ends the crawl. An exception raised here would only be logged, and CloseSpider has no
    effect in a pipeline, so the spider is told.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self._turn = 1
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._skipped: set[int] = set()
        self._wants_title = wants_title(crawler.settings)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "PageDirectoryPipeline":
        pipeline = cls(crawler)
        crawler.signals.connect(pipeline.item_dropped, signal=signals.item_dropped)
        crawler.signals.connect(pipeline.item_dropped, signal=signals.item_error)
        return pipeline

    def open_spider(self) -> None:
        spider: Any = self.crawler.spider
        self.spider = spider
        if hasattr(spider, "open_directory"):  # not so in `scrapy shell` and `scrapy fetch`
            spider.open_directory()

    def close_spider(self) -> None:
        if hasattr(self.spider, "close_directory"):
            self.spider.close_directory()

    async def process_item(self, item: Any) -> Any:
        """Write *item* when it is its turn.

        Items of two responses take their ways through Scrapy side by side, so one may come before its predecessor,
        which is then on its way here too: nothing here waits for the network.
        """
        order = ItemAdapter(item)["order"]
        if order != self._turn:
            turn = self._waiting[order] = asyncio.get_running_loop().create_future()
            await turn
            del self._waiting[order]
        try:
            return self._write(item)
        except DropItem:
            raise
        except Exception as error:
            self.spider.abort(f"internal error: {error!r}")  # else Scrapy would log it and end as if all were well
            raise
        finally:
            self._end_turn()

    def item_dropped(self, item: Any) -> None:
        """Another pipeline kept an item from us: the directory would lack it."""
        order = ItemAdapter(item).get("order", 0)
        if order >= self._turn and order not in self._waiting:
            self.spider.abort("an item was dropped by another pipeline, which must come after this one")
            self._skipped.add(order)
            if order == self._turn:
                self._end_turn()

    def _end_turn(self) -> None:
        self._turn += 1
        while self._turn in self._skipped:
            self._turn += 1
        if self._turn in self._waiting:
            self._waiting[self._turn].set_result(None)

    def _write(self, item: Any) -> Any:
        adapter = ItemAdapter(item)
        if self._wants_title and isinstance(item, Page):
            item.title = read_title(as_html(item.text) if item.content_type == XHTML_TYPE else item.text)
        if adapter.get("doc_id"):  # replayed: it has been written before
            return item
        writer = self.spider.writer
        if writer is None:
            raise DropItem("the crawl is over", log_level="DEBUG")
        try:
            for record in adapter["before"]:
                writer.settle(record)
            if isinstance(item, Page):
                adapter["doc_id"] = writer.publish(adapter["record"], adapter["held"])
            else:
                writer.settle(adapter["record"])
        except DirectoryError as error:
            self.spider.abort(str(error))
            raise DropItem(str(error), log_level="DEBUG") from error
        if isinstance(item, Unsaved):
            raise DropItem(item.record["reason"], log_level="DEBUG")
        return item
