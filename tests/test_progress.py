"""The progress line, on a real terminal."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

from conftest import REPOSITORY
from mockserver import MockServer, page, robots
from tinycrawl.progress import Pace

ServerFactory = Callable[..., MockServer]


def run_on_terminal(command: list[str]) -> str:
    """What *command* shows on a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 100, 0, 0))
    shown = b""
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the terminal has gone with the process
                break
        os.close(ours)
        assert process.wait(60) == 0
    return shown.decode()


LINE = re.compile(
    r"level 1: (\d) of 8(?: \((\d\d):(\d\d) left\))?, (\d) pages, (\d) URLs pending, (\d) processed(?:, (\d+\.\d\d)/s)?"
)


def assert_lines_are_true(shown: str, delay: float) -> None:
    """The lines of a crawl of a seed with eight pages are right, and tell the time left as soon as it is known."""
    lines = LINE.findall(shown)
    assert lines
    for done, minutes, seconds, pages, pending, processed, pace in lines:
        left = 8 - int(done)
        assert (int(pages), int(pending), int(processed)) == (int(done) + 1, left, int(done) + 1)
        if int(processed) < 3:  # too early to tell
            assert (minutes, pace) == ("", "")
        if minutes:
            told = int(minutes) * 60 + int(seconds)
            assert int(left * delay) <= told <= max(left * delay, left / float(pace) * 1.01)
    assert any(minutes for _, minutes, *_ in lines)
    assert "tinycrawl: complete" in shown


def command_line(server: MockServer, directory: Path, *settings: str) -> list[str]:
    given = (f"seed={server.url('/')}", "depth=1", f"pagedir={directory}")
    arguments = [part for argument in given for part in ("-a", argument)]
    return ["crawl", "site", *arguments, *(part for setting in settings for part in ("-s", setting))]


def test_progress_on_a_terminal_tells_level_pages_urls_pace_and_time_left(
    server: ServerFactory, tmp_path: Path
) -> None:
    pages = {f"/{n}": page() for n in range(8)}
    site = server({"/": page(*pages), **pages})
    command = command_line(site, tmp_path / "pages", "DOWNLOAD_DELAY=0.6", "LOG_LEVEL=ERROR")

    shown = run_on_terminal([sys.executable, "-m", "scrapy", *command])

    assert_lines_are_true(shown, 0.6)
    assert "DEBUG" not in shown  # the level of the log holds on a terminal too


def test_progress_without_a_terminal_is_plain_lines_of_the_log(server: ServerFactory, tmp_path: Path) -> None:
    pages = {f"/{n}": page() for n in range(8)}
    site = server({"/": page(*pages), "/robots.txt": robots("User-agent: *\nCrawl-delay: 0.6"), **pages})
    command = command_line(site, tmp_path / "pages", "DOWNLOAD_DELAY=0.1", "LOG_LEVEL=INFO")
    more_often = "import tinycrawl.progress as p; assert p._IN_LOG == 60.0; p._IN_LOG = 0.4"  # or it would take minutes
    program = f"{more_often}; from scrapy.cmdline import execute; execute(['scrapy', *{command!r}])"

    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)

    assert_lines_are_true(done.stderr, 0.6)  # what robots.txt asks for
    assert "\r" not in done.stderr
    assert all(line[:2] == "20" for line in done.stderr.splitlines() if "URLs pending" in line)


def test_pace_is_that_of_the_last_minute_or_of_ten_urls() -> None:
    pace = Pace()

    assert [pace.look(0.0, 5), pace.look(0.0, 9), pace.look(1.0, 9), pace.look(2.0, 9)] == [None, None, None, 2.0]
    assert [pace.look(float(seconds), 9 + seconds) for seconds in (50, 100, 150)] == [1.08, 1.0, 1.0]
    assert [pace.look(float(seconds), 159) for seconds in (200, 1_000)] == [0.5, 50 / 900]
    slow = Pace()
    assert [slow.look(100.0 * n, n) for n in range(4)] == [None, None, None, 0.01]
    assert slow.look(10_000.0, 3) == 3 / 10_000
