"""SafeLogs: what a site sends reaches no terminal and no log as it is, and cannot forge a line of the log."""

import logging

from scrapy.crawler import Crawler

from tinycrawl.arguments import one_line


class SafeFormatter(logging.Formatter):
    """Formats as another formatter does, with what is not printable escaped and all lines but the first indented."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        text = self.formatter.format(record)
        if text.isprintable():
            return text
        return "\n    ".join(one_line(line) for line in text.split("\n"))


class SafeLogs:
    """Puts a SafeFormatter around the formatter of each handler of the log; Scrapy has made them before.

    Scrapy sets LOG_LEVEL on its handler alone. What no handler wants of its core, two lines for each page, is not
    made any more.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "SafeLogs":
        handlers = logging.getLogger().handlers
        logging.getLogger("scrapy.core").setLevel(min((handler.level for handler in handlers), default=logging.NOTSET))
        for handler in handlers:
            formatter = handler.formatter or logging.Formatter()
            if not isinstance(formatter, SafeFormatter):
                handler.setFormatter(SafeFormatter(formatter))
        return cls()
