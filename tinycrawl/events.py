"""The event log: one line per event, in canonical order, so that two logs can be compared."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tinycrawl.arguments import one_line
from tinycrawl.exceptions import CrawlFailed

FETCHED = "Fetched"  # a page, whole and HTML
SCANNING = "Scanning"  # its links are looked at, in order
FOUND = "Found"  # a link
ADDED = "Added"  # ... that is to be fetched
DUPLICATE = "IgnDupl"  # ... whose URL was found before
EXTERNAL = "IgnExtrn"  # ... out of scope
FILTERED = "IgnFiltr"  # ... refused by include, exclude or a limit
REDIRECTED = "Redirect"  # where a URL led instead
FAILED = "Failed"  # no page: an error
FORBIDDEN = "IgnRobot"  # robots.txt forbids it
NOT_A_PAGE = "NotHTML"  # no HTML, or nothing at all
UNSAVED = "NoIndex"  # a page that asks not to be saved
FOLDED = "Folded"  # a page whose bytes were saved before


class EventLog:
    """Writes events to *target*: a path, ``-`` for stdout, None for nowhere.

    :raises CrawlFailed: from each method, if the log cannot be written.
    """

    def __init__(self, target: str | None) -> None:
        self._file: TextIO | None = None
        with self._failing():
            if target == "-":
                self._file = sys.stdout
            elif target:
                path = Path(target).expanduser()
                self._file = path.open("w", encoding="utf-8", newline="\n")  # closed by close()

    def __bool__(self) -> bool:
        """Does it go anywhere?"""
        return self._file is not None

    def __call__(self, depth: int, word: str, url: str) -> None:
        if self._file is not None:
            with self._failing():
                self._file.write(line(depth, word, url))

    def close(self) -> None:
        file, self._file = self._file, None
        with self._failing():
            if file is sys.stdout and file is not None:
                file.flush()
            elif file is not None:
                file.close()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._file is sys.stdout:  # whoever read it has gone: what is left in it must not be an error again
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            self._file = None
            raise CrawlFailed(f"the event log cannot be written: {error.strerror}") from error


def line(depth: int, word: str, url: str) -> str:
    """One event: the depth, an indent of one blank per depth, the word, the URL.

    >>> line(1, "Added", "http://h.test/b")
    ' 1      Added: http://h.test/b\\n'
    """
    return f"{depth:2} {'':{depth}}{word:>9}: {url if url.isprintable() else one_line(url)}\n"
