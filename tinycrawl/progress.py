"""Progress: a line on stderr while a terminal is attached, else a line in the log every minute."""

import logging
import sys
from typing import Any

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import AsyncioLoopingCall, create_looping_call
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

logger = logging.getLogger(__name__)

_ON_TERMINAL = 0.5  # seconds between two looks
_IN_LOG = 60.0


class Progress:
    """Says how far the crawl is: pages saved, the level, how many of its known URLs are done, pages per second."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.bar: Any = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "Progress":
        if not hasattr(crawler.spider, "serial"):
            raise NotConfigured("only crawls have progress")
        extension = cls(crawler)
        crawler.signals.connect(extension.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(extension.spider_closed, signal=signals.spider_closed)
        return extension

    def spider_opened(self, spider: Spider) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            self.bar = tqdm(unit=" pages", file=sys.stderr, leave=False, dynamic_ncols=True)
            root = logging.getLogger()
            level = min((handler.level for handler in root.handlers), default=logging.NOTSET)
            self.redirection = logging_redirect_tqdm()  # else log lines would break the bar
            self.redirection.__enter__()
            for handler in root.handlers:  # tqdm's own knows nothing of LOG_LEVEL, which Scrapy sets on its handler
                handler.setLevel(level)
        call = create_looping_call(self.show)
        assert isinstance(call, AsyncioLoopingCall)
        self.call = call
        self.call.start(_ON_TERMINAL if self.bar is not None else _IN_LOG, now=False)

    def spider_closed(self, spider: Spider) -> None:
        self.call.stop()
        if self.bar is not None:
            self.redirection.__exit__(None, None, None)
            self.bar.close()

    def show(self) -> None:
        spider: Any = self.crawler.spider
        serial, saved = spider.serial, spider.publisher.saved
        left = serial.level_left
        level = f"level {max(serial.level, 0)}: {serial.level_size - left} of {serial.level_size}"
        if self.bar is None:
            logger.info("%d pages saved, %s", saved, level)
            return
        self.bar.n = saved
        self.bar.set_description_str(level)
