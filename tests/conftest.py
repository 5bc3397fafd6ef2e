"""Fixtures: the mock server, a real nginx, and the real command as a subprocess."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from many import ScrapyProcess, crawl_environment, start_scrapy
from mockserver import Handler, MockServer, Routes

REPOSITORY = Path(__file__).resolve().parent.parent
TIME_LIMIT = 120  # seconds for one crawl
FAST_SETTINGS: Mapping[str, object] = {
    "DOWNLOAD_DELAY": 0,
    "CONCURRENT_REQUESTS": 16,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "LOG_LEVEL": "INFO",
    "TWISTED_DNS_RESOLVER": "testresolver.TestResolver",
}


def read_page_files(directory: Path) -> list[tuple[str, int]]:
    """URL and depth of the files ``1``, ``2``, ... up to the first that is missing, as a foreign indexer reads them."""
    pages: list[tuple[str, int]] = []
    while (path := directory / str(len(pages) + 1)).is_file():
        url, depth, _ = path.read_bytes().split(b"\n", 2)
        pages.append((url.decode(), int(depth)))
    return pages


@dataclass
class Result:
    """A finished crawl; what its directory holds is read once, when the crawl has ended."""

    status: int  # the exit status; -9 where a signal 9 ended it
    stdout: str
    stderr: str
    directory: Path
    pages: list[tuple[str, int]] = field(init=False)  # URL, depth; in docID order
    files: dict[str, bytes] = field(init=False)  # by path below the directory, hidden ones and the marker too
    manifest: list[dict[str, Any]] = field(init=False)  # the lines of the marker; empty without one

    def __post_init__(self) -> None:
        paths = sorted(self.directory.rglob("*")) if self.directory.is_dir() else []
        self.files = {str(p.relative_to(self.directory)): p.read_bytes() for p in paths if p.is_file()}
        self.pages = read_page_files(self.directory)
        self.manifest = [json.loads(line) for line in self.files.get(".crawler", b"").splitlines() if line.strip()]

    def listing(self, server: MockServer) -> list[str]:
        """The pages as ``1: /a @0``; URLs at the server's address are shortened to what follows it."""
        prefix = server.url("")
        return [f"{i}: {url.removeprefix(prefix)} @{depth}" for i, (url, depth) in enumerate(self.pages, 1)]

    def bodies(self) -> list[bytes]:
        """What each page file holds from its third line on, in docID order."""
        return [self.files[str(i)].split(b"\n", 2)[2] for i in range(1, len(self.pages) + 1)]

    def entry(self, url: str) -> dict[str, Any]:
        """The one line of the manifest in which a value is *url*."""
        (entry,) = [line for line in self.manifest[1:] if url in line.values()]
        return entry


class RunningCrawl:
    """A crawl that has been started; :meth:`wait` for its Result, or signal ``process`` first."""

    def __init__(
        self, process: subprocess.Popen[bytes] | ScrapyProcess, directory: Callable[[], Path], output: Path
    ) -> None:
        self.process = process
        self._directory = directory
        self._output = output

    def wait(self) -> Result:
        """:raises subprocess.TimeoutExpired: the crawl did not end in time; it is killed at the end of the test."""
        status = self.process.wait(TIME_LIMIT)
        stdout, stderr = (self._output.with_suffix(s).read_text(errors="replace") for s in (".out", ".err"))
        return Result(status, stdout, stderr, self._directory())

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class CrawlCommand:
    """``scrapy crawl site`` with settings for tests; calling it waits for the end."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._count = 0

    def __call__(
        self,
        seed: str | None,
        depth: int | str | None,
        *,
        pagedir: Path | Literal[False] | None = None,
        settings: Mapping[str, object] | None = None,
        cwd: Path | None = None,
        check: int | None = 0,
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        **arguments: object,
    ) -> Result:
        """Crawl and return the Result; an exit status other than *check* (None: any will do) fails the test.

        *seed*, *depth* None and *pagedir* False leave the argument out; without *pagedir*, each crawl has a new one.
        *settings* are added to FAST_SETTINGS, or with the value None taken from them. *options* end the command line.
        """
        result = self.start(
            seed, depth, pagedir=pagedir, settings=settings, cwd=cwd, env=env, options=options, **arguments
        ).wait()
        if check is not None and result.status != check:
            pytest.fail(f"exit status {result.status}, expected {check}\n{result.stderr[-6000:]}")
        return result

    def start(
        self,
        seed: str | None,
        depth: int | str | None,
        *,
        pagedir: Path | Literal[False] | None = None,
        settings: Mapping[str, object] | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        **arguments: object,
    ) -> RunningCrawl:
        """Start a crawl without waiting for it; it is killed if it still runs when the test ends."""
        self._count += 1
        place = cwd or REPOSITORY
        new = self._directory / f"pages-{self._count}"
        given = {"seed": seed, "depth": depth, "pagedir": None if pagedir is False else pagedir or new, **arguments}
        merged = {**FAST_SETTINGS, **(settings or {})}
        command = ["crawl", "site"]
        command += [part for name, value in given.items() if value is not None for part in ("-a", f"{name}={value}")]
        command += [part for name, value in merged.items() if value is not None for part in ("-s", f"{name}={value}")]
        command += options
        environment = crawl_environment()
        if cwd is not None:
            environment["SCRAPY_SETTINGS_MODULE"] = "tinycrawl.settings"  # no scrapy.cfg there
        output = self._directory / f"crawl-{self._count}"
        with output.with_suffix(".out").open("wb") as out, output.with_suffix(".err").open("wb") as err:
            process: subprocess.Popen[bytes] | ScrapyProcess
            if env is None:
                process = start_scrapy(command, place, environment, out.fileno(), err.fileno())
            else:  # some of it is read when Python starts
                process = subprocess.Popen(
                    [sys.executable, "-m", "scrapy", *command],
                    cwd=place,
                    env={**environment, **env},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                )

        def directory() -> Path:
            if pagedir is not False:
                return place / (pagedir or new)
            made = list((place / "data").glob("*"))
            return made[0] if len(made) == 1 else place / "data"

        running = RunningCrawl(process, directory, output)
        self._stack.callback(running.kill)
        return running


@pytest.fixture
def server() -> Iterator[Callable[..., MockServer]]:
    """A factory of mock servers, ``server(handler, port=0, tls=None)``, all closed when the test ends."""
    with ExitStack() as stack:

        def start(handler: Handler | Routes, **options: Any) -> MockServer:
            return stack.enter_context(MockServer(handler, **options))

        yield start


@pytest.fixture
def crawl(tmp_path: Path) -> Iterator[CrawlCommand]:
    """The crawl command; see :class:`CrawlCommand`."""
    with ExitStack() as stack:
        yield CrawlCommand(tmp_path, stack)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MB. Only root may mount one; `.ci/run` is root."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


NGINX_CONFIGURATION = """\
daemon off;
master_process off;
pid {temporary}/pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log off;
    client_body_temp_path {temporary}/body;
    proxy_temp_path {temporary}/proxy;
    fastcgi_temp_path {temporary}/fastcgi;
    uwsgi_temp_path {temporary}/uwsgi;
    scgi_temp_path {temporary}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root "{root}";
        index index.html;
        absolute_redirect off;
    }}
}}
"""


@pytest.fixture
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], str]]:
    """A factory of nginx servers: ``nginx(root)`` serves the files below *root* and returns ``http://host:port``."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.fail("nginx is not installed (Debian: apt-get install nginx-light)")
    processes: list[subprocess.Popen[bytes]] = []

    def start(root: Path) -> str:
        temporary = tmp_path_factory.mktemp("nginx")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        configuration = temporary / "nginx.conf"
        configuration.write_text(NGINX_CONFIGURATION.format(temporary=temporary, port=port, root=root.resolve()))
        with (temporary / "log").open("wb") as log:
            process = subprocess.Popen([program, "-p", str(temporary), "-c", str(configuration)], stderr=log)
        processes.append(process)
        while True:  # until it listens, or has given up
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except ConnectionRefusedError:
                if process.poll() is not None:
                    pytest.fail(f"nginx did not start:\n{(temporary / 'log').read_text()}")
                time.sleep(0.01)
            else:
                return f"http://127.0.0.1:{port}"

    yield start
    for process in processes:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def peak_memory(process: Path) -> int:
    """The largest resident set, in bytes, of the process with this folder in /proc."""
    (line,) = (line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
