"""How much of one page per delay is reached: ``python bench/delay.py [--pages 300] [--delay 0.1]``.

With N requests in nginx's log, robots.txt among them, the share is (N - 1) delays over the time between the first and
the last. A gap shorter than the delay is impolite, so the shortest one is told too.
"""

import argparse
import itertools
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from measure import measure, print_table
from peers import OURS, PLAIN, ROOT, TOOLS, Call, Tool
from staticsite import StaticSite
from webserver import serve

HEADS = ("", "requests", "share of one per delay", "shortest gap", "median gap", "longest gap", "CPU s")


def row(tool: Tool, delay: float, scratch: Path) -> list[str]:
    directory = scratch / tool.name
    directory.mkdir()
    with serve(scratch / "site", scratch / f"nginx-{tool.name}") as server:
        call = Call(server.url, directory, delay=delay)
        place = ROOT if tool.name == OURS else directory
        usage = measure(tool.command(call), directory=place, log=scratch / f"{tool.name}.log")
        seconds = [second for second, _, _ in server.requests()]
    if usage.status not in tool.statuses or len(seconds) < 2:
        print((scratch / f"{tool.name}.log").read_text(errors="replace")[-2000:], file=sys.stderr)
        return [tool.name, *["-"] * (len(HEADS) - 2), f"exit status {usage.status}"]
    gaps = [after - before for before, after in itertools.pairwise(seconds)]
    return [
        tool.name,
        f"{len(seconds)}",
        f"{len(gaps) * delay / (seconds[-1] - seconds[0]):.1%}",
        *(f"{gap * 1000:.0f} ms" for gap in (min(gaps), statistics.median(gaps), max(gaps))),
        f"{usage.cpu:.1f}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--delay", type=float, default=0.1, help="seconds")
    names = [OURS, PLAIN, "wget"]
    parser.add_argument("--tools", nargs="+", choices=names, default=names, metavar="TOOL", help=", ".join(names))
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="tinycrawl-delay-"))
    (scratch / "site").mkdir()
    StaticSite(options.pages).write(scratch / "site")
    tools = [tool for tool in TOOLS if tool.name in options.tools]
    rows = [row(tool, options.delay, scratch) for tool in tools if tool.is_installed]
    print(f"\n{options.pages} pages, a delay of {options.delay} s; gaps as nginx sees them\n")
    print_table(HEADS, rows)
    shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
