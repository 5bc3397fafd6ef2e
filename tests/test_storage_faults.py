"""A disk that is full, read-only or gone: the crawl stops at once, says why, and what is numbered stays whole."""

import resource
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import CrawlCommand, read_page_files
from mockserver import MockServer, Reply, Request, page

ServerFactory = Callable[..., MockServer]

PAGES = 60
MINE = "http://mine.test/\n0\nmine"
END = b"</body></html>\n"


def site(request: Request) -> Reply | None:
    """A list of pages of 30 kB, two links each, 5 ms late."""
    name = request.target.removeprefix("/p")
    number = 0 if request.target == "/" else int(name) if name.isdigit() else PAGES
    if number >= PAGES:
        return None
    links = [f"/p{n}" for n in (2 * number + 1, 2 * number + 2) if n < PAGES]
    return page(*links, extra="<p>" + "words " * 5000, delay=0.005)


def test_full_disk_stops_the_crawl_and_with_room_the_same_command_finishes_it(
    server: ServerFactory, crawl: CrawlCommand, small_disk: Path
) -> None:
    served = server(site)
    stopped = crawl(served.url("/"), 10, pagedir=small_disk / "pages", check=1)

    line = next(line for line in stopped.stderr.splitlines() if line.startswith("tinycrawl: "))
    assert line.startswith(f"tinycrawl: the crawl failed: page directory {small_disk}/pages: cannot write ")
    assert line.endswith(": No space left on device")
    assert 0 < len(stopped.pages) < PAGES
    assert all(body.endswith(END) for body in stopped.bodies())
    assert set(stopped.files) == {".crawler", *(str(n + 1) for n in range(len(stopped.pages)))}
    requests = len(served.targets())
    assert requests < PAGES  # it did not go on

    subprocess.run(["mount", "-o", "remount,size=20m", small_disk], check=True)
    served.reset(site)
    finished = crawl(served.url("/"), 10, pagedir=small_disk / "pages")
    assert not {url for url, _ in stopped.pages} & {served.url(target) for target in served.targets()}
    assert finished.files == crawl(served.url("/"), 10).files


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        pytest.param("remount,ro", "cannot be used: Read-only file system", id="read-only"),
        pytest.param("remount,size=4k", "cannot write .held-1: No space left on device", id="full"),
    ],
)
def test_disk_that_cannot_be_written_at_start_is_refused(
    options: str, cause: str, server: ServerFactory, crawl: CrawlCommand, small_disk: Path
) -> None:
    served = server(site)
    subprocess.run(["mount", "-o", options, small_disk], check=True)

    refused = crawl(served.url("/"), 10, pagedir=small_disk / "pages", check=1)

    message = f"tinycrawl: the crawl failed: page directory {small_disk}/pages"
    assert any(line.startswith(message) and line.endswith(cause) for line in refused.stderr.splitlines())
    assert served.requests == []
    assert not (small_disk / "pages").exists()


def test_file_in_the_place_of_the_directory_is_refused(
    server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    served = server(site)
    (tmp_path / "pages").write_text("mine")

    refused = crawl(served.url("/"), 10, pagedir=tmp_path / "pages", check=1)

    assert f"page directory {tmp_path}/pages cannot be used: Not a directory" in refused.stderr
    assert served.requests == []
    assert (tmp_path / "pages").read_text() == "mine"


def test_directory_that_vanishes_stops_the_crawl(server: ServerFactory, crawl: CrawlCommand, tmp_path: Path) -> None:
    def vanishing(request: Request) -> Reply | None:
        if request.target == "/p20":
            shutil.rmtree(tmp_path / "pages")
        return site(request)

    served = server(vanishing)
    stopped = crawl(served.url("/"), 10, pagedir=tmp_path / "pages", check=1)

    assert f"tinycrawl: the crawl failed: page directory {tmp_path}/pages: cannot write " in stopped.stderr
    assert "No such file or directory" in stopped.stderr
    assert not (tmp_path / "pages").exists()


def test_file_in_the_way_of_a_page_stops_the_crawl_and_is_kept(
    server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    directory = tmp_path / "pages"

    def blocking(request: Request) -> Reply | None:
        if request.target == "/p3":
            (directory / "40").write_text(MINE)
        return site(request)

    served = server(blocking)
    stopped = crawl(served.url("/"), 10, pagedir=directory, check=1)
    assert f"page directory {directory}: cannot write 40: " in stopped.stderr
    assert stopped.files["40"].decode() == MINE
    assert len(stopped.pages) == 40  # all before it are whole

    (directory / "40").unlink()
    assert crawl(served.url("/"), 10, pagedir=directory).files == crawl(served.url("/"), 10).files


def test_whoever_looks_sees_whole_pages_without_a_gap(
    server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    served = server(site)
    directory = tmp_path / "pages"
    looks = seen = 0
    while looks < 10_000:
        running = crawl.start(served.url("/"), 10, pagedir=directory, fresh=1)
        while running.process.poll() is None:
            names = [path.name for path in directory.iterdir() if path.name[0] != "."] if directory.is_dir() else []
            numbers = sorted(map(int, names))
            if numbers and seen and numbers[-1] < seen:
                seen = 0  # begun anew
            assert numbers == list(range(1, len(numbers) + 1))
            for number in range(seen + 1, len(numbers) + 1):  # each page as soon as it can be seen
                url, depth, body = (directory / str(number)).read_bytes().split(b"\n", 2)
                assert url.startswith(b"http://")
                assert depth.isdigit()
                assert body.endswith(END)
            seen = len(numbers)
            looks += 1
        assert running.wait().status == 0
        assert len(read_page_files(directory)) == PAGES
        seen = 0


def test_too_many_open_files_stops_the_crawl_and_the_same_command_finishes_it(
    server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    victims: list[int] = []

    def limiting(request: Request) -> Reply | None:
        if request.target == "/p9":
            resource.prlimit(victims[0], resource.RLIMIT_NOFILE, (3, 3))  # what is open stays open
        return site(request)

    served = server(limiting)
    directory = tmp_path / "pages"
    running = crawl.start(served.url("/"), 10, pagedir=directory)
    victims.append(running.process.pid)
    stopped = running.wait()

    assert stopped.status == 1
    assert f"page directory {directory}: cannot write " in stopped.stderr
    assert ": Too many open files\n" in stopped.stderr
    served.reset(site)
    assert crawl(served.url("/"), 10, pagedir=directory).files == crawl(served.url("/"), 10).files


def test_what_waits_for_a_slow_page_is_bounded(server: ServerFactory, crawl: CrawlCommand, tmp_path: Path) -> None:
    ahead, others = 40, 200
    pages = {f"/{n}": page(extra="x" * 20_000) for n in range(others)}
    served = server({"/": page("/slow", *pages), "/slow": page(delay=3), **pages})
    directory = tmp_path / "pages"
    most_hidden = most_files = 0
    running = crawl.start(served.url("/"), 1, pagedir=directory, settings={"TINYCRAWL_AHEAD": ahead})
    while running.process.poll() is None:
        with suppress(OSError):  # not yet made, or ended
            most_hidden = max(most_hidden, sum(path.name.startswith(".held") for path in directory.iterdir()))
            most_files = max(most_files, len(list(Path(f"/proc/{running.process.pid}/fd").iterdir())))
    result = running.wait()

    assert (result.status, len(result.pages)) == (0, others + 2)
    slow = next(request for request in served.requests if request.target == "/slow")
    waiting = [request for request in served.requests if slow.time < request.time < slow.time + 3]
    assert len(waiting) == ahead - 1  # it and these are open
    assert ahead - 1 <= most_hidden <= ahead + 1
    assert most_files < 80
