"""Damaged and altered page directories: one line that says what is wrong, and never a traceback or a hang."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy.cmdline import execute

from conftest import FAST_SETTINGS, CrawlCommand, Result
from many import CrawlPool
from mockserver import MockServer, Reply, page, redirect
from tinycrawl.analysis import edges
from tinycrawl.exceptions import DirectoryError
from tinycrawl.pagedir import PageDirectory, PageWriter

HOST = "http://h.test"
POLICIES = {"TINYCRAWL_MAX_LINKS": 10, "TINYCRAWL_DROP_PARAMETERS": ["sid"], "TINYCRAWL_FOLLOW_NOFOLLOW": True}
IDENTITY = {
    "seed": f"{HOST}/",
    "scope": "host",
    "domains": [],
    "include": None,
    "exclude": None,
    "order": "breadth-first",
    "duplicates": "fold",
    "policies": POLICIES,
}
SERVED = {"status": 200, "type": "text/html", "charset": "utf-8"}
# One of everything that a record can hold; a record with a body is a page.
RECORDS: list[tuple[dict[str, Any], str]] = [
    (
        {"url": f"{HOST}/", "depth": 0, "parent": None, **SERVED},
        "<title>one</title><a href=/a><a href=/gone><a href=/r>",
    ),
    ({"url": f"{HOST}/a", "depth": 1, "parent": f"{HOST}/", **SERVED, "charset": "utf-16", "stored": "utf-8"}, "two"),
    ({"reason": "http 404", "url": f"{HOST}/gone", "depth": 1, "parent": f"{HOST}/"}, ""),
    (
        {"url": f"{HOST}/r", "redirects": [f"{HOST}/b"], "depth": 1, "parent": f"{HOST}/", **SERVED, "nofollow": True},
        "<title>three</title>",
    ),
    ({"reason": "duplicate", "url": f"{HOST}/s", "target": f"{HOST}/gone", "depth": 1, "parent": f"{HOST}/"}, ""),
    ({"reason": "out of scope", "url": "http://other.test/", "depth": 1, "parent": f"{HOST}/"}, ""),
    (
        {
            "reason": "noindex",
            "url": f"{HOST}/h",
            "depth": 1,
            "parent": f"{HOST}/",
            **SERVED,
            "links": [f"{HOST}/c", f"{HOST}/d"],
        },
        "",
    ),
    (
        {"url": f"{HOST}/c", "depth": 2, "parent": f"{HOST}/h", **SERVED, "refresh": f"{HOST}/gone"},
        "<title>four</title><a href=/gone>",
    ),
    ({"reason": "duplicate of 2", "url": f"{HOST}/d", "depth": 2, "parent": f"{HOST}/h", **SERVED}, ""),
]
END = {"end": "complete", "saved": 4, "depth": 2, "max_pages": None}
COMMANDS = (
    *("ls", "ls --all --json", "ls --titles --all", "show 3", f"show {HOST}/gone --json", "verify", "duplicates"),
    *("broken", "links", "report"),
)
TIME_LIMIT = 20.0  # seconds, of one command


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str


@contextmanager
def no_hang() -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise TimeoutError(f"not done after {TIME_LIMIT} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_pages(line: str, directory: Path, *more: Path) -> Answer:
    """``scrapy pages ...``: the program's own entry. A report goes to stdout's place, a file beside the directory."""
    action, *rest = line.split()
    if action == "report":
        rest = ["-o", str(directory.parent / "report.html")]
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err), no_hang():
        patch.setenv("SCRAPY_SETTINGS_MODULE", "tinycrawl.settings")
        with pytest.raises(SystemExit) as ended:
            execute(["scrapy", "pages", action, str(directory), *map(str, more), *rest])
    out.flush()
    written = out.buffer
    assert isinstance(written, io.BytesIO)
    return Answer(int(ended.value.code or 0), written.getvalue().decode(), err.getvalue())


def make_directory(path: Path) -> Path:
    writer = PageWriter.open(path, IDENTITY, sync=False)
    for record, body in RECORDS:
        if body:
            final = [record["url"], *record.get("redirects", ())][-1]
            writer.publish(record, writer.hold(writer.draft(final, record["depth"], body.encode())))
        else:
            writer.settle(record)
    writer.close(END)
    return path


def lines_of(directory: Path) -> list[bytes]:
    return (directory / ".crawler").read_bytes().splitlines(keepends=True)


def write_lines(directory: Path, lines: list[bytes]) -> None:
    (directory / ".crawler").write_bytes(b"".join(lines))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_directory(tmp_path_factory.mktemp("whole") / "pages")


@pytest.fixture
def directory(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "pages")


def test_the_directory_that_is_damaged_here_is_whole_at_first(directory: Path) -> None:
    for line in COMMANDS:
        answer = run_pages(line, directory)
        assert (answer.status, answer.err) == (0, ""), line
    assert run_pages("diff", directory, directory) == Answer(0, "", "")


# Lines


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        pytest.param(b"nonsense\n", "it is no JSON of the manifest", id="no-JSON"),
        pytest.param(b'{"docID":2,"url":"http://h.test/\xff"}\n', "it is no JSON of the manifest", id="no-UTF-8"),
        pytest.param(b"[1]\n", "it is no JSON object", id="no-object"),
    ],
)
def test_a_damaged_line_is_named_and_the_rest_is_read(damage: bytes, fault: str, directory: Path) -> None:
    lines = lines_of(directory)
    write_lines(directory, [*lines[:2], damage, *lines[3:]])
    told = f"tinycrawl: {directory}/.crawler, line 3: damaged: {fault}\n"

    for line in COMMANDS:
        if line != "verify":
            assert (run_pages(line, directory).status, run_pages(line, directory).err) == (1, told), line
    listed = run_pages("ls", directory).out.splitlines()
    assert [line.split()[-1] for line in listed[1:]] == [f"{HOST}/", f"{HOST}/b", f"{HOST}/c"]
    assert run_pages("diff", directory, directory) == Answer(2, "", told * 2)
    assert run_pages("verify", directory) == Answer(1, f".crawler: line 3 is damaged: {fault}\n1 faults\n", "")
    assert [problem.line for problem in PageDirectory(directory).problems()] == [3]


DEEP = '{"a":' * 5000 + "1" + "}" * 5000
VALUES: dict[str, tuple[int, str, str, str]] = {
    "url-that-cannot-be-parsed": (2, "url", '"http://[h.test/"', 'its `url` is "http://[h.test/"'),
    "url-of-a-file": (3, "url", '"file:///etc/passwd"', 'its `url` is "file:///etc/passwd"'),
    "url-of-a-reason": (4, "url", '"http://[h.test/"', 'its `url` is "http://[h.test/"'),
    "port-out-of-range": (2, "url", '"http://h.test:99999/"', 'its `url` is "http://h.test:99999/"'),
    "url-a-number": (2, "url", "7", "its `url` is 7"),
    "depth-negative": (3, "depth", "-1", "its `depth` is -1"),
    "depth-text": (3, "depth", '"1"', 'its `depth` is "1"'),
    "depth-far-too-large": (3, "depth", "99999999", "its `depth` is 99999999, which the lines before it cannot"),
    "parent-a-list": (3, "parent", "[]", "its `parent` is no such list"),
    "links-with-a-number": (8, "links", '["http://h.test/c",1]', "its `links` is no such list"),
    "redirects-text": (5, "redirects", '"http://h.test/b"', 'its `redirects` is "http://h.test/b"'),
    "refresh-that-cannot-be-parsed": (9, "refresh", '"http://[h.test/"', 'its `refresh` is "http://[h.test/"'),
    "target-null": (6, "target", "null", "its `target` is null"),
    "huge-integer": (2, "length", "1" + "0" * 400, "its `length` is 1000000000000"),
    "integer-too-huge": (2, "length", "9" * 5000, "it is no JSON of the manifest"),
    "a-float": (2, "length", "1.0", "it is no JSON of the manifest"),
    "NaN": (2, "length", "NaN", "it is no JSON of the manifest"),
    "deeply-nested": (2, "more", DEEP * 20, "it is no JSON of the manifest"),
    "docID-twice": (5, "docID", "2", "docID 2, where 3 would be next"),
    "docID-out-of-order": (3, "docID", "4", "docID 4, where 2 would be next"),
    "docID-true": (3, "docID", "true", "its `docID` is true"),
    "reason-empty": (4, "reason", '""', 'its `reason` is ""'),
    "duplicate-of-nothing": (10, "reason", '"duplicate of x"', 'its `reason` is "duplicate of x"'),
    "end-a-number": (11, "end", "1", "its `end` is 1"),
    "more-pages-than-lines": (11, "saved", "9", "9 pages were saved, and the lines before it hold 4"),
    "policies-a-list": (1, "policies", "[]", "its `policies` is no such list"),
    "max-links-text": (1, "policies", '{"TINYCRAWL_MAX_LINKS":"9"}', 'its `TINYCRAWL_MAX_LINKS` is "9"'),
    "drop-parameters-numbers": (
        *(1, "policies", '{"TINYCRAWL_DROP_PARAMETERS":[1]}', "its `TINYCRAWL_DROP_PARAMETERS` is no such list"),
    ),
}


def set_value(line: bytes, key: str, text: str) -> bytes:
    """The line with *text* as the value of a key, whatever JSON that is."""
    record = json.loads(line)
    return json.dumps({**record, key: "\0"}, separators=(",", ":")).replace('"\\u0000"', text).encode() + b"\n"


@pytest.mark.parametrize(("number", "key", "text", "fault"), VALUES.values(), ids=VALUES)
def test_an_altered_value_is_named_by_its_line(number: int, key: str, text: str, fault: str, directory: Path) -> None:
    lines = lines_of(directory)
    lines[number - 1] = set_value(lines[number - 1], key, text)
    write_lines(directory, lines)

    for line in ("ls --all", "broken", "links", "report", "diff"):
        answer = run_pages(line, directory, *([directory] if line == "diff" else []))
        told = answer.err.splitlines()
        assert answer.status == (2 if line == "diff" else 1), line
        assert told[0].startswith(f"tinycrawl: {directory}/.crawler, line {number}: damaged: {fault}"), line
        assert len(told) <= (4 if line == "diff" else 1), told
    assert run_pages("verify", directory).status == 1


def test_a_missing_line_is_told_and_what_follows_it_is_read(directory: Path) -> None:
    lines = lines_of(directory)
    write_lines(directory, [*lines[:2], *lines[3:]])

    listed = run_pages("ls", directory)

    assert listed.status == 1
    assert [line.split()[0] for line in listed.out.splitlines()[1:]] == ["1", "3", "4"]
    told = "line 4: damaged: docID 3, where 2 would be next: lines before it are missing"
    assert listed.err == f"tinycrawl: {directory}/.crawler, {told}\n"


# Page files


def remove(path: Path) -> None:
    path.unlink()


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def make_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nonexistent/page")


def make_device(path: Path) -> None:
    path.unlink()
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero, which never ends
    except PermissionError:
        os.mkfifo(path)


def spoil(path: Path) -> None:
    path.write_bytes(b"no page")


NO_FILE = (make_fifo, make_folder, make_link, make_dangling_link, make_device)
PAGE_FAULTS = [
    pytest.param(remove, "is missing", id="missing"),
    pytest.param(spoil, "is not a page file", id="spoilt"),
    *(pytest.param(make, "is no regular file", id=make.__name__) for make in NO_FILE),
]


@pytest.mark.parametrize(("damage", "problem"), PAGE_FAULTS)
def test_a_page_that_cannot_be_read_is_named_and_the_others_are_read(
    damage: Callable[[Path], None], problem: str, directory: Path
) -> None:
    damage(directory / "1")
    told = f"tinycrawl: page directory {directory}: 1 {problem}\n"

    answers = {line: run_pages(line, directory) for line in ("broken", "links", "report", "ls --titles")}

    assert {line: (answer.status, answer.err) for line, answer in answers.items()} == dict.fromkeys(answers, (1, told))
    assert answers["broken"].out.splitlines()[1].split() == ["http", "404", f"{HOST}/gone", f"{HOST}/c"]
    assert f"{HOST}/c" in answers["links"].out
    assert [line.split()[-1] for line in answers["ls --titles"].out.splitlines()[2:]] == [f"{HOST}/a", "three", "four"]
    assert "four" in (directory.parent / "report.html").read_text()
    for line in ("ls", "duplicates"):  # these read no page
        assert run_pages(line, directory).status == 0
    assert run_pages("show 1 --body", directory).status == 1
    assert run_pages("verify", directory).out.splitlines()[-1] == "1 faults"


def test_many_pages_that_cannot_be_read_are_one_line(directory: Path) -> None:
    for name in ("1", "4"):
        (directory / name).unlink()

    told = f"tinycrawl: page directory {directory}: 1 is missing (and 1 more pages cannot be read)\n"
    assert run_pages("links", directory).err == told


@pytest.mark.parametrize("damage", NO_FILE)
def test_a_marker_that_is_no_file_is_refused_and_never_waited_for(
    damage: Callable[[Path], None], directory: Path
) -> None:
    damage(directory / ".crawler")
    told = f"tinycrawl: {directory} is no page directory: .crawler: is no regular file\n"

    for line in COMMANDS:
        assert run_pages(line, directory) == Answer(1, "", told)
    with no_hang(), pytest.raises(DirectoryError, match=rf"^page directory {directory}"):
        PageWriter.open(directory, IDENTITY, sync=False)


@pytest.mark.parametrize("damage", [remove, *NO_FILE])
def test_a_reader_in_python_is_told_where_the_pages_of_a_finished_crawl_break_off(
    damage: Callable[[Path], None], directory: Path
) -> None:
    damage(directory / "3")
    read: list[int] = []

    with no_hang(), pytest.raises(DirectoryError, match=rf"^page directory {directory}: 3 is "):
        read.extend(found.doc_id for found in PageDirectory(directory))

    assert read == [1, 2]
    assert len(PageDirectory(directory)) == 2


def test_a_reader_in_python_goes_on_and_knows_what_is_lost(directory: Path) -> None:
    make_fifo(directory / "1")
    reader = PageDirectory(directory)

    found = [edge.target for edge in edges(reader)]

    assert found == [f"{HOST}/b", f"{HOST}/gone", f"{HOST}/c", f"{HOST}/d", f"{HOST}/gone", f"{HOST}/gone"]
    assert reader.lost == {1: "is no regular file"}


# Anything whatever

RAW_VALUES = (
    *("null", "true", "false", "0", "1", "-1", "7", "1.5", "NaN", "-Infinity", "1e999", "1" + "0" * 30, "9" * 5000),
    *(
        '""',
        '"1"',
        '"\\ud800"',
        '"\\u0000"',
        '"a\\nb"',
        '"http://[bad"',
        '"http://h.test:99999/"',
        '"//"',
        '"http:///"',
    ),
    *(
        '"http://h.test"',
        '"HTTP://H.TEST/"',
        '"http://h.test/\\u00e9"',
        '"javascript:0"',
        '"duplicate of 1"',
        '"noindex"',
    ),
    *('"duplicate of 99"', '"duplicate of -1"', '"complete"', '"utf-8\\u0000"', '"hex"', '"application/xhtml+xml"'),
    *("[]", "{}", "[1]", "[null]", '["x"]', "[[]]", '{"a":1}', "[" * 20000, DEEP * 5, '["http://h.test/c"]'),
)
KEYS = sorted(
    {key for record, _ in RECORDS for key in record} | set(IDENTITY) | set(END) | {"docID", "length", "sha256"}
)
BYTES = st.tuples(st.just("flip"), st.integers(0, 10**4), st.integers(1, 255))
MOVES = st.tuples(st.sampled_from(["drop", "double", "swap"]), st.integers(0, 10), st.integers(0, 10))
ALTERED = st.tuples(st.just("alter"), st.integers(0, 10), st.tuples(st.sampled_from(KEYS), st.sampled_from(RAW_VALUES)))
POLICY = st.tuples(st.just("policy"), st.sampled_from(sorted(POLICIES)), st.sampled_from(RAW_VALUES))
PAGES = st.tuples(st.just("page"), st.integers(1, 4), st.sampled_from([remove, spoil, *NO_FILE]))


def mutate(directory: Path, kind: str, where: Any, what: Any) -> None:
    lines = lines_of(directory)
    if kind == "page":
        with suppress(OSError):  # it is no file any more
            what(directory / str(where))
        return
    if not lines:
        return
    if kind == "flip":
        text = bytearray(b"".join(lines))
        text[where % len(text)] ^= what
        lines = [bytes(text)]
    elif kind == "policy":
        with suppress(ValueError, RecursionError, TypeError, KeyError):
            policies = {**json.loads(lines[0])["policies"], where: "\0"}
            lines[0] = set_value(lines[0], "policies", json.dumps(policies).replace('"\\u0000"', what))
    else:
        where %= len(lines)
        if kind == "drop":
            del lines[where]
        elif kind == "double":
            lines.insert(what % len(lines), lines[where])
        elif kind == "swap":
            lines[where], lines[what % len(lines)] = lines[what % len(lines)], lines[where]
        else:
            with suppress(ValueError, RecursionError, TypeError):
                lines[where] = set_value(lines[where], *what)
    write_lines(directory, lines)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.one_of(BYTES, MOVES, ALTERED, ALTERED, POLICY, PAGES), min_size=1, max_size=4))
def test_whatever_is_damaged_every_command_ends_with_its_lines(mutations: list[tuple[str, Any, Any]]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory, sound = make_directory(Path(scratch) / "pages"), make_directory(Path(scratch) / "sound")
        for mutation in mutations:
            mutate(directory, *mutation)
        for line in (*COMMANDS, "diff"):
            answer = run_pages(line, directory, *([sound] if line == "diff" else []))
            told = answer.err.splitlines()
            assert all(one.startswith("tinycrawl: ") for one in told), told
            assert len(told) <= 2, told
            assert answer.status in (0, 1, 2)
            assert answer.status != 2 or line == "diff"
            assert told or not answer.status or line in ("verify", "diff")
        with suppress(DirectoryError):
            if any(not problem.is_torn for problem in PageDirectory(directory).problems()):
                assert run_pages("ls", directory).status == 1


# A crawl that is run again

SITE: dict[str, Any] = {
    "/": page("/a", "/b", "/gone", "/moved", "/hidden", "/pdf", "http://other.invalid/"),
    "/a": page("/c", "/late"),
    "/b": page("/c"),
    "/c": page("/"),
    "/moved": redirect("/target"),
    "/target": page("/t1"),
    "/t1": page(),
    "/hidden": page("/h1", extra='<meta name="robots" content="noindex">'),
    "/h1": page(),
    "/pdf": Reply(body=b"%PDF", type="application/pdf"),
    "/late": redirect("/gone"),
    "/gone": Reply(404, b"gone"),
}
DEPTH = 3


@pytest.fixture(scope="module")
def shared() -> Iterator[MockServer]:
    with MockServer(SITE) as server:
        yield server


@pytest.fixture(scope="module")
def pool() -> Iterator[CrawlPool]:
    with CrawlPool() as running:
        yield running


@dataclass
class Rerun:
    """Crawls of SITE in one place, each upon a directory that was damaged."""

    site: MockServer
    pool: CrawlPool
    directory: Path

    def __call__(self, **arguments: Any) -> str:
        """Crawl, and return what the log said."""
        logged = len(self.pool.log())
        given = {"seed": self.site.url("/"), "depth": DEPTH, "pagedir": str(self.directory), **arguments}
        self.site.reset(SITE)
        answer = self.pool.run(given, {**FAST_SETTINGS, "TINYCRAWL_SYNC": 0})
        assert answer["error"] is None, answer
        log = self.pool.log()[logged:]
        assert "Traceback" not in log
        assert log.count("The crawl failed: ") <= 1
        return log

    def read(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.directory.iterdir() if path.is_file()}


@pytest.fixture
def rerun(shared: MockServer, pool: CrawlPool, tmp_path: Path) -> Rerun:
    """With a whole directory."""
    made = Rerun(shared, pool, tmp_path / "pages")
    assert "The crawl failed" not in made()
    return made


@pytest.mark.parametrize(
    ("lost", "asked"),
    [
        pytest.param(['/a","depth"'], ["/a"], id="a-page"),
        pytest.param(['/moved","redirects"'], ["/moved", "/target"], id="a-redirected-page"),
        pytest.param(['/hidden","depth"'], ["/hidden"], id="a-page-that-is-not-saved"),
        pytest.param(['/gone","depth"'], ["/gone"], id="a-failure"),
        pytest.param(['/pdf","depth"', '/b","depth"'], ["/b", "/pdf"], id="two"),
        pytest.param(['"out of scope"'], [], id="a-refused-link"),
    ],
)
def test_what_damaged_lines_held_is_fetched_again_and_nothing_else(
    lost: list[str], asked: list[str], rerun: Rerun
) -> None:
    before = rerun.read()
    lines = lines_of(rerun.directory)
    places = [next(at for at, line in enumerate(lines) if text in line.decode()) for text in lost]
    for at in places:
        lines[at] = b"\xff" + lines[at][1:]
    write_lines(rerun.directory, lines)

    log = rerun()

    assert f"{rerun.directory}/.crawler, line {min(places) + 1}: damaged: it is no JSON of the manifest" in log
    assert sorted(rerun.site.targets()) == asked
    assert rerun.read() == before


@pytest.mark.parametrize("url", ["/b", "/h1"])
def test_the_page_of_a_line_that_is_missing_is_fetched_again(url: str, rerun: Rerun) -> None:
    """One in the middle, and that of the last page, whose number only the end of the crawl still knows."""
    before = rerun.read()
    lines = lines_of(rerun.directory)
    write_lines(rerun.directory, [line for line in lines if f'{url}","depth"' not in line.decode()])

    assert "The crawl failed" not in rerun()

    assert rerun.site.targets() == [url]
    assert rerun.read() == before


def test_a_damaged_line_and_its_missing_page_are_repaired_too(rerun: Rerun) -> None:
    before = rerun.read()
    lines = lines_of(rerun.directory)
    at = next(at for at, line in enumerate(lines) if '/b","depth"' in line.decode())
    doc_id = json.loads(lines[at])["docID"]
    lines[at] = b"nonsense\n"
    write_lines(rerun.directory, lines)
    (rerun.directory / str(doc_id)).unlink()

    rerun()

    assert rerun.site.targets() == ["/b"]
    assert rerun.read() == before


def test_a_page_whose_line_is_damaged_is_not_given_up_when_it_cannot_be_had(rerun: Rerun) -> None:
    lines = lines_of(rerun.directory)
    at = next(at for at, line in enumerate(lines) if '/b","depth"' in line.decode())
    lines[at] = b"nonsense\n"
    write_lines(rerun.directory, lines)
    damaged = rerun.read()

    rerun.site.reset({**SITE, "/b": Reply(500, b"broken")})
    given = {"seed": rerun.site.url("/"), "depth": DEPTH, "pagedir": str(rerun.directory)}
    rerun.pool.run(given, {**FAST_SETTINGS, "TINYCRAWL_SYNC": 0, "RETRY_TIMES": 0})

    assert f"{rerun.site.url('/b')} is damaged and cannot be fetched again (http 500)" in rerun.pool.log()
    assert rerun.read() == damaged


def test_a_first_line_that_is_damaged_is_refused_untouched_also_with_fresh(rerun: Rerun) -> None:
    lines = lines_of(rerun.directory)
    lines[0] = lines[0].replace(b'"seed":', b'"seed";')
    write_lines(rerun.directory, lines)
    damaged = rerun.read()

    logs = [rerun(), rerun(fresh="1")]

    for log in logs:
        told = (
            "line 1: damaged: it is no JSON of the manifest; which crawl it holds cannot be told: give another pagedir"
        )
        assert f"The crawl failed: {rerun.directory}/.crawler, {told}" in log
    assert rerun.read() == damaged
    assert rerun.site.requests == []


def test_tampered_directories_end_in_one_line_and_files_of_others_stay(rerun: Rerun) -> None:
    whole = rerun.read()
    lines = lines_of(rerun.directory)
    foreign = b"http://h.test/x\n0\nmine"
    outcomes = {}
    page_line = next(at for at, line in enumerate(lines) if '/b","depth"' in line.decode())
    for name, key, text in (
        *(("number", "url", "7"), ("docID", "docID", "99"), ("depth", "depth", "-1"), ("none", "parent", "[]")),
        *(
            ("status", "status", "true"),
            ("chain", "redirects", '["http://[bad/"]'),
            ("other", "url", '"http://h.test/"'),
        ),
    ):
        altered = [*lines]
        altered[page_line] = set_value(lines[page_line], key, text)
        for file in ("99", ".mine", "../x"):
            for path in list(rerun.directory.iterdir()):
                path.unlink()
            for other, content in whole.items():
                (rerun.directory / other).write_bytes(content)
            write_lines(rerun.directory, altered)
            (rerun.directory / file).write_bytes(foreign)
            log = rerun()
            assert (rerun.directory / file).read_bytes() == foreign, (name, file)
            (rerun.directory / file).unlink()
            outcomes[name, file] = "failed" if "The crawl failed: " in log else rerun.read() == whole

    assert {outcomes[name, file] for name, file in outcomes if file != "99"} == {True}
    assert {outcomes[name, file] for name, file in outcomes if file == "99"} == {"failed"}


@pytest.mark.parametrize("damage", NO_FILE)
def test_what_is_no_file_in_place_of_a_page_is_refused_by_a_rerun(damage: Callable[[Path], None], rerun: Rerun) -> None:
    damage(rerun.directory / "2")
    before = sorted(rerun.directory.iterdir()), rerun.read()

    log = rerun()

    assert f"The crawl failed: page directory {rerun.directory} holds '2', which no crawl wrote" in log
    assert (sorted(rerun.directory.iterdir()), rerun.read()) == before
    assert rerun.site.requests == []


def test_the_exit_status_of_a_rerun_says_what_came_of_it(
    shared: MockServer, crawl: CrawlCommand, tmp_path: Path
) -> None:
    shared.reset(SITE)
    first: Result = crawl(shared.url("/"), DEPTH, pagedir=tmp_path / "pages")
    lines = lines_of(first.directory)
    write_lines(first.directory, [*lines[:2], b"nonsense\n", *lines[3:]])

    repaired = crawl(shared.url("/"), DEPTH, pagedir=first.directory)
    (first.directory / ".crawler").unlink()
    os.mkfifo(first.directory / ".crawler")
    refused = crawl.start(shared.url("/"), DEPTH, pagedir=first.directory)

    assert (repaired.status, repaired.files) == (0, first.files)
    assert refused.process.wait(60) == 1
