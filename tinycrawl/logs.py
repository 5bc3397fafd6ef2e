"""SafeLogs: what a site sends reaches no terminal and no log as it is, and cannot forge a line; no secret does."""

import logging
from weakref import WeakSet

from scrapy import signals
from scrapy.crawler import Crawler

from tinycrawl.arguments import one_line
from tinycrawl.credentials import Mask


class SafeFormatter(logging.Formatter):
    """Formats as another formatter does, without the secrets of the crawls of this process.

    What is not printable is escaped, and all lines but the first are indented.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        text = self.formatter.format(record)
        for logs in list(_logs):
            text = logs.hide(text)
        if text.isprintable():
            return text
        return "\n    ".join(one_line(line) for line in text.split("\n"))


class SafeLogs:
    """Puts a SafeFormatter around the formatter of each handler of the log.

    Scrapy makes them before the crawl, and once more when it has read the spider's settings, after the extensions.

    Scrapy sets LOG_LEVEL on its handler alone. What no handler wants of its core, two lines for each page, is not
    made any more.
    """

    def __init__(self, hide: Mask) -> None:
        self.hide = hide
        _logs.add(self)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "SafeLogs":
        logs = cls(Mask(crawler.settings))
        logs.make_safe()
        crawler.signals.connect(logs.make_safe, signal=signals.spider_opened)
        return logs

    def make_safe(self) -> None:
        handlers = logging.getLogger().handlers
        logging.getLogger("scrapy.core").setLevel(min((handler.level for handler in handlers), default=logging.NOTSET))
        for handler in handlers:
            formatter = handler.formatter or logging.Formatter()
            if not isinstance(formatter, SafeFormatter):
                handler.setFormatter(SafeFormatter(formatter))


_logs: WeakSet[SafeLogs] = WeakSet()  # of the crawls of this process: they share the handlers
