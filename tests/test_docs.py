"""The README is complete, and what it tells people to type works."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tinycrawl.settings as project
from conftest import REPOSITORY, CrawlCommand
from mockserver import MockServer, page
from tinycrawl.arguments import ARGUMENTS
from tinycrawl.pagedir import PageDirectory

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
TABLE_ROWS = re.findall(r"^\| `([^`]+)`", README, re.MULTILINE)

# Settings that put the project together; those who change them read settings.py.
PARTS = {
    *(
        "BOT_NAME",
        "SPIDER_MODULES",
        "NEWSPIDER_MODULE",
        "COMMANDS_MODULE",
        "TWISTED_REACTOR",
        "SCHEDULER",
        "TWISTED_DNS_RESOLVER",
    ),
    *("DUPEFILTER_CLASS", "REQUEST_FINGERPRINTER_CLASS", "CONCURRENT_ITEMS", "ITEM_PIPELINES", "DOWNLOAD_HANDLERS"),
    *("DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS", "SPIDER_CONTRACTS", "TELNETCONSOLE_ENABLED"),
    *("REMOTE_CONTROL_ENABLED", "DOWNLOAD_DELAY_JITTER", "DOWNLOAD_WARNSIZE", "RETRY_GIVE_UP_LOG_LEVEL", "STATS_DUMP"),
    *("FEED_EXPORT_FIELDS", "FEED_EXPORTERS", "EXTENSIONS_BASE", "ROBOTSTXT_PARSER"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_every_argument_is_in_the_readme(name: str) -> None:
    assert name in TABLE_ROWS


@pytest.mark.parametrize("name", sorted({name for name in vars(project) if name.isupper()} - PARTS))
def test_every_setting_is_in_the_readme(name: str) -> None:
    assert name in TABLE_ROWS


def test_every_setting_of_ours_in_the_readme_exists() -> None:
    assert {name for name in TABLE_ROWS if name.startswith("TINYCRAWL_")} <= vars(project).keys()


def make(target: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run make in a copy of the project that has this environment's packages in place of a .venv of its own."""
    for name in ("Makefile", "scrapy.cfg", "tinycrawl", "requirements.txt", "requirements-dev.txt"):
        source = REPOSITORY / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / name)  # type: ignore[operator]  # both take two paths
    venv = folder / ".venv"
    (venv / "bin").mkdir(parents=True)
    for name, command in (("python", ""), ("scrapy", "-m scrapy ")):
        script = venv / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {command}"$@"\n')
        script.chmod(0o755)
    (venv / "run.stamp").touch()
    return subprocess.run(
        ["make", *target.split(" ")],
        cwd=folder,
        env={**os.environ, "VIRTUAL_ENV": "", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_make_crawl_leaves_the_page_directory_that_the_readme_shows(tmp_path: Path) -> None:
    result = make("crawl", tmp_path)

    assert result.returncode == 0, result.stderr
    directory = tmp_path / "data" / "127.0.0.1_8765-10"
    assert sorted(path.name for path in directory.iterdir()) == [".crawler", *"123456789"]
    shown = re.search(r"\$ head -n 3 data/127.0.0.1_8765-10/2\n((?: {4}.*\n){3})", README)
    assert shown is not None
    assert (directory / "2").read_text().splitlines()[:3] == [line.strip() for line in shown[1].splitlines()]


def test_make_crawl_takes_a_seed_a_depth_and_options(tmp_path: Path, server: type[MockServer]) -> None:
    site = server({"/?a=1&b=2": page("/x"), "/x": page("/y"), "/y": page("/z"), "/z": page()})

    result = make(
        "crawl",
        tmp_path,
        SEED=site.url("/?a=1&b=2"),
        ARGS="-a pagedir=pages -s DOWNLOAD_DELAY=0.1",
    )

    assert result.returncode == 0, result.stderr
    urls = [page.url.removeprefix(site.url("")) for page in PageDirectory(tmp_path / "pages")]
    assert urls == ["/?a=1&b=2", "/x", "/y"]


def test_the_python_in_the_readme_reads_a_directory(crawl: CrawlCommand, server: type[MockServer]) -> None:
    site = server({"/": page("/b"), "/b": page()})
    result = crawl(site.url("/"), 1)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)

    shown = subprocess.run(
        [sys.executable, "-c", code.replace("data/example.org-2", str(result.directory))],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )

    sizes = [len(body) for body in result.bodies()]
    assert shown.stdout == f"{site.url('/')} 0 {sizes[0]}\n{site.url('/b')} 1 {sizes[1]}\n"
