"""End to end: traps, limits and size. Names like T1 are rows of CASES.md.

T3 and T4 are in test_crawl.py, T5's kinds of endlessness in test_network.py, T6's encodings one by one in
test_compression.py; the rules on plain strings in test_scope.py, bombs in little memory in test_content.py.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import brotli
import pytest

from conftest import CrawlCommand, RunningCrawl, read_page_files
from many import CrawlPool
from mockserver import Answer, Handler, MockServer, Reply, Request, Routes, page, redirect, route
from tinycrawl.content import zstd

Server = Callable[..., MockServer]
SETTINGS = {"DOWNLOAD_DELAY": 0, "CONCURRENT_REQUESTS_PER_DOMAIN": 16, "TINYCRAWL_SYNC": 0, "LOG_LEVEL": "ERROR"}
MIB = 1 << 20


@dataclass
class Visit:
    """What a crawl of ``h.test`` came to; URLs without their host."""

    pages: list[str]  # as "/a @1", in docID order
    unsaved: dict[str, str]  # URL -> reason
    requested: list[str]  # but robots.txt, in order


class Visitor:
    """Runs crawls in one child process."""

    def __init__(self, pool: CrawlPool, mock: MockServer, directory: Path) -> None:
        self.pool = pool
        self.mock = mock
        self.directory = directory
        self.count = itertools.count()

    def visit(self, site: Handler | Routes, depth: int, seed: str = "/", **settings: object) -> Visit:
        self.mock.reset(site)
        directory = self.directory / str(next(self.count))
        prefix = self.mock.url("", "h.test")
        arguments = {"seed": prefix + seed, "depth": depth, "pagedir": str(directory)}
        result = self.pool.run(arguments, {**SETTINGS, **settings})
        assert result["error"] is None, result["error"]
        lines: list[dict[str, Any]] = [json.loads(line) for line in (directory / ".crawler").read_text().splitlines()]
        assert lines[-1]["end"] == "complete"
        return Visit(
            [f"{url.removeprefix(prefix)} @{depth}" for url, depth in read_page_files(directory)],
            {line["url"].removeprefix(prefix): line["reason"] for line in lines if "reason" in line},
            self.mock.targets(),
        )


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with CrawlPool() as pool, MockServer({}) as mock:
        yield Visitor(pool, mock, tmp_path_factory.mktemp("traps"))


# T1: session ids


def with_sessions(*forms: str) -> Handler:
    """Three pages that link each other, each time with a new session id, in one of these *forms* after the other."""
    numbers = itertools.count(1)
    patterns = [re.compile(re.escape(form).replace("NEW", "[0-9]+").replace("PATH", "(/[abc]?)")) for form in forms]

    def answer(request: Request) -> Answer:
        paths = [match[1] for pattern in patterns if (match := pattern.fullmatch(request.target))]
        if request.target not in ("/", "/a", "/b", "/c") and not paths:
            return None
        links = [form.replace("PATH", path) for path in ("/a", "/b", "/c") for form in forms]
        return page(*[link.replace("NEW", str(next(numbers))) for link in links])

    return answer


SESSIONS = [
    pytest.param(["PATH;jsessionid=NEW"], ["jsessionid"], id="path-parameter"),
    pytest.param(["PATH?sid=NEW"], ["sid"], id="query"),
    pytest.param(["PATH?PHPSESSID=NEW", "PATH?utm_source=NEW&utm_medium=NEW"], ["PHPSESSID", "utm_*"], id="two-kinds"),
    pytest.param(["PATH;jsessionid=NEW?sid=NEW&amp_x=NEW"], ["jsessionid", "sid", "amp_?"], id="both-at-once"),
]


@pytest.mark.parametrize(("forms", "names"), SESSIONS)
def test_t1_pages_with_session_ids_are_saved_once_where_the_parameters_are_named(
    visitor: Visitor, tmp_path: Path, forms: list[str], names: list[str]
) -> None:
    """By the site's file, and by a setting in both spellings."""
    text = f"[settings]\nTINYCRAWL_DROP_PARAMETERS = {json.dumps(names)}\n"
    (tmp_path / "h.test.toml").write_text(text)
    ways: list[dict[str, object]] = [
        {"TINYCRAWL_SITES_DIR": str(tmp_path)},
        {"TINYCRAWL_DROP_PARAMETERS": json.dumps(names)},
        {"TINYCRAWL_DROP_PARAMETERS": ",".join(names)},
    ]

    for settings in ways:
        visit = visitor.visit(with_sessions(*forms), 6, **settings)

        assert visit.pages == ["/ @0", "/a @1", "/b @1", "/c @1"]
        assert sorted(visit.requested) == ["/", "/a", "/b", "/c"]
        assert visit.unsaved == {}


@pytest.mark.parametrize(("forms", "names"), SESSIONS)
def test_t1_session_ids_are_bounded_by_depth_where_they_are_not_named(
    visitor: Visitor, forms: list[str], names: list[str]
) -> None:
    width = 3 * len(forms)

    visit = visitor.visit(with_sessions(*forms), 2)

    assert len(visit.pages) == 1 + width + width**2
    assert [depth for *_, depth in visit.pages] == ["0", *"1" * width, *"2" * width**2]


@pytest.mark.parametrize(
    ("link", "requested"),
    [
        *[("/a?sid=1", "/a"), ("/a?sid", "/a"), ("/a?sid=", "/a"), ("/a?sid=1&sid=2", "/a"), ("/a?&sid=1", "/a")],
        *[("/a?sid=1&x=2", "/a?x=2"), ("/a?x=2&sid=1", "/a?x=2"), ("/a?x=2&sid=1&y=3", "/a?x=2&y=3")],
        *[("/a?y=%3d&x=a+b&sid=1", "/a?y=%3d&x=a+b"), ("/a?utm_=1&utm_source=x&x", "/a?x")],
        *[("/a?v1=1&v=2&v12=3", "/a?v=2&v12=3"), ("/a?sid=1&sid=1#f", "/a")],
        *[("/a;jsessionid=1", "/a"), ("/a;jsessionid=1?x=2", "/a?x=2"), ("/a;jsessionid=A.b-c!9?sid=1", "/a")],
        *[("/a;v=1;jsessionid=2", "/a;v=1"), ("/a;jsessionid=2;v=1", "/a;v=1"), ("/d;jsessionid=1/a", "/d/a")],
        *[("/a?x=sid", "/a?x=sid"), ("/a?xsid=1", "/a?xsid=1"), ("/a?sid2=1", "/a?sid2=1"), ("/sid=1", "/sid=1")],
        *[("/a?x=1;sid", "/a?x=1;sid"), ("/sid/a", "/sid/a"), ("/a?q=?sid=1", "/a?q=?sid=1"), ("/a#?sid=1", "/a")],
    ],
)  # fmt: skip
def test_t1_only_what_is_named_is_removed(visitor: Visitor, link: str, requested: str) -> None:
    """The rest stays as it was published."""
    names = ["sid", "jsessionid", "utm_*", "v?"]

    visit = visitor.visit({"/": page(link), requested: page()}, 1, TINYCRAWL_DROP_PARAMETERS=json.dumps(names))

    assert visit.requested == ["/", requested]
    assert visit.pages == ["/ @0", f"{requested} @1"]


def test_t1_redirect_targets_lose_them_too_unless_they_would_lead_back(visitor: Visitor) -> None:
    site: Routes = {
        "/start?sid=7": page("/moved", "/asks?x=1", "/to-known", "/chain"),
        "/moved": redirect("/new?sid=1&x=1"),
        "/new?x=1": page(),
        # A server that wants to see its id once: without it, /asks would redirect for ever.
        "/asks?x=1": redirect("/asks?x=1&sid=2"),
        "/asks?x=1&sid=2": page(),
        "/to-known": redirect("/new?x=1&sid=3"),
        "/chain": redirect("/chain-2;jsessionid=4"),
        "/chain-2": redirect("/chain?sid=5"),
        "/chain?sid=5": page("/last?sid=6"),
        "/last": page(),
    }

    visit = visitor.visit(site, 2, "/start?sid=7", TINYCRAWL_DROP_PARAMETERS="sid,jsessionid")

    assert visit.pages == [
        *["/start?sid=7 @0", "/new?x=1 @1", "/asks?x=1&sid=2 @1", "/chain?sid=5 @1", "/last @2"],
    ]
    assert visit.unsaved == {"/to-known": "duplicate"}
    assert sorted(visit.requested) == sorted(site)


@pytest.mark.parametrize("value", ["*", '["*"]'])
def test_t1_all_parameters_can_be_dropped(visitor: Visitor, value: str) -> None:
    site: Routes = {"/": page("/a?x=1&y=2", "/a;v=1", "/a?z", "/b?"), "/a": page("/a?n=1"), "/b": page()}

    visit = visitor.visit(site, 3, TINYCRAWL_DROP_PARAMETERS=value)

    assert visit.pages == ["/ @0", "/a @1", "/b @1"]


# T2 and parameters: URLs that grow


def everywhere(*hrefs: str) -> Handler:
    """Every path answers with these links."""
    return lambda request: None if request.target == "/robots.txt" else page(*hrefs)


@pytest.mark.parametrize(
    ("href", "pages", "refused"),
    [
        pytest.param("infra/www/", ["/" + "infra/www/" * n for n in range(5)], "/" + "infra/www/" * 5, id="two"),
        pytest.param("a/", ["/" + "a/" * n for n in range(5)], "/a/a/a/a/a/", id="one"),
        pytest.param("x/index.html", ["/", *["/" + "x/" * n + "index.html" for n in range(1, 5)]],
                     "/x/x/x/x/x/index.html", id="before-a-file"),
        pytest.param("a//b/", ["/" + "a//b/" * n for n in range(5)], "/" + "a//b/" * 5, id="slash-between"),
        pytest.param(".//", ["/" * n for n in range(1, 6)], "/" * 6, id="slashes-alone"),
        pytest.param("a//", ["/" + "a//" * n for n in range(5)], "/" + "a//" * 5, id="slash-at-the-end"),
        pytest.param("a/b/../c/", ["/" + "a/c/" * n for n in range(5)], "/" + "a/c/" * 5, id="dots"),
        pytest.param("é/", ["/" + "%C3%A9/" * n for n in range(5)], "/" + "%C3%A9/" * 5, id="escaped"),
        pytest.param("a/?b=a/a/a/a/a/a", ["/", *["/" + "a/" * n + "?b=a/a/a/a/a/a" for n in range(1, 5)]],
                     "/a/a/a/a/a/?b=a/a/a/a/a/a", id="not-in-the-query"),
    ],
)  # fmt: skip
def test_t2_a_repeated_segment_stops(visitor: Visitor, href: str, pages: list[str], refused: str) -> None:
    visit = visitor.visit(everywhere(href), 10)

    assert [line.partition(" ")[0] for line in visit.pages] == pages
    assert visit.unsaved == {refused: "repeated path segment"}
    assert sorted(visit.requested) == sorted(pages)


def test_t2_several_loops_redirects_and_the_seed(visitor: Visitor) -> None:
    def loops(request: Request) -> Answer:
        return None if request.target == "/robots.txt" else page("x/", "y/")

    visit = visitor.visit(loops, 9, TINYCRAWL_MAX_SEGMENT_REPEATS=2)
    # All words of up to two x and two y.
    words = ["", "x", "y", "xx", "xy", "yx", "yy", "xxy", "xyx", "xyy", "yxx", "yxy", "yyx"]
    words += ["xxyy", "xyxy", "xyyx", "yxxy", "yxyx", "yyxx"]
    assert [line.partition(" ")[0] for line in visit.pages] == ["/" + "".join(f"{c}/" for c in word) for word in words]
    assert set(visit.unsaved.values()) == {"repeated path segment"}

    def redirects(request: Request) -> Answer:
        if request.target == "/robots.txt":
            return None
        return page("/a/") if request.target == "/" else redirect(f"{request.target}a/")

    visit = visitor.visit(redirects, 9)
    assert visit.pages == ["/ @0"]
    assert visit.unsaved == {"/a/": "repeated path segment"}
    assert visit.requested == ["/", "/a/", "/a/a/", "/a/a/a/", "/a/a/a/a/"]

    visit = visitor.visit(everywhere("a/", "/b"), 9, "/a/a/a/a/a/a/")
    assert visit.pages[:2] == ["/a/a/a/a/a/a/ @0", "/b @1"]
    assert visit.unsaved["/a/a/a/a/a/a/a/"] == "repeated path segment"

    visit = visitor.visit(everywhere("a/"), 10, TINYCRAWL_MAX_SEGMENT_REPEATS=0)
    assert [line.partition(" ")[0] for line in visit.pages] == ["/" + "a/" * n for n in range(11)]


def test_a_link_may_have_so_many_parameters(visitor: Visitor) -> None:
    def query(count: int, start: int = 0) -> str:
        return "&".join(f"p{number}={number}" for number in range(start, start + count))

    links = [
        f"/?{query(32)}",
        f"/?{query(33)}",
        f"/a?{query(100)}",
        f"/b?{'&'.join('abcdefghijklmnopqrstuvwxyz0123456')}",
    ]
    links += [f"/c?{query(31)}&x", "/moved"]
    site: Routes = {**dict.fromkeys(["/d", *links], page()), "/": page(*links), "/moved": redirect(f"/d?{query(33)}")}

    visit = visitor.visit(site, 1)
    assert visit.pages == ["/ @0", f"/?{query(32)} @1", f"/c?{query(31)}&x @1"]
    assert visit.unsaved == dict.fromkeys([*links[1:4], "/moved"], "too many parameters")
    assert sorted(visit.requested) == sorted(["/", links[0], links[4], "/moved"])

    visit = visitor.visit(site, 1, TINYCRAWL_MAX_PARAMETERS=0)
    assert visit.pages == ["/ @0", *[f"{link} @1" for link in links[:5]]]
    assert visit.unsaved == {"/moved": "http 404"}

    visit = visitor.visit(site, 1, f"/?{query(33)}", TINYCRAWL_MAX_PARAMETERS=2)
    assert visit.pages == [f"/?{query(33)} @0"]  # the seed is exempt

    # Those that are dropped do not count.
    site = {"/": page("/a?x=1&y=2", "/b?x=1&sid=3&y=2"), "/a?x=1&y=2": page(), "/b?x=1&y=2": page()}
    visit = visitor.visit(site, 1, TINYCRAWL_MAX_PARAMETERS=2, TINYCRAWL_DROP_PARAMETERS="sid")
    assert visit.pages == ["/ @0", "/a?x=1&y=2 @1", "/b?x=1&y=2 @1"]


def test_a_query_that_grows_stops(visitor: Visitor) -> None:
    """A filter that is added once more by every click; names alone may repeat."""

    def facets(request: Request) -> Answer:
        if request.target == "/robots.txt":
            return None
        mark = "&" if "?" in request.target else "?"
        return page(f"{request.target}{mark}f=1")

    visit = visitor.visit(facets, 10)
    assert [line.partition(" ")[0] for line in visit.pages] == [
        "/",
        *["/?" + "&".join(["f=1"] * n) for n in range(1, 5)],
    ]
    assert visit.unsaved == {"/?f=1&f=1&f=1&f=1&f=1": "repeated parameter"}

    refused = ["/?x=1&x=1&y=2&x=1&x=1&x=1", "/?a&a&a&a&a", "/a/b?q=x&q=x&q=x&q=x&q=x#f", "/moved"]
    followed = ["/?x=1&x=2&x=3&x=4&x=5&x=6", "/?a&a&a&a", "/?q=x&q=x&q=x&q=x&Q=x", "/?t[]=1&t[]=2&t[]=3&t[]=4&t[]=5"]
    site: Routes = {
        **{link.replace("[]", "%5B%5D"): page() for link in followed},
        **dict.fromkeys(followed, page()),
        "/": page(*refused, *followed),
        "/moved": redirect("/e?z=1&z=1&z=1&z=1&z=1"),
    }
    visit = visitor.visit(site, 1)
    assert visit.pages == ["/ @0", *[f"{link} @1" for link in followed]]
    assert visit.unsaved == {link.removesuffix("#f"): "repeated parameter" for link in refused}

    visit = visitor.visit(facets, 10, TINYCRAWL_MAX_SEGMENT_REPEATS=0)
    assert len(visit.pages) == 11


# T5, T6, T7: size


def peak_of(running: RunningCrawl) -> int:
    """The most memory that the crawl has had so far, in bytes."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    match = re.search(r"^VmHWM:\s+([0-9]+) kB$", status, re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024


class Gauge:
    """Serves a site whose last page, ``/last`` a level below all others, is asked for when the memory can be read."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.running: RunningCrawl | None = None
        self.peak = 0

    def __call__(self, request: Request) -> Answer:
        if request.target == "/last":
            assert self.running is not None
            self.peak = peak_of(self.running)
            return page()
        return self.handler(request)


def test_t5_t6_what_is_too_large_is_refused_in_little_memory(server: Server, crawl: CrawlCommand) -> None:
    """50 MB of HTML, bodies without end, bombs of two gigabytes, all at once; the others are saved."""
    zeros = gzip.compress(bytes(64 * MIB), 6) * 32  # 2 GiB
    line = b"<p>" + b"word " * 12_000 + b"\n"
    huge = b"<!doctype html>" + line * 850  # 51 MB
    bombs = {
        "/bomb": Reply(body=zeros, headers=[("Content-Encoding", "gzip")]),
        "/bomb-in-gzip": Reply(body=gzip.compress(zeros), headers=[("Content-Encoding", "gzip")]),
        "/bomb-twice": Reply(body=gzip.compress(zeros), headers=[("Content-Encoding", "gzip, gzip")]),
        "/bomb-octets": Reply(body=zeros, type="application/octet-stream", headers=[("Content-Encoding", "gzip")]),
        "/bomb-br": Reply(body=brotli.compress(bytes(256 * MIB), quality=1), headers=[("Content-Encoding", "br")]),
        "/bomb-zstd": Reply(body=zstd.compress(bytes(64 * MIB)) * 32, headers=[("Content-Encoding", "zstd")]),
        "/bomb-html": Reply(body=gzip.compress(huge), headers=[("Content-Encoding", "gzip")], chunked=True),
    }
    assert len(gzip.compress(zeros)) < 100_000
    large = {
        "/huge": Reply(body=huge),
        "/huge-chunked": Reply(body=huge, chunked=True),
        "/endless": Reply(body=line, endless=True),
        "/announced": Reply(body=line, headers=[("Content-Length", "5000000000")]),
    }
    odd = {**bombs, **large}
    gauge = Gauge(route({"/": page(*odd, "/ok"), **odd, "/ok": page("/last")}))
    mock = server(gauge)

    gauge.running = crawl.start(mock.url(), 2, settings={"RETRY_TIMES": 0})
    result = gauge.running.wait()

    assert result.status == 0
    assert result.listing(mock) == ["1: / @0", "2: /ok @1", "3: /last @2"]
    reasons = {line["url"].removeprefix(mock.url("")): line["reason"] for line in result.manifest if "reason" in line}
    assert reasons == dict.fromkeys(odd, "too large")
    assert 0 < gauge.peak < 400 * MIB


def test_t7_memory_grows_with_distinct_urls_only(server: Server, crawl: CrawlCommand) -> None:
    """1,500 pages of the same size: with three links each, and with 200, of which 197 are to other pages at random."""
    count = 1500

    def body(number: int, is_full: bool) -> Reply:
        new = range(3 * number + 1, 3 * number + 4)
        old = Random(number).choices(range(count), k=197)
        seen = "".join(f'<a href="/section/page-{n:07}.html">x</a>\n' for n in old)
        extra = seen if is_full else f"<!-- {seen} -->"
        return page(*[f"/section/page-{n:07}.html" for n in new if n < count], extra=extra)

    def site(is_full: bool) -> Gauge:
        def answer(request: Request) -> Answer:
            match = re.fullmatch("/section/page-([0-9]{7}).html", request.target)
            if match is None:
                return None
            if int(match[1]) == count - 1:  # on the last level but that of /last
                return page("/last")
            return body(int(match[1]), is_full)

        return Gauge(answer)

    gauges = []
    for is_full in (False, True):
        gauge = site(is_full)
        mock = server(gauge)
        gauge.running = crawl.start(mock.url("/section/page-0000000.html"), 10, settings={"TINYCRAWL_SYNC": 0})
        result = gauge.running.wait()
        assert result.status == 0
        gauges.append((len(result.pages), gauge.peak))

    (few_pages, few), (many_pages, many) = gauges
    assert few_pages == many_pages == count + 1
    # 300,000 links; a list of them all would take 24 MB and more.
    assert many - few < 10 * MIB
