"""Progress: a line on stderr while a terminal is attached, else a line in the log every minute."""

import logging
import sys
from collections import Counter, deque
from time import monotonic
from typing import Any

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import AsyncioLoopingCall, create_looping_call
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from tinycrawl.politeness import delay_at

logger = logging.getLogger(__name__)

_ON_TERMINAL = 0.5  # seconds between two looks
_IN_LOG = 60.0
_PACE_SECONDS, _PACE_URLS = 60.0, 10  # what the pace is measured over, whichever is longer
_SURE_SECONDS, _SURE_URLS = 2.0, 3  # before that it says nothing
_COUNTING = 1 / 200  # of the time is spent on counting what is left of each host


class Pace:
    """How many URLs a second are settled, of late."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def look(self, now: float, processed: int) -> float | None:
        """The pace at the time *now*, with so many URLs settled by then; None while it is too early to tell.

        >>> pace = Pace()
        >>> pace.look(100.0, 7), pace.look(101.0, 10), pace.look(104.0, 11)
        (None, None, 1.0)
        """
        looks = self._looks
        if not looks or looks[-1][1] != processed:
            looks.append((now, processed))
        while len(looks) > 1 and now - looks[1][0] >= _PACE_SECONDS and processed - looks[1][1] >= _PACE_URLS:
            looks.popleft()
        seconds, urls = now - looks[0][0], processed - looks[0][1]
        return urls / seconds if seconds >= _SURE_SECONDS and urls >= _SURE_URLS else None


class Progress:
    """Says how far the crawl is: the level, how many of its known URLs are done, pages, URLs, the pace, the time left.

    The time left is for the level, since nobody knows the next one: by the pace, or by the delay of the host with most
    to come, whichever is longer.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.bar: Any = None
        self._pace: Pace | None = None  # not measured before the first request: what is read back says nothing
        self._hosts: Counter[str] = Counter()
        self._count_at = 0.0
        self._counted_level = -1

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "Progress":
        if not hasattr(crawler.spider, "serial"):
            raise NotConfigured("only crawls have progress")
        extension = cls(crawler)
        crawler.signals.connect(extension.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(extension.spider_closed, signal=signals.spider_closed)
        crawler.signals.connect(extension.begin, signal=signals.request_reached_downloader)
        return extension

    def spider_opened(self, spider: Spider) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            self.bar = tqdm(bar_format="{desc}", file=sys.stderr, leave=False, dynamic_ncols=True)
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

    def begin(self) -> None:
        """The first request is sent: from now on there is a pace."""
        self.crawler.signals.disconnect(self.begin, signal=signals.request_reached_downloader)
        self._pace = Pace()
        self._look()

    def show(self) -> None:
        text = self._text()
        if self.bar is None:
            logger.info("%s", text)
        else:
            self.bar.set_description_str(text)

    def _text(self) -> str:
        spider: Any = self.crawler.spider
        serial, saved = spider.serial, spider.publisher.saved
        if serial.is_replaying:
            return f"{saved} pages read back"
        size, pace = serial.level_size, self._look()
        level = f"level {max(serial.level, 0)}: {size - serial.level_left} of {size}"
        seconds = None if pace is None else self._seconds_left(pace)
        if seconds is not None:
            level += f" ({tqdm.format_interval(seconds)} left)"
        text = f"{level}, {saved} pages, {serial.pending} URLs pending, {serial.processed} processed"
        return text if pace is None else f"{text}, {pace:.2f}/s"

    def _look(self) -> float | None:
        spider: Any = self.crawler.spider
        return None if self._pace is None else self._pace.look(monotonic(), spider.serial.processed)

    def _seconds_left(self, pace: float) -> float | None:
        """Until the level is done; None where that cannot be told."""
        spider: Any = self.crawler.spider
        serial = spider.serial
        is_rebuilt = spider.storage is not None and spider.storage.cache is not None  # much is not asked for again
        if serial.last_in_first_out or is_rebuilt or not serial.level_left:
            return None
        most = serial.level_left if serial.remaining is None else min(serial.level_left, serial.remaining)
        hosts = self._left_by_host()
        delays = [min(left, most) * delay_at(self.crawler, host) for host, left in hosts.items()]
        return float(max(most / pace, *delays))

    def _left_by_host(self) -> Counter[str]:
        """As it was a moment ago: a level may have a million URLs."""
        spider: Any = self.crawler.spider
        serial, start = spider.serial, monotonic()
        if start >= self._count_at or serial.level != self._counted_level:
            self._hosts, self._counted_level = serial.left_by_host(), serial.level
            self._count_at = start + (monotonic() - start) / _COUNTING
        return self._hosts
