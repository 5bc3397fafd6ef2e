"""Summary: what the crawl came to, for people on stderr and as one line of JSON at the end of the log."""

import json
import logging
import os
import sys
from collections import Counter
from contextlib import suppress
from shlex import quote
from time import monotonic
from typing import Any

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.settings import BaseSettings
from scrapy.utils.log import configure_logging

from tinycrawl.arguments import one_line
from tinycrawl.credentials import Mask

logger = logging.getLogger(__name__)


class Summary:
    """Always the last word of a crawl, however it ended."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.started = monotonic()
        self.is_said = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "Summary":
        if not hasattr(crawler.spider, "exit_status") or "SCRAPY_CHECK" in os.environ:
            raise NotConfigured("only crawls have a summary")
        extension = cls(crawler)
        crawler.signals.connect(extension.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(extension.spider_closed, signal=signals.spider_closed)
        crawler.signals.connect(extension.engine_stopped, signal=signals.engine_stopped)
        return extension

    def spider_opened(self, spider: Spider) -> None:
        self.started = monotonic()

    def spider_closed(self, spider: Any, reason: str) -> None:
        if reason == "closespider_timeout" and spider.ending == "stopped":
            spider.limit = "CLOSESPIDER_TIMEOUT"

    def engine_stopped(self) -> None:
        if self.is_said:
            return
        self.is_said = True
        facts = summarise(self.crawler.spider, monotonic() - self.started)
        if facts["reason"]:  # it may be the text of any exception
            facts["reason"] = Mask(self.crawler.settings)(facts["reason"])
        if sys.stderr is not None:  # closed by whoever started us
            with suppress(OSError):  # or whoever read it is gone, like a scrapyd that was killed
                print(in_words(facts), file=sys.stderr)
        log_facts(facts, self.crawler.settings)


def conclude(crawler: Crawler) -> None:
    """Say the last word of a crawl where it has not been said: a second signal ended it, or it could not begin."""
    summary = None
    with suppress(RuntimeError):  # there are no extensions yet
        summary = crawler.get_extension(Summary)
    if summary is not None:
        summary.engine_stopped()
    elif crawler.settings["LOG_FILE"]:
        log_facts(_without_crawl("failed", 1, "the crawl could not begin, see the log"), crawler.settings)


def log_refusal(settings: BaseSettings, message: str) -> None:
    """Put *message* and the facts into the log file, if there is one: a job of scrapyd has no other place for them."""
    if not settings["LOG_FILE"]:
        return
    settings = settings.copy()
    settings.set("LOG_LEVEL", "INFO", priority="cmdline")  # what was refused may be the level
    with suppress(OSError, LookupError, ValueError):  # or a file, an encoding or a format that cannot be used
        configure_logging(settings)  # type: ignore[arg-type]  # it wants no more than a BaseSettings
        logger.error("The crawl was refused: %s", message)
        log_facts(_without_crawl("refused", 2, message), settings)


def log_facts(facts: dict[str, Any], settings: BaseSettings) -> None:
    """Write the one line for machines; to a log file at every level, since it is how a job of scrapyd says its end."""
    if not settings["LOG_FILE"]:
        logger.info("%s", json.dumps(facts))
        return
    record = logger.makeRecord(logger.name, logging.INFO, __file__, 0, "%s", (json.dumps(facts),), None)
    for handler in logging.getLogger().handlers:
        handler.handle(record)


def _without_crawl(ending: str, exit_status: int, reason: str) -> dict[str, Any]:
    return {"ending": ending, "exit_status": exit_status, "reason": reason, "saved": 0, "failed": {}, "skipped": {}}


def summarise(spider: Any, elapsed: float) -> dict[str, Any]:
    """The facts of a crawl; *elapsed* in seconds."""
    publisher = spider.publisher
    saved = publisher.saved if spider.writer is None else spider.writer.saved  # not closed: a second signal
    return {
        "ending": spider.ending,
        "exit_status": spider.exit_status,
        "reason": spider.failure or spider.skipped or ("a feed could not be written" if spider.has_lost_feed else None),
        "seed": spider.plan.arguments.seed,
        **spider.plan.limits,
        "limit": spider.limit,
        "saved": saved,
        "failed": dict(publisher.failed.most_common()),
        "skipped": dict(publisher.skipped.most_common()),
        "links": publisher.links_seen,
        "broken": [{"url": url, "reason": reason, "parent": parent} for url, reason, parent in publisher.broken],
        "bytes": publisher.saved_bytes,
        "elapsed": round(elapsed, 3),
        "pages_per_second": round(saved / elapsed, 2) if elapsed else 0.0,
        "was_complete": bool(spider.storage and spider.storage.was_complete),
        "directory": str(spider.plan.directory),
    }


def in_words(facts: dict[str, Any]) -> str:
    """The summary for people."""
    if facts["ending"] == "failed" and not facts["saved"]:
        return one_line(f"tinycrawl: the crawl failed: {facts['reason']}")
    if facts["ending"] == "skipped":
        return one_line(f"tinycrawl: skipped: {facts['reason']}")
    if facts["was_complete"] and facts["ending"] == "complete":
        words = f"tinycrawl: complete already: {facts['saved']} pages; fresh=1 crawls again"
        return f"{words}\n  pages in  {facts['directory']}"
    ending = "stopped early, run it again to go on"
    if facts["ending"] == "failed":
        ending = f"the crawl failed: {facts['reason']}"
    elif facts["ending"] == "complete":
        ending = "complete"
        if facts["exit_status"]:
            ending += f", but {facts['reason'] or 'pages failed'}"
    elif facts["limit"]:
        ending = f"stopped at {facts['limit']}, a larger one goes on"
    elif facts["saved"] == facts["max_pages"]:
        ending = f"stopped at max_pages={facts['max_pages']}, a larger one goes on"
    rows = [f"tinycrawl: {ending}"]
    rows.append(f"  saved     {facts['saved']} pages, {facts['bytes']:,} bytes")
    for word in ("failed", "skipped"):
        counts: Counter[str] = Counter(facts[word])
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
        rows.append(f"  {word:<9} {counts.total()}" + (f" ({reasons})" if reasons else ""))
    broken = sum(facts["failed"].values())
    rows.append(f"  links     {facts['links']} seen" + (f", {broken} URLs broken" if broken else ""))
    for number, link in enumerate(facts["broken"]):
        found = f", found on {link['parent']}" if link["parent"] else ""
        rows.append(f"  {'' if number else 'broken':<9} {link['url']} ({link['reason']}){found}")
    if broken:
        more = f"and {broken - len(facts['broken'])} more; " if broken > len(facts["broken"]) else ""
        command = f"scrapy pages broken {quote(facts['directory'])}"
        rows.append(f"            {more}all, with every page that links to them: {command}")
    rows.append(f"  took      {facts['elapsed']:.1f} s, {facts['pages_per_second']} pages per second")
    rows.append(f"  pages in  {facts['directory']}")
    return "\n".join(one_line(row) for row in rows)
