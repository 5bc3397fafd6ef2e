"""Directories built anew: what failed is asked again, what is damaged is fetched again, and nothing else is."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY, CrawlCommand
from mockserver import MockServer, Reply, Request, page, redirect

ServerFactory = Callable[..., MockServer]

# A tree of pages with one of everything that a record can hold; /down and what it leads to appear when it works.
SITE: dict[str, Any] = {
    "/": page("/a", "/down", "/moved", "/hidden", "/pdf", "http://other.invalid/"),
    "/a": page("/a1", "/a2", "/late"),
    "/a1": page("/"),
    "/a2": page("/a1", title="é"),
    "/moved": redirect("/target"),
    "/target": page("/t1"),
    "/t1": page(),
    "/hidden": page("/h1", extra='<meta name="robots" content="noindex">'),
    "/h1": page(headers=[("X-Robots-Tag", "nofollow")]),
    "/pdf": Reply(body=b"%PDF", type="application/pdf"),
    "/late": redirect("/down"),
    "/down": page("/d1", "/d2"),
    "/d1": page("/d3"),
    "/d2": page(),
    "/d3": page(),
}
BROKEN = {**SITE, "/down": Reply(500, b"broken"), "/a2": Reply(404, b"gone")}


def verify(directory: Path) -> tuple[int, list[str]]:
    """Exit status and lines of ``scrapy pages verify``."""
    command = [sys.executable, "-m", "scrapy", "pages", "verify", str(directory)]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return result.returncode, (result.stdout + result.stderr).splitlines()


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.parent.iterdir() if "rebuild" in path.name or "swap" in path.name]


def test_recheck_asks_for_what_failed_alone_and_equals_a_fresh_crawl(
    server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    site = server(BROKEN)
    directory = tmp_path / "pages"
    broken = crawl(site.url("/"), 4, pagedir=directory)
    assert broken.manifest[-1]["end"] == "complete"
    (directory / ".foreign").write_text("mine")

    site.reset(SITE)
    rechecked = crawl(site.url("/"), 4, pagedir=directory, recheck="failed")
    asked = site.targets()
    fresh = crawl(site.url("/"), 4)

    assert rechecked.files.pop(".foreign") == b"mine"
    assert rechecked.files == fresh.files
    assert sorted(asked) == ["/a2", "/d1", "/d2", "/d3", "/down"]
    assert leftovers(directory) == []


def test_recheck_that_is_killed_leaves_the_old_directory_and_goes_on(
    server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    site = server(BROKEN)
    directory = tmp_path / "pages"
    broken = crawl(site.url("/"), 4, pagedir=directory)
    victims: list[int] = []

    def kill(request: Request) -> Reply:
        os.kill(victims[0], signal.SIGKILL)
        return Reply(never=True)

    site.reset({**SITE, "/d2": kill, "/d1": page("/d3", delay=0.1)})
    running = crawl.start(site.url("/"), 4, pagedir=directory, recheck="failed")
    victims.append(running.process.pid)
    killed = running.wait()
    assert (killed.status, killed.files) == (-9, broken.files)

    site.reset(SITE)
    rechecked = crawl(site.url("/"), 4, pagedir=directory, recheck="failed")
    assert "/down" not in site.targets()  # settled before the kill
    assert rechecked.files == crawl(site.url("/"), 4).files
    assert leftovers(directory) == []


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def alter(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"</html>", b"</HTML>"))


def rename(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"/a\n1\n", b"/x\n1\n"))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        pytest.param(Path.unlink, "2: is missing or cannot be read", id="missing"),
        pytest.param(cut, "2: has 139 bytes of body, not 144", id="cut"),
        pytest.param(alter, "2: is altered: its digest differs", id="altered"),
        pytest.param(rename, "2: is altered: its URL or depth differs", id="other-url"),
    ],
)
def test_damaged_page_is_named_and_fetched_again_alone(
    damage: Callable[[Path], None], problem: str, server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    site = server(SITE)
    directory = tmp_path / "pages"
    whole = crawl(site.url("/"), 4, pagedir=directory)
    assert verify(directory) == (0, [f"{len(whole.pages)} pages, all as recorded"])
    damage(directory / "2")
    assert verify(directory) == (1, [problem, "1 faults"])

    site.reset(SITE)
    repaired = crawl(site.url("/"), 4, pagedir=directory)

    assert repaired.files == whole.files
    assert site.targets() == ["/a"]
    assert f"{problem}; it is fetched again" in repaired.stderr
    assert "answers otherwise" not in repaired.stderr


def test_damaged_page_that_the_site_has_changed_is_reported(
    server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    site = server(SITE)
    directory = tmp_path / "pages"
    crawl(site.url("/"), 4, pagedir=directory)
    (directory / "2").unlink()

    site.reset({**SITE, "/a": page("/new", "/a1"), "/new": page()})
    repaired = crawl(site.url("/"), 4, pagedir=directory)

    assert f"{site.url('/a')} was damaged, and the site now answers otherwise" in repaired.stderr
    assert site.targets() == ["/a", "/new"]
    assert repaired.files == crawl(site.url("/"), 4).files


def test_damaged_directory_of_a_stopped_crawl_is_repaired_and_continued(
    server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    site = server(SITE)
    directory = tmp_path / "pages"
    stopped = crawl(site.url("/"), 4, pagedir=directory, max_pages=6, check=3)
    (directory / "3").unlink()

    site.reset(SITE)
    repaired = crawl(site.url("/"), 4, pagedir=directory, max_pages=6, check=3)
    assert repaired.files == stopped.files
    assert len(site.targets()) == 1
    (directory / "1").unlink()
    finished = crawl(site.url("/"), 4, pagedir=directory)

    assert finished.files == crawl(site.url("/"), 4).files


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda marker: marker[: len(marker) // 2], id="torn-in-the-middle"),
        pytest.param(lambda marker: marker.replace(b'"docID":3', b'"docID":7'), id="a-line-altered"),
        pytest.param(lambda marker: marker[: marker.index(b"\n") + 9], id="all-but-the-identity-lost"),
    ],
)
def test_damaged_manifest_is_reported_and_mended(
    damage: Callable[[bytes], bytes], server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    site = server(SITE)
    directory = tmp_path / "pages"
    whole = crawl(site.url("/"), 4, pagedir=directory)
    marker = directory / ".crawler"
    marker.write_bytes(damage(marker.read_bytes()))
    assert verify(directory)[0] == 1

    assert crawl(site.url("/"), 4, pagedir=directory).files == whole.files


def test_foreign_marker_is_reported_and_refused(server: ServerFactory, crawl: CrawlCommand, tmp_path: Path) -> None:
    site = server(SITE)
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / ".crawler").write_text('{"other": 1}\n')
    assert verify(tmp_path / "pages") == (1, [".crawler: is no manifest of tinycrawl", "1 faults"])

    refused = crawl(site.url("/"), 4, pagedir=tmp_path / "pages", check=1)

    assert refused.files == {".crawler": b'{"other": 1}\n'}
    assert site.requests == []


@pytest.mark.parametrize("arguments", [("verify",), ("verify", "a", "b"), ("other", "x"), ()], ids=repr)
def test_pages_without_a_directory_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "scrapy", "pages", *arguments]
    assert subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False).returncode == 2
