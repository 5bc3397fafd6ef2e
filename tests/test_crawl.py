"""End to end: the real command, the mock server, the files on disk. Depth, order, limits, directories, feeds.

Names like D3 are rows of CASES.md. Redirects, the command's messages, the event log and what is saved have files of
their own: test_redirects.py, test_command.py, test_events.py, test_policies.py. A crawl takes more than a second, so
each test asks one crawl as much as it can.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

from conftest import CrawlCommand
from mockserver import MockServer, Reply, Request, Routes, page, redirect, robots

Server = Callable[..., MockServer]

# Eleven pages; each level has slow, retried, redirected and missing ones, so that answers overtake each other.
MIXED: Routes = {
    "/": page("/slow", "/flaky", "/gone", "/moved", "/b"),
    "/slow": page("/x", "/s1", delay=0.3),
    "/flaky": [Reply(503), Reply(500), page("/x", "/f1")],
    "/moved": redirect("/late", status=301, delay=0.1),
    "/late": page("/l1", "/s1", delay=0.1),
    "/b": page("/late", "/b1", "http://other.test/", "/pdf"),
    "/x": page("/y", "/s1"),
    "/s1": page("/"),
    "/f1": page("/deep", delay=0.2),
    "/l1": redirect("/f1"),
    "/b1": page("/y", "/deep", extra="<p>text</p>" * 10_000),
    "/pdf": Reply(body=b"%PDF-1.4", type="application/pdf"),
    "/y": page(),
    "/deep": page("/too-deep"),
}
MIXED_PAGES = [
    "1: / @0",
    "2: /slow @1",
    "3: /flaky @1",
    "4: /late @1",
    "5: /b @1",
    "6: /x @2",
    "7: /s1 @2",
    "8: /f1 @2",
    "9: /b1 @2",
    "10: /y @3",
    "11: /deep @3",
]


def at_concurrency(number: int) -> dict[str, object]:
    return {"CONCURRENT_REQUESTS": number, "CONCURRENT_REQUESTS_PER_DOMAIN": number}


# Depth


def test_depth_0_is_the_seed_alone(server: Server, crawl: CrawlCommand) -> None:
    """D1"""
    site = server({"/seed?q=1": page("/a", "/seed?q=1", "/"), "/a": page()})

    result = crawl(site.url("/seed?q=1"), 0)

    assert result.listing(site) == ["1: /seed?q=1 @0"]
    assert site.targets() == ["/seed?q=1"]


def test_robots_txt_costs_no_depth(server: Server, crawl: CrawlCommand) -> None:
    """D2, also with a redirect back to where it came from; the crawls run at the same time."""
    answers: list[Routes] = [
        {"/robots.txt": robots("User-agent: *\nDisallow: /private\n")},
        {"/robots.txt": redirect("/r", 301), "/r": robots("User-agent: *\nAllow: /\n")},
        {"/robots.txt": redirect("/robots.txt")},
        {},
    ]
    sites = [server({"/": page("/a"), "/a": page("/b"), "/b": page(), **routes}) for routes in answers]

    crawls = [crawl.start(site.url("/"), 1) for site in sites]

    for site, running in zip(sites, crawls, strict=True):
        assert running.wait().listing(site) == ["1: / @0", "2: /a @1"]
        assert "/b" not in site.targets()


def test_depths_are_shortest_whatever_is_slow(server: Server, crawl: CrawlCommand) -> None:
    """D3; the three crawls run at the same time."""
    site = server(
        {
            "/d": page("/slow", "/b"),
            "/slow": page("/x", delay=1.5),
            "/b": page("/c"),
            "/c": page("/x"),
            "/x": page("/y"),
            "/y": page("/z"),
        }
    )

    crawls = [crawl.start(site.url("/d"), 3, settings=at_concurrency(number)) for number in (1, 8, 32)]
    results = [running.wait() for running in crawls]

    for result in results:
        assert result.status == 0
        assert result.listing(site) == ["1: /d @0", "2: /slow @1", "3: /b @1", "4: /x @2", "5: /c @2", "6: /y @3"]
        assert result.files == results[0].files


def test_a_level_is_requested_when_the_one_above_is_settled(server: Server, crawl: CrawlCommand) -> None:
    site = server({"/": page("/a", "/slow", "/r"), "/a": page("/a1"), "/slow": page(delay=0.4), "/r": redirect("/r1")})

    result = crawl(site.url("/"), 2)

    times = {request.target: request.time for request in site.requests}
    assert times["/a1"] - times["/slow"] >= 0.4
    assert times["/a1"] > times["/r1"]  # where a redirect leads is of the same level
    assert result.listing(site) == ["1: / @0", "2: /a @1", "3: /slow @1"]


def test_directory_and_feed_are_identical_at_every_concurrency_and_on_a_rerun(
    tmp_path: Path, server: Server, crawl: CrawlCommand
) -> None:
    """D3, with retries, redirects, dead links, large and slow pages"""
    site = server(MIXED)
    feeds = [tmp_path / name for name in ("slow.jsonl", "fast.jsonl", "again.jsonl")]

    slow = crawl(site.url("/"), 3, settings=at_concurrency(1), options=["-O", str(feeds[0])])
    site.reset(MIXED)
    fast = crawl(site.url("/"), 3, settings=at_concurrency(32), options=["-O", str(feeds[1])])
    assert slow.listing(site) == MIXED_PAGES
    assert set(slow.files) == {".crawler", *map(str, range(1, 12))}
    assert fast.files == slow.files

    site.reset(MIXED)
    again = crawl(site.url("/"), 3, pagedir=fast.directory, options=["-O", str(feeds[2])])
    assert site.requests == []
    assert again.files == slow.files
    assert "\ntinycrawl: complete already: 11 pages; fresh=1 crawls again\n" in again.stderr

    assert feeds[0].read_text() == feeds[1].read_text() == feeds[2].read_text()
    pages = [json.loads(line) for line in feeds[2].read_text().splitlines()]
    assert [f"{p['doc_id']}: {p['url'].removeprefix(site.url(''))} @{p['depth']}" for p in pages] == MIXED_PAGES
    assert pages[3] == {
        "doc_id": 4,
        "url": site.url("/late"),
        "depth": 1,
        "title": "",
        "status": 200,
        "content_type": "text/html",
        "charset": "utf-8",
        "length": 119,
        "sha256": "c8ba2cbc3ea126779ed79a5f610396be85f55ae15fbf8b0ea2dbbbec40306999",
        "parent": site.url("/"),
    }


def test_retries_cost_no_depth(server: Server, crawl: CrawlCommand) -> None:
    """D4, and the same with other faults and concurrently: each /flaky is answered the third time only."""
    faults: dict[str, list[Reply]] = {
        "1": [Reply(503), Reply(503)],
        "2": [Reply(429, headers=[("Retry-After", "0")]), Reply(502)],
        "3": [Reply(raw=b""), Reply(body=b"<a href=/too-early>", cut=5)],
    }
    routes: Routes = {"/e": page(*[f"/{name}{n}" for n in faults for name in ("flaky", "b")])}
    for n, replies in faults.items():
        routes[f"/flaky{n}"] = [*replies, page(f"/x{n}")]
        routes |= {f"/b{n}": page(f"/c{n}"), f"/c{n}": page(f"/x{n}"), f"/x{n}": page(f"/y{n}"), f"/y{n}": page()}
    sites = [server(routes), server(routes)]

    crawls = [crawl.start(site.url("/e"), 3, settings=at_concurrency(n)) for site, n in zip(sites, (1, 8), strict=True)]

    for site, running in zip(sites, crawls, strict=True):
        assert [line.partition(" ")[2] for line in running.wait().listing(site)] == [
            "/e @0",
            *["/flaky1 @1", "/b1 @1", "/flaky2 @1", "/b2 @1", "/flaky3 @1", "/b3 @1"],
            *["/x1 @2", "/c1 @2", "/x2 @2", "/c2 @2", "/x3 @2", "/c3 @2"],
            *["/y1 @3", "/y2 @3", "/y3 @3"],
        ]
        assert [site.targets().count(f"/flaky{n}") for n in faults] == [3, 3, 3]


def test_redirected_seed_has_depth_0(server: Server, crawl: CrawlCommand) -> None:
    """D5"""
    site = server({"/old": redirect("/new/", 301), "/new/": page("p", "/old"), "/new/p": page("q")})

    result = crawl(site.url("/old"), 1)

    assert result.listing(site) == ["1: /new/ @0", "2: /new/p @1"]


# Limits and filters


def test_max_pages_saves_exactly_so_many_and_a_larger_one_continues(
    tmp_path: Path, server: Server, crawl: CrawlCommand
) -> None:
    """T3; also the feed of a continued crawl is that of a crawl at once."""
    site = server(MIXED)
    feeds = [tmp_path / name for name in ("limited.jsonl", "continued.jsonl", "at-once.jsonl")]

    limited = crawl(site.url("/"), 3, max_pages=5, settings=at_concurrency(8), options=["-O", str(feeds[0])], check=3)
    assert limited.listing(site) == MIXED_PAGES[:5]
    assert set(limited.files) == {".crawler", "1", "2", "3", "4", "5"}
    assert "/x" not in site.targets()

    settled: Routes = dict.fromkeys(["/", "/slow", "/flaky", "/gone", "/moved", "/late", "/b"], Reply(410))
    site.reset(MIXED | settled)  # what is settled is not asked for again
    continued = crawl(site.url("/"), 3, max_pages=9, pagedir=limited.directory, options=["-O", str(feeds[1])], check=3)
    assert not set(site.targets()) & set(settled)

    site.reset(MIXED)
    at_once = crawl(site.url("/"), 3, max_pages=9, options=["-O", str(feeds[2])], check=3)
    assert continued.listing(site) == MIXED_PAGES[:9]
    assert continued.files == at_once.files
    assert [len(feed.read_text().splitlines()) for feed in feeds] == [5, 9, 9]
    assert feeds[1].read_text() == feeds[2].read_text()


def test_max_pages_that_cuts_nothing_off_is_a_complete_crawl(server: Server, crawl: CrawlCommand) -> None:
    """T3; and strict=1 where nothing failed"""
    site = server({"/": page("/a", "/b", "http://other.test/"), "/a": page("/", "/b"), "/b": page("/a")})

    result = crawl(site.url("/"), 5, max_pages=3, strict=1)

    assert result.listing(site) == ["1: / @0", "2: /a @1", "3: /b @1"]
    assert result.manifest[-1]["end"] == "complete"
    assert "tinycrawl: complete\n" in result.stderr


def test_larger_depth_continues_and_a_smaller_one_is_refused(server: Server, crawl: CrawlCommand) -> None:
    site = server(MIXED)
    first = crawl(site.url("/"), 1)
    assert first.listing(site) == MIXED_PAGES[:5]
    asked = set(site.targets())

    site.reset(MIXED)
    refused = crawl(site.url("/"), 0, pagedir=first.directory, check=1)
    assert refused.files == first.files
    assert site.requests == []
    assert "depth=1, which cannot be continued with depth=0; fresh=1 discards it" in refused.stderr
    log = first.directory / "events"  # would make the directory unfit for its readers
    assert crawl(site.url("/"), 1, pagedir=first.directory, events=log, check=2).files == first.files

    continued = crawl(site.url("/"), 3, pagedir=first.directory)
    assert not asked & set(site.targets())  # no settled URL is requested twice

    site.reset(MIXED)
    assert continued.files == crawl(site.url("/"), 3).files


def test_filters_are_applied_before_the_request(server: Server, crawl: CrawlCommand) -> None:
    """T4, by path and query; a redirect is filtered like a link."""
    site = server(
        {
            "/": page("/docs/a", "/my/docs/", "/docs/b?q=1", "/docs/c", "/blog/1", "/docs/d?p=1"),
            "/docs/a": redirect("/blog/2"),
            "/docs/c": redirect("/docs/b?q=2"),
            "/docs/d?p=1": page("/docs/e", "/blog/3"),
            "/docs/e": page(),
        }
    )

    result = crawl(site.url("/"), 2, include="^/docs/", exclude="b[?]q")

    assert site.targets() == ["/", "/docs/a", "/docs/c", "/docs/d?p=1", "/docs/e"]
    assert result.listing(site) == ["1: / @0", "2: /docs/d?p=1 @1", "3: /docs/e @2"]
    assert {line["url"].removeprefix(site.url("")): line["reason"] for line in result.manifest if "reason" in line} == {
        "/my/docs/": "not included",
        "/docs/b?q=1": "excluded",
        "/blog/1": "not included",
        "/docs/a": "not included",
        "/docs/c": "excluded",
        "/blog/3": "not included",
    }


def test_strict_makes_a_failed_page_exit_status_1(server: Server, crawl: CrawlCommand) -> None:
    site = server({"/": page("/a", "/gone"), "/a": page()})

    running = crawl.start(site.url("/"), 1, strict=1)
    lenient = crawl(site.url("/"), 1)
    strict = running.wait()
    again = crawl(site.url("/"), 1, strict=1, pagedir=lenient.directory, check=1)  # a finished directory is no excuse

    assert strict.status == 1
    assert lenient.files == strict.files == again.files
    assert lenient.entry(site.url("/gone"))["reason"] == "http 404"
    assert "\n  failed    1 (1 http 404)\n" in lenient.stderr


# Directories


def test_another_crawls_directory_is_refused_untouched_until_fresh(server: Server, crawl: CrawlCommand) -> None:
    """S2; another crawl is also one by other rules."""
    ten = [f"/{i}" for i in range(1, 10)]
    a = server({"/": page(*ten), **{path: page() for path in ten}})
    b = server({"/": page("/1", "/2"), "/1": page(), "/2": page()})
    before = crawl(a.url("/"), 1)
    assert len(before.pages) == 10
    a.reset({})

    refusals = {
        f'seed: "{a.url("/")}", not "{b.url("/")}"': crawl(b.url("/"), 1, pagedir=before.directory, check=1),
        "exclude: null": crawl(a.url("/"), 1, pagedir=before.directory, exclude="/9", check=1),
    }
    for difference, refused in refusals.items():
        assert f"page directory {before.directory} holds another crawl ({difference}" in refused.stderr
        assert refused.files == before.files
    assert a.requests == b.requests == []

    fresh = crawl(b.url("/"), 1, pagedir=before.directory, fresh=1)
    assert fresh.listing(b) == ["1: / @0", "2: /1 @1", "3: /2 @1"]
    assert set(fresh.files) == {".crawler", "1", "2", "3"}


def test_what_no_crawl_wrote_is_never_deleted(tmp_path: Path, server: Server, crawl: CrawlCommand) -> None:
    """S2"""
    site = server({"/": page()})
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "1").write_bytes(b"three\n0\nlines of a poem")

    result = crawl(site.url("/"), 0, pagedir=tmp_path / "theirs", fresh=1, check=1)

    assert result.files == {"1": b"three\n0\nlines of a poem"}
    assert str(tmp_path / "theirs") in result.stderr
    assert site.requests == []


def test_second_crawl_into_one_directory_is_refused(tmp_path: Path, server: Server, crawl: CrawlCommand) -> None:
    """S5; the gate keeps the first crawl waiting until the second has ended."""
    waiting, released = threading.Event(), threading.Event()

    def gate(request: Request) -> Reply:
        waiting.set()
        return page() if released.is_set() else Reply(503, headers=[("Retry-After", "1")])

    site = server({"/": page("/a", "/gate"), "/a": page(), "/gate": gate, "/second": page()})
    first = crawl.start(site.url("/"), 1, pagedir=tmp_path / "pages", settings={"TINYCRAWL_PATIENCE": 1000})
    assert waiting.wait(60)

    second = crawl(site.url("/second"), 1, pagedir=tmp_path / "pages", fresh=1, check=1)
    released.set()

    assert f"page directory {tmp_path / 'pages'} is being written by another crawl\n" in second.stderr
    assert "/second" not in site.targets()
    result = first.wait()
    assert result.status == 0
    assert result.listing(site) == ["1: / @0", "2: /a @1", "3: /gate @1"]
