"""Storage: the page directory of one crawl, from opening it to its end line; new, continued, or built anew.

It is built anew, beside the old one and with the old one as a cache, where what failed is to be asked again
(``recheck=failed``), or where pages or lines of the manifest are damaged. Only when that is done does it take the
place of the old one.
"""

import hashlib
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tinycrawl.cache import CrawlCache, exchange
from tinycrawl.exceptions import DirectoryError
from tinycrawl.items import Page, Unsaved
from tinycrawl.manifest import describe
from tinycrawl.pagedir import MARKER, DirectoryLock, PageDirectory, PageWriter
from tinycrawl.plan import Plan
from tinycrawl.publisher import is_failure
from tinycrawl.runs import reached
from tinycrawl.verification import Fault, find_faults

logger = logging.getLogger(__name__)


class Storage:
    """Opens on construction.

    *was_complete*: the crawl was finished already, and nothing is to be asked again.

    :raises DirectoryError: the directory cannot be used, holds another crawl, or one that went further. It is left as
        it was.
    :raises RunSkipped: of a recurring crawl, the last run still works.
    """

    def __init__(self, plan: Plan, *, sync: bool) -> None:
        self._plan = plan
        self._lock: DirectoryLock | None = None  # of the old directory, where a new one is built beside it
        self._beside = plan.directory
        self._run_lock = plan.run.begin() if plan.run is not None else None
        self.cache: CrawlCache | None = None
        is_whole = False  # every page has been compared with its record, and nothing was found
        try:
            if not plan.arguments.fresh and self._holds_this_crawl():
                self._lock = DirectoryLock(plan.directory, plan.identity)
                found = list(find_faults(PageDirectory(plan.directory)))
                faults = {fault.doc_id: fault for fault in found if fault.doc_id}
                is_whole = not faults
                has_gaps = any(fault.name == MARKER for fault in found) and PageDirectory(plan.directory).gaps() != []
                if plan.arguments.recheck or has_gaps or self._is_damaged(faults):
                    self._prepare_rebuild(faults)
                else:
                    self._unlock()
            self.writer = PageWriter.open(
                self._beside, plan.identity, fresh=plan.arguments.fresh, sync=sync, verify=not is_whole
            )
        except DirectoryError:
            self._unlock()
            self._end_run()
            raise
        self._discard_leftovers()
        for line in self.writer.repaired:
            logger.warning("Page directory: %s", line)
        end = self.writer.previous_end
        try:
            plan.check_limits(end or reached(self.writer))
        except DirectoryError:
            self.close(end)  # how the last crawl ended stays as it was, like all else
            raise
        self.was_complete = bool(
            self._lock is None and end and end["end"] == "complete" and plan.limits.items() <= end.items()
        )

    def _holds_this_crawl(self) -> bool:
        try:
            identity = PageDirectory(self._plan.directory).identity or {}
        except DirectoryError:
            return False
        return self._plan.identity.items() <= identity.items()

    def _is_damaged(self, faults: Mapping[int, Fault]) -> bool:
        """Are there pages that are not as recorded, but for the last ones, which a crash may have left so?"""
        directory = PageDirectory(self._plan.directory)
        if not faults or directory.end is not None:
            return bool(faults)
        last = max((record.get("docID", 0) for record in directory.records()), default=0)
        left_by_crash = set()
        while last in faults and faults[last].is_crash:  # the writer completes or cuts it
            left_by_crash.add(last)
            last -= 1
        return faults.keys() > left_by_crash

    def _prepare_rebuild(self, faults: Mapping[int, Fault]) -> None:
        plan, old = self._plan, PageDirectory(self._plan.directory)
        if plan.directory.is_mount():
            raise DirectoryError(
                f"page directory {plan.directory} is a mount point: it cannot be built anew in its place"
            )
        plan.check_limits(old.end or reached(old))
        problems = old.problems()
        if problems:
            logger.warning("Page directory: %s; what cannot be read back is fetched again", describe(problems))
        for fault in faults.values():
            logger.warning("Page directory: %s; it is fetched again", fault)
        self.cache = CrawlCache(old, set(faults), is_failure if plan.arguments.recheck else lambda reason: False)
        # What was begun goes on only for the same reason, from the same records, to the same limits.
        origin = hashlib.sha256((plan.directory / MARKER).read_bytes())
        origin.update(repr((plan.arguments.recheck, sorted(plan.limits.items()), sorted(faults))).encode())
        self._beside = plan.directory.with_name(f"{self._prefix}{origin.hexdigest()[:16]}")

    @property
    def _prefix(self) -> str:
        return f".{self._plan.directory.name}.rebuild-"

    def _discard_leftovers(self) -> None:
        """Delete what earlier rebuilds left, killed before their end or right after it. What is not ours stays."""
        for path in list(self._plan.directory.parent.iterdir()):
            if path.name.startswith(self._prefix) and path != self._beside and path.is_dir():
                with suppress(DirectoryError, OSError):
                    identity = PageDirectory(path).identity or {}
                    lock = DirectoryLock(path, {key: identity[key] for key in identity if key != "tinycrawl"})
                    self._remove(lock, path)
                    lock.close()

    def _remove(self, lock: DirectoryLock, path: Path) -> None:
        for other in lock.discard(path):
            if not (self._plan.directory / other.name).exists():
                other.rename(self._plan.directory / other.name)  # no crawl wrote it
        path.rmdir()

    def compare(self, item: Page | Unsaved) -> None:
        """Look at what replaces a damaged page: is it what it was?

        :raises DirectoryError: it cannot be had, and what is not damaged must not be lost for that.
        """
        if self.cache is None:
            return
        for url in (item.record["url"], [item.record["url"], *item.record.get("redirects", ())][-1]):
            digest = self.cache.digests.pop(url, None)
            if digest is None:
                continue
            if not isinstance(item, Page) and is_failure(item.record["reason"]):
                reason = item.record["reason"]
                raise DirectoryError(
                    f"page directory {self._plan.directory}: {url} is damaged and cannot be fetched again ({reason})"
                )
            if item.sha256 != digest:
                logger.warning("Page directory: %s was damaged, and the site now answers otherwise", url)

    def close(self, end: dict[str, Any] | None, *, is_done: bool = False) -> None:
        """Write how the crawl ended, and unlock. *is_done*: a directory built anew has got as far as it may.

        :raises DirectoryError: it could not be written or put in its place.
        """
        try:
            self.writer.close(end)
            if self._lock is not None and is_done:
                status = self._plan.directory.stat()
                self._beside.chmod(status.st_mode & 0o7777)
                with suppress(PermissionError):
                    os.chown(self._beside, status.st_uid, status.st_gid)
                exchange(self._beside, self._plan.directory)
                self._remove(self._lock, self._beside)
        except OSError as error:
            raise DirectoryError(f"page directory {self._plan.directory}: {error.strerror}") from error
        else:
            if self._plan.run is not None and (is_done or "limit" in (end or {})):
                self._plan.run.finish()
        finally:
            self._unlock()
            self._end_run()

    def _end_run(self) -> None:
        if self._run_lock is not None:
            self._run_lock.close()
            self._run_lock = None

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
