"""On which line of a TOML file each key is: tomllib keeps no positions, and a fault in a file is named by its line."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_STRING = re.compile(
    r'"""(?:\\[\s\S]|[^\\])*?"""(?:"{0,2})'
    r"|'''[\s\S]*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]*")  # dates have blanks

_NUMBER = re.compile(r"[0-9_]{4000,}")  # int() gives up at 4,300 digits
_TOKEN = re.compile(rf"{_STRING.pattern}|#[^\n]*|[\[{{\]}}.,=\n]")

DEEPEST = 50  # tables and arrays within each other; what is deeper breaks much else, tomllib itself at some hundreds

KeyPath = tuple[str, ...]


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line, from 1, on which each key and table of *text* begins; the first, where a table is opened twice.

    Tables within an array share the path of the array.

    >>> key_lines('[crawl]\\ndepth = 2\\n"sl.ots".delay = 1\\n')
    {('crawl',): 1, ('crawl', 'depth'): 2, ('crawl', 'sl.ots'): 3, ('crawl', 'sl.ots', 'delay'): 3}

    :param text: what tomllib has accepted.
    """
    scanner = _Scanner(text)
    scanner.scan()
    return scanner.lines


def is_too_deep(value: object) -> bool:
    """Are tables and arrays nested deeper than DEEPEST?"""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
        ]
    return bool(level)


def deepest_line(text: str) -> int:
    """The line on which brackets, and the dots of a key, are nested deepest; the first, where there are several."""
    depth = dots = deepest = 0
    line = found = 1
    for match in _TOKEN.finditer(text):
        token = match[0]
        line += token.count("\n")
        depth += (token in "[{") - (token in "]}")
        dots = 0 if token in "\n,=" else dots + (token == ".")
        if depth + dots > deepest:
            deepest, found = depth + dots, line
    return found


def long_number_line(text: str) -> int:
    """The line of the first number that is too long for Python; 0 if there is none."""
    match = _NUMBER.search(text)
    return text.count("\n", 0, match.start()) + 1 if match else 0


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._ends = [match.start() for match in re.finditer("\n", text)]

    def scan(self) -> None:
        table: KeyPath = ()
        while self._skip(_SPACE) and self._at < len(self._text):
            if self._text[self._at] == "[":
                self._at += 2 if self._text.startswith("[[", self._at) else 1
                table = self._key(())
                self._at = self._text.index("]", self._at)
                self._at += 2 if self._text.startswith("]]", self._at) else 1
            else:
                self._pair(table)

    def _pair(self, table: KeyPath) -> None:
        path = self._key(table)
        self._at = self._text.index("=", self._at) + 1
        self._value(path)

    def _key(self, table: KeyPath) -> KeyPath:
        """Read a key with its dots; each part of it is a place of its own."""
        path = table
        while True:
            self._skip(_BLANK)
            line = bisect_right(self._ends, self._at - 1) + 1
            token = self._take(_STRING) or self._take(_BARE_KEY)
            path += (tomllib.loads(f"key = {token}")["key"] if token[:1] in ('"', "'") else token,)
            self.lines.setdefault(path, line)
            self._skip(_BLANK)
            if not self._text.startswith(".", self._at):
                return path
            self._at += 1

    def _value(self, path: KeyPath) -> None:
        self._skip(_SPACE)
        opening = self._text[self._at]
        if opening in "[{":
            self._at += 1
            while self._skip(_SPACE) and self._text[self._at] not in "]}":
                if self._text[self._at] == ",":
                    self._at += 1
                elif opening == "[":
                    self._value(path)
                else:
                    self._pair(path)
            self._at += 1
        elif not self._take(_STRING):
            self._take(_SCALAR)

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[0]

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        self._take(pattern)
        return True
