"""Kill crawls at random moments, run them again, compare: ``python bench/crash.py [--crawls 100] [--signal KILL]``.

Each crawl is killed up to five times, then finished. Its directory must equal, byte for byte, that of a crawl that
nobody disturbed, and its pages those of the serial oracle.
"""

import argparse
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rulesite import LATENCY, ROOT, RuleSite

from mockserver import MockServer, Request

DEPTH = 10


def command(server: MockServer, directory: Path, concurrency: int) -> list[str]:
    settings = {
        "DOWNLOAD_DELAY": 0,
        "CONCURRENT_REQUESTS": concurrency,
        "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency,
        "LOG_LEVEL": "ERROR",
    }
    given = {"seed": server.url("/n0"), "depth": DEPTH, "pagedir": directory}
    return [
        *(sys.executable, "-m", "scrapy", "crawl", "site"),
        *(part for name, value in given.items() for part in ("-a", f"{name}={value}")),
        *(part for name, value in settings.items() for part in ("-s", f"{name}={value}")),
    ]


def crawl(server: MockServer, directory: Path, concurrency: int, ending: tuple[int, int, int] | None = None) -> int:
    """Run one crawl; *ending* is (after how many requests, signal, how often). Returns the exit status."""
    kill_at, number, times = ending or (0, 0, 0)
    before = len(server.requests)
    process = subprocess.Popen(command(server, directory, concurrency), cwd=ROOT, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if kill_at and len(server.requests) - before >= kill_at:
            for _ in range(times):
                process.send_signal(number)
                time.sleep(0.05)
            return process.wait(60)
        time.sleep(0.001)
    return process.returncode


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def whole(directory: Path) -> int:
    """The number of pages, after a kill: 1..k without a gap, each with its three parts."""
    names = [path.name for path in directory.iterdir()] if directory.exists() else []
    numbers = sorted(int(name) for name in names if name.isdigit())
    assert numbers == list(range(1, len(numbers) + 1)), "gap"
    for n in numbers:
        url, depth, body = (directory / str(n)).read_bytes().split(b"\n", 2)
        assert url.startswith(b"http://"), n
        assert depth.isdigit(), n
        assert body.endswith(b"</html>\n"), n
    return len(numbers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crawls", type=int, default=100)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--signal", choices=("KILL", "TERM", "INT"), default="KILL")
    parser.add_argument("--times", type=int, default=1, help="how often the signal is sent, 50 ms apart")
    parser.add_argument("--latency", type=float, default=LATENCY, help="seconds before each answer of the site")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    site = RuleSite(options.pages, latency=options.latency)
    rng = random.Random(options.seed)
    number = getattr(signal, f"SIG{options.signal}")
    scratch = Path(tempfile.mkdtemp(prefix="tinycrawl-crash-"))
    kills = repeated = lost = doubled = different = 0
    statuses: Counter[int] = Counter()
    with MockServer(site.handler) as server:
        undisturbed = scratch / "undisturbed"
        assert crawl(server, undisturbed, options.concurrency) == 0
        expected = contents(undisturbed)
        asked_once = Counter(request.target for request in server.requests)
        oracle = [f"{server.url(path)}\n{depth}\n" for path, depth in site.oracle(DEPTH)]
        pages = [expected[str(n)] for n in range(1, len(oracle) + 1)]
        assert [re.match(rb".*\n.*\n", page)[0].decode() for page in pages] == oracle  # type: ignore[index]
        total = len(server.requests)
        print(f"{len(pages)} pages of {options.pages} paths, as the serial oracle has them; {total} requests")
        for n in range(1, options.crawls + 1):
            directory = scratch / f"crawl-{n}"
            server.reset(site.handler)
            seen: list[Request] = []
            for _ in range(rng.randint(1, 5)):
                at = rng.randint(1, max(2, total - len(seen) - 1))
                status = crawl(server, directory, options.concurrency, (at, number, options.times))
                seen = list(server.requests)
                statuses[status] += 1
                if status == 0:
                    break
                kills += 1
                whole(directory)
            if status != 0:
                status = crawl(server, directory, options.concurrency)
            asked = Counter(request.target for request in server.requests)
            repeated += sum(max(0, asked[target] - asked_once[target]) for target in asked if target != "/robots.txt")
            found = contents(directory)
            lost += len(expected.keys() - found.keys())
            doubled += len(found.keys() - expected.keys())
            different += status != 0 or found != expected
            print(f"crawl {n}: killed {kills} in all, {'DIFFERENT' if found != expected else 'equal'}", flush=True)
            shutil.rmtree(directory)
    print(f"""
crawls                        {options.crawls}
SIG{options.signal} (x{options.times})                 {kills}
directories not equal         {different}
pages lost                    {lost}
pages doubled                 {doubled}
requests repeated per kill    {repeated / max(1, kills):.1f}
exit statuses when stopped    {dict(statuses)}""")
    shutil.rmtree(scratch)
    return int(bool(different or lost or doubled))


if __name__ == "__main__":
    sys.exit(main())
