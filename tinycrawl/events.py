"""The event log: one line per event, in canonical order, so that two logs can be compared."""

import sys
from pathlib import Path
from typing import TextIO

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


class EventLog:
    """Writes events to *target*: a path, ``-`` for stdout, None for nowhere."""

    def __init__(self, target: str | None) -> None:
        self._file: TextIO | None = None
        if target == "-":
            self._file = sys.stdout
        elif target:
            self._file = Path(target).open("w", encoding="utf-8", newline="\n")  # noqa: SIM115  # closed by close()

    def __call__(self, depth: int, word: str, url: str) -> None:
        if self._file is not None:
            self._file.write(line(depth, word, url))

    def close(self) -> None:
        if self._file is sys.stdout:
            self._file.flush()
        elif self._file is not None:
            self._file.close()
        self._file = None


def line(depth: int, word: str, url: str) -> str:
    """One event: the depth, an indent of one blank per depth, the word, the URL.

    >>> line(1, "Added", "http://h.test/b")
    ' 1      Added: http://h.test/b\\n'
    """
    return f"{depth:2} {'':{depth}}{word:>9}: {url}\n"
