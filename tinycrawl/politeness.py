"""The one place that reaches into Scrapy's downloader slots (`Slot.delay`, `Slot.lastseen`) and engine slot.

Scrapy documents DOWNLOAD_SLOTS for delays known beforehand; a delay that a site asks for while it is crawled can only
be set on the slot, as Scrapy's own AutoThrottle does. `tests/test_politeness.py` fails if these attributes change.
"""

from time import monotonic

from scrapy import Request
from scrapy.crawler import Crawler

_NO_DELAY = 1e-9  # seconds; a slot without any delay does not look at `lastseen`


def delay_of(crawler: Crawler, request: Request) -> float:
    """Seconds between two requests to the host of *request*."""
    downloader = crawler.engine.downloader
    return float(downloader._get_slot(request)[1].delay)


def delay_at(crawler: Crawler, host: str) -> float:
    """Seconds between two requests to *host*, as far as it is known."""
    downloader = crawler.engine.downloader
    slot = downloader.slots.get(host.strip("[]"))
    if slot is not None:
        return float(slot.delay)
    return float(downloader.per_slot_settings.get(host.strip("[]"), {}).get("delay", downloader._delay))


def lengthen_delay(crawler: Crawler, request: Request, seconds: float) -> None:
    """Wait at least *seconds* between two requests to the host of *request* from now on."""
    downloader = crawler.engine.downloader
    key, slot = downloader._get_slot(request)
    if seconds > slot.delay:
        slot.delay = seconds
        # An idle slot is thrown away after a minute and made anew from these.
        downloader.per_slot_settings[key] = {**downloader.per_slot_settings.get(key, {}), "delay": seconds}


def has_started(crawler: Crawler, request: Request) -> None:
    """The delay to the next request to the host of *request* counts from now, unless it was pushed back further."""
    slot = crawler.engine.downloader._get_slot(request)[1]
    slot.lastseen = max(slot.lastseen, monotonic())


def is_closing(crawler: Crawler) -> bool:
    """Is the crawl being stopped: by a signal, a limit, or an extension of Scrapy's?"""
    slot = crawler.engine._slot
    return slot is None or slot.closing is not None


def push_back(crawler: Crawler, request: Request, seconds: float) -> None:
    """Send nothing to the host of *request* for *seconds* from now."""
    slot = crawler.engine.downloader._get_slot(request)[1]
    slot.delay = slot.delay or _NO_DELAY
    slot.lastseen = max(slot.lastseen, monotonic() + seconds - slot.delay)
