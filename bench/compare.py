"""Pages per second of tinycrawl and of other crawlers, on one site of static files: ``python bench/compare.py``.

nginx serves the site on one core, the crawlers run on another, one after the other and then all again. What each
saved is compared with the oracle in every round. Medians over the rounds; time and CPU include the start of the
process. The exit status is 1 if tinycrawl saved anything but the oracle's pages, in its order and with its depths.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from measure import Usage, measure, print_table, two_cores
from peers import OURS, PLAIN, ROOT, TOOLS, Call, Saved, Tool
from staticsite import LINKS, StaticSite
from webserver import WebServer, serve

TIME_LIMIT = 900  # seconds for one crawl
RIGHT = "as the oracle"
HEADS = ("", "pages/s", "from-to", f"x {PLAIN}", "CPU ms/page", "peak MB", "pages saved")


@dataclass(frozen=True)
class Run:
    """*pages* of the oracle were saved."""

    usage: Usage
    pages: int
    verdict: str


def judge(saved: Saved, oracle: list[tuple[str, int]]) -> str:
    """Are the saved pages those of the oracle? Where depths are told, they and the order must be right too."""
    if saved == oracle:
        return RIGHT
    paths, expected = Counter(path for path, _ in saved), {path for path, _ in oracle}
    faults = {"missing": len(expected - paths.keys()), "too many": len(paths.keys() - expected)}
    repeated = paths.total() - len(paths)
    if any(depth is not None for _, depth in saved):
        depths = dict(oracle)
        faults["wrong depths"] = sum(path in depths and depth != depths[path] for path, depth in saved)
        faults["wrong order"] = int(not any(faults.values()))
    words = ", ".join(f"{count} {fault}" for fault, count in faults.items() if count)
    if repeated:
        return f"WRONG: {words}, {repeated} twice" if words else f"{RIGHT}, {repeated} twice"
    return f"WRONG: {words}" if words else RIGHT


def run(tool: Tool, server: WebServer, scratch: Path, oracle: list[tuple[str, int]], *, compressed: bool) -> Run:
    directory = scratch / "crawl"
    directory.mkdir()
    call = Call(server.url, directory, compressed)
    # tinycrawl is a project in a folder; the others must not find it
    place = ROOT if tool.name == OURS else directory
    log = scratch / f"{tool.name}.log"
    usage = measure(tool.command(call), directory=place, log=log, time_limit=TIME_LIMIT)
    saved = tool.saved(call)
    verdict = judge(saved, oracle)
    pages = len({path for path, _ in saved} & {path for path, _ in oracle})
    if usage.status not in tool.statuses:
        verdict = f"{verdict}; exit status {usage.status}"
        print(log.read_text(errors="replace")[-2000:], file=sys.stderr)
    shutil.rmtree(directory)
    return Run(usage, pages, verdict)


def rate(runs: list[Run]) -> float:
    """Pages per second, 0 for nothing."""
    return statistics.median([run.pages / run.usage.seconds for run in runs] or [0.0])


def row(tool: Tool, runs: list[Run], plain: float) -> list[str]:
    """*plain*: pages per second of the plain spider, 0 if it has not run."""
    if not runs:
        return [tool.name, *["-"] * (len(HEADS) - 2), f"not installed: {tool.source}"]
    rates = [run.pages / run.usage.seconds for run in runs]
    wrong = [run.verdict for run in runs if run.verdict != RIGHT]
    return [
        tool.name,
        f"{rate(runs):.1f}",
        f"{min(rates):.1f}-{max(rates):.1f}",
        f"{rate(runs) / plain:.2f}" if plain else "-",
        f"{statistics.median(run.usage.cpu / max(run.pages, 1) for run in runs) * 1000:.2f}",
        f"{statistics.median(run.usage.peak for run in runs) / 1e6:.0f}",
        f"{wrong[0]} ({len(wrong)} of {len(runs)} rounds)" if wrong else RIGHT,
    ]


def compare(site: StaticSite, tools: list[Tool], rounds: int, scratch: Path, *, compressed: bool) -> bool:
    """Print one table. Was tinycrawl right every time?"""
    oracle = site.oracle()
    runs: dict[str, list[Run]] = defaultdict(list)
    with serve(scratch / "site", scratch / f"nginx-{compressed}", compressed=compressed) as server:
        for number in range(1, rounds + 1):
            for tool in tools:
                if not tool.is_installed:
                    continue
                done = run(tool, server, scratch, oracle, compressed=compressed)
                runs[tool.name].append(done)
                seconds = f"{done.usage.seconds:.1f} s, CPU {done.usage.cpu:.1f} s"
                print(f"round {number}, {tool.name}: {seconds}, {done.verdict}", file=sys.stderr, flush=True)
    server_core, crawler_core = two_cores()
    how = "gzip" if compressed else "plain"
    print(f"\n{site.pages} pages of 25 kB with {LINKS} links, {how}, {rounds} rounds; ", end="")
    print(f"nginx on core {server_core}, the crawler on core {crawler_core}\n")
    print_table(HEADS, [row(tool, runs[tool.name], rate(runs[PLAIN])) for tool in tools])
    return all(run.verdict == RIGHT for run in runs[OURS])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bodies", choices=("plain", "gzip", "both"), default="both", help="as nginx sends them")
    names = [tool.name for tool in TOOLS]
    parser.add_argument("--tools", nargs="+", choices=names, default=names, metavar="TOOL", help=", ".join(names))
    options = parser.parse_args()
    tools = [tool for tool in TOOLS if tool.name in options.tools]
    site = StaticSite(options.pages)
    scratch = Path(tempfile.mkdtemp(prefix="tinycrawl-compare-"))
    (scratch / "site").mkdir()
    site.write(scratch / "site")
    ways = {"plain": [False], "gzip": [True], "both": [False, True]}[options.bodies]
    is_right = [compare(site, tools, options.rounds, scratch, compressed=way) for way in ways]
    shutil.rmtree(scratch)
    return int(not all(is_right))


if __name__ == "__main__":
    sys.exit(main())
