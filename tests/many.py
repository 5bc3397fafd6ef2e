"""Thousands of crawls cheaply: one long-lived child process runs them one after the other on one reactor.

The child (this file, run as a program) reads a job per line from stdin and answers each with a line on stdout.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

if TYPE_CHECKING:
    from types import TracebackType

REPOSITORY = Path(__file__).resolve().parent.parent
TIME_LIMIT = 120.0  # seconds for one crawl


class CrawlPool:
    """One child process. A crawl that does not end kills the child, and so may a crawl; the next job has a new one."""

    def __init__(self, time_limit: float = TIME_LIMIT) -> None:
        self._time_limit = time_limit
        self._log = tempfile.NamedTemporaryFile("w+b", prefix="many-", suffix=".log")  # noqa: SIM115 - closed by close()
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def run(self, arguments: dict[str, Any], settings: dict[str, Any] | None = None) -> dict[str, Any]:
        """Crawl with these spider arguments and settings (at the command line's priority).

        Returns ``{"stats": {...}, "error": None or what went wrong}``; what JSON does not know is text in the stats.
        """
        child = self._running_child()
        assert child.stdin is not None
        assert child.stdout is not None
        timer = threading.Timer(self._time_limit, child.kill)
        timer.start()
        answer = ""
        try:
            child.stdin.write(json.dumps({"arguments": arguments, "settings": settings or {}}) + "\n")
            child.stdin.flush()
            answer = child.stdout.readline()
        except BrokenPipeError:
            pass
        finally:
            timer.cancel()
            timer.join()
        if not answer.endswith("\n"):
            status = child.wait()
            self._end_child()
            return {"stats": {}, "error": f"the child ended with {status}, or was killed after {self._time_limit} s"}
        result: dict[str, Any] = json.loads(answer)
        return result

    def log(self) -> str:
        """What the child wrote to stderr, all crawls together."""
        return Path(self._log.name).read_text(errors="replace")

    def close(self) -> None:
        self._end_child()
        self._log.close()

    def _running_child(self) -> subprocess.Popen[str]:
        if self._child is not None and self._child.poll() is not None:
            self._end_child()
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, __file__],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
            )
        return self._child

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for stream in (self._child.stdin, self._child.stdout):
                assert stream is not None
                try:
                    stream.close()
                except BrokenPipeError:  # what it was too dead to read
                    continue
            self._child = None


def run_crawls(jobs: list[dict[str, Any]], pools: int = 1) -> list[dict[str, Any]]:
    """Run jobs ``{"arguments": {...}, "settings": {...}}`` in *pools* processes; the answers in the jobs' order."""
    children = [CrawlPool() for _ in range(pools)]

    def run_share(start: int) -> list[dict[str, Any]]:
        return [children[start].run(job["arguments"], job.get("settings")) for job in jobs[start::pools]]

    answers: list[dict[str, Any]] = [{}] * len(jobs)
    try:
        with ThreadPoolExecutor(pools) as threads:
            for start, share in enumerate(threads.map(run_share, range(pools))):
                answers[start::pools] = share
    finally:
        for child in children:
            child.close()
    return answers


async def answer_jobs(answers: TextIO) -> None:
    """The child's work, until stdin ends."""
    # Imported here: the parent needs none of it.
    from scrapy.crawler import AsyncCrawlerRunner
    from scrapy.settings import BaseSettings
    from scrapy.utils.log import configure_logging
    from scrapy.utils.project import get_project_settings

    # Each crawl copies its settings three times, by deepcopy: nearly half of the time of a small one.
    BaseSettings.copy = lambda self: pickle.loads(pickle.dumps(self))  # type: ignore[method-assign]
    project_settings = get_project_settings()
    configure_logging({"LOG_LEVEL": "INFO"})
    while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        job = json.loads(line)
        stats: dict[str, Any] = {}
        error = None
        try:
            settings = project_settings.copy()
            settings.setdict(job["settings"], priority="cmdline")
            runner = AsyncCrawlerRunner(settings)
            crawler = runner.create_crawler("site")
            await runner.crawl(crawler, **job["arguments"])
            stats = crawler.stats.get_stats() if crawler.stats else {}
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - it is the answer
            error = repr(raised)
        print(json.dumps({"stats": stats, "error": error}, default=str), file=answers, flush=True)


def run_child() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a crawl prints must not come between the answers
    from scrapy.utils.reactor import install_reactor

    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    from twisted.internet import reactor as installed

    from testresolver import TestResolver

    reactor: Any = installed  # its class is known at run time only
    TestResolver(reactor, cache_size=0, timeout=5).install_on_reactor()
    loop = asyncio.get_event_loop()

    def start() -> None:
        loop.create_task(answer_jobs(answers)).add_done_callback(end)

    def end(task: asyncio.Task[None]) -> None:
        reactor.stop()
        task.result()  # logged, if it is an exception

    reactor.callWhenRunning(start)
    reactor.run()


if __name__ == "__main__":
    run_child()
