"""LevelScheduler: breadth-first, one crawl depth at a time."""

from collections import Counter
from heapq import heappop, heappush

from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler
from twisted.internet.defer import Deferred

from tinycrawl.dupefilter import RankDupeFilter
from tinycrawl.serial import Ask, SerialCrawl
from tinycrawl.urls import host_of


class LevelScheduler(Scheduler):
    """Hands out requests in canonical order, and those of a deeper level only when nothing is in flight.

    What to ask next is SerialCrawl's to say; this class turns its asks into requests, keeps retries, and hands out no
    more requests for a host than may be in flight: without a delay Scrapy's downloader would send two that come at
    once, whatever CONCURRENT_REQUESTS_PER_DOMAIN says. A host that is slow then cannot take all of
    CONCURRENT_REQUESTS, and a shutdown has little to wait for.

    With a spider that is not ours (``scrapy shell``) it is Scrapy's own scheduler.
    """

    serial: SerialCrawl | None = None

    def open(self, spider: Spider) -> Deferred[None] | None:
        self.serial = getattr(spider, "serial", None)
        self._request_for = getattr(spider, "request_for", None)
        self._retries: list[tuple[int, int, Request]] = []
        self._flying: Counter[str] = Counter()  # requests per host from next_request until their answer
        self._pushed = 0
        if self.serial is not None and isinstance(self.df, RankDupeFilter):
            self.df.ranks = self.serial.ranks
        assert self.crawler is not None
        settings = self.crawler.settings
        self._concurrency = settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        self._slots = settings.getdict("DOWNLOAD_SLOTS")
        return super().open(spider)

    def has_pending_requests(self) -> bool:
        if self.serial is None:
            return super().has_pending_requests()
        return not self.serial.is_stopped and (bool(self._retries) or self.serial.has_more() or len(self) > 0)

    def enqueue_request(self, request: Request) -> bool:
        if self.serial is None:
            return super().enqueue_request(request)
        ask = request.meta.get("ask")
        if ask is not None:  # a retry
            self.answered(ask)
            self._pushed += 1
            heappush(self._retries, (ask.rank, self._pushed, request))
            return True
        if "link" not in request.meta:  # not of the crawl: `scrapy check`
            return super().enqueue_request(request)
        if self.df.request_seen(request):
            self.df.log(request, self.spider)
            return False
        self.serial.push(request.meta["link"])
        return True

    def next_request(self) -> Request | None:
        if self.serial is None:
            return super().next_request()
        if self.serial.is_stopped:
            return None
        if len(self):
            return super().next_request()
        if self._retries and self._has_room(host_of(self._retries[0][2].url)):
            request = heappop(self._retries)[2]
            self._flying[host_of(request.url)] += 1
            return request
        ask = self.serial.next_ask(self._has_room, self._is_idle)
        if ask is None:
            return None
        self._flying[host_of(ask.url)] += 1
        assert self._request_for is not None
        request = self._request_for(ask)
        assert isinstance(request, Request)
        return request

    def answered(self, ask: Ask) -> None:
        """The request of *ask* has left the downloader."""
        host = host_of(ask.url)
        self._flying[host] -= 1
        if not self._flying[host]:
            del self._flying[host]

    def _has_room(self, host: str) -> bool:
        concurrency = int(self._slots.get(host, {}).get("concurrency", self._concurrency))
        return self._flying[host] < concurrency if concurrency else True

    def _is_idle(self) -> bool:
        """Nothing in flight, and every item and request of the pages so far has been taken in."""
        assert self.crawler is not None
        engine = self.crawler.engine
        return not engine.downloader.active and engine.scraper.slot is not None and engine.scraper.slot.is_idle()
