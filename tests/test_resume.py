"""Stopped anywhere, in any way, and run again: the bytes of a crawl that nobody disturbed (DESIGN section 5)."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from conftest import CrawlCommand, Result, RunningCrawl
from mockserver import Answer, MockServer, Request
from tinycrawl.settings import EXTENSIONS
from variety import DEPTH, VariedSite

SITE = VariedSite()


@dataclass
class Crawls:
    """One server for all tests of this module, since its address is in every file; and what was crawled undisturbed."""

    server: MockServer
    command: CrawlCommand
    undisturbed: dict[str, Result] = field(default_factory=dict)
    requests: int = 0  # for pages, of an undisturbed crawl
    left: dict[str, Result] = field(default_factory=dict)  # what later crawls may not change

    def serve(self, before: Callable[[int], None] | None = None) -> None:
        """Serve the site anew. *before* is called, in the server's thread, with the count of each page request."""
        handler = SITE.handler(Random())
        count = 0

        def counting(request: Request) -> Answer:
            nonlocal count
            if request.target != "/robots.txt":
                count += 1
                if before is not None:
                    before(count)
            return handler(request)

        self.server.reset(counting)

    def start(self, directory: Path, depth: int = DEPTH, **arguments: Any) -> RunningCrawl:
        return self.command.start(self.server.url("/n0"), depth, pagedir=directory, **arguments)

    def run(self, directory: Path, depth: int = DEPTH, **arguments: Any) -> Result:
        """Crawl with the site served anew, so that ``server.targets()`` are those of this crawl."""
        self.serve()
        return self.command(self.server.url("/n0"), depth, pagedir=directory, **arguments)

    def whole(self, depth: int = DEPTH, max_pages: int | None = None) -> Result:
        """An undisturbed crawl, made once."""
        key = f"{depth}, {max_pages}"
        if key not in self.undisturbed:
            self.serve()
            self.undisturbed[key] = self.command(self.server.url("/n0"), depth, max_pages=max_pages, check=None)
            self.requests = max(self.requests, len(self.server.targets()))
        return self.undisturbed[key]

    def count(self, part: float) -> int:
        """How many page requests, from 1, are *part* of an undisturbed crawl's."""
        self.whole()
        return max(1, round(part * self.requests))

    def disturb(self, directory: Path, part: float, *signals: tuple[float, int], **arguments: Any) -> Result:
        """Crawl, and send *signals*, each (seconds after the first, number), when *part* of the requests have come."""
        at = self.count(part)
        crawls: list[RunningCrawl] = []

        def send(number: int) -> None:
            if crawls[0].process.returncode is None:
                os.kill(crawls[0].process.pid, number)

        def before(count: int) -> None:
            if count == at:
                for later, number in signals:
                    if later:
                        self.server.loop.call_later(later, send, number)
                    else:
                        send(number)

        self.serve(before)
        crawls.append(self.start(directory, **arguments))
        result = crawls[0].wait()
        assert len(self.server.targets()) >= at, result.stderr
        return result


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    with ExitStack() as stack:
        server = stack.enter_context(MockServer({}))
        yield Crawls(server, CrawlCommand(tmp_path_factory.mktemp("undisturbed"), stack))


def settled_targets(crawls: Crawls, result: Result) -> set[str]:
    """The targets that the manifest has settled, redirects included."""
    records = [line for line in result.manifest[1:] if "url" in line]
    urls = [url for record in records for url in (record["url"], *record.get("redirects", ()))]
    return {url.removeprefix(crawls.server.url("")) for url in urls}


def visible(result: Result) -> dict[str, bytes]:
    """The pages and the manifest; a crawl that was killed leaves hidden files, which any later one may remove."""
    return {name: content for name, content in result.files.items() if name == ".crawler" or not name.startswith(".")}


def assert_is_whole_beginning(result: Result, whole: Result) -> None:
    """The numbered files are the first of the undisturbed crawl, each of them complete."""
    numbered = sorted(int(name) for name in result.files if not name.startswith("."))
    assert numbered == list(range(1, len(numbered) + 1))
    for number in numbered:
        assert result.files[str(number)] == whole.files[str(number)]


def assert_finishes(crawls: Crawls, directory: Path, disturbed: Result, **arguments: Any) -> None:
    """Run again, the crawl comes to the undisturbed one's bytes, and asks for nothing that was settled."""
    result = crawls.run(directory, **arguments)
    asked = crawls.server.targets()

    assert result.files == crawls.whole().files
    assert settled_targets(crawls, disturbed).isdisjoint(asked)


def test_undisturbed_crawl_has_everything_in_it(crawls: Crawls) -> None:
    result = crawls.whole()

    assert result.status == 0
    assert [(url.removeprefix(crawls.server.url("")), depth) for url, depth in result.pages] == SITE.oracle()
    reasons = {line.get("reason") for line in result.manifest[1:]}
    assert reasons >= {
        "noindex",
        "http 404",
        "not html: application/pdf",
        "redirect loop",
        "duplicate",
        "out of scope",
    }
    assert any(line.get("redirects") for line in result.manifest if "docID" in line)
    assert any(line.get("nofollow") for line in result.manifest)
    assert {"utf-8", "cp1252", "utf-16-le"} <= {line.get("charset") for line in result.manifest}
    assert any("?q=%E9" in url for url, _ in result.pages)


# Larger limits


def test_one_level_after_the_other_equals_all_at_once(crawls: Crawls, tmp_path: Path) -> None:
    for depth in (1, 2, 3):
        result = crawls.run(tmp_path / "pages", depth)

        assert result.files == crawls.whole(depth).files


def test_more_and_more_pages_equal_all_at_once(crawls: Crawls, tmp_path: Path) -> None:
    for most, status in ((5, 3), (10, 3), (None, 0)):
        result = crawls.run(tmp_path / "pages", max_pages=most, check=status)

        assert result.files == crawls.whole(DEPTH, most).files
        assert len(result.pages) == (most or len(crawls.whole().pages))


# Signals


@pytest.mark.parametrize("part", [0, 0.03, 0.1, 0.25, 0.5, 0.75, 0.97])
def test_killed_crawl_is_continued_to_the_same_bytes(part: float, crawls: Crawls, tmp_path: Path) -> None:
    killed = crawls.disturb(tmp_path / "pages", part, (0, signal.SIGKILL))

    assert killed.status == -signal.SIGKILL
    assert_is_whole_beginning(killed, crawls.whole())
    assert_finishes(crawls, tmp_path / "pages", killed)


def test_crawl_killed_twice_is_continued_to_the_same_bytes(crawls: Crawls, tmp_path: Path) -> None:
    first = crawls.disturb(tmp_path / "pages", 0.35, (0, signal.SIGKILL))
    second = crawls.disturb(tmp_path / "pages", 0.5, (0, signal.SIGKILL))

    assert settled_targets(crawls, first) <= settled_targets(crawls, second)
    assert settled_targets(crawls, first).isdisjoint(crawls.server.targets())
    assert_is_whole_beginning(second, crawls.whole())
    assert_finishes(crawls, tmp_path / "pages", second)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("part", [0, 0.5])
def test_signalled_crawl_finishes_what_is_in_flight(
    number: signal.Signals, part: float, crawls: Crawls, tmp_path: Path
) -> None:
    stopped = crawls.disturb(tmp_path / "pages", part, (0, number))

    assert stopped.status == 3
    assert_is_whole_beginning(stopped, crawls.whole())
    assert stopped.manifest[-1]["end"] == "stopped"
    assert not [name for name in stopped.files if name.startswith(".") and name != ".crawler"]
    assert_finishes(crawls, tmp_path / "pages", stopped)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_the_crawl_at_once(number: signal.Signals, crawls: Crawls, tmp_path: Path) -> None:
    stopped = crawls.disturb(tmp_path / "pages", 0.5, (0, number), (0.05, number))

    assert stopped.status not in (0, 1)
    assert_is_whole_beginning(stopped, crawls.whole())
    assert_finishes(crawls, tmp_path / "pages", stopped)


@pytest.mark.parametrize("before", ["finished", "killed"])
def test_stopped_while_the_directory_is_read_back_changes_nothing(before: str, crawls: Crawls, tmp_path: Path) -> None:
    directory = tmp_path / "pages"
    killed = before == "killed"
    left = crawls.disturb(directory, 0.9, (0, signal.SIGKILL)) if killed else crawls.run(directory)
    extensions = json.dumps({**EXTENSIONS, "stopper.StopAtItem": 1})
    stopped = crawls.run(directory, settings={"EXTENSIONS": extensions, "STOP_AT_ITEM": 7}, check=3)

    assert crawls.server.requests == []
    assert visible(stopped) == visible(left)
    assert f"saved     {len(left.pages)} pages" in stopped.stderr
    assert_finishes(crawls, directory, left)


# The network


@pytest.mark.parametrize("part", [0.1, 0.7])
def test_outage_leaves_its_urls_open(part: float, crawls: Crawls, tmp_path: Path) -> None:
    at, reached = crawls.count(part), threading.Event()
    crawls.serve(lambda count: reached.set() if count == at else None)
    running = crawls.start(tmp_path / "pages", settings={"TINYCRAWL_OUTAGE_AFTER": 5})
    assert reached.wait(60)
    crawls.server.stop_listening()
    stopped = running.wait()
    crawls.server.start_listening()

    assert stopped.status == 3
    assert_is_whole_beginning(stopped, crawls.whole())
    assert not [line for line in stopped.manifest if "connection" in line.get("reason", "")]
    assert_finishes(crawls, tmp_path / "pages", stopped)


# Nothing left to do, and what is refused


def test_finished_directory_is_not_asked_for_again(crawls: Crawls, tmp_path: Path) -> None:
    crawls.run(tmp_path / "pages")
    again = crawls.run(tmp_path / "pages")

    assert crawls.server.requests == []
    assert again.files == crawls.whole().files
    assert f"complete already: {len(again.pages)} pages; fresh=1 crawls again" in again.stderr


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"depth": DEPTH - 1}, id="smaller-depth"),
        pytest.param({"max_pages": 4}, id="fewer-pages"),
        pytest.param({"scope": "domain"}, id="other-scope"),
        pytest.param({"exclude": "^/n4"}, id="other-filter"),
        pytest.param({"settings": {"TINYCRAWL_META_ROBOTS": 0}}, id="other-policy"),
        pytest.param({"seed": "/n1"}, id="other-seed"),
    ],
)
@pytest.mark.parametrize("before", ["finished", "killed"])
def test_what_does_not_continue_the_crawl_is_refused(
    before: str, changed: dict[str, Any], crawls: Crawls, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if before not in crawls.left:
        directory = tmp_path_factory.mktemp(before) / "pages"
        killed = before == "killed"
        crawls.left[before] = crawls.disturb(directory, 0.97, (0, signal.SIGKILL)) if killed else crawls.run(directory)
    left = crawls.left[before]
    crawls.serve()
    arguments = {"seed": "/n0", "depth": DEPTH, **changed}
    arguments["seed"] = crawls.server.url(arguments["seed"])
    refused = crawls.command(**arguments, pagedir=left.directory, check=1)

    assert crawls.server.requests == []
    assert visible(refused) == visible(left)
    assert "page directory" in refused.stderr
