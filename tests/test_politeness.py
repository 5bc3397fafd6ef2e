"""Delays, end to end (policy H; N3 of CASES.md), measured by the server: when the head of each request had come."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from statistics import median

from conftest import REPOSITORY, CrawlCommand
from mockserver import MockServer, Reply, Request, Routes, page, redirect, robots

Server = Callable[..., MockServer]

DELAY = 0.4  # seconds; long enough that the 5 % below it are more than a busy machine's hiccups
HASTE = 0.95  # of a delay: issue 2


def times(mock: MockServer, host: str) -> list[float]:
    return sorted(request.time for request in mock.requests if request.host == host)


def gaps(mock: MockServer, host: str) -> list[float]:
    """Seconds between the starts of consecutive requests to *host*, whatever they asked for."""
    return [later - earlier for earlier, later in pairwise(times(mock, host))]


def requests_for(mock: MockServer, host: str) -> list[str]:
    return [request.target for request in mock.requests if request.host == host]


def overloaded(status: int, retry_after: str | None, **fields: float) -> Reply:
    headers = [("Retry-After", retry_after)] if retry_after is not None else []
    return Reply(status, b"later", "text/plain", headers=headers, delay=fields.get("delay", 0.0))


def closing_unannounced() -> Reply:
    """A whole answer that keeps the connection alive by its headers; but then the server closes it."""
    return Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>")


# One request per DOWNLOAD_DELAY


def site_with_mishaps(server: Server) -> MockServer:
    """Two hosts with redirects to and fro, errors, refusals and connections dropped in every way."""
    mock = server({})
    bare, www = (lambda path, host=host: mock.url(path, host) for host in ("h.test", "www.h.test"))
    routes: Routes = {
        "h.test/robots.txt": [Reply(500), redirect(www("/rules"), 301)],
        "www.h.test/robots.txt": robots("User-agent: *\nDisallow: /private\n", close=True),
        "www.h.test/rules": robots(""),
        "h.test/": page(
            "/away", "/error", "/busy", "/lost", "/close", www("/1"), www("/away"), www("/2"), www("/lost")
        ),
        "h.test/away": redirect(www("/and-back")),
        "www.h.test/and-back": redirect(bare("/back"), close=True),
        "h.test/back": page(),
        "h.test/error": [Reply(500), Reply(502, close=True), page()],
        "h.test/busy": [Reply(503), Reply(429, headers=[("Retry-After", "0")]), page()],
        "h.test/lost": [Reply(raw=b""), page()],
        "h.test/close": page(close=True),
        "www.h.test/1": closing_unannounced(),
        "www.h.test/away": redirect(bare("/from-www"), 301),
        "h.test/from-www": page(),
        "www.h.test/2": page(delay=DELAY * 1.5),
        "www.h.test/lost": [Reply(raw=b""), Reply(raw=b""), page()],
    }
    mock.reset(routes)
    return mock


def test_no_two_requests_to_a_host_start_too_close_together(server: Server, crawl: CrawlCommand) -> None:
    """At any concurrency; and each URL is asked for as often as it must be."""
    running = []
    for concurrency in (1, 16):
        mock = site_with_mishaps(server)
        settings = {"DOWNLOAD_DELAY": DELAY, "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency}
        running.append((mock, crawl.start(mock.url("/", "h.test"), 1, scope="domain", settings=settings)))

    for mock, one in running:
        result = one.wait()
        assert (result.status, len(result.pages)) == (0, 10)
        assert min(gaps(mock, "h.test") + gaps(mock, "www.h.test")) >= HASTE * DELAY
        assert sorted(requests_for(mock, "h.test")) == [
            *["/", "/away", "/back", "/busy", "/busy", "/busy", "/close", "/error", "/error", "/error", "/from-www"],
            *["/lost", "/lost", "/robots.txt", "/robots.txt"],
        ]
        assert sorted(requests_for(mock, "www.h.test")) == [
            *["/1", "/2", "/and-back", "/away", "/lost", "/lost", "/lost", "/robots.txt", "/rules"],
        ]


def test_without_a_delay_too_one_request_to_a_host_is_in_flight_at_a_time(server: Server, crawl: CrawlCommand) -> None:
    site = server({"/": page("/slow", "/b"), "/slow": page(delay=0.5), "/b": page()})

    crawl(site.url("/"), 1, settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 1})

    times = {request.target: request.time for request in site.requests}
    assert times["/b"] - times["/slow"] >= 0.5


def test_large_pages_do_not_make_requests_bunch(server: Server, crawl: CrawlCommand) -> None:
    """While a page is parsed nothing is sent; what then is late must not make the next one early."""
    links = [f"/{i}" for i in range(4)]
    heavy = "".join(f'<p><a href="/{i % 4}">link</a>\n' for i in range(60_000))
    routes: Routes = {"/": page(*links), **{link: page(extra=heavy) for link in links}}
    mock = server(routes)

    result = crawl(mock.url("/", "h.test"), 2, settings={"DOWNLOAD_DELAY": DELAY})

    assert len(result.pages) == 5
    assert min(gaps(mock, "h.test")) >= HASTE * DELAY


def test_the_delay_counts_from_when_a_request_is_sent(server: Server, crawl: CrawlCommand) -> None:
    """Connecting takes 0.3 seconds here, for the first request alone."""
    mock = server({"/": page("/1"), "/1": page()})

    crawl(mock.url("/", "late.test"), 1, settings={"DOWNLOAD_DELAY": DELAY})

    assert len({request.connection for request in mock.requests}) == 1
    assert min(gaps(mock, "late.test")) >= HASTE * DELAY


def test_a_lost_connection_is_asked_again_by_us_alone(server: Server, crawl: CrawlCommand) -> None:
    """Twisted would ask once more, at once, where a connection was in use before."""
    links = [f"/{i}" for i in range(8)]
    mock = server({"/": page(*links, "/lost"), **dict.fromkeys(links, page()), "/lost": Reply(raw=b"")})

    result = crawl(mock.url(), 1, settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 1, "RETRY_TIMES": 2})

    connection = {request.target: request.connection for request in mock.requests}
    first_lost = next(request for request in mock.requests if request.target == "/lost")
    assert first_lost.connection == connection["/7"]  # or the test shows nothing
    assert mock.targets().count("/lost") == 3
    assert result.entry(mock.url("/lost"))["reason"] == "connection lost"


def test_connections_that_close_unannounced_cost_no_request(server: Server, crawl: CrawlCommand) -> None:
    links = [f"/{i}" for i in range(30)]
    mock = server({"/": page(*links), **dict.fromkeys(links, closing_unannounced())})

    result = crawl(mock.url(), 1, settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 4, "RETRY_TIMES": 5})

    assert len(result.pages) == 31
    assert sorted(mock.targets()) == sorted(["/", *links])


def test_a_slow_host_does_not_keep_another_waiting(server: Server, crawl: CrawlCommand) -> None:
    """Even where all of CONCURRENT_REQUESTS could wait for it: its pages come first in the canonical order."""
    slow, fast = ([f"/{name}{i}" for i in range(5)] for name in ("slow", "fast"))
    mock = server({})
    links = [mock.url(path, "slow.test") for path in slow] + [mock.url(path, "fast.test") for path in fast]
    answers: dict[str, Reply] = {"/": page(*links)}
    answers |= dict.fromkeys(slow, page(delay=0.7)) | dict.fromkeys(fast, page())
    mock.reset(lambda request: answers.get(request.target))

    crawl(
        mock.url("/", "seed.test"),
        1,
        domains="slow.test,fast.test",
        settings={"DOWNLOAD_DELAY": 0.3, "CONCURRENT_REQUESTS": 4, "CONCURRENT_REQUESTS_PER_DOMAIN": 1},
    )

    assert requests_for(mock, "fast.test") == ["/robots.txt", *fast]
    assert HASTE * 0.3 <= min(gaps(mock, "fast.test")) <= median(gaps(mock, "fast.test")) <= 0.6
    assert min(gaps(mock, "slow.test")[1:]) >= 0.69  # one at a time


# Crawl-delay

CRAWL_DELAYS = {
    # robots.txt, the gaps it must give where DOWNLOAD_DELAY is 0.2 and TINYCRAWL_CRAWL_DELAY_MAX 1.0
    "for-all": ("User-agent: *\nCrawl-delay: 0.6\n", 0.6),
    "for-us": ("User-agent: *\nCrawl-delay: 90\n\nUser-agent: tinycrawl\nCrawl-delay: 0.5\n", 0.5),
    "for-another": ("User-agent: otherbot\nCrawl-delay: 90\n", 0.2),
    "shorter": ("User-agent: *\nCrawl-delay: 0.05\n", 0.2),
    "zero": ("User-agent: *\nCrawl-delay: 0\n", 0.2),
    "absurd": ("User-agent: *\nCrawl-delay: 86400\n", 1.0),
    "infinite": ("User-agent: *\nCrawl-delay: inf\n", 0.2),
    "negative": ("User-agent: *\nCrawl-delay: -5\n", 0.2),
    "garbage": ("User-agent: *\nCrawl-delay: slowly\n", 0.2),
    "none": ("", 0.2),
}


def test_crawl_delay_is_kept_up_to_the_cap(server: Server, crawl: CrawlCommand) -> None:
    mock = server({})

    def handler(request: Request) -> Reply:
        if request.target == "/robots.txt":
            return robots(CRAWL_DELAYS.get(request.host.removesuffix(".test"), ("", 0))[0])
        if request.host == "seed.test":
            return page(*[mock.url(path, f"{name}.test") for name in CRAWL_DELAYS for path in ("/1", "/2", "/3")])
        return page()

    mock.reset(handler)
    result = crawl(
        mock.url("/", "seed.test"),
        1,
        scope="all",
        settings={"DOWNLOAD_DELAY": 0.2, "TINYCRAWL_CRAWL_DELAY_MAX": 1, "CONCURRENT_REQUESTS": 0},
    )

    assert len(result.pages) == 1 + 3 * len(CRAWL_DELAYS)
    found = {name: [round(gap, 2) for gap in gaps(mock, f"{name}.test")] for name in CRAWL_DELAYS}
    wrong = {
        name: found[name]
        for name, (_, delay) in CRAWL_DELAYS.items()
        if not HASTE * delay <= min(found[name]) <= delay + 0.25
    }
    assert wrong == {}


def test_crawl_delay_without_download_delay(server: Server, crawl: CrawlCommand) -> None:
    mock = server({"/robots.txt": robots("User-agent: *\nCrawl-delay: 0.5"), "/": page("/1", "/2"), "/1": page()})

    crawl(mock.url("/", "h.test"), 1, settings={"DOWNLOAD_DELAY": 0})

    assert requests_for(mock, "h.test") == ["/robots.txt", "/", "/1", "/2"]
    assert min(gaps(mock, "h.test")) >= HASTE * 0.5


# 429, 503 and Retry-After


def date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


BUSY: dict[str, tuple[Callable[[], Reply], float, float]] = {
    # the answer to /busy, and from when to when the host's next request must come, in seconds after that answer,
    # where DOWNLOAD_DELAY is 0.1 and TINYCRAWL_RETRY_AFTER_MAX 4: what waits too long waits that long.
    # A date has whole seconds.
    "429": (lambda: overloaded(429, "1", delay=0.3), 1.0, 3.5),
    "503": (lambda: overloaded(503, "1", delay=0.3), 1.0, 3.5),
    "spaces": (lambda: overloaded(503, "  1 ", delay=0.3), 1.0, 3.5),
    "date": (lambda: overloaded(429, date(2.3), delay=0.3), 1.0, 3.5),
    "absurd": (lambda: overloaded(429, "86400", delay=0.3), 4.0, 60.0),
    "more-absurd": (lambda: overloaded(503, "9" * 400, delay=0.3), 4.0, 60.0),
    "absurd-date": (lambda: overloaded(503, "Fri, 31 Dec 9999 23:59:59 GMT", delay=0.3), 4.0, 60.0),
    "past": (lambda: overloaded(429, date(-60), delay=0.3), 0.0, 3.5),
    "garbage": (lambda: overloaded(429, "soon", delay=0.3), 0.1, 3.5),
    "impossible": (lambda: overloaded(429, "Mon, 42 Foo 2026 99:00:00 GMT", delay=0.3), 0.1, 3.5),
    "negative": (lambda: overloaded(503, "-3", delay=0.3), 0.1, 3.5),
    "fraction": (lambda: overloaded(503, "1.5", delay=0.3), 0.1, 3.5),
    "without": (lambda: overloaded(503, None, delay=0.3), 0.1, 3.5),
    "error": (lambda: overloaded(500, "1", delay=0.3), 1.0, 3.5),
    "forbidden": (lambda: overloaded(403, "1", delay=0.3), 1.0, 3.5),
    "moved": (
        lambda: Reply(302, headers=[("Location", "/moved"), ("Retry-After", "1")], delay=0.3),
        1.0,
        3.5,
    ),
    "fine": (lambda: page(delay=0.3), 0.0, 3.5),
}


def test_the_whole_host_waits_as_long_as_it_asks(server: Server, crawl: CrawlCommand) -> None:
    """Not only the page that was refused: the next one is due already when the answer comes."""
    mock = server({})

    def handler(request: Request) -> Reply | None:
        if request.host == "seed.test" and request.target == "/":
            return page(*[mock.url(path, f"{name}.test") for name in BUSY for path in ("/busy", "/1", "/2")])
        if request.target == "/busy" and not request.number:
            return BUSY[request.host.removesuffix(".test")][0]()
        return None if request.target == "/robots.txt" else page()

    mock.reset(handler)
    result = crawl(
        mock.url("/", "seed.test"),
        1,
        scope="all",
        settings={
            "DOWNLOAD_DELAY": 0.1,
            "TINYCRAWL_RETRY_AFTER_MAX": 4,
            "CONCURRENT_REQUESTS": 0,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        },
    )

    wrong = {}
    for name, (_, earliest, latest) in BUSY.items():
        busy, following = [
            (request.time, request.target) for request in mock.requests if request.host == f"{name}.test"
        ][1:3]
        assert (busy[1], following[1] != "/robots.txt") == ("/busy", True)
        waited = following[0] - busy[0] - 0.3
        if not HASTE * earliest - 0.01 <= waited <= latest:
            wrong[name] = round(waited, 2)
    assert wrong == {}
    failed = [(entry["url"], entry["reason"]) for entry in result.manifest[1:-1] if "reason" in entry]
    assert failed == [(mock.url("/busy", "forbidden.test"), "http 403")]


def test_the_whole_host_waits_without_a_delay_too(server: Server, crawl: CrawlCommand) -> None:
    links = [f"/{i}" for i in range(10)]
    answers = {"/": page("/busy", *links), **dict.fromkeys(links, page(delay=0.2))}
    running = []
    for concurrency in (1, 8):
        mock = server({**answers, "/busy": [overloaded(429, "2"), page()]})
        settings = {"DOWNLOAD_DELAY": 0, "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency, "RETRY_TIMES": 0}
        running.append((mock, crawl.start(mock.url(), 1, settings=settings)))

    for mock, one in running:
        assert len(one.wait().pages) == 12
        assert sorted(mock.targets()) == sorted(["/", "/busy", "/busy", *links])
        busy = next(request.time for request in mock.requests if request.target == "/busy")
        # What was sent together with it was sent.
        during = [request.target for request in mock.requests if busy + 0.7 < request.time < busy + 2 * HASTE]
        assert during == []


def test_without_retry_after_the_wait_doubles(server: Server, crawl: CrawlCommand) -> None:
    mock = server({"/": page("/busy"), "/busy": [*[overloaded(503, None)] * 4, page()]})

    result = crawl(mock.url("/", "h.test"), 1, settings={"DOWNLOAD_DELAY": 0.1})

    assert len(result.pages) == 2
    waits = gaps(mock, "h.test")[2:]
    assert [wait >= HASTE * least for wait, least in zip(waits, (0.1, 0.2, 0.4, 0.8), strict=True)] == [True] * 4
    assert sum(waits) < 6  # or it grew faster


def test_patience_is_bounded_and_apart_from_other_retries(server: Server, crawl: CrawlCommand) -> None:
    mock = server(
        {
            "/": page("/always-429", "/always-503", "/always-500", "/mixed", "/ok"),
            "/always-429": Reply(429),
            "/always-503": overloaded(503, "0"),
            "/always-500": Reply(500),
            "/mixed": [Reply(503), Reply(500), Reply(429), Reply(502), Reply(503), page()],
            "/ok": page(),
        }
    )

    result = crawl(mock.url(), 1, settings={"TINYCRAWL_PATIENCE": 3, "RETRY_TIMES": 2})

    assert result.listing(mock) == ["1: / @0", "2: /mixed @1", "3: /ok @1"]
    assert [entry["reason"] for entry in result.manifest[1:-1] if "reason" in entry] == [
        "http 429",
        "http 503",
        "http 500",
    ]
    counts = [mock.targets().count(target) for target in ("/always-429", "/always-503", "/always-500", "/mixed")]
    assert counts == [4, 4, 3, 6]


# What we use of Scrapy that it does not document

PROBE = """
from scrapy.utils.reactor import install_reactor
install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
from types import SimpleNamespace
from scrapy import Request
from scrapy.core.downloader import Downloader
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware
from scrapy.http import Response
from scrapy.http.cookies import CookieJar
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.project import get_project_settings
from scrapy.utils.test import get_crawler
from tinycrawl.handler import PoliteHTTPHandler
from tinycrawl.politeness import delay_of, lengthen_delay, push_back
from time import monotonic

crawler = get_crawler(settings_dict=dict(get_project_settings()) | {"DOWNLOAD_DELAY": 2, "DOWNLOAD_MAXSIZE": 12345})
downloader = Downloader(crawler)
crawler.engine = SimpleNamespace(downloader=downloader)
request = Request("http://h.test/")

key, slot = downloader._get_slot(request)
assert (key, slot.delay, slot.lastseen) == ("h.test", 2.0, 0), slot
lengthen_delay(crawler, request, 7)
assert slot.download_delay() == delay_of(crawler, request) == 7
downloader._slot_gc(age=0)
assert "h.test" not in downloader.slots
assert downloader._get_slot(request)[1] is not slot and delay_of(crawler, request) == 7

slot = downloader._get_slot(request)[1]
push_back(crawler, request, 20)
slot.queue.append((request, None))
downloader._process_queue(slot)
assert slot.latercall is not None and len(slot.queue) == 1  # it waits
assert 19 < slot.lastseen + slot.delay - monotonic() <= 20

assert build_from_crawler(PoliteHTTPHandler, crawler)._pool.retryAutomatically is False
assert build_from_crawler(HttpCompressionMiddleware, crawler)._max_size == 12345

middleware = build_from_crawler(CookiesMiddleware, crawler)
jar = middleware.jars["key"] = CookieJar()
answer = Response("http://h.test/", headers={"Set-Cookie": "a=1"})
middleware.process_response(request.replace(meta={"cookiejar": "key"}), answer)
assert [cookie.name for cookie in jar] == ["a"]
print("all as expected")
"""


def test_scrapy_still_has_the_private_attributes_that_we_use() -> None:
    """Slot.delay and .lastseen, per_slot_settings, _pool.retryAutomatically, _max_size, jars.

    In another process, since they need a reactor.
    """
    probe = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )

    assert (probe.stdout, probe.returncode) == ("all as expected\n", 0), probe.stderr
