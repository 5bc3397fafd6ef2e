"""Crawl the demo site: ``python -m tinycrawl.demo [options of scrapy crawl]``.

The port is fixed, so that URLs and page directory are the same from run to run; the environment variable PORT changes
it.
"""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from types import FrameType

from tinycrawl.demo import serve

DEFAULT_PORT = 8765


def crawl_demo(options: list[str]) -> int:
    """Serve the demo site, crawl it in a process of its own, and return the exit status of the crawl.

    *options* come after ours, and of an option given twice Scrapy takes the last.
    """
    text = os.environ.get("PORT") or str(DEFAULT_PORT)
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536):
        print(f"environment variable `PORT`: expected an integer from 1 to 65535, got {text[:80]!r}", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        try:
            base = stack.enter_context(serve(int(text)))
        except OSError as error:
            print(f"demo site: cannot serve on port {text}: {error.strerror}; set PORT to another", file=sys.stderr)
            return 2
        return _run_crawl(base, options)


def _run_crawl(base: str, options: list[str]) -> int:
    command = [sys.executable, "-m", "scrapy", "crawl", "site"]
    command += ["-a", f"seed={base}/letters/index.html", "-a", "depth=10", "-s", "DOWNLOAD_DELAY=0.1", *options]
    environment = {**os.environ, "SCRAPY_SETTINGS_MODULE": "tinycrawl.settings"}
    # A process group of its own: Ctrl-C then reaches the crawl once, through us. Scrapy takes a second SIGINT as
    # "stop at once", and without us there would be no site.
    with subprocess.Popen(command, env=environment, process_group=0) as crawl:

        def forward(number: int, frame: FrameType | None) -> None:
            crawl.send_signal(number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, forward)
        status = crawl.wait()
    return status if status >= 0 else 128 - status  # killed by a signal: the shell's convention


if __name__ == "__main__":
    sys.exit(crawl_demo(sys.argv[1:]))
