"""The spider `site`: arguments in, requests and Pages out."""

import asyncio
import os
from collections.abc import AsyncIterator, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from twisted.python.failure import Failure

import tinycrawl.settings as project
from tinycrawl.cache import CachedResponse
from tinycrawl.content import HTML_TYPES, SAVED_STATUS, SNIFF_BYTES, SNIFFED_TYPES, looks_like_html, media_type
from tinycrawl.dupefilter import key_of
from tinycrawl.events import EventLog
from tinycrawl.exceptions import CrawlFailed, DirectoryError, RunSkipped, TinycrawlError
from tinycrawl.failures import FailedResponse
from tinycrawl.items import Page, Record
from tinycrawl.markup import decode_body, is_ascii_superset, refresh_target, robots_header
from tinycrawl.pagedir import PageWriter
from tinycrawl.plan import Plan, make_plan
from tinycrawl.publisher import EMPTY, NOT_HTML, Fetched, NoRoom, Options, Publisher
from tinycrawl.robots import product_token
from tinycrawl.scheduler import LevelScheduler
from tinycrawl.serial import Answer, Ask, Link, SerialCrawl
from tinycrawl.storage import Storage
from tinycrawl.urls import host_of, join_location, join_url

_KEPT_BYTES, _KEPT_PAGES = 256 * 1024, 32  # what waits in memory too: pages up to this size, of the next ranks
_DISK_THREADS = 4  # pages that are flushed at a time: file systems do several almost as fast as one
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class SiteSpider(Spider):
    """Crawls one site from *seed*, *depth* links deep. The README has the arguments."""

    name = "site"

    plan: Plan
    serial: SerialCrawl
    publisher: Publisher
    writer: PageWriter | None = None
    failure = ""  # why the crawl failed as a whole
    limit = ""  # the setting that ended the crawl early
    skipped = ""  # why there was nothing to do: the last run still works
    storage: Storage | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> "SiteSpider":
        if "SCRAPY_CHECK" in os.environ:  # `scrapy check` need not name a site: contracts bring their own
            kwargs = {"seed": "http://127.0.0.1/", "depth": 1, **kwargs}
        has_jobdir = bool(crawler.settings["JOBDIR"])
        plan = make_plan(crawler.settings, kwargs)
        spider = super().from_crawler(crawler, *args)
        spider._prepare(plan)
        if has_jobdir:
            spider.logger.warning("JOBDIR is not needed and not used: the page directory is all that resuming takes")
        crawler.signals.connect(spider._fail_on_error, signal=signals.spider_error)
        return spider

    def _fail_on_error(self, failure: Failure) -> None:
        """Scrapy logs an exception in a callback and goes on. Nothing that is lost may end as complete."""
        self.abort(f"internal error: {failure.value!r}")

    def _prepare(self, plan: Plan) -> None:
        settings = self.settings
        self.plan = plan
        self.serial = SerialCrawl(
            ranks=dict[Hashable, int](),
            key=key_of,
            refusal=lambda link, url: self.publisher.redirect_refusal(link, url),
            host=host_of,
            discard=_drop,
            ahead=settings.getint("TINYCRAWL_AHEAD"),
            slack=settings.getint("CONCURRENT_REQUESTS"),
            max_redirects=settings.getint("REDIRECT_MAX_TIMES"),
            last_in_first_out=plan.arguments.order == "depth-first",
            outage_after=settings.getint("TINYCRAWL_OUTAGE_AFTER"),
            lifeline=join_url(plan.arguments.seed, "/robots.txt") or "",
        )
        self.serial.remaining = plan.arguments.max_pages
        options = Options(
            robots_name=product_token(settings["USER_AGENT"]),
            obey_meta=settings.getbool("TINYCRAWL_META_ROBOTS"),
            follow_nofollow=settings.getbool("TINYCRAWL_FOLLOW_NOFOLLOW"),
            max_links=settings.getint("TINYCRAWL_MAX_LINKS"),
            max_bytes=settings.getint("TINYCRAWL_MAX_BYTES"),
        )
        self.publisher = Publisher(plan, self.serial, options)
        self._options = options
        self._publishing = False
        self._has_begun = False  # what the directory holds has been read
        self._is_recalled = False  # it was finished before, and nothing of it was looked at again but the records
        self._disk = ThreadPoolExecutor(_DISK_THREADS, thread_name_prefix="disk")
        self._all_utf8 = bool(settings["TINYCRAWL_ENCODING"])

    # Beginning and end

    def open_directory(self) -> None:
        """Lock the page directory; called by the pipeline. On failure the crawl ends before its first request."""
        self.logger.info("Page directory: %s", self.plan.directory)
        try:
            self.storage = Storage(self.plan, sync=self.settings.getbool("TINYCRAWL_SYNC"))
            self.writer = self.storage.writer
            self.publisher.event = EventLog(self.plan.arguments.events)
        except RunSkipped as error:
            self.skipped, self.serial.is_stopped = str(error), True
            self.logger.warning("Skipped: %s", error)
        except TinycrawlError as error:
            self.abort(str(error))

    def close_directory(self) -> None:
        """Write how the crawl ended; called by the pipeline when everything has been taken in."""
        try:
            if isinstance(self.publisher.event, EventLog):
                self.publisher.event.close()
        except CrawlFailed as error:
            self.abort(str(error))
        if self.storage is None or self.writer is None:
            return
        self._disk.shutdown()
        writer, self.writer = self.writer, None
        try:
            self.publisher.saved = writer.saved
            if not self._has_begun or self._is_recalled:  # refused, stopped while it was read, finished before
                self.storage.close(writer.previous_end)
                return
            if self.ending == "complete":
                for record in self.publisher.refusals(self.plan.arguments.depth):
                    writer.settle(record)
            else:
                writer.forget()
            is_done = self.ending == "complete" or self.serial.remaining == 0
            end = {"end": self.ending, "saved": writer.saved, **self.plan.limits}
            if self.limit == "TINYCRAWL_MAX_BYTES":  # there is no more to come, until it is larger
                end["limit"] = self.limit
            self.storage.close(end, is_done=is_done)
        except DirectoryError as error:
            self.abort(str(error))

    def answer_from_cache(self, ask: Ask) -> Answer | None:
        """What an earlier crawl got, where the directory is built anew; asked by CacheMiddleware."""
        writer = self.writer
        if self.storage is None or self.storage.cache is None or writer is None:
            return None
        try:
            return self.storage.cache.answer(ask, lambda *page: writer.hold(writer.draft(*page)))
        except DirectoryError as error:
            self.abort(str(error))
            return Answer(str(error))

    @property
    def ending(self) -> str:
        """How the crawl ended: complete, stopped with something left to do, or failed."""
        if self.failure:
            return "failed"
        if self.skipped:
            return "skipped"
        return "stopped" if not self._has_begun or self.limit or self.serial.has_more() else "complete"

    @property
    def exit_status(self) -> int:
        """0 complete, 1 failed, 3 stopped early, 4 skipped."""
        if self.ending in ("stopped", "skipped"):
            return 3 if self.ending == "stopped" else 4
        is_failure = self.plan.arguments.strict and bool(self.publisher.failed)
        return int(self.ending == "failed" or self.has_lost_feed or is_failure)

    @property
    def has_lost_feed(self) -> bool:
        """Could a feed not be written? Scrapy logs that, and ends as if all were well."""
        stats, stores_empty = self.crawler.stats.get_stats(), self.settings.getbool("FEED_STORE_EMPTY")
        feeds = [
            feed for feed in self.settings.getdict("FEEDS").values() if feed.get("store_empty", stores_empty)
        ]  # of the others a filter may have left nothing
        stored = sum(count for name, count in stats.items() if name.startswith("feedexport/success_count/"))
        has_failed = any(name.startswith("feedexport/failed_count/") for name in stats)
        return has_failed or (stored < len(feeds) and self.publisher.saved > 0)

    def abort(self, message: str) -> None:
        """End the crawl as failed."""
        if not self.failure:
            self.failure = message
            self.logger.error("The crawl failed: %s", message)
        self.serial.is_stopped = True

    # Requests

    async def start(self) -> AsyncIterator[Any]:
        if self.serial.is_stopped:
            return
        if self.storage is not None and self.storage.was_complete and not self._has_listeners():
            self.publisher.recall(self.storage.writer.records())
            self._has_begun = self._is_recalled = True
            return
        seed = self.publisher.seed(self.plan.arguments.seed)
        records = self.writer.records() if self.writer is not None else iter(())
        first = next(records, None)
        if first is None:
            self._has_begun = True
            yield self._request_to(seed)
            return
        self.serial.push(seed)
        self.serial.is_replaying = True
        for count, record in enumerate(chain([first], records)):
            page = self._replay(record)
            if page is not None:
                await self._emit(page)
            elif not count % 100:
                await asyncio.sleep(0)
            if self.failure:
                return
        self.serial.is_replaying = False
        self._has_begun = True

    def _has_listeners(self) -> bool:
        """Does anybody but us want the pages of a crawl that was finished before?"""
        settings = self.settings
        return (
            bool(settings.getdict("FEEDS"))
            or self.plan.arguments.events is not None
            or any(settings.getdict(name) != getattr(project, name) for name in ("ITEM_PIPELINES", "EXTENSIONS"))
        )

    async def _emit(self, page: Page) -> None:
        """Send a replayed page through the pipelines.

        When Scrapy 2.19 is told to stop while an item of `start` is on its way, it waits for that item, but nobody
        tells it that the wait is over: so this does.
        """
        scraper = self.crawler.engine.scraper
        try:
            await scraper.start_itemproc_async(page, response=None)
        finally:
            scraper._check_if_closing()

    def _replay(self, record: Record) -> Page | None:
        """Settle again what the directory holds. Its links go straight into the frontier."""
        assert self.writer is not None
        try:
            page, links = self.publisher.replay(record, self.writer.read_body)
        except (ValueError, KeyError, TypeError) as error:
            self.abort(
                f"page directory {self.plan.directory} cannot be continued: its record of {record['url']}"
                f" does not fit ({error}); fresh=1 discards it"
            )
            return None
        except TinycrawlError as error:
            self.abort(str(error))
            return None
        for link in links:
            self.serial.push(link)
        return page

    def _request_to(self, link: Link) -> Request:
        """The request that takes *link* through Scrapy's middlewares into the frontier."""
        return Request(link.url, callback=self.parse, meta={"link": link, "verbatim_url": True})

    def request_for(self, ask: Ask) -> Request:
        """The request that is sent. Any answer comes to `parse`, with redirects not followed and failures as such."""
        return Request(
            ask.url,
            callback=self.parse,
            meta={
                "ask": ask,
                "link": ask.walks[0].link if ask.walks else None,
                "depth": ask.depth,
                "chain_cookies": ask.cookies,
                "dont_redirect": True,
                "verbatim_url": True,  # a Request would escape more than the site published
                "handle_httpstatus_all": True,
                "dont_obey_robotstxt": ask.is_probe,
            },
            dont_filter=True,
        )

    def is_requestable(self, link: Link, url: str) -> bool:
        return self.publisher.redirect_refusal(link, url) is None

    # Answers

    def parse(self, response: Response) -> Iterator[Any]:
        """Take in an answer, and yield what can be published now: Pages, and requests for the links on them.

        @demo letters/A.html
        @returns items 1 1
        @returns requests 2 2
        @scrapes url depth body
        """
        ask = response.meta.get("ask")
        if ask is None:  # not asked by a crawl: `scrapy check`, `scrapy parse`
            ask = self._adopt(response.url)
        else:
            scheduler = self.crawler.engine.scheduler
            if isinstance(scheduler, LevelScheduler):
                scheduler.answered(ask)
            if isinstance(response, FailedResponse) and response.is_unsent:
                return iter(())
        answer = response.meta.pop("answer", None)
        self.serial.answer(ask, self._read_answer(ask, response) if answer is None else answer)
        if self.serial.is_outage and not self.serial.is_stopped:
            self._stop_for_outage()
        return self._publish()

    async def receive(self, ask: Ask, response: Response) -> Answer:
        """What *response* says, its page put into a hidden file; asked by ReceiveMiddleware.

        The disk is waited for here, not in the callback: answers that need none may then overtake.
        """
        answer = self._read_answer(ask, response)
        page, writer = answer.outcome, self.writer
        if not isinstance(page, Fetched) or page.body is None or page.held is not None or writer is None:
            return answer  # no page, or one of an earlier crawl
        try:
            draft = writer.draft(ask.url, ask.depth, page.body)
            writing = asyncio.get_running_loop().run_in_executor(self._disk, draft.write)
            await asyncio.wait([writing])
            page.held = writer.hold(draft, writing.result)
            if self.storage is not None and self.storage.cache is not None:
                self.storage.cache.learn(page.held)
        except DirectoryError as error:
            self.abort(str(error))
            return answer
        if len(page.body) > _KEPT_BYTES or not self.serial.is_soon(ask, _KEPT_PAGES):
            page.body = None  # it is read again when its turn comes
        return answer

    def _publish(self) -> Iterator[Any]:
        """Publish while there is something. An answer that arrives meanwhile is published here too, in its turn."""
        # Decided when the first item is wanted, not in parse(): two answers may come before that.
        if self._publishing or self.serial.is_stopped:
            return
        self._publishing = True
        try:
            for settled in self.serial.publish():
                item, links = self.publisher.publish(settled)
                if self.storage is not None:
                    self.storage.compare(item)
                yield item
                for link in links:
                    yield self._request_to(link)
                if self.serial.is_stopped:
                    break
        except NoRoom:
            self.limit, self.serial.is_stopped = "TINYCRAWL_MAX_BYTES", True
        except TinycrawlError as error:
            self.abort(str(error))
        finally:
            self._publishing = False

    def _adopt(self, url: str) -> Ask:
        self.serial.push(self.publisher.seed(url))
        ask = self.serial.next_ask(lambda host: True, lambda: True)
        assert ask is not None
        return ask

    def _stop_for_outage(self) -> None:
        if self.publisher.saved:
            self.logger.error("No connection any more, to the seed's server neither: the network seems to be gone")
            self.serial.is_stopped = True
        else:
            self.abort(f"no connection {self.serial.outage_after} times in a row before the first page")

    def _read_answer(self, ask: Ask, response: Response) -> Answer:
        if isinstance(response, CachedResponse):
            return response.answer
        if isinstance(response, FailedResponse):
            return Answer(response.reason, is_offline=response.is_offline, is_live=False)
        if ask.is_probe:
            return Answer(None)
        status = response.status
        if status in REDIRECTS:
            cookies = response.meta.get("cookies_after", ())
            try:
                target = join_location(ask.url, response.headers.get("Location") or b"")
                shorter = self.publisher.drop_parameters(target)
                return Answer(None, shorter, "" if shorter == target else target, cookies)
            except ValueError as error:
                return Answer(str(error))
        if status not in SAVED_STATUS:
            return Answer(f"http {status}")
        return Answer(self._read_page(ask.url, response))

    def _read_page(self, url: str, response: Response) -> Fetched | str:
        """The page of a response to *url*, or the reason why it is none."""
        kind = media_type(response.headers.getlist("Content-Type"))
        body = response.body
        if kind not in HTML_TYPES and (kind not in SNIFFED_TYPES or (body and not looks_like_html(body[:SNIFF_BYTES]))):
            return f"{NOT_HTML}: {kind or 'no type'}"
        if not body:
            return EMPTY
        header = response.headers.get("Content-Type")
        text, charset = decode_body(body, header.decode("latin-1") if header else None)
        page = Fetched(response.status, kind, charset)
        page.is_utf8 = not is_ascii_superset(charset)
        if self._all_utf8 and not page.is_utf8:  # a page that says UTF-8 need not be valid, and may have a BOM
            page.is_utf8 = charset != "utf-8" or text.encode() != body
        if page.is_utf8:
            body = text.encode()
            if not body:  # it was nothing but a byte order mark
                return EMPTY
        if self._options.obey_meta:
            values = [value.decode("latin-1") for value in response.headers.getlist("X-Robots-Tag")]
            page.noindex, page.nofollow = robots_header(values, self._options.robots_name)
        page.refresh = self._read_refresh(url, response.headers.getlist("Refresh"))
        page.body = body
        return page

    def _read_refresh(self, url: str, values: Sequence[bytes]) -> str:
        """Where the first Refresh header that has an address leads."""
        for value in values:
            target = refresh_target(value.decode("latin-1"))
            if target:
                with suppress(ValueError):  # not to the web
                    return self.publisher.drop_parameters(join_location(url, target.encode("latin-1")))
                break
        return ""


def _drop(outcome: Any) -> None:
    if isinstance(outcome, Fetched):
        outcome.drop()
