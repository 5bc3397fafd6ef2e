"""What is printed: tables for people, JSON for programs. No text of a site reaches a terminal as it is."""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from unicodedata import combining, east_asian_width

from tinycrawl.arguments import one_line

_LOOKED_AT = 500  # rows that decide how wide the columns are, so that the others need not be kept
_NARROWEST = 8  # columns of the terminal
_GAP = "  "


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print *rows* to stdout as they come; whole numbers stand on the right, None and "" are blank.

    Without a row nothing is printed. Only on a terminal are cells cut.
    """
    rows = iter(rows)
    first = list(islice(rows, _LOOKED_AT))
    if not first:
        return
    widths = [max(_width(_show(cell)) for cell in column) for column in zip(heads, *first, strict=True)]
    is_number = [all(isinstance(cell, int | None) for cell in column) for column in zip(*first, strict=True)]
    is_cut = sys.stdout.isatty()
    if is_cut:
        _fit(widths, shutil.get_terminal_size().columns - len(_GAP) * (len(widths) - 1))
    for row in chain([heads], first, rows):
        cells = []
        for cell, width, is_right in zip(row, widths, is_number, strict=True):
            text = _show(cell)
            text = _cut(text, width) if is_cut else text
            blanks = " " * (width - _width(text))
            cells.append(blanks + text if is_right else text + blanks)
        print(_GAP.join(cells).rstrip(" "))


def print_json(objects: Iterable[object]) -> None:
    """One object per line, in ASCII."""
    for one in objects:
        print(json.dumps(one))


def print_facts(facts: Mapping[str, object]) -> None:
    """A line for each, for each part of a tuple one; none for what is None or ""."""
    for name, value in facts.items():
        for part in value if isinstance(value, tuple) else [value]:
            if part not in (None, ""):
                print(one_line(f"{name}: {part}"))


def print_body(body: bytes) -> None:
    """The very bytes; on a terminal its lines, escaped."""
    if sys.stdout.isatty():
        for line in body.decode("utf-8", "replace").splitlines():
            print(one_line(line))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(body)


def complain(message: str) -> None:
    """One line on stderr."""
    if sys.stderr is not None:
        print(f"tinycrawl: {one_line(message)}", file=sys.stderr)


def _show(cell: object) -> str:
    return "" if cell is None else one_line(str(cell))


def _fit(widths: list[int], room: int) -> None:
    """Make the widest columns narrower, as far as it goes."""
    while sum(widths) > room and (widest := max(widths)) > _NARROWEST:
        widths[widths.index(widest)] -= 1


def _width(text: str) -> int:
    """Columns of the terminal.

    >>> _width("été"), _width("日本")
    (3, 4)
    """
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(char: str) -> int:
    return 0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1


def _cut(text: str, width: int) -> str:
    """
    >>> _cut("http://h.test/", 8), _cut("日本語", 4), _cut("short", 5)
    ('http://…', '日…', 'short')
    """
    if _width(text) <= width:
        return text
    room = width - 1
    for end, char in enumerate(text):
        room -= _char_width(char)
        if room < 0:
            return f"{text[:end]}…"
    return text
