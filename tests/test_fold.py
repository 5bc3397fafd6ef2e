"""`duplicates=fold`: bytes that were saved before take no docID, in canonical order, however a crawl ends."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comparison import SETTINGS, Comparison, comparison
from conftest import CrawlCommand
from graph import Node, Site, sites
from many import CrawlPool
from mockserver import MockServer, Reply, Request, page, redirect

ServerFactory = Callable[..., MockServer]
Files = dict[str, bytes]

FEW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
SAME = page("/x")  # the page of which there are several
HIDDEN = page("/x", headers=[("X-Robots-Tag", "noindex")])
# One of everything that meets a folded page.
SITE: dict[str, Any] = {
    "/": page("/veiled", "/a", "/b", "/moved", "/hidden", "/deep", "/gone", "/pdf"),
    "/veiled": HIDDEN,
    "/a": SAME,
    "/b": page("/x", headers=[("X-Robots-Tag", "nofollow")]),
    "/moved": redirect("/c"),
    "/c": SAME,
    "/hidden": HIDDEN,
    "/deep": page("/d", "/late"),
    "/gone": Reply(404),
    "/pdf": Reply(body=SAME.body, type="application/pdf"),
    "/x": page("/y"),
    "/d": SAME,
    "/y": page("/z"),
    "/z": page("/y", title="the end"),
    "/late": page("/y"),
}
BROKEN = {**SITE, "/a": Reply(500), "/deep": Reply(404)}


@pytest.fixture(scope="module")
def crawls() -> Iterator[Comparison]:
    with comparison() as shared:
        yield shared


class Crawls:
    """One child process, and one server, for the crawls of this module."""

    def __init__(self, pool: CrawlPool, server: MockServer) -> None:
        self.server = server
        self._pool = pool

    def run(self, directory: Path, depth: int = 5, concurrency: int = 8, **more: Any) -> Files:
        """Crawl from ``/`` into *directory*, folding; arguments in lower case, settings in upper. Returns its files."""
        arguments = {"seed": self.server.url("/"), "depth": depth, "pagedir": str(directory), "duplicates": "fold"}
        ways = {"CONCURRENT_REQUESTS": concurrency, "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency}
        arguments |= {name: value for name, value in more.items() if name.islower()}
        answer = self._pool.run(arguments, {**SETTINGS, **ways, **{n: more[n] for n in more if n.isupper()}})
        assert answer["error"] is None
        return read(directory)

    def listing(self, files: Mapping[str, bytes]) -> list[str]:
        """The records, without those of links that were refused: docID or reason, and the final path."""
        prefix = self.server.url("")
        lines = [json.loads(line) for line in files[".crawler"].splitlines()[1:]]
        ends = [(line, [line["url"], *line.get("redirects", ())][-1]) for line in lines if "url" in line]
        return [f"{line.get('docID') or line['reason']}: {url.removeprefix(prefix)}" for line, url in ends]


@pytest.fixture(scope="module")
def folds() -> Iterator[Crawls]:
    with CrawlPool() as pool, MockServer({}) as server:
        yield Crawls(pool, server)


def read(directory: Path) -> Files:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_c7_identical_bytes_are_three_files_or_one(server: ServerFactory, crawl: CrawlCommand, tmp_path: Path) -> None:
    start = page("/index.html", "/?utm_source=x", "/other")
    site = server({"/": start, "/index.html": start, "/?utm_source=x": start, "/other": page("/gone")})
    feed = tmp_path / "pages.jsonl"

    kept = crawl(site.url("/"), 2)
    folded = crawl(
        site.url("/"), 1, duplicates="fold", strict=1, events="-", settings={"FEEDS": json.dumps({str(feed): {}})}
    )

    assert kept.listing(site) == ["1: / @0", "2: /index.html @1", "3: /?utm_source=x @1", "4: /other @1"]
    assert folded.listing(site) == ["1: / @0", "2: /other @1"]
    assert folded.entry(site.url("/index.html")) == {
        "reason": "duplicate of 1",
        "url": site.url("/index.html"),
        "depth": 1,
        "parent": site.url("/"),
        "status": 200,
        "type": "text/html",
        "charset": "utf-8",
    }
    assert folded.stdout.splitlines()[-5:] == [
        f" 1    Fetched: {site.url('/index.html')}",
        f" 1     Folded: {site.url('/index.html')}",
        f" 1    Fetched: {site.url('/?utm_source=x')}",
        f" 1     Folded: {site.url('/?utm_source=x')}",
        f" 1    Fetched: {site.url('/other')}",
    ]
    assert "\n  failed    0\n  skipped   2 (2 duplicate of a page)\n" in folded.stderr
    assert [json.loads(line)["url"] for line in feed.read_text().splitlines()] == [site.url("/"), site.url("/other")]


def test_what_is_folded_and_what_is_not(folds: Crawls, tmp_path: Path) -> None:
    hidden: list[str] = []

    def last(request: Request) -> Reply:
        hidden.extend(path.name for path in (tmp_path / "pages").glob(".held-*"))
        reply: Reply = SITE["/z"]
        return reply

    folds.server.reset({**SITE, "/z": last})
    files = folds.run(tmp_path / "pages")

    assert hidden == []  # what is folded leaves nothing behind, not even until the end

    assert folds.listing(files) == [
        "1: /",
        "noindex: /veiled",  # not saved: nothing to fold onto
        "2: /a",
        "duplicate of 2: /b",
        "duplicate of 2: /c",
        "noindex: /hidden",  # by its header, and so even though the bytes were saved
        "3: /deep",
        "http 404: /gone",
        "not html: application/pdf: /pdf",
        "4: /x",
        "duplicate of 2: /d",
        "duplicate of 4: /late",
        "5: /y",
        "6: /z",
    ]
    assert (
        files[".crawler"].count(b'"nofollow":true') == 1
    )  # a header's: it may matter when the directory is built anew


def test_bytes_that_mean_something_else_by_their_type_are_read_by_it(folds: Crawls, tmp_path: Path) -> None:
    body = b'<title/><meta name="robots" content="noindex"><a href="/new">x</a>'  # as HTML, all of it is a title
    types = {"/html": "text/html", "/again": "text/html", "/xhtml": "application/xhtml+xml"}
    routes = {path: Reply(body=body, type=type) for path, type in types.items()}
    folds.server.reset({"/": page(*routes), **routes, "/new": page()})

    files = folds.run(tmp_path / "pages")

    assert folds.listing(files) == ["1: /", "2: /html", "duplicate of 2: /again", "noindex: /xhtml", "3: /new"]


@FEW
@given(site=sites(max_nodes=20, max_padding=2_000, is_folded=True), seed=st.integers(0, 2**32))
def test_random_sites_are_folded_as_by_the_oracle_in_every_way(crawls: Comparison, site: Site, seed: int) -> None:
    assert crawls.differences(site, seed) == []


def cut(whole: Mapping[str, bytes], count: int, directory: Path) -> None:
    """Leave in *directory* what a kill leaves after *count* records."""
    directory.mkdir()
    lines = whole[".crawler"].splitlines(keepends=True)[: 1 + count]
    (directory / ".crawler").write_bytes(b"".join(lines))
    for doc_id in range(1, 1 + sum(line.startswith(b'{"docID"') for line in lines)):
        (directory / str(doc_id)).write_bytes(whole[str(doc_id)])


def test_killed_after_any_record_it_goes_on_to_the_same_bytes(folds: Crawls, tmp_path: Path) -> None:
    folds.server.reset(SITE)
    whole = folds.run(tmp_path / "whole")
    records = folds.listing(whole)
    final = [line.rpartition(": ")[2] for line in records]

    for count in range(1, len(records) + 1):
        directory = tmp_path / f"cut-{count}"
        cut(whole, count, directory)
        folds.server.reset(SITE)
        assert folds.run(directory, concurrency=count) == whole
        assert set(folds.server.targets()) == {*final[count:], *(["/moved"] if count < 5 else [])}


def test_larger_limits_go_on_and_a_folded_page_is_not_counted(folds: Crawls, tmp_path: Path) -> None:
    folds.server.reset(SITE)
    whole = {depth: folds.run(tmp_path / f"to-{depth}", depth) for depth in range(5)}
    listings = [folds.listing(files) for files in whole.values()]
    assert [len([line for line in listing if line[0].isdigit()]) for listing in listings] == [1, 3, 4, 5, 6]

    for depth in range(5):
        assert folds.run(tmp_path / "deeper", depth) == whole[depth]
    for pages in range(1, 7):
        limited = folds.run(tmp_path / "larger", max_pages=pages)
        assert sorted(name for name in limited if name != ".crawler") == [str(n) for n in range(1, pages + 1)]
    unlimited = folds.run(tmp_path / "larger")
    assert unlimited == folds.run(tmp_path / "whole")
    sizes = [len(unlimited[str(n)].split(b"\n", 2)[2]) for n in range(1, 7)]
    room = folds.run(tmp_path / "bytes", TINYCRAWL_MAX_BYTES=sum(sizes[:4]))
    assert folds.listing(room)[-3:] == [
        "4: /x",
        "duplicate of 2: /d",
        "duplicate of 4: /late",
    ]  # for which there is room


def test_recheck_builds_what_an_undisturbed_crawl_gives(folds: Crawls, tmp_path: Path) -> None:
    folds.server.reset(BROKEN)
    broken = folds.run(tmp_path / "pages")
    assert folds.listing(broken) == [
        "1: /",
        "noindex: /veiled",
        "http 500: /a",
        "2: /b",  # not to be followed
        "duplicate of 2: /c",
        "noindex: /hidden",
        "http 404: /deep",
        "http 404: /gone",
        "not html: application/pdf: /pdf",
        "3: /x",
        "4: /y",
        "5: /z",
    ]

    folds.server.reset(SITE)
    rechecked = folds.run(tmp_path / "pages", recheck="failed")
    asked = folds.server.targets()

    assert rechecked == folds.run(tmp_path / "fresh")
    assert sorted(asked) == ["/a", "/d", "/deep", "/gone", "/late"]


def test_page_that_is_folded_when_the_directory_is_built_anew_keeps_what_it_asked(
    folds: Crawls, crawl: CrawlCommand, tmp_path: Path
) -> None:
    same = page("/x", extra='<meta name="robots" content="nofollow">')
    routes = {"/": page("/first", "/second"), "/first": same, "/second": same}
    folds.server.reset({**routes, "/first": Reply(404)})
    folds.run(tmp_path / "pages")
    shutil.copytree(tmp_path / "pages", tmp_path / "damaged")
    (tmp_path / "damaged" / "2").unlink()

    folds.server.reset(routes)
    rechecked = folds.run(tmp_path / "pages", recheck="failed")
    damaged = tmp_path / "damaged"
    repaired = crawl(folds.server.url("/"), 5, pagedir=damaged, duplicates="fold", recheck="failed")

    assert sorted(folds.server.targets()) == ["/first", "/first", "/second"]
    assert rechecked == repaired.files == folds.run(tmp_path / "fresh")
    assert folds.listing(rechecked) == ["1: /", "2: /first", "duplicate of 2: /second"]
    assert "2: is missing or cannot be read; it is fetched again" in repaired.stderr
    assert "answers otherwise" not in repaired.stderr


def broken_for_now(site: Site, chance: Random) -> Site:
    """*site*, a third of whose pages but the seed are not found."""
    nodes = [
        Node("missing") if node.kind == "page" and number and chance.random() < 0.3 else node
        for number, node in enumerate(site.nodes)
    ]
    return replace(site, nodes=tuple(nodes))


@FEW
@given(site=sites(max_nodes=20, max_padding=100, is_folded=True), seed=st.integers(0, 2**32))
def test_random_sites_rechecked_or_repaired_are_as_if_nothing_had_happened(
    folds: Crawls, tmp_path_factory: pytest.TempPathFactory, site: Site, seed: int
) -> None:
    place = tmp_path_factory.mktemp("recheck")
    whole = replace(site, nodes=tuple(replace(node, failures=0, latency="none") for node in site.nodes))
    broken = broken_for_now(whole, Random(seed))
    at_n0: dict[str, Any] = {"/": redirect("/n0")}

    def serve(served: Site) -> None:
        handler = served.handler(Random(seed))
        folds.server.reset(lambda request: at_n0["/"] if request.target == "/" else handler(request))

    serve(broken)
    folds.run(place / "pages", site.depth)
    settled = folds.listing(read(place / "pages"))
    serve(whole)
    rechecked = folds.run(place / "pages", site.depth, recheck="failed")
    asked = folds.server.targets()

    whole_files = folds.run(place / "fresh", site.depth)
    assert rechecked == whole_files
    known = [line for line in settled if line[0].isdigit() or line.startswith(("noindex", "duplicate of"))]
    assert {line.rpartition(": ")[2] for line in known}.isdisjoint(asked)
    pages = [name for name in whole_files if name != ".crawler"]
    for name in Random(seed).sample(pages, min(len(pages), 2)):
        (place / "fresh" / name).unlink()
    assert folds.run(place / "fresh", site.depth) == whole_files
    shutil.rmtree(place)


def test_damaged_page_is_fetched_again_without_what_was_folded_onto_it(folds: Crawls, tmp_path: Path) -> None:
    start = page("/same", "/far", "/moved", title="é")
    routes = {
        "/": start,
        "/same": start,
        "/far": page("/again"),
        "/again": start,
        "/moved": redirect("/to"),
        "/to": start,
    }
    folds.server.reset(routes)
    whole = folds.run(tmp_path / "pages")
    assert [line for line in folds.listing(whole) if "duplicate" in line] == [
        "duplicate of 1: /same",
        "duplicate of 1: /to",
        "duplicate of 1: /again",
    ]

    (tmp_path / "pages" / "1").unlink()
    folds.server.reset(routes)
    assert folds.run(tmp_path / "pages") == whole
    assert folds.server.targets() == ["/"]

    (tmp_path / "pages" / "2").unlink()
    folds.server.reset(routes)
    assert folds.run(tmp_path / "pages") == whole
    assert folds.server.targets() == ["/far"]


def test_damaged_page_that_has_changed_lets_what_was_folded_onto_it_be_asked_again(
    folds: Crawls, tmp_path: Path
) -> None:
    start = page("/same", "/far", title="é")
    routes = {"/": start, "/same": start, "/far": page()}
    folds.server.reset(routes)
    folds.run(tmp_path / "pages")
    (tmp_path / "pages" / "1").write_bytes(b"damaged")

    changed = {**routes, "/": page("/same", "/far", title="another")}
    folds.server.reset(changed)
    repaired = folds.run(tmp_path / "pages")
    asked = folds.server.targets()

    assert repaired == folds.run(tmp_path / "fresh")
    assert folds.listing(repaired) == ["1: /", "2: /same", "3: /far"]
    assert sorted(asked) == ["/", "/same"]


def test_directory_of_one_kind_is_not_continued_as_the_other(folds: Crawls, tmp_path: Path) -> None:
    folds.server.reset(SITE)
    folded = folds.run(tmp_path / "folded")
    kept = folds.run(tmp_path / "kept", duplicates="keep")

    assert b'"order":"breadth-first","duplicates":"fold","policies":{' in folded[".crawler"].splitlines()[0]
    assert folded[".crawler"].splitlines()[0].replace(b'"fold"', b'"keep"') == kept[".crawler"].splitlines()[0]
    assert folds.run(tmp_path / "folded", duplicates="keep", fresh="0") == folded
    assert folds.run(tmp_path / "kept") == kept
