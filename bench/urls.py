"""The URL rules against Chromium's own parser, for generated URLs: ``python bench/urls.py [--count 100000]``.

Needs Debian's package chromium. Differences are printed by kind, with examples; those that no kind of JUSTIFIED in
tests/urlgen.py explains are the exit status, 1 if there is any. Non-ASCII queries are compared in other encodings too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from urlgen import JUSTIFIED, MALFORMED, ask_chromium, ask_tinycrawl, generate_urls, kind_of_difference  # noqa: E402

ENCODINGS = (
    "windows-1252",
    "windows-1251",
    "koi8-r",
    "shift_jis",
    "euc-jp",
    "gb18030",
    "gbk",
    "big5",
    "euc-kr",
    "utf-16le",
)
BATCH = 50_000  # one page for Chromium


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="URLs to compare (default: 100000)")
    parser.add_argument("--seed", type=int, default=0, help="another seed is another series of URLs (default: 0)")
    parser.add_argument("--examples", type=int, default=5, help="examples to print of each kind (default: 5)")
    asked = parser.parse_args()
    shares = {"utf-8": asked.count} | dict.fromkeys(ENCODINGS, asked.count // 20)
    unjustified = 0
    for number, (encoding, count) in enumerate(shares.items()):
        pairs = list(generate_urls(count, asked.seed + number))
        started = time.monotonic()
        ours = ask_tinycrawl(pairs, encoding)
        middle = time.monotonic()
        theirs = []
        for start in range(0, count, BATCH):
            with tempfile.TemporaryDirectory(prefix="tinycrawl-urls-", ignore_cleanup_errors=True) as scratch:
                theirs += ask_chromium(pairs[start : start + BATCH], Path(scratch), encoding)
        ended = time.monotonic()
        kinds: dict[str | None, list[tuple[str | None, str, str | None, str | None]]] = defaultdict(list)
        for (base, reference), our, their in zip(pairs, ours, theirs, strict=True):
            for page, one, other in ((base, our[0], their[0]), (None, our[1], their[1])):
                if one != other:
                    kinds[kind_of_difference(reference, one, other)].append((page, reference, one, other))
        joined = [answer for answer, _ in ours]
        malformed, foreign = joined.count(MALFORMED), joined.count(None)
        print(
            f"{encoding}: {count} references, {len({reference for _, reference in pairs})} distinct:"
            f" {count - malformed - foreign} http(s), {malformed} malformed, {foreign} of other schemes;"
            f" tinycrawl {middle - started:.1f} s, Chromium {ended - middle:.1f} s"
        )
        reasons = {kind.name: kind.reason for kind in JUSTIFIED}
        for kind, differences in sorted(kinds.items(), key=lambda item: -len(item[1])):
            print(
                f"  {len(differences)} {kind or 'NOT JUSTIFIED'}: {reasons.get(kind or '', 'a fault, ours or theirs')}"
            )
            for page, reference, one, other in sorted(differences, key=lambda row: len(str(row[1])))[: asked.examples]:
                print(ascii(f"    {reference!r:.100} on {page}: {one!s:.100}  Chromium: {other!s:.100}")[1:-1])
        unjustified += len(kinds[None])
    print(f"{unjustified} differences that no kind justifies")
    return 1 if unjustified else 0


if __name__ == "__main__":
    sys.exit(main())
