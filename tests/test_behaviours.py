"""The web as it is: hundreds of things that servers do, each of which must come to a page or to a clear reason.

Never at the cost of the pages beside it, of a log that can be read, or of more time and memory than is granted.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import behaviours
from behaviours import AFTER, BEFORE, SEED, Behaviour, RawServer
from conftest import peak_memory
from many import CrawlPool

SETTINGS: dict[str, object] = {
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_MAXSIZE": 1024 * 1024,
    "DOWNLOAD_TIMEOUT": 10,
    "LOG_LEVEL": "DEBUG",
    "RETRY_TIMES": 1,
    "TINYCRAWL_CRAWL_DELAY_MAX": 0.1,
    "TINYCRAWL_PATIENCE": 0,
    "TINYCRAWL_RETRY_AFTER_MAX": 0.1,
    "TINYCRAWL_SYNC": 0,
}
MOST_SECONDS = 30.0  # for one crawl: two tries until DOWNLOAD_TIMEOUT, and what a busy machine adds
MOST_MEMORY = 48 * 1024 * 1024  # bytes that one crawl may add to the process
MOST_LOG = 64 * 1024  # bytes of log that one crawl may write

PAGES = behaviours.pages()
SLOW = behaviours.slow_pages()
ROBOTS = behaviours.robots_files()
SEEDS = behaviours.seeds()

# A record of the log, its further lines, what Scrapy lists before the crawl, and the summary.
LOG_LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[[\w.-]+\] [A-Z]+: (?!FORGED).*"
    r"|    .*|\[.*|\{.*| +'.*|tinycrawl: [a-z].*|  [a-z]+ .*|"
)


@dataclass
class Outcome:
    """A crawl that has ended: what it took, what it said, what it left."""

    error: str | None
    seconds: float
    memory: int  # bytes added at the peak
    log: bytes
    directory: Path

    @property
    def manifest(self) -> list[dict[str, Any]]:
        path = self.directory / ".crawler"
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def found(self) -> dict[str, str | tuple[str, bytes]]:
        """By the URL of the link: the reason, or the final URL and the body of the page."""
        found: dict[str, str | tuple[str, bytes]] = {}
        for entry in self.manifest[1:-1]:
            if "docID" in entry:
                url, _, body = (self.directory / str(entry["docID"])).read_bytes().split(b"\n", 2)
                found[entry["url"]] = url.decode(), body
            else:
                found[entry["url"]] = entry["reason"]
        return found


class WatchedPool(CrawlPool):
    """A CrawlPool that measures each crawl."""

    def __init__(self) -> None:
        super().__init__(time_limit=60)
        self._read = 0  # bytes of the log

    def crawl(self, seed: str, depth: int, directory: Path, settings: Mapping[str, object], **more: object) -> Outcome:
        child = self._running_child()
        process = Path("/proc") / str(child.pid)
        start = time.monotonic()
        (process / "clear_refs").write_text("5")  # the peak begins anew
        before = peak_memory(process)
        answer = self.run({"seed": seed, "depth": depth, "pagedir": str(directory), **more}, dict(settings))
        seconds = time.monotonic() - start
        memory = peak_memory(process) - before if child.poll() is None else 0
        log = Path(self._log.name).read_bytes()[self._read :]
        self._read += len(log)
        return Outcome(answer["error"], seconds, memory, log, directory)

    def warm_up(self, server: RawServer, directory: Path) -> None:
        """Crawl an innocent site, so that what every crawl needs is not counted for the first."""
        self.crawl(server.url("innocent.test"), 1, directory, SETTINGS)


@pytest.fixture(scope="module")
def pool(server: RawServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedPool]:
    with WatchedPool() as pool:
        pool.warm_up(server, tmp_path_factory.mktemp("innocent") / "pages")
        yield pool


@pytest.fixture(scope="module")
def server() -> Iterator[RawServer]:
    with RawServer(PAGES) as server:
        yield server


@pytest.fixture(scope="module")
def robots_server() -> Iterator[RawServer]:
    with RawServer(ROBOTS, "/robots.txt") as server:
        yield server


@pytest.fixture(scope="module")
def seed_server() -> Iterator[RawServer]:
    with RawServer(SEEDS, "/") as server:
        yield server


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RawServer, Outcome]]:
    """All slow sites in one crawl, which waits for them together."""
    settings = {**SETTINGS, "CONCURRENT_REQUESTS": 2 * len(SLOW), "DOWNLOAD_TIMEOUT": 2, "LOG_LEVEL": "INFO"}
    directory = tmp_path_factory.mktemp("slow")
    with RawServer(SLOW) as server, WatchedPool() as pool:
        pool.warm_up(server, directory / "innocent")
        yield server, pool.crawl(server.url("hub.test"), 2, directory / "pages", settings, scope="all")


def ids(behaviour: Behaviour) -> str:
    return behaviour.id


def complaints_about(log: bytes) -> list[str]:
    """Lines of the log that no log should have."""
    text = log.decode("utf-8", "backslashreplace")
    lines = text.split("\n")
    return [
        line
        for line in lines
        if not line.isprintable() or "Traceback" in line or "Unhandled" in line or not LOG_LINE.fullmatch(line)
    ]


def check_outcome(outcome: Outcome) -> None:
    assert outcome.error is None
    assert complaints_about(outcome.log) == []
    assert outcome.seconds < MOST_SECONDS
    assert outcome.memory < MOST_MEMORY
    assert len(outcome.log) < MOST_LOG


@pytest.mark.parametrize("behaviour", PAGES, ids=ids)
def test_what_a_server_does_comes_to_a_page_or_to_a_reason(
    behaviour: Behaviour, server: RawServer, pool: WatchedPool, tmp_path: Path
) -> None:
    def url(path: str) -> str:
        return server.url(behaviour.host, path)

    outcome = pool.crawl(url("/"), 1, tmp_path / "pages", {**SETTINGS, **behaviour.settings})

    expected = behaviour.expected
    assert outcome.found() == {
        url("/"): (url("/"), SEED),
        url("/before"): (url("/before"), BEFORE),
        url("/bad"): (url(behaviour.url), expected) if isinstance(expected, bytes) else expected,
        url("/after"): (url("/after"), AFTER),
    }
    assert outcome.manifest[-1]["end"] == "complete"
    assert server.asked.count((behaviour.host, "/bad")) <= 2
    check_outcome(outcome)


@pytest.mark.parametrize("behaviour", SLOW, ids=ids)
def test_what_a_server_does_slowly_costs_only_itself(behaviour: Behaviour, slow: tuple[RawServer, Outcome]) -> None:
    server, outcome = slow

    def url(path: str) -> str:
        return server.url(behaviour.host, path)

    found = outcome.found()
    expected = behaviour.expected
    assert {path: found.get(url(path)) for path in ("/", "/before", "/bad", "/after")} == {
        "/": (url("/"), SEED),
        "/before": (url("/before"), BEFORE),
        "/bad": (url(behaviour.url), expected) if isinstance(expected, bytes) else expected,
        "/after": (url("/after"), AFTER),
    }


def test_slow_sites_together_take_no_longer_than_one(slow: tuple[RawServer, Outcome]) -> None:
    _, outcome = slow

    assert outcome.manifest[-1]["end"] == "complete"
    check_outcome(outcome)


@pytest.mark.parametrize("behaviour", ROBOTS, ids=ids)
def test_a_robots_txt_permits_or_the_crawl_says_why_not(
    behaviour: Behaviour, robots_server: RawServer, pool: WatchedPool, tmp_path: Path
) -> None:
    def url(path: str) -> str:
        return robots_server.url(behaviour.host, path)

    outcome = pool.crawl(url("/"), 1, tmp_path / "pages", SETTINGS)

    if behaviour.expected:
        assert failure_of(outcome) == f"seed {url('/')}: {behaviour.expected}"
    else:
        assert outcome.found() == {
            url("/"): (url("/"), SEED),
            url("/before"): (url("/before"), BEFORE),
            url("/bad"): "http 404",
            url("/after"): (url("/after"), AFTER),
        }
    check_outcome(outcome)


@pytest.mark.parametrize("behaviour", SEEDS, ids=ids)
def test_a_bad_seed_ends_the_crawl_with_its_reason(
    behaviour: Behaviour, seed_server: RawServer, pool: WatchedPool, tmp_path: Path
) -> None:
    seed = seed_server.url(behaviour.host)

    outcome = pool.crawl(seed, 1, tmp_path / "pages", SETTINGS)

    assert failure_of(outcome) == f"seed {seed}: {behaviour.expected}"
    assert not (tmp_path / "pages" / "1").exists()
    check_outcome(outcome)


def failure_of(outcome: Outcome) -> str | None:
    """Why the log says that the crawl failed as a whole."""
    found = re.search(r"ERROR: The crawl failed: (.*)", outcome.log.decode("utf-8", "backslashreplace"))
    return found[1] if found else None
