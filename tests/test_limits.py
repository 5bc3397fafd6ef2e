"""Limits of a whole crawl and of a page: exact, in canonical order, and never the end of what they cut off."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conftest import CrawlCommand
from mockserver import MockServer, Reply, Request, page, redirect
from tinycrawl.robots import first_lines

Server = Callable[..., MockServer]


def sized(size: int, *hrefs: str, **fields: float) -> Reply:
    """A page of *size* bytes."""
    body = page(*hrefs).body
    return Reply(body=body + b" " * (size - len(body)), delay=fields.get("delay", 0.0))


@pytest.mark.parametrize(
    ("limit", "pages"), [(1_000, 1), (2_999, 2), (3_000, 3), (3_001, 3), (9_999, 6), (10_000, 6), (10_500, 7)]
)
def test_the_bytes_of_a_crawl_are_limited_in_order(limit: int, pages: int, server: Server, crawl: CrawlCommand) -> None:
    """The page that would exceed the limit ends the crawl, though later ones would fit; a larger limit goes on."""
    sizes = [1_000, 1_000, 1_000, 2_000, 2_500, 2_000, 1_000, 500]
    paths = [f"/{number}" for number in range(1, len(sizes))]
    routes: dict[str, Reply] = {"/": sized(sizes[0], *paths)}
    for number, path in enumerate(paths, 1):
        routes[path] = sized(sizes[number], delay=0.3 / number)
    site = server(dict(routes))
    whole = crawl(site.url(), 1)

    first = crawl(site.url(), 1, settings={"TINYCRAWL_MAX_BYTES": limit}, check=3)

    assert len(first.pages) == pages
    assert first.bodies() == whole.bodies()[:pages]
    assert "stopped at TINYCRAWL_MAX_BYTES, a larger one goes on" in first.stderr
    assert crawl(site.url(), 1, pagedir=first.directory).files == whole.files


def test_a_limit_of_bytes_that_cuts_nothing_off_is_a_complete_crawl(server: Server, crawl: CrawlCommand) -> None:
    """A page that is not saved does not count."""
    site = server(
        {
            "/": sized(1_000, "/a", "/big"),
            "/a": sized(1_000),
            "/big": Reply(body=b"<meta name=robots content=noindex>" + bytes(5_000)),
        }
    )

    result = crawl(site.url(), 1, settings={"TINYCRAWL_MAX_BYTES": 2_000})

    assert result.listing(site) == ["1: / @0", "2: /a @1"]


def test_no_request_begins_after_the_time_of_a_crawl(server: Server, crawl: CrawlCommand) -> None:
    """Not even the one that waits for the host's delay; what is in flight is finished, and another run goes on."""
    paths = [f"/{number}" for number in range(12)]
    routes: dict[str, Reply] = {"/": page(*paths), **{path: page() for path in paths}}
    site = server(dict(routes))
    settings = {"DOWNLOAD_DELAY": 0.4, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}

    first = crawl(site.url(), 1, settings={**settings, "CLOSESPIDER_TIMEOUT": 3}, check=3)

    times = [request.time for request in site.requests]
    assert 1 < len(times) < 12
    assert times[-1] - times[0] < 3  # the clock of the crawl began before the first of them
    assert len(first.pages) == len(times) - 1  # robots.txt
    assert "stopped at CLOSESPIDER_TIMEOUT" in first.stderr
    again = crawl(site.url(), 1, pagedir=first.directory)
    assert [url for url, _ in again.pages] == [site.url(path) for path in ("/", *paths)]
    assert again.files == crawl(site.url(), 1).files


def test_all_requests_of_a_page_together_have_a_time(server: Server, crawl: CrawlCommand) -> None:
    """Each of a chain of redirects may be in time: their sum counts, retries included."""

    def chain(request: Request) -> Reply:
        number = int(request.target.removeprefix("/chain-"))
        return redirect(f"/chain-{number + 1}", delay=0.5)

    site = server(
        {
            "/": page("/chain-1", "/retried", "/b"),
            **{f"/chain-{number}": chain for number in range(1, 19)},
            "/retried": Reply(500, delay=0.8),
            "/b": page(),
        }
    )

    result = crawl(site.url(), 1, settings={"TINYCRAWL_PAGE_TIMEOUT": 2, "DOWNLOAD_TIMEOUT": 1.5, "RETRY_TIMES": 20})

    assert result.listing(site) == ["1: / @0", "2: /b @1"]
    assert result.entry(site.url("/chain-1"))["reason"] == "timeout"
    assert result.entry(site.url("/retried"))["reason"] == "timeout"
    assert len(site.targets()) < 12


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_of_a_robots_txt_are_limited(end: bytes) -> None:
    assert first_lines(end.join([b"a", b"b", b"c", b""]), 100, 2) == b"a" + end + b"b" + end
    assert first_lines(b"a" + end + b"b", 100, 2) == b"a" + end + b"b"
