"""The promise of exactness, checked for one site: crawled several ways at once, compared byte for byte with each other
and with the oracle.

The runs share one server, so that their URLs are the same; it tells them apart by their user agents, and answers each
as if it were alone.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from graph import Site
from many import CrawlPool
from mockserver import Handler, MockServer, Reply, Request

SETTINGS = {"DOWNLOAD_DELAY": 0, "TINYCRAWL_SYNC": 0, "LOG_LEVEL": "ERROR"}


@dataclass(frozen=True)
class Run:
    """One way to crawl. *haste* divides the latencies; where one request is sent at a time they order nothing."""

    name: str
    concurrency: int
    ahead: int = 1000
    haste: float = 3.0

    def settings(self) -> dict[str, Any]:
        return {
            **SETTINGS,
            "CONCURRENT_REQUESTS": self.concurrency,
            "CONCURRENT_REQUESTS_PER_DOMAIN": self.concurrency,
            "TINYCRAWL_AHEAD": self.ahead,
            "USER_AGENT": f"tinycrawl/0.1 ({self.name})",
        }


RUNS = (
    Run("one at a time", 1, haste=30.0),
    Run("eight", 8),
    Run("eight again, three ahead", 8, ahead=3),
    Run("thirty-two", 32),
)


@dataclass
class Visitor:
    """The server's view of one run: its own latencies, its own count of requests."""

    handler: Handler
    haste: float
    late: Mapping[str, float]
    asked: Counter[str] = field(default_factory=Counter)

    def answer(self, request: Request) -> Reply | None:
        number = self.asked[request.target]
        self.asked[request.target] += 1
        reply = self.handler(replace(request, number=number))
        if reply is not None:
            reply.delay = self.late.get(request.target, reply.delay) / self.haste
        return reply


class Comparison:
    """A server, and a child process for each run. Use :func:`comparison`."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.crawls = 0
        self._directory = directory
        self._server = stack.enter_context(MockServer({}))
        self._pools = [stack.enter_context(CrawlPool()) for _ in RUNS]
        self._threads = stack.enter_context(ThreadPoolExecutor(len(RUNS)))

    def differences(self, site: Site, seed: int, late: Mapping[str, float] | None = None) -> list[str]:
        """Crawl *site* in every way, with latencies by *seed*, and say in words what is not as promised.

        *late*: what the answers of these paths take, in seconds, whatever the site says.
        """
        visitors = {
            run.settings()["USER_AGENT"]: Visitor(site.handler(Random(f"{seed} {run.name}")), run.haste, late or {})
            for run in RUNS
        }
        self._server.reset(lambda request: visitors[request.headers["user-agent"]].answer(request))
        place = Path(tempfile.mkdtemp(dir=self._directory))
        try:
            results = list(
                self._threads.map(lambda run, pool: self._crawl(run, pool, site, place / run.name), RUNS, self._pools)
            )
        finally:
            shutil.rmtree(place)
        said = [f"{run.name}: {error}" for run, (_, error) in zip(RUNS, results, strict=True) if error]
        first = results[0][0]
        said += self._faults(site, first)
        for run, (files, _) in zip(RUNS[1:], results[1:], strict=True):
            names = sorted(name for name in first.keys() | files.keys() if first.get(name) != files.get(name))
            if names:
                said.append(f"{run.name}: {', '.join(names)} not as by {RUNS[0].name}")
        return said

    def _crawl(self, run: Run, pool: CrawlPool, site: Site, directory: Path) -> tuple[dict[str, bytes], str | None]:
        self.crawls += 1
        arguments = {"seed": self._server.url(site.seed), "depth": site.depth, "pagedir": str(directory)}
        if site.is_folded:
            arguments["duplicates"] = "fold"
        answer = pool.run(arguments, run.settings())
        files = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*")}
        return files, answer["error"]

    def _faults(self, site: Site, files: Mapping[str, bytes]) -> Iterator[str]:
        """Where one directory is not what the oracle says."""
        oracle = site.oracle(site.depth)
        prefix = self._server.url("")
        bodies = site.bodies(prefix.removeprefix("http://"))
        expected = {
            str(doc_id): f"{prefix}{path}\n{depth}\n".encode() + bodies[path]
            for doc_id, (path, depth) in enumerate(oracle, 1)
        }
        pages = {name: content for name, content in files.items() if name != ".crawler"}
        for name in sorted(expected.keys() | pages.keys()):
            if expected.get(name) != pages.get(name):
                yield f"page {name}: expected {_start(expected.get(name))}, got {_start(pages.get(name))}"
        lines = [json.loads(line) for line in files.get(".crawler", b"").splitlines()]
        if not lines or lines[-1].get("end") != ("complete" if oracle else lines[-1].get("end")):
            yield f"the manifest ends with {lines[-1:]}"
        folded = {
            [line["url"], *line.get("redirects", ())][-1].removeprefix(prefix): line["reason"]
            for line in lines
            if line.get("reason", "").startswith("duplicate of ")
        }
        if oracle and folded != {path: f"duplicate of {doc_id}" for path, doc_id in site.folded().items()}:
            yield f"folded: expected {site.folded()}, got {folded}"


def _start(content: bytes | None) -> str:
    return "nothing" if content is None else repr(content[:120])


@contextmanager
def comparison(directory: Path | None = None) -> Iterator[Comparison]:
    """A Comparison that works below *directory*, by default one of its own."""
    with ExitStack() as stack:
        place = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exactness-")))
        yield Comparison(place, stack)
