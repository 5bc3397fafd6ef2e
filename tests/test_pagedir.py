"""The page directory: its format byte for byte, what it refuses, and that it is whole after a crash at any step."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinycrawl.exceptions import DirectoryError
from tinycrawl.pagedir import PageDirectory, PageWriter, StoredPage

IDENTITY = {"seed": "http://h.test/", "scope": "host"}
OTHER = {"seed": "http://h.test/", "scope": "all"}
END = {"end": "complete", "depth": 1}

# What a crawl publishes or settles, in order. The two equal bodies are two pages all the same.
SCRIPT: list[tuple[str, bytes | str]] = [
    ("http://h.test/", b"<html>\r\n\xff</html>"),
    ("http://h.test/a", b"\n\nsame"),
    ("http://h.test/gone", "http 404"),
    ("http://h.test/b", b"\n\nsame"),
    ("http://h.test/no", "robots"),
    ("http://h.test/c", b"x" * 5000),
]
WHOLE: dict[str, bytes | None] = {
    "1": b"http://h.test/\n1\n<html>\r\n\xff</html>",
    "2": b"http://h.test/a\n1\n\n\nsame",
    "3": b"http://h.test/b\n1\n\n\nsame",
    "4": b"http://h.test/c\n1\n" + b"x" * 5000,
    ".crawler": b"""\
{"tinycrawl":1,"seed":"http://h.test/","scope":"host"}
{"docID":1,"url":"http://h.test/","length":16,\
"sha256":"8df4f9ef42f69bea50e0342375c29652efc7a0b411d918c003e231eb976cda9f"}
{"docID":2,"url":"http://h.test/a","length":6,\
"sha256":"39ce0715a1a50acc88fa39de3e4042f15fab1408d56cf54322ddbde126c87c80"}
{"reason":"http 404","url":"http://h.test/gone"}
{"docID":3,"url":"http://h.test/b","length":6,\
"sha256":"39ce0715a1a50acc88fa39de3e4042f15fab1408d56cf54322ddbde126c87c80"}
{"reason":"robots","url":"http://h.test/no"}
{"docID":4,"url":"http://h.test/c","length":5000,\
"sha256":"c59d3c0480cc2d71d8f646e735e92da65450311eec46e81a5db8c7e6e8a92054"}
{"end":"complete","depth":1}
""",
}
LINES = (WHOLE[".crawler"] or b"").splitlines(keepends=True)
SETTLED_URLS = [url for url, _ in SCRIPT]


def write(
    directory: Path,
    script: list[tuple[str, bytes | str]] = SCRIPT,
    identity: dict[str, str] = IDENTITY,
    fresh: bool = False,
    sync: bool = False,
) -> None:
    """Settle what the directory does not hold yet; answers arrive ahead of their turn."""
    writer = PageWriter.open(directory, identity, fresh=fresh, sync=sync)
    rest = script[len(list(writer.records())) :]
    held = {url: writer.hold(writer.draft(url, 1, what)) for url, what in reversed(rest) if isinstance(what, bytes)}
    for url, what in rest:
        if isinstance(what, bytes):
            writer.publish({"url": url}, held[url])
        else:
            writer.settle({"url": url, "reason": what})
    writer.close(END)


def read_files(directory: Path) -> dict[str, bytes | None]:
    """Every file below *directory* with its bytes, and every folder."""
    return {str(p.relative_to(directory)): p.read_bytes() if p.is_file() else None for p in directory.rglob("*")}


def list_names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def assert_whole_prefix(directory: Path) -> None:
    """Any reader finds whole pages without a gap, and in the manifest a line for each."""
    numbered = sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())
    assert numbered == list(range(1, len(numbered) + 1))
    assert all((directory / str(doc_id)).read_bytes() == WHOLE[str(doc_id)] for doc_id in numbered)
    if (directory / ".crawler").exists():
        records = list(PageDirectory(directory).records())
        assert [record["url"] for record in records] == SETTLED_URLS[: len(records)]
        assert len(numbered) <= sum("docID" in record for record in records) <= len(numbered) + 1


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data" / "h.test-1"


# The format


def test_directory_is_the_documented_format(directory: Path) -> None:
    write(directory)

    assert read_files(directory) == WHOLE


def test_reason_is_the_first_key_and_the_rest_is_as_given(directory: Path) -> None:
    writer = PageWriter.open(directory, {"tinycrawl": 7, "seed": "http://bücher.test/"})
    writer.settle({"url": "/\u2028", "reason": "not html", "docID": 3})
    writer.publish({"chain": ["a"], "length": 0, "docID": 9}, writer.hold(writer.draft("http://h.test/", 0, b"one")))
    writer.close(None)

    assert (directory / ".crawler").read_bytes() == (
        b'{"tinycrawl":1,"seed":"http://b\\u00fccher.test/"}\n'
        b'{"reason":"not html","url":"/\\u2028","docID":3}\n'
        b'{"docID":1,"chain":["a"],"length":3,'
        b'"sha256":"7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"}\n'
    )


def test_page_is_hidden_until_it_is_published_and_files_can_be_read_by_all(directory: Path) -> None:
    writer = PageWriter.open(directory, IDENTITY)
    held = writer.hold(writer.draft("http://h.test/", 0, b"one"))
    hidden = {path.name for path in directory.iterdir()}

    assert (held.length, held.read()) == (3, b"one")
    assert all(name.startswith(".") for name in hidden)
    assert len(hidden) == 2
    assert writer.publish({}, held) == 1
    held.drop()
    assert held.read() == writer.read_body(1) == b"one"
    assert {path.name: path.stat().st_mode & 0o044 for path in directory.iterdir()} == {".crawler": 0o044, "1": 0o044}
    writer.close(None)
    writer.close(END)


def test_close_leaves_no_hidden_file_and_drop_removes_one(directory: Path) -> None:
    writer = PageWriter.open(directory, IDENTITY)
    writer.hold(writer.draft("http://h.test/a", 0, b"a")).drop()
    assert list_names(directory) == [".crawler"]
    writer.hold(writer.draft("http://h.test/b", 0, b"b"))
    writer.close(None)

    assert list_names(directory) == [".crawler"]
    for late in (writer.forget, lambda: writer.settle({"reason": "robots"})):
        with pytest.raises(ValueError, match="closed"):
            late()


def test_what_is_no_page_takes_no_doc_id(directory: Path) -> None:
    writer = PageWriter.open(directory, IDENTITY)
    held = writer.hold(writer.draft("http://h.test/", 0, b"one"))
    for url, depth in [("http://h.test/\n", 0), ("http://h.test/", -1)]:
        with pytest.raises(ValueError):
            writer.hold(writer.draft(url, depth, b"one"))
    with pytest.raises(ValueError):
        writer.publish({}, writer.hold(writer.draft("http://h.test/", 0, b"")))
    writer.publish({}, held)
    with pytest.raises(ValueError):
        writer.publish({}, held)
    writer.close(None)

    assert list_names(directory) == [".crawler", "1"]


def test_crawl_that_saved_nothing_settles_nothing(directory: Path) -> None:
    writer = PageWriter.open(directory, IDENTITY)
    writer.settle({"reason": "timeout", "url": "http://h.test/"})
    writer.forget()
    writer.close({"end": "outage"})
    assert (directory / ".crawler").read_bytes() == LINES[0] + b'{"end":"outage"}\n'

    writer = PageWriter.open(directory, IDENTITY)
    assert (list(writer.records()), writer.previous_end) == ([], {"end": "outage"})
    writer.publish({"url": "http://h.test/"}, writer.hold(writer.draft("http://h.test/", 0, b"one")))
    writer.settle({"reason": "timeout", "url": "http://h.test/"})
    writer.forget()
    writer.close(None)
    assert len(list(PageDirectory(directory).records())) == 2


# Reading


def test_reader_is_a_sequence_of_pages(directory: Path) -> None:
    write(directory)
    reader = PageDirectory(directory)
    second = StoredPage(doc_id=2, url="http://h.test/a", depth=1, body=b"\n\nsame")

    assert len(reader) == 4
    assert (reader[1], reader[-3], reader[1:2]) == (second, second, [second])
    assert [page.doc_id for page in reader] == [1, 2, 3, 4]
    assert [page.doc_id for page in reversed(reader)] == [4, 3, 2, 1]
    assert [page.url for page in reader[::3]] == ["http://h.test/", "http://h.test/c"]
    for index in (4, -5):
        with pytest.raises(IndexError):
            reader[index]
    assert reader.identity == {"tinycrawl": 1, **IDENTITY}
    assert [record["url"] for record in reader.records()] == SETTLED_URLS
    assert reader.end == END


def test_reader_reads_while_a_crawl_writes(directory: Path) -> None:
    writer = PageWriter.open(directory, IDENTITY)
    reader = PageDirectory(directory)
    assert (len(reader), reader.end, list(reader.records())) == (0, None, [])
    writer.publish({"url": "http://h.test/"}, writer.hold(writer.draft("http://h.test/", 0, b"one")))
    with (directory / ".crawler").open("ab") as manifest:
        manifest.write(b'{"docID":2,"u')

    assert [page.body for page in reader] == [b"one"]
    assert [record["docID"] for record in reader.records()] == [1]
    writer.close(None)


def test_reader_reads_the_directory_of_a_crawler_with_an_empty_marker(tmp_path: Path) -> None:
    (tmp_path / ".crawler").touch()
    (tmp_path / "1").write_bytes(b"http://h.test/\n0\n")
    reader = PageDirectory(tmp_path)

    assert list(reader) == [StoredPage(1, "http://h.test/", 0, b"")]
    assert (reader.identity, list(reader.records()), reader.end) == (None, [], None)


def test_reader_refuses_what_is_no_page_directory(tmp_path: Path) -> None:
    with pytest.raises(DirectoryError, match=str(tmp_path)):
        PageDirectory(tmp_path)
    (tmp_path / ".crawler").touch()
    (tmp_path / "1").write_bytes(b"http://h.test/\nno depth\n")
    with pytest.raises(DirectoryError, match=str(tmp_path)):
        PageDirectory(tmp_path)[0]


# What is refused


def make(**contents: bytes) -> Callable[[Path], None]:
    """Write files beside the pages of a finished crawl; ``_crawler`` stands for the marker."""

    def change(directory: Path) -> None:
        write(directory)
        for name, content in contents.items():
            (directory / name.replace("_", ".", 1)).write_bytes(content)

    return change


def make_foreign(marker: bytes | None, *names: str) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        directory.mkdir(parents=True)
        if marker is not None:
            (directory / ".crawler").write_bytes(marker)
        for name in names:
            (directory / name).write_bytes(b"http://h.test/\n0\nbody")

    return change


def make_page_a_folder(directory: Path) -> None:
    write(directory)
    (directory / "3").unlink()
    (directory / "3").mkdir()


def make_page_a_link(directory: Path) -> None:
    write(directory)
    (directory / "3").rename(directory.parent / "elsewhere")
    (directory / "3").symlink_to(directory.parent / "elsewhere")


def make_file(directory: Path) -> None:
    directory.parent.mkdir()
    directory.write_bytes(b"a file in its place")


def make_folder_as_marker(directory: Path) -> None:
    (directory / ".crawler").mkdir(parents=True)


REFUSED_ALWAYS = {
    "a-file-in-its-place": (make_file, "Not a directory"),
    "a-page-after-the-end": (make(**{"5": b"http://h.test/\n0\nbody"}), "holds '5', which no crawl wrote"),
    "a-number-far-away": (make(**{"99": b"mine"}), "holds '99'"),
    "a-folder-as-page": (make_page_a_folder, "holds '3'"),
    "a-link-as-page": (make_page_a_link, "holds '3'"),
    "the-ancestor's": (make_foreign(b"", "1"), "its .crawler is not ours"),
    "another-program's": (make_foreign(b"x = 1\n"), "its .crawler is not ours"),
    "another-program's-torn": (make_foreign(b"x = 1"), "its .crawler is not ours"),
    "torn-marker-with-pages": (make_foreign(LINES[0][:-9], "1"), "its .crawler is not ours"),
    "a-later-format": (make_foreign(b'{"tinycrawl":2}\n', "1"), r"another crawl \(tinycrawl: 2, not 1\)"),
    "a-folder-as-marker": (make_folder_as_marker, "Is a directory"),
}
REFUSED_UNLESS_FRESH = {
    "another-file": (make(**{"notes.txt": b"mine"}), "holds 'notes.txt', which no crawl wrote"),
    "no-marker": (make_foreign(None, "notes.txt"), "not empty and has no .crawler"),
    "no-marker-hidden": (make_foreign(None, ".notes"), "not empty and has no .crawler"),
    "zero-is-no-docID": (make(**{"0": b"mine"}), "holds '0'"),
    "empty-marker-and-another-file": (make_foreign(b"", "notes.txt"), "holds 'notes.txt'"),
}


@pytest.mark.parametrize("fresh", [False, True], ids=["", "fresh"])
@pytest.mark.parametrize(("change", "message"), REFUSED_ALWAYS.values(), ids=REFUSED_ALWAYS)
def test_refused_and_untouched(change: Callable[[Path], None], message: str, fresh: bool, directory: Path) -> None:
    change(directory)
    before = read_files(directory.parent)

    with pytest.raises(DirectoryError, match=message) as caught:
        PageWriter.open(directory, IDENTITY, fresh=fresh)

    assert str(directory) in str(caught.value)
    assert read_files(directory.parent) == before


@pytest.mark.parametrize(("change", "message"), REFUSED_UNLESS_FRESH.values(), ids=REFUSED_UNLESS_FRESH)
def test_foreign_files_are_refused_and_stay_where_they_are_when_fresh(
    change: Callable[[Path], None], message: str, directory: Path
) -> None:
    change(directory)
    before = read_files(directory)
    with pytest.raises(DirectoryError, match=message):
        PageWriter.open(directory, IDENTITY)
    assert read_files(directory) == before

    write(directory, SCRIPT[:1], fresh=True)

    ours = {".crawler": b"".join([*LINES[:2], LINES[-1]]), "1": WHOLE["1"]}
    assert read_files(directory) == {name: before[name] for name in before if name not in WHOLE} | ours


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        pytest.param(OTHER, r'holds another crawl \(scope: "host", not "all"\)', id="value"),
        pytest.param(IDENTITY | {"include": "^/a"}, r'\(include: nothing, not "\^/a"\)', id="more"),
        pytest.param({"seed": "http://h.test/"}, r'\(scope: "host", not nothing\)', id="less"),
    ],
)
def test_another_crawl_is_refused_untouched_and_replaced_when_fresh(
    identity: dict[str, str], message: str, directory: Path
) -> None:
    write(directory)
    marker = (directory / ".crawler").stat().st_ino
    with pytest.raises(DirectoryError, match=message):
        PageWriter.open(directory, identity)
    assert read_files(directory) == WHOLE

    write(directory, SCRIPT[:2], identity, fresh=True)

    assert list_names(directory) == [".crawler", "1", "2"]
    assert PageDirectory(directory).identity == {"tinycrawl": 1, **identity}
    assert (directory / ".crawler").stat().st_ino == marker


@pytest.mark.parametrize("torn", [0, 5, 20])
def test_marker_that_a_crash_left_empty_or_torn_is_as_good_as_none(torn: int, directory: Path) -> None:
    make_foreign(LINES[0][:torn])(directory)

    write(directory)

    assert read_files(directory) == WHOLE


def test_hidden_files_of_others_are_neither_refused_nor_touched(directory: Path) -> None:
    write(directory)
    (directory / ".DS_Store").write_bytes(b"mine")
    (directory / ".held-7").write_bytes(b"left by a kill")

    writer = PageWriter.open(directory, IDENTITY)
    writer.close(writer.previous_end)

    assert read_files(directory) == WHOLE | {".DS_Store": b"mine"}


# Locks


def test_second_crawl_is_refused_until_the_first_is_closed(directory: Path) -> None:
    writer = PageWriter.open(directory, IDENTITY)
    for fresh in (False, True):
        with pytest.raises(DirectoryError, match=f"{directory} is being written by another crawl"):
            PageWriter.open(directory, IDENTITY, fresh=fresh)
    list(writer.records()), list(PageDirectory(directory).records())  # reading must not unlock
    with pytest.raises(DirectoryError):
        PageWriter.open(directory, IDENTITY)
    writer.close(None)

    PageWriter.open(directory, IDENTITY).close(None)


def test_lock_dies_with_a_killed_process(directory: Path) -> None:
    code = (
        "import sys, signal; from pathlib import Path; from tinycrawl.pagedir import PageWriter\n"
        f"writer = PageWriter.open(Path(sys.argv[1]), {IDENTITY!r})\n"
        "print('locked', flush=True); signal.pause()"
    )
    command = [sys.executable, "-c", code, str(directory)]
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryError, match="another crawl"):
            PageWriter.open(directory, IDENTITY)
        process.send_signal(signal.SIGKILL)
    write(directory)

    assert read_files(directory) == WHOLE


# Writes that fail


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_full_disk_is_refused_at_the_start_and_nothing_is_left(small_disk: Path) -> None:
    fill(small_disk)
    directory = small_disk / "a" / "b"

    with pytest.raises(DirectoryError, match=f"{directory}.*No space left on device"):
        PageWriter.open(directory, IDENTITY)

    assert list_names(small_disk) == ["filler"]


def test_full_disk_is_refused_by_a_crawl_that_continues(small_disk: Path) -> None:
    directory = small_disk / "pages"
    write(directory)
    fill(small_disk)
    with pytest.raises(DirectoryError, match="No space left on device"):
        PageWriter.open(directory, IDENTITY)

    assert read_files(directory) == WHOLE


def test_disk_that_fills_up_leaves_what_is_numbered_whole(small_disk: Path) -> None:
    directory = small_disk / "pages"
    writer = PageWriter.open(directory, IDENTITY)

    def save() -> int:
        return writer.publish({"url": "http://h.test/"}, writer.hold(writer.draft("http://h.test/", 0, b"x" * 150_000)))

    assert [save() for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(DirectoryError, match=rf"{directory}: cannot write \.held-8: "):
        save()
    for later in (save, lambda: writer.settle({"reason": "robots"})):
        with pytest.raises(DirectoryError, match=r"cannot write \.held-8"):
            later()
    writer.close(END)

    assert list_names(directory) == [".crawler", "1", "2", "3", "4", "5", "6"]
    assert {len(page.body) for page in PageDirectory(directory)} == {150_000}
    assert len(list(PageDirectory(directory).records())) == 6


def test_read_only_disk_is_refused_untouched(small_disk: Path) -> None:
    directory = small_disk / "pages"
    write(directory)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for path, fresh in itertools.product([directory, small_disk / "new" / "one"], [False, True]):
        with pytest.raises(DirectoryError, match=f"{path}.*Read-only file system"):
            PageWriter.open(path, IDENTITY, fresh=fresh)

    assert read_files(small_disk) == {f"pages/{name}": content for name, content in WHOLE.items()} | {"pages": None}


@pytest.mark.parametrize("room", [1, 30, 60])
def test_line_that_can_be_written_only_in_part_is_taken_back(room: int, directory: Path) -> None:
    write(directory, SCRIPT[:2])
    writer = PageWriter.open(directory, IDENTITY)
    held = writer.hold(writer.draft("http://h.test/b", 1, b"b"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = (directory / ".crawler").read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, limits[1]))
    try:
        with pytest.raises(DirectoryError, match=f"{directory}: cannot write 3: File too large"):
            writer.publish({"url": "http://h.test/b"}, held)
        with pytest.raises(DirectoryError):
            writer.settle({"reason": "robots"})
        writer.close({"end": "x" * 99})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert read_files(directory) == {".crawler": before, "1": WHOLE["1"], "2": WHOLE["2"]}


def test_folder_in_the_way_of_a_page_takes_its_line_back(directory: Path) -> None:
    writer = PageWriter.open(directory, IDENTITY)
    (directory / "1").mkdir()
    with pytest.raises(DirectoryError, match=f"{directory}: cannot write 1: the name is taken"):
        writer.publish({}, writer.hold(writer.draft("http://h.test/", 0, b"one")))
    writer.close(None)

    assert read_files(directory) == {".crawler": LINES[0], "1": None}


def test_end_line_that_cannot_be_written_is_an_error_and_unlocks(directory: Path) -> None:
    write(directory, SCRIPT[:2])
    writer = PageWriter.open(directory, IDENTITY)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((directory / ".crawler").stat().st_size + 5, limits[1]))
    try:
        with pytest.raises(DirectoryError, match=f"{directory}: cannot write .crawler"):
            writer.close(END)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    write(directory)
    assert read_files(directory) == WHOLE


# Crashes

STEPS = ("open", "write", "fsync", "rename", "replace", "unlink", "ftruncate", "mkdir")


def run_and_die(action: Callable[[], object], at: int, tear: bool) -> bool:
    """Run *action* in a child that dies before its system call number *at*; tell whether it came to its end.

    With *tear*, a write that dies writes half.
    """
    if child := os.fork():
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, 9), "the child raised an exception"
        return status == 0
    steps = itertools.count(1)

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            if next(steps) == at:
                if tear and call is write_bytes:
                    write_bytes(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os._exit(9)
            return call(*arguments, **options) if call is not fsync else None  # a killed process leaves no need of it

        return step

    status = 1
    try:
        write_bytes, fsync = os.write, os.fsync
        for name in STEPS:
            setattr(os, name, dying(getattr(os, name)))
        action()
        status = 0
    finally:
        os._exit(status)


def die_at_every_step(prepare: Callable[[Path], None], action: Callable[[Path], object], tmp_path: Path) -> list[Path]:
    """Return the directories that *action* leaves when it dies at its 1st, 2nd, ... step."""
    left: list[Path] = []
    for tear in (False, True):
        for at in itertools.count(1):
            directory = tmp_path / f"{'torn' if tear else 'dead'}-{at}"
            prepare(directory)
            is_complete = run_and_die(partial(action, directory), at, tear)
            left.append(directory)
            if is_complete:
                break
    return left


def test_crash_at_any_step_of_a_crawl_leaves_a_whole_prefix_that_can_be_finished(tmp_path: Path) -> None:
    left = die_at_every_step(lambda directory: None, partial(write, sync=True), tmp_path)
    assert len(left) > 2 * 40

    for directory in left:
        if directory.exists():
            assert_whole_prefix(directory)
        settled = list(PageDirectory(directory).records()) if (directory / ".crawler").exists() else []
        writer = PageWriter.open(directory, IDENTITY, sync=False)
        assert list(writer.records()) == settled  # nothing that was settled is lost
        assert writer.saved == len(PageDirectory(directory)) == sum("docID" in record for record in settled)
        writer.close(None)
        write(directory)
        assert read_files(directory) == WHOLE


@pytest.mark.parametrize("at", [1, 2])
def test_interrupt_in_a_publication_ends_the_writing(at: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(directory, SCRIPT[:1])
    writer = PageWriter.open(directory, IDENTITY)
    held = writer.hold(writer.draft("http://h.test/a", 1, b"\n\nsame"))
    renames = itertools.count(1)

    def rename(*names: str, call: Callable[..., None] = os.rename) -> None:
        call(*names)
        if next(renames) == at:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            writer.publish({"url": "http://h.test/a"}, held)
    with pytest.raises(DirectoryError, match="interrupted"):
        writer.settle({"reason": "robots"})
    writer.close({"end": "interrupted"})

    assert_whole_prefix(directory)
    write(directory)
    assert read_files(directory) == WHOLE


def damage(directory: Path) -> None:
    """A page waits for its last rename, a later one is changed, a line is torn, files are left over."""
    write(directory)
    (directory / "2").rename(directory / ".page-2")
    (directory / "3").write_bytes(b"http://h.test/b\n1\n\n\nSAME")
    (directory / ".held-1").write_bytes(b"left over")
    (directory / ".crawler").write_bytes(b"".join(LINES[:-1]) + b'{"docID":5,')
    (directory / "5").write_bytes(b"http://h.test/d\n1\nits line is torn")


def test_recovery_says_what_it_did(directory: Path) -> None:
    damage(directory)
    writer = PageWriter.open(directory, IDENTITY)

    assert [line.split(":")[0] for line in writer.repaired] == ["page 2", ".crawler", "page 3", "page 4", "page 5"]
    assert (writer.saved, writer.previous_end) == (2, None)
    assert [record["url"] for record in writer.records()] == SETTLED_URLS[:3]
    assert read_files(directory) == {".crawler": b"".join(LINES[:4]), "1": WHOLE["1"], "2": WHOLE["2"]}


def test_crash_at_any_step_of_recovery_can_be_recovered(tmp_path: Path) -> None:
    for directory in die_at_every_step(damage, partial(write, sync=True), tmp_path):
        write(directory)
        assert read_files(directory) == WHOLE


@pytest.mark.parametrize("script", [SCRIPT, [*SCRIPT[2:3], *SCRIPT[:1]]], ids=["page-first", "reason-first"])
def test_crash_at_any_step_of_a_fresh_crawl_leaves_the_old_or_the_new(
    script: list[tuple[str, bytes | str]], tmp_path: Path
) -> None:
    def prepare(directory: Path) -> None:
        write(directory, script, OTHER)
        (directory / "notes.txt").write_bytes(b"mine")

    for directory in die_at_every_step(prepare, partial(write, fresh=True, sync=True), tmp_path):
        manifest = (directory / ".crawler").read_bytes().splitlines()
        if manifest[0] == LINES[0].strip():
            assert_whole_prefix(directory)
        write(directory, fresh=True)
        assert read_files(directory) == WHOLE | {"notes.txt": b"mine"}


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_any_damage_to_pages_and_manifest_is_cut_back_to_a_whole_prefix(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "pages"
        write(directory)
        manifest = b"".join(LINES)
        size = data.draw(st.integers(len(LINES[0]), len(manifest)), label="manifest")
        os.truncate(directory / ".crawler", size)
        whole = 4
        for doc_id in data.draw(st.sets(st.integers(1, 4), max_size=2), label="pages"):
            page = directory / str(doc_id)
            kept = data.draw(st.integers(-1, page.stat().st_size - 1), label="bytes kept")
            # Beyond the manifest only what has a page's form can be told from the files of others.
            if manifest[:size].rpartition(b"\n")[0].count(b'"sha256"') < doc_id:
                continue
            page.unlink() if kept < 0 else os.truncate(page, kept)
            whole = min(whole, doc_id - 1)
        lines = 0
        while lines < 7 and len(b"".join(LINES[: lines + 1])) <= size and not LINES[lines].startswith(b'{"end'):
            if LINES[lines].startswith(b'{"docID":%d,' % (whole + 1)):
                break
            lines += 1

        writer = PageWriter.open(directory, IDENTITY, sync=False)
        settled = [record["url"] for record in writer.records()]
        writer.close(None)

        assert settled == SETTLED_URLS[: lines - 1]
        assert_whole_prefix(directory)
        assert len(PageDirectory(directory)) == writer.saved == sum(b'"sha256"' in line for line in LINES[:lines])
        write(directory)
        assert read_files(directory) == WHOLE


def test_lengths_alone_are_compared_where_digests_are_not(directory: Path) -> None:
    write(directory)
    (directory / "3").write_bytes(b"http://h.test/b\n1\n\n\nSAME")
    PageWriter.open(directory, IDENTITY, verify=False).close(END)
    assert len(PageDirectory(directory)) == 4
    PageWriter.open(directory, IDENTITY).close(None)

    assert len(PageDirectory(directory)) == 2
