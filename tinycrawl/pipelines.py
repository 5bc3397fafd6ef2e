"""PageDirectoryPipeline: assigns docIDs, calls pagedir."""

import logging
from typing import Any

from itemadapter import ItemAdapter
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem

from tinycrawl.exceptions import DirectoryError
from tinycrawl.items import Page, Unsaved

logger = logging.getLogger(__name__)


class PageDirectoryPipeline:
    """Writes what was settled, in the order in which it comes: the only place that does.

    A page that cannot be stored ends the crawl. An exception raised here would only be logged, and CloseSpider has no
    effect in a pipeline, so the spider is told.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "PageDirectoryPipeline":
        return cls(crawler)

    def open_spider(self) -> None:
        spider: Any = self.crawler.spider
        self.spider = spider
        spider.open_directory()

    def close_spider(self) -> None:
        self.spider.close_directory()

    def process_item(self, item: Any) -> Any:
        writer = self.spider.writer
        if writer is None:
            raise DropItem("the crawl is over", log_level="DEBUG")
        adapter = ItemAdapter(item)
        if adapter.get("doc_id"):  # replayed: it has been written before
            return item
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
