"""The property of tests/test_exactness.py by hand, for as many random sites as wanted:

python bench/exactness.py --examples 10000

Each site is crawled in every way of RUNS in tests/comparison.py. A difference is printed with its site, and the run
goes on. Exit status 1 if there was any.
"""

import argparse
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests")]

from comparison import RUNS, comparison  # noqa: E402
from graph import Site, sites  # noqa: E402

REPORT_EVERY = 60.0  # seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=1000, help="sites to crawl (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="another seed is another series of sites (default: 0)")
    asked = parser.parse_args()
    examples = different = pages = 0
    begun = reported = time.monotonic()

    with comparison() as crawls:

        @seed(asked.seed)
        @settings(
            max_examples=asked.examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(site=sites(), latencies=st.integers(0, 2**32))
        def compare(site: Site, latencies: int) -> None:
            nonlocal examples, different, pages, reported
            found = crawls.differences(site, latencies)
            examples += 1
            pages += len(site.oracle())
            if found:
                different += 1
                print(f"DIFFERENT: {site}, latencies {latencies}", *found, sep="\n  ", flush=True)
            if time.monotonic() - reported > REPORT_EVERY:
                reported = time.monotonic()
                rate = examples / (reported - begun)
                print(f"{examples} examples, {different} different, {rate:.2f} examples a second", flush=True)

        compare()
        elapsed = time.monotonic() - begun
        rows = {
            "examples": examples,
            "crawls": crawls.crawls,
            "ways to crawl": ", ".join(run.name for run in RUNS),
            "pages, all sites together": pages,
            "differences": different,
            "seconds": round(elapsed),
            "examples a second": round(examples / elapsed, 2),
        }
    print()
    for name, value in rows.items():
        print(f"{name:<26}  {value}")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
