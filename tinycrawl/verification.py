"""Verification: does a page directory hold what its manifest says? Reads it through `PageDirectory` alone."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tinycrawl.exceptions import DirectoryError
from tinycrawl.items import Record
from tinycrawl.pagedir import MARKER, PageDirectory


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with *name*, an entry of the directory.

    *doc_id* is 0 if it is no page. *is_crash*: a crash may leave the last pages so.
    """

    name: str
    problem: str
    doc_id: int = 0
    is_crash: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.problem}"


def find_faults(directory: PageDirectory) -> Iterator[Fault]:
    """Compare every page with its record, byte for byte by digest, and the directory with the manifest.

    :raises DirectoryError: it is no page directory.
    """
    if directory.identity is None:
        yield Fault(MARKER, "is no manifest of tinycrawl")
        return
    pages = 0
    for record in directory.records():
        if "docID" in record:
            pages = record["docID"]
            fault = _compare(directory, pages, record)
            if fault is not None:
                yield fault
    for problem in directory.problems():
        if problem.is_torn:
            yield Fault(MARKER, f"has {problem.size} bytes at its end that are no manifest lines")
        else:
            yield Fault(MARKER, f"line {problem.line} is damaged: {problem.text}")
    for path in sorted(Path(directory.path).iterdir()):
        name = path.name
        if name.isascii() and name.isdigit() and name[0] != "0" and int(name) > pages:
            yield Fault(name, "is not in the manifest")


def _compare(directory: PageDirectory, doc_id: int, record: Record) -> Fault | None:
    name = str(doc_id)
    path = directory.path / name
    if path.is_symlink() or (path.exists() and not path.is_file()):
        return Fault(name, "is no regular file", doc_id)
    try:
        page = directory[doc_id - 1]
    except IndexError:
        return Fault(name, "is missing or cannot be read", doc_id, True)
    except DirectoryError as error:
        is_unreadable = isinstance(error.__cause__, OSError)
        return Fault(name, "is missing or cannot be read" if is_unreadable else "has not the form of a page", doc_id)
    if len(page.body) != record["length"]:
        return Fault(name, f"has {len(page.body)} bytes of body, not {record['length']}", doc_id, True)
    if hashlib.sha256(page.body).hexdigest() != record["sha256"]:
        return Fault(name, "is altered: its digest differs", doc_id, True)
    url = [record["url"], *record.get("redirects", ())][-1]
    if (page.url, page.depth) != (url, record.get("depth")):
        return Fault(name, "is altered: its URL or depth differs", doc_id)
    return None
