"""The lines of the manifest ``.crawler``: written, read and checked here alone.

What a directory says may have been damaged or altered by anybody. So whoever reads records gets only such whose values
have the types of the format, whose URLs can be parsed, and whose docIDs come one after the other; what is wrong with
the other lines is said by their number.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ada_url

from tinycrawl.exceptions import DirectoryError

MARKER = ".crawler"
FORMAT = 1
IDENTITY_START = b'{"tinycrawl":'

_MOST = 2**63 - 1
_FOLDED = "duplicate of "
_FOLDED_ONTO = re.compile(r"[1-9][0-9]{0,17}")
_LONGEST_END = 1 << 16  # bytes of the last line, how a crawl ended


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a line, counted from 1. *size*: its bytes that are left out, if it cannot be used.

    *is_torn*: the file ends within the line, which a kill can leave so.
    """

    path: Path
    line: int
    text: str
    size: int
    is_torn: bool = False

    def __str__(self) -> str:
        return f"{self.path / MARKER}, line {self.line}: damaged: {self.text}"


def describe(problems: list[Problem]) -> str:
    """The first of them, and how many more there are, in one line."""
    more = len(problems) - 1
    return f"{problems[0]}" + (f" (and {more} more, up to line {problems[-1].line})" if more else "")


def format_line(first: Mapping[str, object], rest: Mapping[str, object]) -> bytes:
    """Return a line of the manifest, whose kind is told by its first key."""
    return json.dumps({**first, **rest, **first}, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read it: no link is followed, and no pipe or device waited for.

    :raises OSError: with the reason.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        if path.is_symlink() or path.is_socket():
            raise OSError(0, "is no regular file", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(0, "is no regular file", str(path))
    return os.fdopen(file, "rb")


def open_marker(path: Path) -> BufferedReader:
    try:
        return open_regular(path / MARKER)
    except OSError as error:
        raise DirectoryError(f"{path} is no page directory: {MARKER}: {error.strerror}") from error


def read_identity(path: Path, first: bytes) -> dict[str, Any] | None:
    """Return what the *first* line says, ``None`` if it is torn or another program's.

    :raises DirectoryError: it is ours, and damaged.
    """
    value, fault = _decode(first)
    if value is not None and next(iter(value), None) == "tinycrawl":
        fault = _check(value, _IDENTITY) or _check(value.get("policies", {}), _POLICIES)
    elif not (first.startswith(IDENTITY_START) and first.endswith(b"\n")):
        return None
    if fault:
        raise DirectoryError(str(Problem(path, 1, fault, len(first))))
    return value


def read_end(path: Path) -> dict[str, Any] | None:
    """Return the last line of the manifest, if it says how the crawl ended."""
    with open_marker(path) as marker:
        start = max(0, marker.seek(0, os.SEEK_END) - _LONGEST_END)
        marker.seek(start)
        tail = marker.read()
    begin = tail.rfind(b"\n", 0, -1) + 1
    if start and not begin:
        return None
    value, _ = _decode(tail[begin:])
    return value if value and next(iter(value)) == "end" and not _check(value, _END) else None


def read_settled(path: Path) -> Iterator[tuple[int, dict[str, Any] | None, Problem | None]]:
    """Read the lines of the settled URLs: the offset of the end of each, and its record or what is wrong with it.

    A problem that leaves the line of use, lines that lack before it, comes before its record. The end of the crawl has
    no record, and is a problem if it does not fit.

    :raises DirectoryError: the identity is damaged.
    """
    with open_marker(path) as file:
        end = len(first := file.readline())
        if read_identity(path, first) is None:
            return
        saved = unread = 0  # the last docID, and the lines since then that may have held more of them
        for number, line in enumerate(file, 2):
            end += len(line)
            record, fault = _read_line(line, number)
            kind = "" if record is None else next(iter(record))
            if record is not None and kind == "docID":
                doc_id, following = record["docID"], saved + 1
                if doc_id != following:
                    fault = f"docID {doc_id}, where {following} would be next"
                    if following < doc_id <= following + unread:
                        fault = ""
                    elif doc_id > following and _goes_on(file, doc_id):
                        yield end, None, Problem(path, number, f"{fault}: lines before it are missing", 0)
                        fault = ""
            elif record is not None and kind == "end":
                if file.peek(1):
                    fault = "how the crawl ended, with lines after it"
                elif (record.get("saved") or 0) > saved + unread:
                    text = f"{record['saved']} pages were saved, and the lines before it hold {saved}"
                    yield end, None, Problem(path, number, text, 0)
                    return
                else:
                    return
            if record is None or fault:
                unread += 1
                yield end, None, Problem(path, number, fault, len(line), not line.endswith(b"\n"))
                continue
            if kind == "docID":
                saved, unread = record["docID"], 0
            yield end, record, None


def _goes_on(file: BufferedReader, doc_id: int) -> bool:
    """Has the next page of the manifest the docID after *doc_id*? Then that one is right, too."""
    here = file.tell()
    try:
        for line in file:
            record, _ = _read_line(line, _MOST)
            if record is not None and next(iter(record)) == "docID":
                return bool(record["docID"] == doc_id + 1)
        return False
    finally:
        file.seek(here)


def _read_line(line: bytes, number: int) -> tuple[dict[str, Any] | None, str]:
    """The record of a settled URL, or how the crawl ended, or None and what is wrong with it."""
    record, fault = _decode(line)
    if record is None:
        return None, fault
    kind = next(iter(record), None)
    if kind == "end":
        fault = _check(record, _END)
    elif kind in ("docID", "reason"):
        fault = _check(record, _SETTLED) or _check_settled(record, kind, number)
    else:
        fault = "neither a docID nor a reason comes first"
    return (None, fault) if fault else (record, "")


def _check_settled(record: Mapping[str, Any], kind: str, number: int) -> str:
    for key in _NEEDED[kind]:
        if key not in record:
            return f"it has no `{key}`"
    if kind == "reason" and "docID" in record:
        return "a docID and a reason"
    url = record["url"]
    # What was refused was never asked for, and only its beginning is kept if it is far too long.
    if not _is_url(url) and not (_NOT_REFUSED.isdisjoint(record) and _can_be_split(url)):
        return f"its `url` is {_show(url)}"
    if record.get("depth", 0) >= number:
        return f"its `depth` is {_show(record['depth'])}, which the lines before it cannot have reached"
    return ""


def _refuse(text: str) -> None:
    raise ValueError(f"no manifest has {text}")


_decode_json = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse).decode


def _decode(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """The JSON object of a line, or None and why it is none."""
    if not line.endswith(b"\n"):
        return None, "it is torn"
    try:
        value = _decode_json(line.decode("ascii"))
    except (ValueError, RecursionError):
        return None, "it is no JSON of the manifest"
    return (value, "") if isinstance(value, dict) and value else (None, "it is no JSON object")


def _check(value: Any, kinds: Mapping[str, Callable[[Any], bool]]) -> str:
    """What is wrong with the values of a JSON object; ``""``: nothing. Keys that are not known may have any."""
    for key, part in value.items():
        if key in kinds and not kinds[key](part):
            return f"its `{key}` is {_show(part)}"
    return ""


def _show(value: object) -> str:
    if isinstance(value, list | dict):
        return "no such list" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:59]}..."


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_text_or_none(value: object) -> bool:
    return value is None or type(value) is str


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _is_count_or_none(value: object) -> bool:
    return value is None or _is_count(value)


def _is_doc_id(value: Any) -> bool:
    return type(value) is int and 0 < value <= _MOST


def _is_bool(value: object) -> bool:
    return type(value) is bool


def _is_charset(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _is_reason(value: object) -> bool:
    if not isinstance(value, str) or not value:
        return False
    return not value.startswith(_FOLDED) or bool(_FOLDED_ONTO.fullmatch(value, len(_FOLDED)))


def _is_list_of_text(value: object) -> bool:
    return isinstance(value, list) and all(type(part) is str for part in value)


def _is_url(value: object) -> bool:
    """Is this a normalised URL? After the host any ASCII will do."""
    if type(value) is not str or not value.isascii():
        return False
    end = value.find("/", 8)
    return end > 0 and _is_origin(value[:end])


def _can_be_split(url: str) -> bool:
    with suppress(ValueError):
        return bool(urlsplit(url))
    return False


def _is_list_of_urls(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_url, value))


@lru_cache(maxsize=4_096)
def _is_origin(origin: str) -> bool:
    if not origin.startswith(("http://", "https://")):
        return False
    with suppress(ValueError):
        return _can_be_split(origin) and bool(ada_url.normalize_url(f"{origin}/") == f"{origin}/")
    return False


_IDENTITY: dict[str, Callable[[Any], bool]] = {
    "tinycrawl": _is_count,
    "seed": _is_text,
    "scope": _is_text,
    "domains": _is_list_of_text,
    "include": _is_text_or_none,
    "exclude": _is_text_or_none,
    "order": _is_text,
    "duplicates": _is_text,
    "depth": _is_count_or_none,
    "policies": lambda value: type(value) is dict,
}
_POLICIES: dict[str, Callable[[Any], bool]] = {
    "TINYCRAWL_MAX_LINKS": _is_count,
    "TINYCRAWL_DROP_PARAMETERS": _is_list_of_text,
    "TINYCRAWL_FOLLOW_NOFOLLOW": _is_bool,
}
_END: dict[str, Callable[[Any], bool]] = {
    "end": _is_text,
    "saved": _is_count_or_none,
    "depth": _is_count_or_none,
    "max_pages": _is_count_or_none,
    "limit": _is_text,
}
_SETTLED: dict[str, Callable[[Any], bool]] = {
    "docID": _is_doc_id,
    "reason": _is_reason,
    "url": _is_text,
    "redirects": _is_list_of_urls,
    "target": _is_url,
    "refresh": _is_url,
    "depth": _is_count,
    "parent": _is_text_or_none,
    "status": _is_count,
    "type": _is_text,
    "charset": _is_charset,
    "stored": _is_charset,
    "nofollow": _is_bool,
    "links": _is_list_of_urls,
    "length": _is_count,
    "sha256": _is_text,
}
_NOT_REFUSED = frozenset({"docID", "redirects", "target", "links"})  # a record with any of these is of no refused URL
_NEEDED = {"docID": ("url", "length", "sha256"), "reason": ("url",)}
