"""What surrounds a crawl: closed and full outputs, IPv6, Scrapy's other commands, settings that cannot be."""

import http.server
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY, CrawlCommand
from many import run_scrapy
from mockserver import MockServer, page

ServerFactory = Callable[..., MockServer]

SITE: dict[str, Any] = {"/": page(*(f"/p{n}" for n in range(50))), **{f"/p{n}": page("/") for n in range(50)}}


def command(server: MockServer, directory: Path, *options: str) -> list[str]:
    given = (f"seed={server.url('/')}", "depth=1", f"pagedir={directory}")
    start = [sys.executable, "-m", "scrapy", "crawl", "site", "-s", "DOWNLOAD_DELAY=0"]
    return [*start, *(part for argument in given for part in ("-a", argument)), *options]


@pytest.mark.parametrize("lines", [1, 30, 90])
def test_event_log_that_nobody_reads_any_more_fails_the_crawl_and_it_can_go_on(
    lines: int, server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    site = server(SITE)
    process = subprocess.Popen(
        command(site, tmp_path / "pages", "-a", "events=-"),
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()

    assert process.wait(60) == 1
    assert "tinycrawl: the crawl failed: the event log cannot be written: Broken pipe\n" in errors
    assert "Traceback" not in errors
    assert crawl(site.url("/"), 1, pagedir=tmp_path / "pages").files == crawl(site.url("/"), 1).files


def test_event_log_on_a_full_disk_fails_the_crawl(server: ServerFactory, crawl: CrawlCommand) -> None:
    failed = crawl(server(SITE).url("/"), 1, events="/dev/full", check=1)

    assert "the event log cannot be written: No space left on device" in failed.stderr


def test_exception_in_the_spider_never_ends_as_complete(
    server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text(
        "from scrapy import signals\n"
        "class Broken:\n"
        "    @classmethod\n"
        "    def from_crawler(cls, crawler):\n"
        "        def fail(*arguments): raise RuntimeError('broken')\n"
        "        crawler.spider.publisher.publish = fail\n"
        "        return cls()\n"
    )
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests"), str(tmp_path)])
    failed = crawl(
        server(SITE).url("/"),
        1,
        settings={"EXTENSIONS": '{"broken.Broken": 1, "tinycrawl.summary.Summary": 2}'},
        env={"PYTHONPATH": path},
        check=1,
    )

    assert "tinycrawl: the crawl failed: internal error: RuntimeError('broken')" in failed.stderr
    assert failed.manifest[-1]["end"] == "failed"


def test_closed_outputs_do_not_keep_a_crawl_from_its_work(
    server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    site = server(SITE)
    line = 'exec "$@" >&- 2>&-'
    closed = ["sh", "-c", line, "sh", *command(site, tmp_path / "pages")]

    assert subprocess.run(closed, cwd=REPOSITORY, check=False).returncode == 0
    assert crawl(site.url("/"), 1).pages == crawl(site.url("/"), 1, pagedir=tmp_path / "pages").pages


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<html><a href='/b'>b</a></html>"
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server6(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


@pytest.fixture
def ipv6() -> Iterator[str]:
    with Server6(("::1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://[::1]:{served.server_address[1]}"
        served.shutdown()


def test_ipv6_address_is_crawled(ipv6: str, crawl: CrawlCommand) -> None:
    result = crawl(f"{ipv6}/", 1, settings={"TWISTED_DNS_RESOLVER": None})

    assert result.pages == [(f"{ipv6}/", 0), (f"{ipv6}/b", 1)]


def test_scrapys_other_commands_work_in_the_project(server: ServerFactory) -> None:
    site = server(SITE)
    for arguments in (["fetch", site.url("/p1")], ["shell", "-c", "response.status", site.url("/p1")], ["list"]):
        result = subprocess.run(
            [sys.executable, "-m", "scrapy", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        assert (result.returncode, "Traceback" in result.stderr) == (0, False), result.stderr
        assert result.stdout.strip()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("LOG_LEVEL=LOUD", "`LOG_LEVEL`: expected one of DEBUG, INFO, WARNING, ERROR, CRITICAL, got 'LOUD'"),
        ("SCHEDULER=scrapy.core.scheduler.Scheduler", "`SCHEDULER`: expected tinycrawl.scheduler.LevelScheduler, got"),
        ("TINYCRAWL_NOSUCH=1", "'TINYCRAWL_NOSUCH': unknown"),
        ("CONCURRENT_REQUESTS_PER_DOMAIN=1.5", "expected a whole number, 0 or more, got '1.5'"),
        ("HTTPCACHE_ENABLED=1", "expected 1 and 0, for the exact order"),
        ("CONCURRENT_ITEMS=100", "expected 1 and 0, for the exact order"),
        ("TINYCRAWL_SITES_DIR=/dev/null/sites", "expected a directory, got '/dev/null/sites'"),
    ],
)
def test_setting_that_cannot_be_is_a_usage_error(setting: str, expected: str, tmp_path: Path) -> None:
    given = ["-a", "seed=http://h.test/", "-a", "depth=1", "-a", f"pagedir={tmp_path}/pages", "-s", setting]
    result = run_scrapy("crawl", "site", *given)

    assert result.returncode == 2
    assert expected in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "pages").exists()
