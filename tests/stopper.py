"""An extension for tests: the crawl gets a signal at an item, a moment that no server can choose."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Self

from scrapy import signals

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class StopAtItem:
    """Sends SIGTERM to its own process when item STOP_AT_ITEM, from 1, has gone through the pipelines."""

    def __init__(self, left: int) -> None:
        self.left = left

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        extension = cls(crawler.settings.getint("STOP_AT_ITEM"))
        crawler.signals.connect(extension.item_scraped, signal=signals.item_scraped)
        return extension

    def item_scraped(self) -> None:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGTERM)
