"""A long crawl of the web as it is: ``python bench/soak.py [--pages 50000] [--seed 1]``.

The site is bench/faultysite.py: every fault at a steady rate. Each second the crawler's memory, open files and hidden
files are looked at; in the end every URL is compared with the oracle. Exit status 1 if a URL is wrong, if the open
files grow, or if the memory grows by more than 400 bytes per distinct URL beyond the first 10,000.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from faultysite import ROOT, Expected, FaultySite, Running, expected_crawl, running_site

DEPTH = 200  # more than the site is deep
CONCURRENCY = 16
TIMEOUT = 5.0  # seconds, after which a page that never answers is given up
GROWTH = 400  # bytes per distinct URL
SETTLED_AFTER = 10_000  # distinct URLs: from here on the memory is looked at
ROW = 5_000  # pages
STANDSTILL = 120.0  # seconds without a page, after which the crawl is taken to hang, and killed
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the crawler: seconds since its start, CPU seconds, bytes of memory, open and hidden files, pages."""

    time: float
    cpu: float
    memory: int
    open_files: int
    hidden: int
    saved: int


@dataclass
class Soak:
    """What a crawl came to. *wrong*: in words, what is not as the oracle has it."""

    site: FaultySite
    directory: Path
    expected: Expected
    samples: list[Sample]
    status: int
    summary: dict[str, Any]
    wrong: list[str]
    repeated: Counter[str]  # requests beyond those that were needed, by target

    def at(self, sample: Sample) -> int:
        """How many distinct URLs were known then."""
        return self.expected.distinct[min(sample.saved, self.expected.saved)]

    @property
    def slope(self) -> float | None:
        """By how many bytes the memory grew per distinct URL, by least squares; None for a small site."""
        points = [(self.at(sample), sample.memory) for sample in self.samples if self.at(sample) > SETTLED_AFTER]
        if len({urls for urls, _ in points}) < 10:
            return None
        mean_urls = sum(urls for urls, _ in points) / len(points)
        mean_memory = sum(memory for _, memory in points) / len(points)
        covariance = sum((urls - mean_urls) * (memory - mean_memory) for urls, memory in points)
        return covariance / sum((urls - mean_urls) ** 2 for urls, _ in points)

    @property
    def faults(self) -> list[str]:
        faults = list(self.wrong)
        if self.slope is not None and self.slope > GROWTH:
            faults.append(f"memory grows by {self.slope:.0f} bytes per distinct URL, more than {GROWTH}")
        # Connections come and go: single looks differ by as many as may be open at a time, the middle of many does not.
        half = len(self.samples) // 2
        first, second = ([sample.open_files for sample in part] for part in (self.samples[:half], self.samples[half:]))
        is_higher = half >= 50 and median(second) > median(first) + CONCURRENCY / 2
        if first and (is_higher or max(second) > max(first) + CONCURRENCY):
            faults.append(
                f"open files grow: {median(first)} (at most {max(first)}), then {median(second)} ({max(second)})"
            )
        return faults


def soak(pages: int, seed: int, scratch: Path, *, timeout: float = TIMEOUT, sync: bool = True) -> Soak:
    """Crawl a site of *pages* pages below *scratch*, and compare."""
    directory = scratch / "pages"
    with running_site(pages, seed) as running:
        samples, status, log = crawl(running.site, directory, scratch, timeout, sync)
    (scratch / "samples.json").write_text(json.dumps([[getattr(s, name) for name in s.__slots__] for s in samples]))
    summary = summary_of(log)
    expected = expected_crawl(running.site)
    wrong = [*differences(running.site, expected, directory, status, summary), *running.strange]
    return Soak(running.site, directory, expected, samples, status, summary, wrong, repeated(running, expected))


def crawl(
    site: FaultySite, directory: Path, scratch: Path, timeout: float, sync: bool
) -> tuple[list[Sample], int, str]:
    given = {"seed": f"{site.origin}/p/0", "depth": DEPTH, "pagedir": directory}
    settings = {
        "DOWNLOAD_DELAY": 0,
        "DOWNLOAD_TIMEOUT": timeout,
        "CONCURRENT_REQUESTS": CONCURRENCY,
        "CONCURRENT_REQUESTS_PER_DOMAIN": CONCURRENCY,
        "TINYCRAWL_MAX_DEPTH": DEPTH,
        **({} if sync else {"TINYCRAWL_SYNC": 0}),
    }
    command = [sys.executable, "-m", "scrapy", "crawl", "site"]
    command += [part for name, value in given.items() for part in ("-a", f"{name}={value}")]
    command += [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
    samples = []
    moved = (0.0, 0, 0)  # when, and what there was then
    with (scratch / "log").open("wb") as log:
        started = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            while True:
                try:
                    status = process.wait(1)
                    break
                except subprocess.TimeoutExpired:
                    samples.append(sample := look(process.pid, directory, time.monotonic() - started))
                    if (sample.saved, sample.hidden) != moved[1:]:
                        moved = (sample.time, sample.saved, sample.hidden)
                    elif sample.time - moved[0] > STANDSTILL:
                        process.kill()
        finally:
            process.kill()
            process.wait()
    return samples, status, (scratch / "log").read_text(errors="replace")


def look(pid: int, directory: Path, seconds: float) -> Sample:
    names = [entry.name for entry in os.scandir(directory)] if directory.is_dir() else []
    saved = sum(name[0] != "." for name in names)
    hidden = sum(name[0] == "." and name != ".crawler" for name in names)
    process = Path("/proc", str(pid))
    try:
        memory = int((process / "statm").read_text().split()[1]) * PAGE_SIZE
        used = (process / "stat").read_text().rpartition(")")[2].split()
        open_files = len(os.listdir(process / "fd"))  # noqa: PTH208  # names alone
    except (OSError, IndexError):  # it has just ended
        return Sample(seconds, 0.0, 0, 0, hidden, saved)
    return Sample(seconds, (int(used[11]) + int(used[12])) / TICKS, memory, open_files, hidden, saved)


def summary_of(log: str) -> dict[str, Any]:
    """The line of JSON at the end of the log."""
    for line in reversed(log.splitlines()):
        start = line.find('{"ending"')
        if start >= 0:
            found: dict[str, Any] = json.loads(line[start:])
            return found
    return {}


def differences(
    site: FaultySite, expected: Expected, directory: Path, status: int, summary: Mapping[str, Any]
) -> Iterator[str]:
    """What is not as the oracle has it, in words."""
    if status != 0:
        yield f"exit status {status}"
    marker = directory / ".crawler"
    lines = [json.loads(line) for line in marker.read_text().splitlines()] if marker.exists() else []
    if len(lines) < 2:
        yield "there is no manifest, or it is empty"
        return
    _, *records, end = lines
    if end.get("end") != "complete" or end.get("saved") != expected.saved:
        yield f"the manifest ends with {end}, not complete with {expected.saved} pages"
    refused = [record for record in records if is_refused(record)]
    settled = [record for record in records if not is_refused(record)]
    if len(refused) != len(expected.refused):
        yield f"{len(refused)} refused links, expected {len(expected.refused)}"
    of_urls = {record["url"]: record for record in refused}
    for ours in expected.refused:
        if of_urls.get(ours["url"]) != ours:
            yield f"the refused link {of_urls.get(ours['url'])}, expected {ours}"
    found = {record["url"] for record in settled}
    for record in expected.settled:
        if record["url"] not in found:
            yield f"lost: {record['url']}"
    is_shifted = False  # one page more or less was told, and all later docIDs differ for it
    for record, ours in zip(settled, expected.settled, strict=False):
        wrong = {key: record.get(key) for key in (*ours, "reason") if record.get(key) != ours.get(key)}
        if wrong and not (is_shifted and wrong.keys() == {"docID"} and wrong["docID"]):
            yield f"{record['url']}: {wrong}, expected {ours}"
        if "url" in wrong:  # what follows is shifted
            break
        is_shifted = is_shifted or "docID" in wrong
        if "docID" in record and "docID" in ours and "redirects" not in wrong:
            yield from page_differences(site, record, directory)
    if len(settled) != len(expected.settled):
        yield f"{len(settled)} settled URLs, expected {len(expected.settled)}"
    names = {entry.name for entry in os.scandir(directory)}
    if others := names ^ {".crawler", *(str(n) for n in range(1, expected.saved + 1))}:
        yield f"{len(others)} files that should not be there, or are not: {sorted(others)[:5]}"
    for word, counts in (("failed", expected.failed), ("skipped", expected.skipped)):
        if summary.get(word) != counts:
            yield f"the summary counts {word} {summary.get(word)}, expected {dict(counts)}"


def page_differences(site: FaultySite, record: Mapping[str, Any], directory: Path) -> Iterator[str]:
    url = [record["url"], *record.get("redirects", ())][-1]
    body = site.stored(url.removeprefix(site.origin))
    if (directory / str(record["docID"])).read_bytes() != f"{url}\n{record['depth']}\n".encode() + body:
        yield f"page {record['docID']} ({url}) is not what was served"
    if record["length"] != len(body):
        yield f"page {record['docID']} ({url}): length {record['length']}, expected {len(body)}"


def is_refused(record: Mapping[str, Any]) -> bool:
    """Of a link that was never asked: no rank has it, so it stands before the first record of its level."""
    return record.get("reason") in ("out of scope", "URL too long", "repeated path segment") and "target" not in record


def repeated(running: Running, expected: Expected) -> Counter[str]:
    """The requests beyond those that a crawl needs which asks for one URL at a time and never has to wait too long."""
    return running.asked - (expected.asks + Counter({"/robots.txt": running.asked["/robots.txt"]}))


def table(result: Soak) -> str:
    rows = ["    pages   distinct URLs   seconds   pages/s   CPU ms/page   memory MB   open files   hidden files"]
    before = Sample(0.0, 0.0, 0, 0, 0, 0)
    row: list[Sample] = []
    alive = [sample for sample in result.samples if sample.memory]
    for sample in alive:
        row.append(sample)
        if sample.saved >= before.saved // ROW * ROW + ROW or (sample is alive[-1] and sample.saved > before.saved):
            pages, seconds = sample.saved - before.saved, sample.time - before.time
            rows.append(
                f"{sample.saved:9}   {result.at(sample):13}   {sample.time:7.0f}   {pages / seconds:7.1f}"
                f"   {1000 * (sample.cpu - before.cpu) / pages:11.2f}   {sample.memory / 1e6:9.1f}"
                f"   {max(one.open_files for one in row):10}   {max(one.hidden for one in row):12}"
            )
            before, row = sample, []
    return "\n".join(rows)


def report(result: Soak) -> str:
    expected = result.expected
    reasons = Counter(result.summary.get("failed", {})) + Counter(result.summary.get("skipped", {}))
    counts = "\n".join(
        f"{reasons[reason]:9}   {count:9}   {reason}"
        for reason, count in (expected.failed + expected.skipped).most_common()
    )
    slope = "too few to tell" if result.slope is None else f"{result.slope:.0f} bytes per distinct URL"
    more = result.repeated
    peak = max((sample.memory for sample in result.samples), default=0)
    return f"""{table(result)}

    found    expected   reason
{counts}

pages saved                {result.summary.get("saved")}, expected {expected.saved}
URLs asked                 {len(expected.settled)}
links refused              {len(expected.refused)}
distinct URLs              {expected.distinct[-1]}
depth                      {max(record["depth"] for record in expected.settled)}
requests                   {expected.asks.total() + more.total()}, {more.total()} more than needed
    {", ".join(f"{target} ({count})" for target, count in more.most_common(5)) or "none"}
growth of memory           {slope}, beyond the first {SETTLED_AFTER}
memory at most             {peak / 1e6:.1f} MB
open files at most         {max((sample.open_files for sample in result.samples), default=0)}
URLs and files wrong       {len(result.wrong)}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a directory for pages, log and samples, which is not removed")
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True)
    scratch = options.keep or Path(tempfile.mkdtemp(prefix="tinycrawl-soak-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server and the crawl end too
    try:
        result = soak(options.pages, options.seed, scratch)
    finally:
        if not options.keep:
            shutil.rmtree(scratch)
    print(report(result))
    for fault in result.faults[:50]:
        print(f"WRONG: {fault[:500]}")
    return int(bool(result.faults))


if __name__ == "__main__":
    sys.exit(main())
