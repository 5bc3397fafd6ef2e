"""The page directory: what knows its format, to write it and to read it; the lines of its manifest are `manifest`'s.

A page is a file named by its docID, from ``1`` without a gap: line 1 the URL, line 2 the crawl depth, the rest
the body. The marker ``.crawler`` is the manifest, a JSON object per line: the identity of the crawl, each settled
URL in canonical order, last how the crawl ended.

A page is written under a hidden name, then its line is appended, then the file gets its docID. So every numbered
file has its line at every moment, and a line that a crash left without its file finds it as ``.page-<docID>``.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from tinycrawl.exceptions import DirectoryError
from tinycrawl.manifest import (
    FORMAT,
    IDENTITY_START,
    MARKER,
    Problem,
    format_line,
    open_marker,
    open_regular,
    read_end,
    read_identity,
    read_settled,
)

__all__ = [
    "MARKER",
    "DirectoryLock",
    "Draft",
    "Held",
    "PageDirectory",
    "PageWriter",
    "Problem",
    "StoredPage",
    "is_in_page_directory",
    "is_locked",
]

_DOC_ID = re.compile(r"[1-9][0-9]*")
_HIDDEN = re.compile(r"\.(held|page)-[0-9]+")
_PAGE_START = re.compile(rb"https?://[!-~]+\n[0-9]+\n.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StoredPage:
    """One page file; ``body`` is its bytes from line 3 on."""

    doc_id: int
    url: str
    depth: int
    body: bytes


class PageDirectory(Sequence[StoredPage]):
    """A page directory to read: index ``i`` is the file ``i + 1``. It may grow while a crawl writes.

    That of another crawler, with a marker that is not ours, has no identity, no records and no end.

    ``lost`` is for those who go on without a page that cannot be read: what is wrong with it, by docID.

    :raises DirectoryError: the marker cannot be opened, or its first line is damaged; or, where a page is read, it is
        no regular file, not of the form of a page, or missing though the crawl has ended with it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.lost: dict[int, str] = {}
        open_marker(self.path).close()

    def __len__(self) -> int:
        return next(n for n in itertools.count() if not _is_regular(self.path / str(n + 1)))

    def __iter__(self) -> Iterator[StoredPage]:
        doc_id = 0
        while page := self._read(doc_id := doc_id + 1):
            yield page
        end = self.end
        if end is not None and (end.get("saved") or 0) >= doc_id and not is_locked(self.path):
            raise self._error(doc_id, "is missing")

    @overload
    def __getitem__(self, index: int) -> StoredPage: ...
    @overload
    def __getitem__(self, index: slice) -> list[StoredPage]: ...
    def __getitem__(self, index: int | slice) -> StoredPage | list[StoredPage]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        doc_id = index + 1 if index >= 0 else len(self) + index + 1
        page = self._read(doc_id) if doc_id > 0 else None
        if page is None:
            raise IndexError(f"page directory {self.path} has no page at index {index}")
        return page

    def read_body(self, doc_id: int) -> bytes:
        """Return the body of a page.

        :raises DirectoryError: it is missing, too.
        """
        page = self._read(doc_id)
        if page is None:
            raise self._error(doc_id, "is missing")
        return page.body

    @property
    def identity(self) -> dict[str, Any] | None:
        """The first line: what was crawled, and under which policies."""
        with open_marker(self.path) as marker:
            return read_identity(self.path, marker.readline())

    @property
    def end(self) -> dict[str, Any] | None:
        """The last line, if the crawl has ended: how, and with which limits."""
        return read_end(self.path) if self.identity is not None else None

    def records(self) -> Iterator[dict[str, Any]]:
        """Read the lines of the settled URLs one by one. Those that are torn or damaged are left out."""
        return (record for _, record, _ in read_settled(self.path) if record is not None)

    def problems(self) -> list[Problem]:
        """What is wrong with the manifest, line by line; also that its last line is torn."""
        return [problem for _, _, problem in read_settled(self.path) if problem is not None]

    def gaps(self) -> list[Problem]:
        """Those of the problems after which there are records all the same: not what a crash may leave."""
        gaps: list[Problem] = []
        latest: list[Problem] = []
        for _, record, problem in read_settled(self.path):
            if problem is not None:
                latest.append(problem)
            elif latest and record is not None:
                gaps += latest
                latest = []
        return gaps

    @property
    def unreadable(self) -> int:
        """How many bytes of the manifest are left out, since they are no lines of ours."""
        return sum(problem.size for problem in self.problems())

    def _read(self, doc_id: int) -> StoredPage | None:
        try:
            url, depth, body = _read_lines(self.path / str(doc_id))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error(doc_id, _why(error)) from error
        if not (url.endswith(b"\n") and depth.endswith(b"\n") and depth[:-1].isdigit() and len(depth) < 20):
            raise self._error(doc_id, "is not a page file")
        return StoredPage(doc_id, url[:-1].decode("utf-8", "surrogateescape"), int(depth), body)

    def _error(self, doc_id: int, text: str) -> DirectoryError:
        return DirectoryError(f"page directory {self.path}: {doc_id} {text}")


@dataclass(eq=False, slots=True)
class Held:
    """A page that waits for its docID. ``length`` and ``sha256`` (in hex) are those of its body."""

    length: int
    sha256: str
    _path: Path

    def read(self) -> bytes:
        """Return the body; published pages can be read as well."""
        try:
            return _read_lines(self._path)[2]
        except OSError as error:
            raise DirectoryError(f"{self._path} {_why(error)}") from error

    def drop(self) -> None:
        """Remove the hidden file. A page that was published stays."""
        if self._path.name.startswith("."):
            _quietly(self._path.unlink)  # if this fails, it goes when the directory is closed or opened


@dataclass(frozen=True, slots=True)
class Draft:
    """A page that is to be written."""

    path: Path
    head: bytes
    body: bytes
    sync: bool

    def write(self) -> Held:
        """Write and flush it: all in one place, so that a thread can do it.

        :raises OSError: nothing is left of it.
        """
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            _write(file, self.head + self.body)
            if self.sync:
                os.fsync(file)
        except OSError:
            _quietly(self.path.unlink)
            raise
        finally:
            os.close(file)
        return Held(len(self.body), hashlib.sha256(self.body).hexdigest(), self.path)


class PageWriter:
    """The one writer of a page directory, locked from ``open`` to ``close`` or death.

    ``saved`` is the number of pages published; ``previous_end`` the end line of the crawl that is continued, ``None``
    if anything it settled had to be cut; ``repaired`` says what was cut or mended, for the log. When a write fails,
    that method and all later ones but ``forget`` and ``close`` raise DirectoryError. What has its docID stays.
    """

    def __init__(self, path: Path, marker: int, sync: bool) -> None:
        self.path = path
        self.saved = 0
        self.previous_end: dict[str, Any] | None = None
        self.repaired: list[str] = []
        self._marker, self._sync = marker, sync
        self._holds, self._failure, self._is_closed = 0, "", False
        with open_marker(path) as manifest:
            first = manifest.readline()
        # A crash may come before the whole identity is written.
        self._is_new = not first.endswith(b"\n") and IDENTITY_START.startswith(first[: len(IDENTITY_START)])
        try:
            self._identity = read_identity(path, first)
        except DirectoryError as error:
            raise DirectoryError(f"{error}; which crawl it holds cannot be told: give another pagedir") from None
        self._identity_size = len(first) if self._identity else 0
        self._size = os.fstat(marker).st_size
        self._settled = 0  # lines to replay
        self._problem: Problem | None = None  # the first of the manifest
        for _, record, problem in read_settled(path):
            if record is not None:
                self.saved = max(self.saved, _doc_id(record))
            self._problem = self._problem or problem
        if self._problem is None:
            self.previous_end = PageDirectory(path).end

    @classmethod
    def open(
        cls, path: Path, identity: Mapping[str, object], *, fresh: bool = False, sync: bool = True, verify: bool = True
    ) -> PageWriter:
        """Make the directory with its parents, or continue the crawl of this *identity* from its last whole prefix.

        *fresh* deletes what a crawl wrote there, and only that. *sync* flushes every page and line to the disk, for
        power cuts. *verify* compares the pages with their digests, not only with their lengths.

        :raises DirectoryError: it is locked, holds anything else, or cannot be written; it is left as it was.
        """
        path = Path(path).absolute()
        line = format_line({"tinycrawl": FORMAT}, identity)
        with ExitStack() as undo:
            try:
                for directory in reversed([p for p in (path, *path.parents) if not p.exists()]):
                    with suppress(FileExistsError):  # another crawl was faster
                        directory.mkdir()
                        undo.callback(_quietly, directory.rmdir)
                names = [entry.name for entry in path.iterdir()]
                if names and MARKER not in names and not fresh:
                    raise DirectoryError(f"page directory {path} is not empty and has no {MARKER}: no crawl wrote it")
                writer = cls(path, _lock_marker(path / MARKER, undo, is_made=MARKER not in names), sync)
                pages, hidden = writer._sort_entries(json.loads(line), fresh)
                if not writer._identity:
                    undo.callback(_quietly, os.ftruncate, writer._marker, 0)
                if fresh or not writer._identity:
                    writer._start(line, pages, hidden)
                writer._delete([], [file for file in hidden if file.name.startswith(".held")])
                writer.hold(
                    writer.draft("", 0, bytes(4096))
                ).drop()  # better to know a full disk now than at the first page
                if writer._identity and not fresh:
                    writer._recover(pages, hidden, verify)
            except OSError as error:
                raise DirectoryError(f"page directory {path} cannot be used: {error.strerror}") from error
            undo.pop_all()
        return writer

    def records(self) -> Iterator[dict[str, Any]]:
        """Read what was settled when the directory was opened; a crawl that continues replays it."""
        return itertools.islice(PageDirectory(self.path).records(), self._settled)

    def read_body(self, doc_id: int) -> bytes:
        return Held(0, "", self.path / str(doc_id)).read()

    def draft(self, url: str, depth: int, body: bytes) -> Draft:
        """Return what writes a complete page under a hidden name."""
        if "\n" in url or depth < 0:
            raise ValueError(f"no lines for a page file: {url!r}, {depth!r}")
        self._holds += 1
        return Draft(self.path / f".held-{self._holds}", f"{url}\n{depth}\n".encode(), body, self._sync)

    def hold(self, draft: Draft, write: Callable[[], Held] | None = None) -> Held:
        """Write *draft*, or take what *write* gives or raises, where it was written in a thread."""
        with self._writing(draft.path.name):
            return (write or draft.write)()

    def publish(self, record: Mapping[str, object], held: Held) -> int:
        """Settle a URL with its page, and return the docID. Replaces ``docID``, ``length``, ``sha256`` in *record*."""
        if not held.length or not held._path.name.startswith("."):
            raise ValueError("an empty body takes no docID, and a page takes only one")
        doc_id = self.saved + 1
        rest = {key: value for key, value in record.items() if key not in ("length", "sha256")}
        line = format_line({"docID": doc_id}, rest | {"length": held.length, "sha256": held.sha256})
        page, waiting = self.path / str(doc_id), self.path / f".page-{doc_id}"
        with self._writing(page.name):
            if os.path.lexists(page):
                raise OSError(0, "the name is taken by something that is not ours")
            held._path = held._path.rename(waiting)
            self._append(line)
            held._path = waiting.rename(page)
        self.saved = doc_id
        return doc_id

    def settle(self, record: Mapping[str, object]) -> None:
        """Settle a URL without a page: *record* gives the ``reason``."""
        line = format_line({"reason": record["reason"]}, record)
        with self._writing(MARKER):
            self._append(line)

    def forget(self) -> None:
        """Cut all settled lines, unless a page is saved: a crawl that saved nothing settles nothing."""
        if not self.saved:
            with self._writing(MARKER, is_last=True):
                self._cut(self._identity_size)

    def close(self, end: Mapping[str, object] | None = None) -> None:
        """Drop the held files, append the end line if given, unlock. Again: do nothing.

        After a failed write this raises nothing: an end line that cannot be written is left out, as after a kill.
        """
        if self._is_closed:
            return
        with ExitStack() as at_last:
            at_last.callback(os.close, self._marker)
            at_last.callback(setattr, self, "_is_closed", True)
            at_last.enter_context(suppress(*[DirectoryError] if self._failure else []))
            line = format_line({"end": end["end"]}, end) if end else b""
            with self._writing(MARKER, is_last=True):
                for entry in self.path.iterdir():
                    if _HIDDEN.fullmatch(entry.name):
                        _quietly(entry.unlink)
                self._cut(self._size)  # a failed write may have left more
                self._append(line)
                self._flush()

    def _sort_entries(self, wanted: dict[str, Any], fresh: bool) -> tuple[list[int], list[Path]]:
        """Return the pages and hidden files that a crawl wrote; refuse, before anything changes, what is not ours.

        A power cut can take the last lines and leave their pages. Where no end line follows the settled ones, or
        lines are damaged, files of a page's form that continue the docIDs are therefore ours too.
        """
        files, hidden, foreign = set(), [], []
        for entry in self.path.iterdir():
            is_file = stat.S_ISREG(entry.lstat().st_mode)
            if is_file and _DOC_ID.fullmatch(entry.name):
                files.add(int(entry.name))
            elif is_file and self._identity and _HIDDEN.fullmatch(entry.name):
                hidden.append(entry)
            elif entry.name != MARKER:
                foreign.append(entry.name)
        known = self.saved
        if self._identity and not self.previous_end:
            while known + 1 in files and _has_page_form(self.path / str(known + 1)):
                known += 1
        foreign += [str(doc_id) for doc_id in sorted(files) if doc_id > known]
        in_the_way = [name for name in foreign if _DOC_ID.fullmatch(name) or _HIDDEN.fullmatch(name)]
        if not self._identity and (not self._is_new or in_the_way):
            raise DirectoryError(f"page directory {self.path} is not one of tinycrawl: its {MARKER} is not ours")
        stored = self._identity or wanted
        for key in wanted | stored if not fresh else ("tinycrawl",):
            theirs, ours = (json.dumps(lines[key]) if key in lines else "nothing" for lines in (stored, wanted))
            if theirs != ours:
                raise DirectoryError(f"page directory {self.path} holds another crawl ({key}: {theirs}, not {ours})")
        for name in in_the_way if fresh else foreign:
            if name in in_the_way or not name.startswith("."):
                but = "" if self._problem is None else f", as far as can be told: {self._problem}"
                raise DirectoryError(f"page directory {self.path} holds {name!r}, which no crawl wrote{but}")
        return [doc_id for doc_id in files if doc_id <= known], hidden

    def _start(self, line: bytes, pages: list[int], hidden: list[Path]) -> None:
        """Begin anew. The marker is never empty on the way, or it would not be known as ours after a crash."""
        self._delete(pages, hidden)
        self._cut(self._identity_size)
        os.lseek(self._marker, 0, os.SEEK_SET)
        _write(self._marker, line)
        self._cut(len(line))
        self._flush()
        self._identity_size = len(line)
        self.saved, self.previous_end = 0, None

    def _recover(self, pages: list[int], hidden: list[Path], verify: bool) -> None:
        """Cut back to the lines before the first whose page is neither whole nor waiting to be renamed."""
        size, self.saved = self._identity_size, 0
        for end, record, _ in read_settled(self.path):
            if record is None:
                break
            if doc_id := _doc_id(record):
                page, waiting = self.path / str(doc_id), self.path / f".page-{doc_id}"
                if not _is_whole(page, record, verify):
                    if not _is_whole(waiting, record, True):
                        break
                    waiting.replace(page)
                    self.repaired.append(f"page {doc_id}: completed from its hidden file")
                self.saved = doc_id
            size = end
            self._settled += 1
        if size + (len(format_line(self.previous_end, {})) if self.previous_end else 0) < self._size:
            self.previous_end = None
            self.repaired.append(f"{MARKER}: {self._size - size} bytes cut, which have no page or are no whole line")
        lost = [doc_id for doc_id in pages if doc_id > self.saved]
        self.repaired += [f"page {doc_id}: deleted, since its line is cut or lost" for doc_id in lost]
        self._delete(lost, hidden)  # before the lines: a crash in between must not leave numbered files without one
        self._cut(size)

    def _delete(self, pages: list[int], hidden: list[Path]) -> None:
        for path in [*hidden, *(self.path / str(doc_id) for doc_id in sorted(pages, reverse=True))]:  # never a gap
            path.unlink(missing_ok=True)
        if pages:
            self._flush()

    def _append(self, line: bytes) -> None:
        os.lseek(self._marker, self._size, os.SEEK_SET)
        _write(self._marker, line)
        self._size += len(line)

    def _cut(self, size: int) -> None:
        os.ftruncate(self._marker, size)
        self._size = size

    def _flush(self) -> None:
        """Bring the manifest and the names of the files to the disk."""
        if self._sync:
            os.fsync(self._marker)
            directory = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    @contextmanager
    def _writing(self, name: str, is_last: bool = False) -> Iterator[None]:
        """Turn a failure into the end of writing, without what it left of a line in the manifest."""
        if self._is_closed:
            raise ValueError(f"page directory {self.path} is closed")
        if self._failure and not is_last:
            raise DirectoryError(self._failure)
        size = self._size
        try:
            yield
        except OSError as error:
            self._size = size
            _quietly(self._cut, size)
            self._failure = f"page directory {self.path}: cannot write {name}: {error.strerror}"
            raise DirectoryError(self._failure) from error
        except BaseException as error:  # an interrupt: what is half done is for the next crawl to recover
            self._failure = f"page directory {self.path}: interrupted while writing {name}: {error!r}"
            raise


class DirectoryLock:
    """A directory that is only read: of the crawl of *identity* and nothing else, and locked until ``close`` or death.

    :raises DirectoryError: another crawl writes it, or it holds anything else.
    """

    def __init__(self, path: Path, identity: Mapping[str, object]) -> None:
        with ExitStack() as undo:
            try:
                writer = PageWriter(path, _lock_marker(path / MARKER, undo, is_made=False), sync=False)
                pages, hidden = writer._sort_entries(
                    json.loads(format_line({"tinycrawl": FORMAT}, identity)), fresh=False
                )
            except OSError as error:
                raise DirectoryError(f"page directory {path} cannot be used: {error.strerror}") from error
            self._held = undo.pop_all()
        self._names = [
            *(str(doc_id) for doc_id in sorted(pages, reverse=True)),
            *(file.name for file in hidden),
            MARKER,
        ]

    def discard(self, path: Path) -> list[Path]:
        """Delete what a crawl wrote there, which is at *path* by now; return what else is in it."""
        for name in self._names:
            (path / name).unlink(missing_ok=True)
        return list(path.iterdir())

    def close(self) -> None:
        self._held.close()


def is_in_page_directory(path: Path) -> bool:
    """Would a file at *path* be in a page directory, where no crawl expects it?"""
    return (Path(os.path.realpath(path)).parent / MARKER).exists()


def is_locked(path: Path) -> bool:
    """Is *path* a directory that a crawl is writing at this moment?"""
    with suppress(DirectoryError), open_marker(path) as marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _lock_marker(path: Path, undo: ExitStack, is_made: bool) -> int:
    marker = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    undo.callback(os.close, marker)
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DirectoryError(f"page directory {path.parent} is being written by another crawl") from error
    status = os.fstat(marker)
    if not stat.S_ISREG(status.st_mode) or not status.st_nlink:  # no link: the crawl that made it has just failed
        raise OSError(0, f"{MARKER} is no regular file")
    if is_made and not status.st_size:
        undo.callback(_quietly, path.unlink)
    return marker


def _doc_id(record: Mapping[str, Any]) -> Any:
    return record["docID"] if next(iter(record)) == "docID" else 0


def _is_whole(page: Path, record: Mapping[str, Any], verify: bool) -> bool:
    try:
        with open_regular(page) as file:
            start = len(file.readline()) + len(file.readline())
            if os.fstat(file.fileno()).st_size - start != record.get("length"):
                return False
            return not verify or hashlib.file_digest(file, "sha256").hexdigest() == record.get("sha256")
    except FileNotFoundError:
        return False


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _has_page_form(path: Path) -> bool:
    with open_regular(path) as file:
        return bool(_PAGE_START.match(file.read()))


def _read_lines(page: Path) -> tuple[bytes, bytes, bytes]:
    with open_regular(page) as file:
        return file.readline(), file.readline(), file.read()


def _why(error: OSError) -> str:
    """The reason of `open_regular`, or that of the system."""
    return f"cannot be read: {error.strerror}" if error.errno else str(error.strerror)


def _write(file: int, data: bytes) -> None:
    while data:  # a disk that is full takes a part, and says so at the next attempt
        data = data[os.write(file, data) :]


def _quietly(action: Callable[..., object], *arguments: object) -> None:
    with suppress(OSError):
        action(*arguments)
