"""Storage: the page directory of one crawl, from opening it to its end line; new, continued, or built anew.

It is built anew, beside the old one and with the old one as a cache, where what failed is to be asked again
(``recheck=failed``), or where pages are damaged. Only when that is done does it take the place of the old one.
"""

import logging
from pathlib import Path
from typing import Any

from tinycrawl.cache import CrawlCache, exchange
from tinycrawl.exceptions import DirectoryError
from tinycrawl.items import Page, Unsaved
from tinycrawl.pagedir import DirectoryLock, PageDirectory, PageWriter, discard
from tinycrawl.plan import Plan
from tinycrawl.publisher import is_failure
from tinycrawl.verification import find_faults

logger = logging.getLogger(__name__)


class Storage:
    """Opens on construction.

    *was_complete*: the crawl was finished already, and nothing is to be asked again.

    :raises DirectoryError: the directory cannot be used, holds another crawl, or one that went further. It is left as
        it was.
    """

    def __init__(self, plan: Plan, *, sync: bool) -> None:
        self._plan = plan
        self._lock: DirectoryLock | None = None
        self.cache: CrawlCache | None = None
        self._is_whole = False  # every page has been compared with its record, and nothing was found
        damaged = self._find_damage()
        try:
            if damaged or (plan.arguments.recheck and self._holds_this_crawl()):
                self._lock = DirectoryLock(plan.directory)
                old = PageDirectory(plan.directory)
                plan.check_limits(old.end or self._reached(old))
                self.cache = CrawlCache(old, damaged, is_failure if plan.arguments.recheck else lambda reason: False)
            directory = self._beside if self._lock else plan.directory
            self.writer = PageWriter.open(
                directory,
                plan.identity,
                fresh=plan.arguments.fresh,
                sync=sync,
                verify=self._lock is not None or not self._is_whole,
            )
        except DirectoryError:
            self._unlock()
            raise
        for line in self.writer.repaired:
            logger.warning("Page directory: %s", line)
        end = self.writer.previous_end
        try:
            plan.check_limits(end or self._reached(self.writer))
        except DirectoryError:
            self.close(end)  # how the last crawl ended stays as it was, like all else
            raise
        self.was_complete = bool(
            self._lock is None and end and end["end"] == "complete" and plan.limits.items() <= end.items()
        )

    @property
    def _beside(self) -> Path:
        return self._plan.directory.with_name(f".{self._plan.directory.name}.rebuild")

    def _holds_this_crawl(self) -> bool:
        try:
            identity = PageDirectory(self._plan.directory).identity or {}
        except DirectoryError:
            return False
        return self._plan.identity.items() <= identity.items()

    def _find_damage(self) -> set[int]:
        """The docIDs of pages that are not as recorded, but for the last ones, which a crash may have left so."""
        if self._plan.arguments.fresh or not self._holds_this_crawl():
            return set()
        directory = PageDirectory(self._plan.directory)
        faults = {fault.doc_id: fault for fault in find_faults(directory) if fault.doc_id}
        self._is_whole = not faults
        last = sum("docID" in record for record in directory.records())
        while directory.end is None and last in faults and faults[last].is_crash:  # the writer completes or cuts it
            del faults[last]
            last -= 1
        for fault in faults.values():
            logger.warning("Page directory: %s; it is fetched again", fault)
        return set(faults)

    @staticmethod
    def _reached(directory: PageDirectory | PageWriter) -> dict[str, int]:
        """The smallest limits that allow what a crawl left which was killed."""
        depth = pages = 0
        for record in directory.records():
            depth = max(depth, record["depth"])
            pages += "docID" in record
        return {"depth": depth, "max_pages": pages}

    def compare(self, item: Page | Unsaved) -> None:
        """Say so where a damaged page is not what it was any more."""
        if self.cache is None:
            return
        url = [item.record["url"], *item.record.get("redirects", ())][-1]
        digest = self.cache.digests.pop(url, None)
        if digest is not None and (not isinstance(item, Page) or item.sha256 != digest):
            logger.warning("Page directory: %s was damaged, and the site now answers otherwise", url)

    def close(self, end: dict[str, Any] | None, *, is_done: bool = False) -> None:
        """Write how the crawl ended, and unlock. *is_done*: a directory built anew has got as far as it may.

        :raises DirectoryError: it could not be written or put in its place.
        """
        try:
            self.writer.close(end)
            if self._lock is not None and is_done:
                exchange(self._beside, self._plan.directory)
                for path in discard(self._beside):
                    path.rename(self._plan.directory / path.name)  # no crawl wrote it
                self._beside.rmdir()
        except OSError as error:
            raise DirectoryError(f"page directory {self._plan.directory}: {error.strerror}") from error
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
