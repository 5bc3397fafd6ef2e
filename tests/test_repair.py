"""Directories built anew: what failed is asked again, what is damaged is fetched again, and nothing else is."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conftest import CrawlCommand, Result
from many import run_scrapy
from mockserver import MockServer, Reply, Request, page, redirect

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


@pytest.fixture(scope="module")
def shared() -> Iterator[MockServer]:
    """One server for all tests of this module, since its address is in every file."""
    with MockServer(SITE) as server:
        yield server


@pytest.fixture
def site(shared: MockServer) -> MockServer:
    """The server with SITE, asked for nothing yet."""
    shared.reset(SITE)
    return shared


def crawl_once(server: MockServer, routes: dict[str, Any], directory: Path) -> Result:
    server.reset(routes)
    with ExitStack() as stack:
        return CrawlCommand(directory, stack)(server.url("/"), 4)


@pytest.fixture(scope="module")
def whole(shared: MockServer, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A crawl of SITE; tests work on a copy of its directory."""
    return crawl_once(shared, SITE, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def broken(shared: MockServer, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A crawl of BROKEN; tests work on a copy of its directory."""
    return crawl_once(shared, BROKEN, tmp_path_factory.mktemp("broken"))


def copy(result: Result, tmp_path: Path) -> Path:
    return shutil.copytree(result.directory, tmp_path / "pages")


def verify(directory: Path) -> tuple[int, list[str]]:
    """Exit status and lines of ``scrapy pages verify``."""
    result = run_scrapy("pages", "verify", directory)
    return result.returncode, (result.stdout + result.stderr).splitlines()


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.parent.iterdir() if "rebuild" in path.name or "swap" in path.name]


def test_recheck_asks_for_what_failed_alone_and_equals_a_fresh_crawl(
    site: MockServer, whole: Result, broken: Result, crawl: CrawlCommand, tmp_path: Path
) -> None:
    directory = copy(broken, tmp_path)
    assert broken.manifest[-1]["end"] == "complete"
    (directory / ".foreign").write_text("mine")

    site.reset(SITE)
    rechecked = crawl(site.url("/"), 4, pagedir=directory, recheck="failed")
    asked = site.targets()

    assert rechecked.files.pop(".foreign") == b"mine"
    assert rechecked.files == whole.files
    assert sorted(asked) == ["/a2", "/d1", "/d2", "/d3", "/down"]
    assert leftovers(directory) == []


def test_recheck_that_is_killed_leaves_the_old_directory_and_goes_on(
    site: MockServer, whole: Result, broken: Result, crawl: CrawlCommand, tmp_path: Path
) -> None:
    directory = copy(broken, tmp_path)
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
    assert rechecked.files == whole.files
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
    damage: Callable[[Path], None], problem: str, site: MockServer, whole: Result, crawl: CrawlCommand, tmp_path: Path
) -> None:
    directory = copy(whole, tmp_path)
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
    site: MockServer, whole: Result, crawl: CrawlCommand, tmp_path: Path
) -> None:
    directory = copy(whole, tmp_path)
    (directory / "2").unlink()

    site.reset({**SITE, "/a": page("/new", "/a1"), "/new": page()})
    repaired = crawl(site.url("/"), 4, pagedir=directory)

    assert f"{site.url('/a')} was damaged, and the site now answers otherwise" in repaired.stderr
    assert site.targets() == ["/a", "/new"]
    assert repaired.files == crawl(site.url("/"), 4).files


def test_damaged_directory_of_a_stopped_crawl_is_repaired_and_continued(
    site: MockServer, whole: Result, crawl: CrawlCommand, tmp_path: Path
) -> None:
    directory = tmp_path / "pages"
    stopped = crawl(site.url("/"), 4, pagedir=directory, max_pages=6, check=3)
    (directory / "3").unlink()

    site.reset(SITE)
    repaired = crawl(site.url("/"), 4, pagedir=directory, max_pages=6, check=3)
    assert repaired.files == stopped.files
    assert len(site.targets()) == 1
    (directory / "1").unlink()
    finished = crawl(site.url("/"), 4, pagedir=directory)

    assert finished.files == whole.files


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda marker: marker[: len(marker) // 2], id="torn-in-the-middle"),
        pytest.param(lambda marker: marker.replace(b'"docID":3', b'"docID":7'), id="a-line-altered"),
        pytest.param(lambda marker: marker[: marker.index(b"\n") + 9], id="all-but-the-identity-lost"),
    ],
)
def test_damaged_manifest_is_reported_and_mended(
    damage: Callable[[bytes], bytes], site: MockServer, whole: Result, crawl: CrawlCommand, tmp_path: Path
) -> None:
    directory = copy(whole, tmp_path)
    marker = directory / ".crawler"
    marker.write_bytes(damage(marker.read_bytes()))
    assert verify(directory)[0] == 1

    assert crawl(site.url("/"), 4, pagedir=directory).files == whole.files


def test_foreign_marker_is_reported_and_refused(site: MockServer, crawl: CrawlCommand, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / ".crawler").write_text('{"other": 1}\n')
    assert verify(tmp_path / "pages") == (1, [".crawler: is no manifest of tinycrawl", "1 faults"])

    refused = crawl(site.url("/"), 4, pagedir=tmp_path / "pages", check=1)

    assert refused.files == {".crawler": b'{"other": 1}\n'}
    assert site.requests == []


def lines(directory: Path, count: int) -> bytes:
    """The identity and *count* records."""
    return b"".join((directory / ".crawler").read_bytes().splitlines(keepends=True)[: count + 1])


def killed_before_the_rename(directory: Path) -> None:
    """The state in which a kill can leave a directory: the last record's page still has its hidden name."""
    (directory / ".crawler").write_bytes(lines(directory, 8))
    last = (directory / ".crawler").read_bytes().count(b'"docID"')
    for path in list(directory.iterdir()):
        if path.name.isdigit() and int(path.name) > last:
            path.unlink()
    (directory / str(last)).rename(directory / f".page-{last}")


def last_page_cut_and_first_altered(directory: Path) -> None:
    killed_before_the_rename(directory)
    hidden = next(directory.glob(".page-*"))
    hidden.rename(directory / hidden.name.removeprefix(".page-"))
    cut(directory / hidden.name.removeprefix(".page-"))
    alter(directory / "1")


def lines_lost_but_not_their_pages(directory: Path) -> None:
    (directory / ".crawler").write_bytes(lines(directory, 6))


@pytest.mark.parametrize(
    "state", [killed_before_the_rename, last_page_cut_and_first_altered, lines_lost_but_not_their_pages]
)
@pytest.mark.parametrize("recheck", ["failed", None])
def test_what_a_crash_left_is_not_taken_for_whole(
    state: Callable[[Path], None],
    recheck: str | None,
    site: MockServer,
    whole: Result,
    crawl: CrawlCommand,
    tmp_path: Path,
) -> None:
    directory = copy(whole, tmp_path)
    state(directory)

    assert crawl(site.url("/"), 4, pagedir=directory, recheck=recheck).files == whole.files
    assert leftovers(directory) == []


@pytest.mark.parametrize("name", ["notes.txt", "35"])
def test_foreign_file_is_refused_by_a_recheck_too(
    name: str, site: MockServer, broken: Result, crawl: CrawlCommand, tmp_path: Path
) -> None:
    directory = copy(broken, tmp_path)
    (directory / name).write_text("http://mine.test/\n0\nmine")

    refused = crawl(site.url("/"), 4, pagedir=directory, recheck="failed", check=1)

    assert f"holds '{name}', which no crawl wrote" in refused.stderr
    (directory / name).unlink()
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == broken.files


def test_leftover_of_another_rebuild_is_never_taken_up(
    site: MockServer, whole: Result, broken: Result, crawl: CrawlCommand, tmp_path: Path
) -> None:
    directory = copy(broken, tmp_path)
    old = tmp_path / ".pages.rebuild-0123456789abcdef"  # as after a kill between the swap and the end
    shutil.copytree(directory, old)
    (old / ".mine").write_text("mine")

    site.reset(SITE)
    rechecked = crawl(site.url("/"), 4, pagedir=directory, recheck="failed")

    assert rechecked.files.pop(".mine") == b"mine"
    assert rechecked.files == whole.files
    assert leftovers(directory) == []


def test_directory_behind_a_symlink_is_repaired_in_its_place_with_its_mode(
    site: MockServer, whole: Result, crawl: CrawlCommand, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    directory = copy(whole, tmp_path / "real")
    directory.chmod(0o2750)
    (tmp_path / "link").symlink_to(directory)
    alter(directory / "2")

    repaired = crawl(site.url("/"), 4, pagedir=tmp_path / "link")

    assert (tmp_path / "link").readlink() == directory
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == whole.files == repaired.files
    assert directory.stat().st_mode & 0o7777 == 0o2750


def test_damaged_page_that_cannot_be_had_now_costs_no_other(
    site: MockServer, whole: Result, crawl: CrawlCommand, tmp_path: Path
) -> None:
    directory = copy(whole, tmp_path)
    alter(directory / "2")
    damaged = {path.name: path.read_bytes() for path in directory.iterdir()}

    site.reset({**SITE, "/a": Reply(500, b"broken")})
    failed = crawl(site.url("/"), 4, pagedir=directory, check=1)
    assert f"{site.url('/a')} is damaged and cannot be fetched again (http 500)" in failed.stderr
    assert failed.files == damaged

    site.reset(SITE)
    assert crawl(site.url("/"), 4, pagedir=directory).files == whole.files
    assert leftovers(directory) == []


def test_damaged_directory_that_is_a_mount_point_is_refused_before_anything_is_asked(
    site: MockServer, whole: Result, crawl: CrawlCommand, small_disk: Path
) -> None:
    shutil.copytree(whole.directory, small_disk, dirs_exist_ok=True)
    alter(small_disk / "2")

    site.reset(SITE)
    refused = crawl(site.url("/"), 4, pagedir=small_disk, check=1)

    assert f"page directory {small_disk} is a mount point" in refused.stderr
    assert site.requests == []


def test_verify_names_what_is_no_regular_file(whole: Result, tmp_path: Path) -> None:
    directory = copy(whole, tmp_path)
    (directory / "2").rename(tmp_path / "two")
    (directory / "2").symlink_to(tmp_path / "two")
    (directory / "3").unlink()
    os.mkfifo(directory / "3")

    assert verify(directory) == (1, ["2: is no regular file", "3: is no regular file", "2 faults"])


@pytest.mark.parametrize("arguments", [("verify",), ("verify", "a", "b"), ("other", "x"), ()], ids=repr)
def test_pages_without_a_directory_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    assert run_scrapy("pages", *arguments).returncode == 2
