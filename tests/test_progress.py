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
from mockserver import MockServer, page

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


def test_progress_tells_pages_level_and_how_much_of_it_is_done(server: ServerFactory, tmp_path: Path) -> None:
    pages = {f"/{n}": page(delay=0.3) for n in range(8)}
    site = server({"/": page(*pages), **pages})
    given = (f"seed={site.url('/')}", "depth=1", f"pagedir={tmp_path}/pages")
    arguments = [part for argument in given for part in ("-a", argument)]
    shown = run_on_terminal(
        [sys.executable, "-m", "scrapy", "crawl", "site", *arguments, "-s", "DOWNLOAD_DELAY=0", "-s", "LOG_LEVEL=ERROR"]
    )

    lines = re.findall(r"level 1: (\d) of 8: (\d) pages", shown)
    assert lines
    assert all(int(saved) == int(done) + 1 for done, saved in lines)
    assert "pages/s" in shown
    assert "DEBUG" not in shown  # the level of the log holds on a terminal too
    assert "tinycrawl: complete" in shown
