"""What it costs to run a finished crawl again: ``python bench/replay.py [--pages 500 2000 4000]``.

The directory is read back and verified, and the site is not asked. Seconds and CPU seconds, start included; the start
alone is that of a crawl of one page.
"""

import argparse
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from crash import crawl, whole
from rulesite import RuleSite

from mockserver import MockServer


def used() -> float:
    """CPU seconds of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, nargs="+", default=[500, 2000, 4000])
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="tinycrawl-replay-"))
    print("paths   pages   crawl CPU s   again s   again CPU s   page requests")
    for paths in [1, *options.pages]:
        site = RuleSite(paths, latency=0)
        with MockServer(site.handler) as server:
            before = used()
            assert crawl(server, scratch / str(paths), 16) == 0
            first = used() - before
            server.reset(site.handler)
            before, started = used(), time.monotonic()
            assert crawl(server, scratch / str(paths), 16) == 0
            row = (time.monotonic() - started, used() - before, len(server.targets()))
        pages = whole(scratch / str(paths))
        print(f"{paths:5}   {pages:5}   {first:11.1f}   {row[0]:7.1f}   {row[1]:11.1f}   {row[2]:13}", flush=True)
    shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
