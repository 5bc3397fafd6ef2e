"""End to end: how a crawl is started, what it says, and its exit status. Names like D7 are rows of CASES.md."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import FAST_SETTINGS, REPOSITORY, CrawlCommand, Result
from mockserver import MockServer, Reply, Routes, page, redirect

Server = Callable[..., MockServer]

SITE: Routes = {
    "/": page("/a", "/b", "/gone", "/moved"),
    "/a": page("/c", delay=0.05),
    "/b": page("/a", "/d"),
    "/moved": redirect("/e"),
    "/c": page(),
    "/d": page("/f"),
    "/e": page("/d"),
}
SITE_PAGES = ["1: / @0", "2: /a @1", "3: /b @1", "4: /e @1", "5: /c @2", "6: /d @2"]

SCRIPT = """\
import sys
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.utils.project import get_project_settings

settings = get_project_settings()
settings.setdict({settings!r})
process = AsyncCrawlerProcess(settings)
process.crawl("site", seed=sys.argv[1], depth=int(sys.argv[2]), pagedir=sys.argv[3])
process.start()
"""


# Ways to start a crawl


def test_command_script_and_scrapyd_leave_identical_directories(
    tmp_path: Path, server: Server, crawl: CrawlCommand
) -> None:
    """D6; scrapyd's runner is the same command, from its own working directory, with a job, a log file and a JOBDIR."""
    site = server(SITE)
    command = crawl.start(site.url("/"), 2)
    (tmp_path / "service").mkdir()
    scrapyd = crawl.start(
        site.url("/"),
        2,
        pagedir=False,
        cwd=tmp_path / "service",
        settings={"LOG_FILE": tmp_path / "job.log", "JOBDIR": tmp_path / "jobdir"},
        _job="6487ec79947edab326d6db28a2d86511e8247444",
    )
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("{settings!r}", repr(dict(FAST_SETTINGS))))
    environment = {
        **os.environ,
        "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}",
        "SCRAPY_SETTINGS_MODULE": "tinycrawl.settings",
    }
    subprocess.run(
        [sys.executable, script, site.url("/"), "2", tmp_path / "by-script"],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        timeout=120,
    )
    by_command, by_scrapyd = command.wait(), scrapyd.wait()
    by_script = Result(0, "", "", tmp_path / "by-script")

    assert (by_command.status, by_scrapyd.status) == (0, 0)
    assert by_command.listing(site) == SITE_PAGES
    assert by_command.files == by_script.files == by_scrapyd.files
    assert by_scrapyd.directory.parent == tmp_path / "service" / "data"
    assert by_scrapyd.directory.name == f"127.0.0.1_{site.port}-2-6487ec79947edab326d6db28a2d86511e8247444"
    log = (tmp_path / "job.log").read_text().splitlines()
    assert any(line.endswith(f"Page directory: {by_scrapyd.directory}") for line in log)
    (warning,) = [line for line in log if " WARNING: " in line]
    assert "JOBDIR is not needed and not used" in warning
    assert not (tmp_path / "jobdir").exists()
    facts = json.loads(log[-1].partition("INFO: ")[2])
    assert (facts["ending"], facts["saved"], facts["failed"]) == ("complete", 6, {"http 404": 1})


def test_a_process_that_was_forked_does_what_a_new_python_does(
    tmp_path: Path, server: Server, crawl: CrawlCommand
) -> None:
    """Most tests crawl by many.ScrapyStarter; with an environment of its own, a crawl is started by ``python``."""
    site = server({**SITE, "/never": Reply(never=True), "/": page("/a", "/b", "/gone", "/moved", "/never")})
    ends: list[list[object]] = []
    for env in (None, {}):
        pages = tmp_path / ("forked" if env is None else "new")
        stopped = crawl(site.url("/"), 2, pagedir=pages, max_pages=3, options=["-O", "-:jsonl"], env=env, check=3)
        refused = crawl(site.url("/"), "x", pagedir=False, env=env, check=2)
        running = crawl.start(site.url("/never"), 0, env=env)
        os.kill(running.process.pid, signal.SIGKILL)
        said = re.findall(r"(?m)^(?:[0-9-]+ [0-9:]+ (\[[^{\n]*)|(tinycrawl: .*|  (?!took)[a-z]+ .*)$)", stopped.stderr)
        said = [(log.replace(str(pages), "-"), line.replace(str(pages), "-")) for log, line in said]
        ends.append([stopped.files, stopped.stdout, said, refused.stderr, running.wait().status])

    assert ends[0] == ends[1]
    assert "INFO: Page directory: -'" in str(ends[0][2])
    assert "  pages in  -'" in str(ends[0][2])
    assert ends[0][-1] == -9


# Refusals


def test_bad_depth_is_one_line_and_nothing_else(tmp_path: Path, server: Server, crawl: CrawlCommand) -> None:
    """D7"""
    site = server(SITE)
    values = ["abc", "-1", "1.5", "", "11", "1e9", None]

    crawls = [crawl.start(site.url("/"), value, pagedir=tmp_path / "new" / "pages") for value in values]

    for value, running in zip(values, crawls, strict=True):
        result = running.wait()
        shown = "nothing" if value is None else f"'{value}'"
        assert result.stderr == f"tinycrawl: spider argument `depth`: expected an integer from 0 to 10, got {shown}\n"
        assert (result.status, result.stdout) == (2, "")
    assert not (tmp_path / "new").exists()
    assert site.requests == []


def test_usage_errors_are_one_line_and_nothing_else(tmp_path: Path, server: Server, crawl: CrawlCommand) -> None:
    """T4's bad pattern, U18, unknown arguments, settings; test_arguments.py has the tables."""
    site = server(SITE)
    rows: list[tuple[dict[str, Any], dict[str, object], str]] = [
        ({"exclude": "^/docs/("}, {}, "spider argument `exclude`: expected a regular expression ("),
        ({"max_page": 5}, {}, "spider argument 'max_page': unknown, expected one of seed, depth, "),
        (
            {"events": tmp_path / "no" / "log"},
            {},
            "spider argument `events`: expected a file in a directory that exists",
        ),
        (
            {"events": tmp_path},
            {},
            "spider argument `events`: expected a file in a directory that exists, not the page",
        ),
        ({"seed": None}, {}, "spider argument `seed`: expected one absolute http(s) URL, got nothing\n"),
        ({"seed": "file:///etc/passwd"}, {}, "spider argument `seed`: expected one absolute http(s) URL (not an http"),
        ({}, {"DEPTH_LIMIT": 3}, "setting `DEPTH_LIMIT`: expected the same as the argument depth=2, got '3'\n"),
        (
            {},
            {"CONCURRENT_REQUESTS_PER_DOMAIN": 0},
            "setting `CONCURRENT_REQUESTS_PER_DOMAIN`: expected 1 or more, got ",
        ),
        ({}, {"TINYCRAWL_ENCODING": "x"}, "setting `TINYCRAWL_ENCODING`: expected utf-8 or nothing, got 'x'\n"),
    ]

    crawls = [
        crawl.start(
            pagedir=tmp_path / "new" / "pages", settings=settings, **{"seed": site.url("/"), "depth": 2, **given}
        )
        for given, settings, _ in rows
    ]

    for (_, _, expected), running in zip(rows, crawls, strict=True):
        result = running.wait()
        assert result.stderr.startswith(f"tinycrawl: {expected}"), result.stderr
        assert result.stderr.endswith("\n")
        assert result.stderr.count("\n") == 1
        assert (result.status, result.stdout) == (2, "")
    assert not (tmp_path / "new").exists()
    assert site.requests == []


# Failures


def test_unreachable_seed_is_exit_status_1_with_the_cause(server: Server, crawl: CrawlCommand) -> None:
    """N6, and what keeps a seed from being a page"""
    site = server(
        {
            "/500": Reply(500),
            "/pdf": Reply(body=b"%PDF-1.4", type="application/pdf"),
            "/empty": Reply(body=b""),
            "/loop": redirect("/loop"),
        }
    )
    closed = server({})
    closed.stop_listening()
    failures = {
        "http://x.invalid/": "robots.txt unreachable: no such host",
        closed.url("/"): "robots.txt unreachable: connection refused",
        site.url("/404"): "http 404",
        site.url("/500"): "http 500",
        site.url("/pdf"): "not html: application/pdf",
        site.url("/empty"): "empty",
        site.url("/loop"): f"redirect loop ({site.url('/loop')})",
    }

    crawls = [crawl.start(seed, 1) for seed in failures]

    for (seed, cause), running in zip(failures.items(), crawls, strict=True):
        result = running.wait()
        last_words = [line for line in result.stderr.splitlines() if line.startswith("tinycrawl:")]
        assert last_words == [f"tinycrawl: the crawl failed: seed {seed}: {cause}"]
        assert result.pages == []
        assert result.status == 1
        assert "Traceback" not in result.stderr


# Settings


def test_site_file_gives_arguments_and_settings_that_the_command_line_overrides(
    tmp_path: Path, server: Server, crawl: CrawlCommand
) -> None:
    site = server(SITE)
    (tmp_path / "127.0.0.1.toml").write_text(
        '[crawl]\ndepth = 1\nexclude = "^/b"\n[settings]\nUSER_AGENT = "from-the-file/1"\n'
    )
    sites = {"TINYCRAWL_SITES_DIR": tmp_path}

    result = crawl(site.url("/"), None, settings=sites)
    assert result.listing(site) == ["1: / @0", "2: /a @1", "3: /e @1"]
    assert {request.headers["user-agent"] for request in site.requests} == {"from-the-file/1"}

    site.reset(SITE)
    result = crawl(site.url("/"), 2, settings={**sites, "USER_AGENT": "from-the-command/1"}, exclude="^/[ce]")
    assert result.listing(site) == ["1: / @0", "2: /a @1", "3: /b @1", "4: /d @2"]
    assert {request.headers["user-agent"] for request in site.requests} == {"from-the-command/1"}


def test_mistake_in_a_site_file_is_a_usage_error(tmp_path: Path, server: Server, crawl: CrawlCommand) -> None:
    site = server(SITE)
    mistakes = {
        "[crawl]\ndept = 1\n": ":2: 'dept' in [crawl]: unknown, expected one of depth, ",
        "[crawl]\ndepth = 1\n[settings]\nDELEY = 1\n": ":4: 'DELEY' in [settings]: not a setting of Scrapy or of ",
    }
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder, text in zip(folders, mistakes, strict=True):
        folder.mkdir()
        (folder / "127.0.0.1.toml").write_text(text)

    crawls = [crawl.start(site.url("/"), None, settings={"TINYCRAWL_SITES_DIR": folder}) for folder in folders]

    for folder, message, running in zip(folders, mistakes.values(), crawls, strict=True):
        result = running.wait()
        assert result.stderr.startswith(f"tinycrawl: {folder / '127.0.0.1.toml'}{message}")
        assert result.stderr.count("\n") == 1
        assert (result.status, result.files) == (2, {})
    assert site.requests == []


@pytest.mark.parametrize(
    "setting",
    ["DOWNLOADER_MIDDLEWARES={}", 'ITEM_PIPELINES={"tinycrawl.pipelines.PageDirectoryPipeline": null}'],
)
def test_a_crawl_without_its_own_parts_is_refused(setting: str, server: Server, crawl: CrawlCommand) -> None:
    """Without them it would save nothing, and end as complete."""
    site = server({"/": page()})
    name, _, value = setting.partition("=")

    result = crawl(site.url(), 0, settings={name: value}, check=2)

    (line,) = result.stderr.splitlines()
    assert line.startswith(f"tinycrawl: setting `{name}`: expected the entries of tinycrawl/settings.py too, ")
    assert (site.requests, result.directory.exists()) == ([], False)
