"""Rebuilding a page directory: what an earlier crawl settled need not be asked again.

A new directory is built beside the old one, whose records answer in place of the site: all but those that failed, or
whose page is damaged. The crawl is the same as ever, so what is found now is numbered as if it had been there at
first. When it ends, the new directory takes the place of the old one in one step.
"""

import ctypes
import errno
import hashlib
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response

from tinycrawl.exceptions import DirectoryError
from tinycrawl.items import Record
from tinycrawl.pagedir import Held, PageDirectory
from tinycrawl.publisher import FOLDED, NOINDEX, Fetched
from tinycrawl.serial import Answer, Ask


class CrawlCache:
    """Answers from an earlier crawl's records, by URL.

    :param damaged: docIDs of pages that must be asked for again.
    :param again: is a record to be asked again because of its reason?
    """

    def __init__(
        self, directory: PageDirectory, damaged: Collection[int], again: Callable[[str], bool] = lambda reason: False
    ) -> None:
        self._directory = directory
        self._redirects: dict[str, str] = {}
        self._records: dict[str, Record] = {}
        self.digests: dict[str, str] = {}  # of damaged pages, by the URL requested and the final one
        self._lost: dict[int, str] = {}  # the same by docID
        self._found: dict[str, Held | None] = {}  # what was asked again and is as before, by these digests
        listed: set[int] = set()
        for record in directory.records():
            chain = [record["url"], *record.get("redirects", ())]
            listed.add(record.get("docID", 0))
            if record.get("docID") in damaged:
                self._lost[record["docID"]] = record["sha256"]
                self._found[record["sha256"]] = None
            if len(set(chain)) < len(chain) or ("reason" in record and again(record["reason"])):
                continue  # cookies were at work, or it failed
            if not all(key in record for key in _needed(record)):
                continue  # altered
            if record.get("docID") in damaged:
                self.digests[chain[0]] = self.digests[chain[-1]] = record["sha256"]
            elif "target" in record:
                chain.append(record["target"])
            else:
                self._records[chain[-1]] = record
            self._redirects.update(pairwise(chain))
        if directory.problems():
            self._look_for_unlisted(listed)

    def _look_for_unlisted(self, listed: Collection[int]) -> None:
        """Pages whose lines are damaged are asked for again, too; that they were there must not be forgotten."""
        for doc_id in range(1, max(len(self._directory), *listed) + 1):
            if doc_id not in listed:
                self._lost[doc_id] = ""
                with suppress(DirectoryError, IndexError):
                    page = self._directory[doc_id - 1]
                    self._lost[doc_id] = self.digests[page.url] = hashlib.sha256(page.body).hexdigest()
                self._found[self._lost[doc_id]] = None

    def answer(self, ask: Ask, hold: Callable[[str, int, bytes], Any]) -> Answer | None:
        """What *ask* gave in the earlier crawl, its page put on hold in the new directory; None if it must be asked."""
        if ask.cookies or ask.is_probe:
            return None
        if ask.url in self._redirects:
            return Answer(None, redirect=self._redirects[ask.url], is_live=False)
        record = self._records.get(ask.url)
        if record is None:
            return None
        reason = record.get("reason", NOINDEX)
        is_folded = reason.startswith(FOLDED)
        if reason != NOINDEX and not is_folded:
            return Answer(reason, is_live=False)
        page = Fetched(record["status"], record["type"], record["charset"], "stored" in record)
        page.nofollow, page.refresh = record.get("nofollow", False), record.get("refresh", "")
        if "docID" in record or is_folded:
            body = self._body(int(reason.removeprefix(FOLDED)) if is_folded else record["docID"])
            if body is None:
                return None
            page.held = hold(ask.url, ask.depth, body)
        else:
            page.noindex, page.links = True, record["links"]
        return Answer(page, is_live=False)

    def learn(self, held: Held) -> None:
        """A page has been asked for: if it is a damaged one that is as before, what was folded onto it need not be."""
        if self._found.get(held.sha256, held) is None:
            self._found[held.sha256] = held

    def _body(self, doc_id: int) -> bytes | None:
        if doc_id not in self._lost:
            with suppress(DirectoryError):
                return self._directory.read_body(doc_id)
            return None
        held = self._found[self._lost[doc_id]]
        with suppress(DirectoryError):  # it was dropped: no page came of it
            return None if held is None else held.read()
        return None


def _needed(record: Record) -> tuple[str, ...]:
    """The keys of a record without which it is no answer."""
    reason = record.get("reason", "")
    if reason == NOINDEX:
        return ("status", "type", "charset", "links")
    return () if reason and not reason.startswith(FOLDED) else ("status", "type", "charset")


class CachedResponse(Response):
    """Stands for an answer that was not asked for."""

    def __init__(self, url: str, *, answer: Answer = Answer(None), **kwargs: Any) -> None:  # noqa: B008  # frozen
        super().__init__(url, status=kwargs.pop("status", 0), **kwargs)
        self.answer = answer


class CacheMiddleware:
    """The outermost downloader middleware but one: answers from the spider's cache, before robots.txt is looked at."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "CacheMiddleware":
        return cls(crawler)

    def process_request(self, request: Request, spider: Spider | None = None) -> Response | None:
        answer_from_cache: Any = getattr(self.crawler.spider, "answer_from_cache", None)
        ask = request.meta.get("ask")
        answer = answer_from_cache(ask) if answer_from_cache is not None and ask is not None else None
        return None if answer is None else CachedResponse(request.url, answer=answer, request=request)


def exchange(one: Path, other: Path) -> None:
    """Swap two directories in one step (Linux), so that at every moment there is one of that name."""
    at_cwd, rename_exchange = -100, 2
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        if not libc.renameat2(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), rename_exchange):
            return
        if ctypes.get_errno() not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(one))
    aside = one.with_name(f"{one.name}.swap")  # no such call here: for a moment there is none
    one.rename(aside)
    other.rename(one)
    aside.rename(other)
