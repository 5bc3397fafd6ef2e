"""Where the time of a page goes: ``python bench/shares.py``.

Crawls a static site served by nginx, as `compare.py` does, in this very process, and looks every millisecond of CPU
time at what it is doing. What C code does counts for the line that called it. Shares of the whole crawl, its start
included.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from measure import print_table, two_cores
from peers import ROOT, Call, tinycrawl
from staticsite import StaticSite
from webserver import serve

INTERVAL = 0.001  # seconds of CPU time between two looks; the system may make it more
# The first that fits the file of the innermost frame counts; where none does, that of its caller.
GROUPS = (
    ("start: imports, settings, log", ("importlib", "inspect.py", "/enum.py", "/attr/", "re/_", "scrapy/cmdline")),
    ("HTML: Lexbor, decoding, links read", ("tinycrawl/markup", "tinycrawl/outline", "tinycrawl/charsets")),
    ("links: joined, known ones found, scope", ("tinycrawl/urls", "tinycrawl/publisher", "tinycrawl/scope", "ada_url")),
    ("page directory: files, flushes, records", ("tinycrawl/pagedir", "tinycrawl/pipelines", "concurrent/futures")),
    ("order: ranks, frontier, scheduler", ("tinycrawl/serial", "tinycrawl/scheduler", "tinycrawl/dupefilter")),
    ("our other parts", ("tinycrawl/",)),
    ("Twisted: HTTP, connections, Deferreds", ("twisted/", "idna/")),
    ("asyncio: event loop, tasks, queues", ("asyncio/", "selectors.py")),
    (
        "Scrapy: HTTP handler, headers, responses",
        ("scrapy/core/downloader/handlers", "scrapy/http/", "scrapy/utils/_d"),
    ),
    ("Scrapy: signals", ("scrapy/signal", "scrapy/utils/signal", "pydispatch")),
    ("Scrapy: engine, middlewares, scraper", ("scrapy/",)),
)
OTHER = "the rest"


def group_of(frame: FrameType | None) -> str:
    while frame is not None:
        for group, parts in GROUPS:
            if any(part in frame.f_code.co_filename for part in parts):
                return group
        frame = frame.f_back
    return OTHER


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1500)
    options = parser.parse_args()
    site = StaticSite(options.pages)
    scratch = Path(tempfile.mkdtemp(prefix="tinycrawl-shares-"))
    (scratch / "site").mkdir()
    site.write(scratch / "site")
    looks: Counter[str] = Counter()
    signal.signal(signal.SIGPROF, lambda number, frame: looks.update([group_of(frame)]))
    with serve(scratch / "site", scratch / "nginx", compressed=False) as server:
        command = tinycrawl(Call(server.url, scratch / "crawl"))
        os.sched_setaffinity(0, {two_cores()[1]})
        os.chdir(ROOT)
        sys.path.insert(0, str(ROOT))
        sys.argv = command[2:]
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
        from scrapy.cmdline import execute

        try:
            execute()
        except SystemExit as end:
            status = int(end.code or 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
    micro = (time.process_time() - started) / options.pages * 1e6
    shares = [(group, count / looks.total()) for group, count in looks.most_common()]
    rows = [[group, f"{share:.1%}", f"{share * micro:.0f}"] for group, share in shares]
    print_table(("what", "share", "us/page"), rows)
    shutil.rmtree(scratch)
    return status


if __name__ == "__main__":
    sys.exit(main())
