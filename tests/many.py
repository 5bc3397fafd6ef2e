"""Thousands of crawls cheaply: one long-lived child process runs them one after the other on one reactor.

The child (this file, run as a program) reads a job per line from stdin and answers each with a line on stdout. Where a
test needs the real command, each time in a process of its own, see :func:`start_scrapy`.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import importlib
import itertools
import json
import os
import pickle
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TextIO

if TYPE_CHECKING:
    from types import TracebackType

REPOSITORY = Path(__file__).resolve().parent.parent
TIME_LIMIT = 120.0  # seconds for one crawl
STARTERS = 2  # one after the other, so that a crawl and the next one do not hash strings alike
# Libraries, none of them ours: what `scrapy crawl` imports, but for the reactor, which each process must choose.
PRELOADED = [
    "scrapy.cmdline",
    "scrapy.commands.crawl",
    "scrapy.core.downloader.contextfactory",
    "scrapy.core.downloader.handlers.http11",
    "scrapy.core.engine",
    "scrapy.crawler",
    "scrapy.downloadermiddlewares.cookies",
    "scrapy.downloadermiddlewares.httpcompression",
    "scrapy.exporters",
    "scrapy.extensions.feedexport",
    "scrapy.extensions.telnet",
    "scrapy.linkextractors",
    "scrapy.resolver",
    "scrapy.robotstxt",
    "scrapy.shell",
    "scrapy.spiders",
    "scrapy.squeues",
    "scrapy.utils.test",
    "twisted.internet.asyncioreactor",
]


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
                env=crawl_environment(),
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


class ScrapyProcess:
    """A process that is not our child, with what the tests use of Popen.

    Its parent, the monitor, tells how it ended, and leaves its number to it until this has been read.
    """

    def __init__(self, monitor: socket.socket) -> None:
        self._monitor = monitor
        self.pid = self._read()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._result(0)

    def wait(self, timeout: float | None = None) -> int:
        """:raises subprocess.TimeoutExpired: it still runs after *timeout* seconds."""
        status = self._result(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _result(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._monitor], [], [], timeout)[0]:
            self.returncode = self._read()
            self._monitor.close()
        return self.returncode

    def _read(self) -> int:
        told = self._monitor.recv(4, socket.MSG_WAITALL)
        assert len(told) == 4, "the monitor has ended"
        return int.from_bytes(told, "little", signed=True)


class ScrapyStarter:
    """A process that has imported Scrapy and Twisted, which takes most of the time of a small crawl, and forks.

    What it starts is as ``python -m scrapy`` makes it: another process, with the arguments, folder, environment, path
    and streams that are given for it, and nothing of the project imported. Only what Python reads from the environment
    at its start, ``PYTHONHASHSEED`` for one, is the starter's.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, env=crawl_environment(), stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        atexit.register(self.close)

    def start(
        self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], stdout: int, stderr: int
    ) -> ScrapyProcess:
        job = {"arguments": arguments, "cwd": str(cwd), "environment": dict(environment)}
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._socket, [json.dumps(job).encode()], [stdout, stderr, theirs.fileno()])
        return ScrapyProcess(ours)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


_starters: list[ScrapyStarter] = []
_turns = itertools.count()


def start_scrapy(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], stdout: int, stderr: int
) -> ScrapyProcess:
    """Start ``scrapy *arguments``, with no input, as :class:`ScrapyStarter` does."""
    turn = next(_turns) % STARTERS
    if turn == len(_starters):
        _starters.append(ScrapyStarter())
    return _starters[turn].start(arguments, cwd, environment, stdout, stderr)


def run_scrapy(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run ``scrapy *arguments*`` in the project's folder and wait for its end; for what is not a crawl."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        command = list(map(str, arguments))
        process = start_scrapy(command, REPOSITORY, crawl_environment(), out.fileno(), err.fileno())
        try:
            status = process.wait(TIME_LIMIT)
        finally:
            process.kill()
        stdout, stderr = (os.pread(file.fileno(), 1 << 24, 0).decode() for file in (out, err))
    return subprocess.CompletedProcess(command, status, stdout, stderr)


def crawl_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}"}


def run_starter(connection: socket.socket) -> dict[str, Any]:
    """Fork for each job until the connection ends; returns the job, in its process alone."""
    for name in PRELOADED:
        importlib.import_module(name)
    assert "twisted.internet.reactor" not in sys.modules
    assert not any(name.split(".")[0] in ("tinycrawl", "testresolver") for name in sys.modules)
    gc.freeze()
    monitors = 0
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        while monitors and os.waitpid(-1, os.WNOHANG)[0]:
            monitors -= 1
        if not message:
            os._exit(0)
        if not os.fork():
            break
        monitors += 1
        for descriptor in descriptors:
            os.close(descriptor)
    stdout, stderr, monitor = descriptors
    if pid := os.fork():
        monitor_process(pid, socket.socket(fileno=monitor))
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    connection.close()
    os.closerange(3, max(descriptors) + 1)
    job: dict[str, Any] = json.loads(message)
    return job


def monitor_process(pid: int, tests: socket.socket) -> NoReturn:
    """Tell the tests the number of our child and, when it has ended, its status."""
    os.closerange(3, tests.fileno())
    os.closerange(tests.fileno() + 1, 64)
    tests.send(pid.to_bytes(4, "little"))
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    with suppress(BrokenPipeError):
        tests.send(status.to_bytes(4, "little", signed=True))
        tests.recv(1)  # until they have read it
    os.waitpid(pid, 0)
    os._exit(0)


def become_scrapy(job: dict[str, Any]) -> None:
    """What ``python -m scrapy`` does."""
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.path[0] = job["cwd"]
    sys.argv = ["scrapy", *job["arguments"]]
    runpy.run_module("scrapy", run_name="__main__", alter_sys=True)


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
    if len(sys.argv) > 1:
        become_scrapy(run_starter(socket.socket(fileno=int(sys.argv[1]))))
    else:
        run_child()
