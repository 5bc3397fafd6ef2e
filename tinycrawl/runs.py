"""Runs: a crawl that is made again and again, each time in a directory named by its date.

``{date}`` in the last part of `pagedir` is the time at which a run began. The next run begins when the last one is
finished; until then, the last one is gone on with, and while it works, skipped.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tinycrawl.exceptions import DirectoryError, RunSkipped, UsageError
from tinycrawl.manifest import describe
from tinycrawl.pagedir import DirectoryLock, PageDirectory, PageWriter, is_locked

logger = logging.getLogger(__name__)

DATE, HOST = "{date}", "{host}"

_STAMP = "%Y-%m-%dT%H%M%S"  # UTC; sorts by time
_STAMPED = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{6}"
_PLACEHOLDER = re.compile(r"\{[^{}/]*\}|[{}]")
_EXPIRED = ".expired"


def read_keep(value: object) -> int:
    """:raises ValueError: the text says what is expected."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("a number of runs, 1 or more")
    return value


def read_flag(value: object) -> bool:
    """:raises ValueError: the text says what is expected."""
    if not isinstance(value, int) or value not in (0, 1):
        raise ValueError("0 or 1, or true or false")
    return bool(value)


def read_pagedir(value: object) -> str:
    """Return a path that may have ``{date}`` and ``{host}``, and no other brace: it would be a slip of the pen.

    :raises ValueError: the text says what is expected.
    """
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("a path")
    if any(name not in (DATE, HOST) for name in _PLACEHOLDER.findall(value)):
        raise ValueError(f"a path with no braces but those of {DATE} and {HOST}")
    if value.count(DATE) > 1 or (DATE in value and DATE not in value.rstrip("/").rpartition("/")[2]):
        raise ValueError(f"a path with {DATE} once, in its last part")
    return value


def fill_host(pagedir: str, host: str, where: str) -> str:
    """Put the host into ``{host}``; ``{date}`` stays.

    >>> fill_host("/data/{host}/{date}", "[::1]", "pagedir")
    '/data/___1_/{date}'

    :raises UsageError: `read_pagedir` refuses it.
    """
    try:
        read_pagedir(pagedir)
    except ValueError as error:
        raise UsageError(f"{where}: expected {error}, got {pagedir!r}") from None
    return pagedir.replace(HOST, re.sub(r"[^A-Za-z0-9.-]", "_", host))


def exceeded_limit(limits: Mapping[str, int | None], end: Mapping[str, Any]) -> str | None:
    """Which of *limits* does not allow to go on with a crawl that ended with *end*? None: all do."""
    for name, limit in limits.items():
        before = end.get(name)
        if limit is not None and (not isinstance(before, int) or limit < before):
            return name
    return None


def differing_terms(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The arguments and settings that are not the same in two identities, by name.

    >>> differing_terms({"seed": "a", "policies": {"X": 1}}, {"seed": "a", "exclude": "b", "policies": {"X": 2}})
    ['X', 'exclude']
    """
    flat = []
    for terms in (one, other):
        policies = terms.get("policies")
        flat.append({**terms, **(policies if isinstance(policies, Mapping) else {}), "tinycrawl": 0, "policies": 0})
    return sorted(name for name in {**flat[0], **flat[1]} if flat[0].get(name) != flat[1].get(name))


def reached(directory: PageDirectory | PageWriter) -> dict[str, int]:
    """The smallest limits that allow what a crawl left which was killed."""
    depth = pages = 0
    for record in directory.records():
        depth = max(depth, record.get("depth", 0))
        pages += "docID" in record
    return {"depth": depth, "max_pages": pages}


@dataclass(frozen=True)
class Series:
    """All runs of one crawl: *pattern* is the absolute path with ``{date}``, *keep* how many finished ones stay.

    *identity* and *limits* are those of the crawl; *diff*: each run is compared with the one before.
    """

    pattern: Path
    identity: Mapping[str, Any]
    limits: Mapping[str, int | None]
    keep: int | None = None
    diff: bool = False

    def names(self) -> list[str]:
        """The names that are there, of whatever crawl, in the order of their dates."""
        before, after = (re.escape(part) for part in self.pattern.name.split(DATE))
        named = re.compile(f"{before}{_STAMPED}{after}")
        try:
            return sorted(path.name for path in self.pattern.parent.iterdir() if named.fullmatch(path.name))
        except OSError:
            return []

    def of_this_seed(self) -> list[tuple[Path, list[str]]]:
        """The runs at the same seed, oldest first, each with what differs from this crawl."""
        runs = []
        for name in self.names():
            path = self.pattern.with_name(name)
            with suppress(DirectoryError):
                identity = PageDirectory(path).identity or {}
                if identity.get("seed") == self.identity.get("seed"):
                    runs.append((path, differing_terms(identity, self.identity)))
        return runs

    def runs(self) -> list[Path]:
        """Those of this crawl, oldest first."""
        return [path for path, terms in self.of_this_seed() if not terms]

    def path_at(self, time: datetime) -> Path:
        return self.pattern.with_name(self.pattern.name.replace(DATE, time.astimezone(UTC).strftime(_STAMP)))

    def is_finished(self, path: Path) -> bool:
        """Has this run got as far as it may?"""
        end = PageDirectory(path).end
        return bool(end) and is_finished(end or {})

    def exceeded(self, path: Path) -> str:
        """Why this run cannot be gone on with, within the limits; empty: it can."""
        directory = PageDirectory(path)
        end = directory.end or reached(directory)
        name = exceeded_limit(self.limits, end)
        return f"it was crawled with {name}={end.get(name)}, and now {name}={self.limits[name]}" if name else ""

    @property
    def lock_path(self) -> Path:
        return self.pattern.with_name(f".{self.pattern.name.replace(DATE, 'runs')}.lock")


def is_finished(end: Mapping[str, Any]) -> bool:
    """Is nothing left to do within the limits of a crawl that ended with *end*?"""
    if end["end"] == "stopped":
        return "limit" in end or (end.get("max_pages") is not None and end.get("saved") == end["max_pages"])
    return bool(end["end"] == "complete")


@dataclass(frozen=True)
class Run:
    """One run, chosen: in *directory*; *busy* if that one is still being written, and nothing is to be done.

    *left*: the run that was to be expected in place of a new one, and why it is not; empty: none was.
    """

    series: Series
    directory: Path
    names: tuple[str, ...]
    busy: bool = False
    left: str = ""

    def begin(self) -> RunLock:
        """Keep other runs of the series away until the lock is closed, or death.

        :raises RunSkipped: there is one already.
        :raises DirectoryError: the folder of the runs cannot be used.
        """
        if self.busy:
            raise RunSkipped(f"the run in {self.directory} is still working; nothing was done")
        lock = RunLock(self.series.lock_path)
        if tuple(self.series.names()) != self.names:
            lock.close()
            raise RunSkipped(f"another run of {self.series.pattern} has just begun or ended; nothing was done")
        if self.left:
            logger.warning("Runs: %s; a new run begins", self.left)
        return lock

    def finish(self) -> None:
        """Compare with the run before and delete the oldest, as the site's file says. What fails is a warning."""
        others = [(path, terms) for path, terms in self.series.of_this_seed() if path != self.directory]
        finished = [(path, terms) for path, terms in others if self.series.is_finished(path)]
        if self.series.diff:
            self._compare(finished)
        if self.series.keep is None:
            return
        self._delete_expired()
        same = [path for path, terms in finished if not terms]
        kept = same[max(0, len(same) + 1 - self.series.keep) :]  # and this one, whatever its date
        oldest = min(path.name for path in (*kept, self.directory))
        for path, terms in others:
            # One that was not finished, and is older than all that are kept, will never be gone on with.
            if not terms and path not in kept and (path in same or path.name < oldest):
                self._expire(path, "" if path in same else " though not finished")
        foreign = [(path, terms) for path, terms in others if terms]
        if foreign:
            logger.info(
                "Runs: keep does not count %d runs of other crawls, like %s (%s)",
                len(foreign),
                foreign[-1][0],
                ", ".join(foreign[-1][1]),
            )

    def _compare(self, finished: list[tuple[Path, list[str]]]) -> None:
        """Write the difference from the newest of the *finished* runs, or say why there is none."""
        if not finished:
            logger.info("Runs: %s is compared with none: no other run at this seed is finished", self.directory)
            return
        before, terms = finished[-1]
        try:
            problems = PageDirectory(before).problems()
            if problems:
                logger.warning("Runs: %s; what was there is missing in the comparison", describe(problems))
            ends = [PageDirectory(path).end or {} for path in (before, self.directory)]
            terms = [*terms, *(name for name in self.series.limits if ends[0].get(name) != ends[1].get(name))]
            if terms:
                logger.warning(
                    "Runs: %s is compared though it was crawled with another %s", before, ", another ".join(terms)
                )
            write_difference(before, self.directory)
        except (DirectoryError, OSError) as error:
            logger.warning("Runs: %s and %s could not be compared: %s", before, self.directory, error)

    def _expire(self, path: Path, what: str = "") -> None:
        """Delete a run in such an order that nobody sees a part of it under its name."""
        hidden = path.with_name(f".{path.name}{_EXPIRED}")
        try:
            lock = DirectoryLock(path, self.series.identity)
            try:
                path.rename(hidden)
                others = lock.discard(hidden)
                if others:
                    hidden.rename(path)
                    logger.warning("Runs: %s holds %r, which no crawl wrote; that stays", path, others[0].name)
                    return
                hidden.rmdir()
            finally:
                lock.close()
            difference_path(path).unlink(missing_ok=True)
        except (DirectoryError, OSError) as error:
            logger.warning("Runs: %s could not be deleted: %s", path, error)
            return
        logger.info("Runs: %s deleted%s, %d are kept", path, what, self.series.keep)

    def _delete_expired(self) -> None:
        """What a death in the middle of that has left."""
        before, after = (re.escape(part) for part in self.series.pattern.name.split(DATE))
        named = re.compile(rf"\.{before}{_STAMPED}{after}{re.escape(_EXPIRED)}")
        for path in sorted(self.series.pattern.parent.iterdir()):
            if named.fullmatch(path.name):
                with suppress(DirectoryError, OSError):
                    lock = DirectoryLock(path, self.series.identity)
                    try:
                        if not lock.discard(path):
                            path.rmdir()
                    finally:
                        lock.close()


class RunLock:
    """Held by the one run of a series."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise DirectoryError(f"{path} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise RunSkipped(f"another run in {path.parent} is still working; nothing was done") from None

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def choose_run(series: Series, now: datetime, *, fresh: bool, recheck: bool) -> Run:
    """Decide where a run that begins *now* works; nothing is created.

    The last run of the same crawl, if it was stopped or killed before its end: it is gone on with. So it is where
    *recheck* asks again for what failed there. Else, and with *fresh*, a new directory; where a run that was not
    finished is left behind by that, `Run.left` says so.
    """
    names = tuple(series.names())
    for name in reversed(names):
        if is_locked(series.pattern.with_name(name)):
            return Run(series, series.pattern.with_name(name), names, busy=True)
    runs = series.runs()
    is_wanted = bool(runs) and (recheck or not series.is_finished(runs[-1]))
    reason = "fresh=1" if fresh else series.exceeded(runs[-1]) if is_wanted else ""
    if is_wanted and not reason:
        return Run(series, runs[-1], names)
    while series.path_at(now).name in names:  # two runs within a second
        now += timedelta(seconds=1)
    return Run(series, series.path_at(now), names, left=_left_behind(series, reason, recheck=recheck))


def _left_behind(series: Series, reason: str, *, recheck: bool) -> str:
    """The newest run at the seed, if it is not finished or was to be looked at again: it is not, for *reason*."""
    runs = series.of_this_seed()
    if not runs:
        return ""
    path, terms = runs[-1]
    is_finished = series.is_finished(path)
    if is_finished and not (recheck and (terms or reason)):
        return ""
    state = "is not looked at again" if is_finished else "was not finished and is left behind"
    return f"{path} {state}: {reason if not terms else 'it was crawled with another ' + ', another '.join(terms)}"


def difference_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.diff.jsonl")


def write_difference(before: Path, after: Path) -> None:
    """Write what has changed beside *after*, one JSON object per line, and the counts into the log."""
    from tinycrawl.analysis import difference  # no other crawl needs it

    counts: Counter[str] = Counter()
    hidden = after.with_name(f".{difference_path(after).name}.new")
    with hidden.open("w", encoding="utf-8") as file:
        for change in difference(PageDirectory(before), PageDirectory(after)):
            counts[change.kind] += 1
            file.write(json.dumps({key: value for key, value in asdict(change).items() if value}) + "\n")
    hidden.replace(difference_path(after))
    words = ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "no difference"
    logger.info("Runs: against %s: %s; in %s", before, words, difference_path(after))
