"""``scrapy pages``: against the oracle of a site made by rule, and by what people type."""

from __future__ import annotations

import csv
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scrapy.cmdline import execute

from conftest import REPOSITORY, CrawlCommand, Result
from linksite import Expected, LinkSite, expected_changes, expected_twins
from mockserver import MockServer
from tinycrawl.analysis import broken, difference, edges, entries, find
from tinycrawl.pagedir import PageDirectory, PageWriter

DEPTH = 6
IDENTITY = {"seed": "http://h.test/", "scope": "host", "policies": {}}
COMPLETE = {"end": "complete", "saved": 0, "depth": 2, "max_pages": None}


@dataclass(frozen=True)
class Answer:
    """What a command line gave."""

    status: int
    out: str
    err: str

    def objects(self) -> list[dict[str, Any]]:
        assert self.status in (0, 1), self.err
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def pages(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """``scrapy pages ...``: the program's own entry, without the second that a process takes to start."""
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "tinycrawl.settings")

    def run(*arguments: object) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            execute(["scrapy", "pages", *map(str, arguments)])
        return Answer(int(ended.value.code or 0), *capsys.readouterr())

    return run


@dataclass(frozen=True)
class Crawled:
    site: LinkSite
    result: Result
    expected: Expected

    @property
    def directory(self) -> Path:
        return self.result.directory


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Crawled]]:
    """The site at first, folded, and in its second version; the first with its event log on stdout."""
    with ExitStack() as stack:
        crawl = CrawlCommand(tmp_path_factory.mktemp("crawls"), stack)
        server = stack.enter_context(MockServer({}))
        made = {}
        for name, version, arguments in (
            ("first", 1, {"events": "-"}),
            ("folded", 1, {"duplicates": "fold"}),
            ("second", 2, {}),
        ):
            site = LinkSite(server.url(""), version)
            server.reset(site.handler)
            result = crawl(server.url("/p0"), DEPTH, settings={"RETRY_TIMES": 0}, **arguments)
            made[name] = Crawled(site, result, site.expect(DEPTH, folds=name == "folded"))
        yield made


@pytest.mark.parametrize("name", ["first", "folded", "second"])
def test_the_oracle_and_the_crawl_agree_on_the_pages(crawls: Mapping[str, Crawled], name: str) -> None:
    crawled = crawls[name]

    assert [url for url, _ in crawled.result.pages] == crawled.expected.pages
    assert len(crawled.expected.pages) > 50
    assert {"redirect loop", "robots", "http 500", "duplicate", "noindex"} <= {
        o.reason for o in crawled.expected.outcomes
    }


@pytest.mark.parametrize("name", ["first", "folded", "second"])
def test_links_are_those_of_the_oracle(crawls: Mapping[str, Crawled], name: str, pages: Callable[..., Answer]) -> None:
    crawled = crawls[name]

    found = [tuple(edge.values()) for edge in pages("links", crawled.directory, "--json").objects()]

    assert found == crawled.expected.edges()
    statuses = {(kind, status) for _, _, kind, status in found}
    assert {
        ("refresh", "saved"),
        ("link", "saved"),
        ("link", "not crawled"),
        ("link", "out of scope"),
        ("link", "http 404"),
    } <= statuses
    assert {("redirect", "saved"), ("redirect", "http 404"), ("redirect", "redirect loop")} <= statuses


def test_links_in_files_and_in_the_table_are_the_same(
    crawls: Mapping[str, Crawled], tmp_path: Path, pages: Callable[..., Answer]
) -> None:
    crawled = crawls["first"]
    expected = crawled.expected.edges()

    written = [pages("links", crawled.directory, "-o", tmp_path / f"links{end}") for end in (".csv", ".jsonl")]
    table = pages("links", crawled.directory)

    assert [(answer.status, answer.out, answer.err) for answer in written] == [(0, "", "")] * 2
    with (tmp_path / "links.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["source", "target", "kind", "status"], *map(list, expected)]
    lines = (tmp_path / "links.jsonl").read_text().splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == expected
    assert [line.split(maxsplit=3) for line in table.out.splitlines()[1:]] == [list(edge) for edge in expected]
    assert table.out.split("\n", 1)[0].split() == ["source", "target", "kind", "status"]


def test_links_are_those_that_the_crawler_found(crawls: Mapping[str, Crawled]) -> None:
    """Pages of the last level aside, whose links a crawl does not look at."""
    result = crawls["first"].result
    found = [line.split(": ", 1)[1] for line in result.stdout.splitlines() if line[3:].lstrip().startswith("Found: ")]
    last = {entry.final for entry in entries(PageDirectory(result.directory)) if entry.depth == DEPTH}

    links = [e.target for e in edges(PageDirectory(result.directory)) if e.kind != "redirect" and e.source not in last]

    assert links == found
    assert len(found) > 200


@pytest.mark.parametrize("name", ["first", "folded", "second"])
def test_broken_names_every_page_that_leads_to_a_failed_url(
    crawls: Mapping[str, Crawled], name: str, pages: Callable[..., Answer]
) -> None:
    crawled = crawls[name]

    answer = pages("broken", crawled.directory, "--json")

    found = [(one["url"], one["reason"], tuple(one["sources"])) for one in answer.objects()]
    assert found == crawled.expected.broken()
    assert max(len(sources) for _, _, sources in found) > 50


def test_broken_as_a_table_has_a_line_for_each_page(
    crawls: Mapping[str, Crawled], pages: Callable[..., Answer]
) -> None:
    crawled = crawls["first"]

    head, *lines, total = pages("broken", crawled.directory).out.splitlines()

    assert head.split() == ["reason", "URL", "linked", "from"]
    expected = crawled.expected.broken()
    assert [line.split()[-1] for line in lines] == [source for _, _, sources in expected for source in sources]
    assert [line.split("  ")[0] for line in lines if line[0] != " "] == [reason for _, reason, _ in expected]
    assert total == f"{len(expected)} URLs failed"


@pytest.mark.parametrize("name", ["first", "folded"])
def test_duplicates_are_the_pages_with_the_same_bytes(
    crawls: Mapping[str, Crawled], name: str, pages: Callable[..., Answer]
) -> None:
    crawled = crawls[name]
    expected = expected_twins(crawled.site, crawled.expected)

    groups = pages("duplicates", crawled.directory, "--json").objects()
    head, *lines, total = pages("duplicates", crawled.directory).out.splitlines()

    assert [[(page["doc_id"], page["url"]) for page in group["pages"]] for group in groups] == expected
    assert len(expected) >= 2
    assert head.split() == ["group", "docID", "bytes", "URL"]
    assert [line.split()[-1] for line in lines] == [url for group in expected for _, url in group]
    assert total == f"{len(expected)} groups of pages with the same bytes"
    assert any(doc_id == 0 for group in expected for doc_id, _ in group) == (name == "folded")


def test_diff_tells_new_gone_changed_and_moved_pages(
    crawls: Mapping[str, Crawled], pages: Callable[..., Answer]
) -> None:
    first, second = crawls["first"], crawls["second"]
    expected = expected_changes(first.site, first.expected, second.site, second.expected)

    answer = pages("diff", first.directory, second.directory, "--json")
    table = pages("diff", first.directory, second.directory)

    found: dict[str, list[tuple[str, str, str]]] = {kind: [] for kind in ("new", "gone", "changed", "moved")}
    for change in answer.objects():
        found[change["kind"]].append((change["url"], change["before"], change["reason"]))
    assert found == expected
    assert min(map(len, expected.values())) >= 5
    assert {reason for _, _, reason in expected["gone"]} == {"http 404", "not crawled", "redirect"}
    assert {reason for _, _, reason in expected["new"]} >= {"http 404", "not crawled"}
    assert (answer.status, table.status) == (1, 1)
    lines = table.out.splitlines()
    assert lines[0].split() == ["change", "URL"]
    assert [line.split()[:2] for line in lines[1:]] == [
        [kind, url] for kind in expected for url, _, _ in expected[kind]
    ]
    url, before, _ = expected["moved"][0]
    assert any(line.split() == ["moved", url, "from", before] for line in lines)


def test_diff_of_equal_crawls_is_empty_and_0(crawls: Mapping[str, Crawled], pages: Callable[..., Answer]) -> None:
    directory = crawls["first"].directory

    assert pages("diff", directory, directory) == Answer(0, "", "")


def test_verify_is_satisfied(crawls: Mapping[str, Crawled], pages: Callable[..., Answer]) -> None:
    saved = len(crawls["first"].expected.pages)

    assert pages("verify", crawls["first"].directory) == Answer(0, f"{saved} pages, all as recorded\n", "")


# A directory made by hand: what is printed, byte for byte

ESCAPE = "\x1b[31m\u202e"


def make_directory(path: Path, end: Mapping[str, object] | None = COMPLETE) -> Path:
    writer = PageWriter.open(path, IDENTITY, sync=False)
    page = {"depth": 0, "parent": None, "status": 200, "type": "text/html", "charset": "utf-8"}
    links = '<a href="/gone">x</a><a href="b">x</a>'
    moved = {"url": "http://h.test/old", "redirects": ["http://h.test/"]}
    draft = writer.draft("http://h.test/", 0, f"<title>Café {ESCAPE}</title>{links}".encode())
    writer.publish(page | moved, writer.hold(draft))
    odd = {"url": "http://h.test/b", "depth": 1, "parent": "http://h.test/", "type": ESCAPE}
    writer.publish(page | odd, writer.hold(writer.draft("http://h.test/b", 1, "<title>日本</title>".encode())))
    for reason, url in (("http 404", "http://h.test/gone"), (f"not html: {ESCAPE}", f"http://h.test/{ESCAPE}")):
        writer.settle({"reason": reason, "url": url, "depth": 1, "parent": "http://h.test/"})
    writer.close(end)
    return path


TABLES = {
    "ls": """\
docID  depth  bytes  status  URL
    1      0     67     200  http://h.test/
    2      1     21     200  http://h.test/b
""",
    "ls --all": """\
docID  depth  bytes  status                    URL
    1      0     67  200                       http://h.test/
    2      1     21  200                       http://h.test/b
           1         http 404                  http://h.test/gone
           1         not html: \\x1b[31m\\u202e  http://h.test/\\x1b[31m\\u202e
""",
    "ls --titles": """\
docID  depth  bytes  status  URL              title
    1      0     67     200  http://h.test/   Café \\x1b[31m\\u202e
    2      1     21     200  http://h.test/b  日本
""",
    "show 2": """\
doc_id: 2
url: http://h.test/b
final: http://h.test/b
depth: 1
parent: http://h.test/
status: 200
type: \\x1b[31m\\u202e
charset: utf-8
length: 21
sha256: 9b34ffc3316e948374c7451d4036af1c8436ab74b864a102d09e2d8a76bc4b45
title: 日本
""",
    "show http://h.test/gone": """\
url: http://h.test/gone
final: http://h.test/gone
depth: 1
parent: http://h.test/
reason: http 404
""",
    "broken": """\
reason    URL                 linked from
http 404  http://h.test/gone  http://h.test/
1 URLs failed
""",
    "duplicates": "0 groups of pages with the same bytes\n",
    "links": """\
source             target              kind      status
http://h.test/old  http://h.test/      redirect  saved
http://h.test/     http://h.test/gone  link      http 404
http://h.test/     http://h.test/b     link      saved
""",
    "verify": "2 pages, all as recorded\n",
}


@pytest.mark.parametrize("line", TABLES)
def test_what_people_read(line: str, tmp_path: Path, pages: Callable[..., Answer]) -> None:
    action, *rest = line.split()

    answer = pages(action, make_directory(tmp_path / "pages"), *rest)

    assert answer == Answer(0, TABLES[line], "")


def test_what_programs_read_is_ascii_and_complete(tmp_path: Path, pages: Callable[..., Answer]) -> None:
    directory = make_directory(tmp_path / "pages")

    listed = pages("ls", directory, "--all", "--titles", "--json")
    shown = pages("show", directory, "http://user:secret@H.test:80/old#top", "--json")

    assert listed.out.isascii()
    first, _, gone, odd = listed.objects()
    assert (first["doc_id"], first["url"], first["final"], first["redirects"]) == (
        *(1, "http://h.test/old", "http://h.test/"),
        ["http://h.test/"],
    )
    assert first["title"] == f"Café {ESCAPE}"
    assert (gone["doc_id"], gone["reason"], gone["status"], gone["length"]) == (0, "http 404", None, None)
    assert odd["url"] == f"http://h.test/{ESCAPE}"
    assert shown.objects() == [first]


def test_bad_input_is_one_line_and_an_exit_status(tmp_path: Path, pages: Callable[..., Answer]) -> None:
    directory = make_directory(tmp_path / "pages")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / ".crawler").touch()
    (foreign / "1").write_text("http://h.test/\n0\nbody")
    none = tmp_path / "none"
    no_marker = f"{none} is no page directory: .crawler: No such file or directory"
    not_ours = f"page directory {foreign} is not one of tinycrawl: its .crawler is not ours"
    expected = {
        ("ls", none): (1, no_marker),
        ("diff", directory, none): (2, no_marker),
        **{(action, foreign): (1, not_ours) for action in ("ls", "duplicates", "broken", "links")},
        ("diff", foreign, directory): (2, not_ours),
        ("show", directory, "3"): (1, f"page directory {directory} has no page 3"),
        ("show", directory, "0"): (1, f"page directory {directory} has no page 0"),
        ("show", directory, "/\x1b"): (1, f"page directory {directory} has no URL /\\x1b"),
        ("show", directory, "http://h.test/gone", "--body"): (1, "http://h.test/gone is no page: http 404"),
        ("show", directory, "1", "--json", "--body"): (2, "options `--json` and `--body`: expected one of them"),
        ("ls", directory, "--all=x\x1b"): (2, None),
        ("ls", directory, "extra"): (2, "'extra': not known to `scrapy pages ls`"),
        ("links", directory, "--json", "-o", "x.csv"): (2, "options `--json` and `--output`: expected one of them"),
        ("links", directory, "-o", "links.txt"): (
            *(2, "option `--output`: expected a file named .csv or .jsonl, got 'links.txt'"),
        ),
        ("links", directory, "-o", directory / "x.csv"): (
            2,
            f"option `--output`: expected a file outside any page directory, got '{directory}/x.csv'",
        ),
        ("links", directory, "-o", none / "x.csv"): (1, f"{none}/x.csv cannot be written: No such file or directory"),
        ("report", directory, "-o", directory / "x.html"): (2, None),
        ("nonsense", directory): (2, None),
        ("ls",): (2, None),
    }
    before = sorted(path.name for path in directory.iterdir())

    for arguments, (status, message) in expected.items():
        answer = pages(*arguments)
        assert (answer.status, answer.out) == (status, ""), arguments
        assert "\x1b" not in answer.err
        assert message is None or answer.err == f"tinycrawl: {message}\n"
    assert sorted(path.name for path in directory.iterdir()) == before


def test_a_directory_that_a_crawl_writes_is_read_as_far_as_it_is(tmp_path: Path, pages: Callable[..., Answer]) -> None:
    writer = PageWriter.open(tmp_path / "pages", IDENTITY, sync=False)
    record = {"url": "http://h.test/", "depth": 0, "parent": None}
    writer.publish(record, writer.hold(writer.draft("http://h.test/", 0, b"<a href=/a>")))
    with (tmp_path / "pages" / ".crawler").open("a") as marker:  # between the line of a page and its name
        marker.write('{"docID":2,"url":"http://h.test/a","length":1,"sha256":""}\n{"torn')
    directory = PageDirectory(tmp_path / "pages")

    answers = [pages(action, directory.path) for action in ("ls", "links", "broken")]

    assert [(answer.status, answer.err) for answer in answers] == [(0, "")] * 3
    assert [(edge.target, edge.status) for edge in edges(directory)] == [("http://h.test/a", "saved")]
    writer.close()


def test_what_cannot_be_read_is_said(tmp_path: Path, pages: Callable[..., Answer]) -> None:
    damaged, cut, missing = (make_directory(tmp_path / name) for name in ("damaged", "cut", "missing"))
    marker = damaged / ".crawler"
    lines = marker.read_bytes().splitlines(keepends=True)
    marker.write_bytes(b"".join([*lines[:2], b"nonsense\n", *lines[3:]]))
    (cut / ".crawler").write_bytes(b"".join(lines[:2]))
    (missing / "2").unlink()

    with marker.open("a") as file:
        file.write('{"torn')
    told = f"tinycrawl: {marker}, line 3: damaged: it is no JSON of the manifest (and 2 more, up to line 7)\n"
    assert (pages("ls", damaged).status, pages("ls", damaged).err) == (1, told)
    marker.write_bytes(b"".join(lines[:3]) + b'{"torn')
    told = f"tinycrawl: page directory {damaged}: 6 bytes of its .crawler cannot be read, and are left out\n"
    assert (pages("ls", damaged).status, pages("ls", damaged).err) == (0, told)
    told = f"tinycrawl: {cut} holds no complete crawl: what it lacks may only not be found yet\n"
    assert pages("diff", missing, cut).err == told
    assert pages("links", missing).err == f"tinycrawl: page directory {missing}: 2 is missing\n"


def test_a_title_of_any_length_is_cut(tmp_path: Path) -> None:
    writer = PageWriter.open(tmp_path / "pages", IDENTITY, sync=False)
    body = b"<title>" + b"W" * 5000 + b"</title>"
    writer.publish({"url": "http://h.test/", "depth": 0}, writer.hold(writer.draft("http://h.test/", 0, body)))
    writer.close(COMPLETE)
    directory = PageDirectory(tmp_path / "pages")

    entry = find(directory, 1)

    assert entry is not None
    assert entry.title == "W" * 1000
    assert broken(directory) == []


@pytest.mark.parametrize(
    ("policies", "facts", "body", "expected"),
    [
        pytest.param({}, {}, b"<a rel=nofollow href=/a><a href=/b>", ["/a", "/b"], id="nofollow-is-followed"),
        pytest.param(
            {"TINYCRAWL_FOLLOW_NOFOLLOW": False}, {}, b"<a rel=nofollow href=/a><a href=/b>", ["/b"], id="or-not"
        ),
        pytest.param({"TINYCRAWL_MAX_LINKS": 1}, {}, b"<a href=/a><a href=/b>", ["/a"], id="a-limit-of-links"),
        pytest.param(
            {"TINYCRAWL_DROP_PARAMETERS": ["sid"]}, {}, b"<a href='/a?sid=1&x=2'>", ["/a?x=2"], id="dropped-parameter"
        ),
        pytest.param({}, {"nofollow": True}, b"<a href=/a>", [], id="asked-by-a-header-not-to-be-followed"),
        pytest.param({}, {"charset": "koi8-r"}, b"<a href='/?\xf6'>", ["/?%F6"], id="query-in-the-page-s-charset"),
        pytest.param(
            {},
            {"charset": "utf-16-le", "stored": "utf-8"},
            "<a href='/é?é'>".encode(),
            ["/%C3%A9?%C3%A9"],
            id="stored-as-utf-8",
        ),
        pytest.param(
            {}, {"type": "application/xhtml+xml"}, b"<script src='x'/><a href='/a'/>", ["/a"], id="empty-xml-element"
        ),
    ],
)
def test_links_are_read_by_the_policies_and_facts_of_the_manifest(
    policies: dict[str, object], facts: dict[str, object], body: bytes, expected: list[str], tmp_path: Path
) -> None:
    writer = PageWriter.open(tmp_path / "pages", {**IDENTITY, "policies": policies}, sync=False)
    record = {"url": "http://h.test/", "depth": 0, "parent": None, "type": "text/html", "charset": "utf-8", **facts}
    writer.publish(record, writer.hold(writer.draft("http://h.test/", 0, body)))
    writer.close(COMPLETE)

    found = [edge.target.removeprefix("http://h.test") for edge in edges(PageDirectory(tmp_path / "pages"))]

    assert found == expected


def make_records(path: Path, *records: dict[str, Any]) -> PageDirectory:
    """A record with a ``body`` is a page."""
    writer = PageWriter.open(path, IDENTITY, sync=False)
    for given in records:
        record = {"depth": 1, "parent": "http://h.test/", **given}
        body = record.pop("body", b"")
        if body:
            writer.publish(record, writer.hold(writer.draft(record["url"], record["depth"], body)))
        else:
            writer.settle(record)
    writer.close(COMPLETE)
    return PageDirectory(path)


def test_a_redirect_to_what_failed_before_makes_its_links_broken(tmp_path: Path) -> None:
    directory = make_records(
        tmp_path / "pages",
        {"url": "http://h.test/", "body": b"<a href=/r><a href=/r><a href=/loop>"},
        {"reason": "http 404", "url": "http://h.test/gone?x=1&y=2"},
        {"reason": "duplicate", "url": "http://h.test/r", "target": "http://h.test/gone?x=1&y=2"},
        {
            "reason": "redirect loop",
            "url": "http://h.test/loop",
            "redirects": ["http://h.test/pool"],
            "target": "http://h.test/loop",
        },
        {"url": "http://h.test/b", "body": b"<a href='/gone?y=2&x=1'><a href=/pool>"},
    )

    found = broken(directory)

    both = ("http://h.test/", "http://h.test/b")
    assert [(one.url, one.reason, one.sources) for one in found] == [
        ("http://h.test/gone?x=1&y=2", "http 404", both),
        ("http://h.test/loop", "redirect loop", both),
    ]


def test_a_refused_spelling_is_not_that_of_the_page(tmp_path: Path) -> None:
    directory = make_records(
        tmp_path / "pages",
        {"url": "http://h.test/", "body": b"<a href='/?a=1&b=2'><a href='/?b=2&a=1'><a href='/?b=2&a=%31'>"},
        {"url": "http://h.test/?a=1&b=2", "body": b"x"},
        {"reason": "excluded", "url": "http://h.test/?b=2&a=1"},
    )

    assert [edge.status for edge in edges(directory)] == ["saved", "excluded", "saved"]


def test_only_what_is_alone_on_both_sides_has_moved(tmp_path: Path) -> None:
    """Two pages became one, one became two, one became one."""
    before = [("/a1", b"a"), ("/a2", b"a"), ("/b1", b"b"), ("/c1", b"c"), ("/same?x=1&y=2", b"d")]
    after = [("/a3", b"a"), ("/b2", b"b"), ("/b3", b"b"), ("/c2", b"c"), ("/same?y=2&x=1", b"d")]
    old, new = (
        make_records(tmp_path / name, *({"url": f"http://h.test{path}", "body": body} for path, body in pages))
        for name, pages in (("old", before), ("new", after))
    )

    changes = difference(old, new)

    found = [(change.kind, change.url.removeprefix("http://h.test"), change.before) for change in changes]
    assert found == [
        *(("new", path, "") for path in ("/a3", "/b2", "/b3")),
        *(("gone", path, "") for path in ("/a1", "/a2", "/b1")),
        ("moved", "/c2", "http://h.test/c1"),
    ]
    assert changes
    assert not difference(new, new)


# As processes: terminals, pipes, bytes


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "scrapy", "pages", *map(str, arguments)]


def test_on_a_terminal_lines_are_cut_to_its_width_and_bodies_are_escaped(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "pages")
    shell = f"{' '.join(command('ls', directory, '--all'))} && {' '.join(command('show', directory, 1, '--body'))}"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["sh", "-c", shell], cwd=REPOSITORY, env={**os.environ, "COLUMNS": "50"}, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # Linux: the other end is closed
        pass
    os.close(ours)

    lines = shown.decode().split("\r\n")
    assert process.wait() == 0
    assert lines[:5] == [
        "docID  depth  bytes  status         URL",
        "    1      0     67  200            http://h.test/",
        "    2      1     21  200            http://h.test…",
        "           1         http 404       http://h.test…",
        "           1         not html: \\x…  http://h.test…",
    ]
    assert "\x1b" not in shown.decode()
    assert "<title>Café \\x1b[31m\\u202e</title>" in shown.decode()


def test_a_body_comes_byte_for_byte(tmp_path: Path) -> None:
    writer = PageWriter.open(tmp_path / "pages", IDENTITY, sync=False)
    body = bytes(range(256)) + b"\r\nno newline at the end"
    writer.publish({"url": "http://h.test/", "depth": 0}, writer.hold(writer.draft("http://h.test/", 0, body)))
    writer.close(COMPLETE)

    shown = subprocess.run(
        command("show", tmp_path / "pages", 1, "--body"), cwd=REPOSITORY, capture_output=True, check=True
    )

    head, _, rest = shown.stdout.partition(b"\n\n")
    assert head.startswith(b"doc_id: 1\nurl: http://h.test/\n")
    assert rest == body
    assert shown.stderr == b""


def test_a_pipe_that_is_closed_ends_it_quietly_and_a_full_disk_does_not(crawls: Mapping[str, Crawled]) -> None:
    directory = crawls["first"].directory
    line = " ".join(command("links", directory, "--json"))

    closed = subprocess.run(["sh", "-c", f"{line} | head -n 1"], cwd=REPOSITORY, capture_output=True, check=True)
    full = subprocess.run(["sh", "-c", f"{line} > /dev/full"], cwd=REPOSITORY, capture_output=True, check=False)

    assert (closed.stdout.count(b"\n"), closed.stderr) == (1, b"")
    assert (full.returncode, full.stderr) == (1, b"tinycrawl: stdout: No space left on device\n")
