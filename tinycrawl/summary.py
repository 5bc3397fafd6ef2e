"""Summary: what the crawl came to, for people on stderr and as one line of JSON at the end of the log."""

import json
import logging
import os
import sys
from collections import Counter
from time import monotonic
from typing import Any

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured

from tinycrawl.arguments import one_line

logger = logging.getLogger(__name__)


class Summary:
    """Always the last word of a crawl, however it ended."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.started = monotonic()

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
        facts = summarise(self.crawler.spider, monotonic() - self.started)
        if sys.stderr is not None:  # closed by whoever started us
            print(in_words(facts), file=sys.stderr)
        logger.info("%s", json.dumps(facts))


def summarise(spider: Any, elapsed: float) -> dict[str, Any]:
    """The facts of a crawl; *elapsed* in seconds."""
    publisher = spider.publisher
    return {
        "ending": spider.ending,
        "exit_status": spider.exit_status,
        "reason": spider.failure or None,
        "seed": spider.plan.arguments.seed,
        **spider.plan.limits,
        "limit": spider.limit,
        "saved": publisher.saved,
        "failed": dict(publisher.failed.most_common()),
        "skipped": dict(publisher.skipped.most_common()),
        "links": publisher.links_seen,
        "bytes": publisher.saved_bytes,
        "elapsed": round(elapsed, 3),
        "pages_per_second": round(publisher.saved / elapsed, 2) if elapsed else 0.0,
        "was_complete": bool(spider.storage and spider.storage.was_complete),
        "directory": str(spider.plan.directory),
    }


def in_words(facts: dict[str, Any]) -> str:
    """The summary for people."""
    if facts["ending"] == "failed" and not facts["saved"]:
        return one_line(f"tinycrawl: the crawl failed: {facts['reason']}")
    if facts["was_complete"] and facts["ending"] == "complete":
        words = f"tinycrawl: complete already: {facts['saved']} pages; fresh=1 crawls again"
        return f"{words}\n  pages in  {facts['directory']}"
    ending = "stopped early, run it again to go on"
    if facts["ending"] == "failed":
        ending = f"the crawl failed: {facts['reason']}"
    elif facts["ending"] == "complete":
        ending = "complete, but pages failed" if facts["exit_status"] else "complete"
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
    rows.append(f"  links     {facts['links']} seen")
    rows.append(f"  took      {facts['elapsed']:.1f} s, {facts['pages_per_second']} pages per second")
    rows.append(f"  pages in  {facts['directory']}")
    return "\n".join(one_line(row) for row in rows)
