"""What large crawls cost: ``python bench/scale.py sites [--pages 2000 20000]``, ``python bench/scale.py polite``.

``sites``: time, CPU and memory for one site of each size, 60 links a page:

- repeated: most links are to pages that were found before;
- refused: 40 links of each page are new and lead out of scope;
- beyond: the last level, most of the site, has 40 links a page that are new and beyond the depth.

The bytes per URL are what the peak grew by for each distinct URL after the first 10,000. URLs are the pages served so
far, and the others they link to.

``polite``: many sites in one crawl, with one request a second to each. Do they all get it?
"""

import argparse
import itertools
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastserver import FastServer
from measure import Usage, measure, print_table, two_cores
from peers import CONCURRENCY, ROOT, scrapy_command

LINKS = 60
CHILDREN = 8
NEW_LINKS = 40
HUB = "hub.test"
KINDS = ("repeated", "refused", "beyond")
FIRST_URLS = 10_000  # the memory that these take is not counted per URL: much of it is the program's own
SITES_HEADS = ("links", "pages", "URLs", "seconds", "ms/page", "CPU ms/page", "peak MB", "bytes/URL", "pages saved")


def page(title: str, links: list[str]) -> bytes:
    lines = "".join(f'<li class="item">Some words about <a href="{link}">this page</a> here.</li>\n' for link in links)
    head = f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{title}</title></head>\n'
    return f"{head}<body>\n<ul>\n{lines}</ul>\n</body></html>\n".encode()


@dataclass(frozen=True)
class RuleSite:
    """Pages ``/p0``, ``/p1``, ... in a tree. No link leads to a page deeper than the next level."""

    pages: int
    kind: str

    def depth(self, i: int) -> int:
        depth = 0
        while i:
            i = (i - 1) // CHILDREN
            depth += 1
        return depth

    @property
    def last_level(self) -> int:
        return self.depth(self.pages - 1)

    def links(self, i: int) -> list[str]:
        children = range(CHILDREN * i + 1, CHILDREN * i + CHILDREN + 1)
        first = (i - 1) // CHILDREN * CHILDREN + 1 if i else 0
        targets = [*range(CHILDREN + 1), *children, *range(first, first + CHILDREN)]
        links = [f"/p{target}" for target in targets if target < self.pages]
        if self.kind == "refused":
            links += [f"http://other{k}.invalid/{i}" for k in range(NEW_LINKS)]
        elif self.kind == "beyond" and self.depth(i) == self.last_level:
            links += [f"/beyond/{i}/{k}" for k in range(NEW_LINKS)]
        further_up = (f"/p{(i * 7919 + k * 104729) % (i + 1)}" for k in itertools.count())
        return [*links, *itertools.islice(further_up, max(0, LINKS - len(links)))]


class CountingSite:
    """Answers for *site*. *urls*: the pages it has served, and whatever else they link to."""

    def __init__(self, site: RuleSite) -> None:
        self._site = site
        self.urls: set[str] = set()

    def __call__(self, host: str, path: str) -> bytes | None:
        if not path.startswith("/p") or not path[2:].isdecimal() or int(path[2:]) >= self._site.pages:
            return None
        links = self._site.links(int(path[2:]))
        self.urls.add(path)
        self.urls.update(link for link in links if not link.startswith("/p"))
        return page(path, links)


def crawl(
    seed: str,
    directory: Path,
    arguments: dict[str, object],
    settings: dict[str, object],
    look: Callable[[int], None] = lambda peak: None,
) -> Usage:
    """Run tinycrawl; its log is beside *directory*. Names that end in .test are this machine."""
    return measure(
        scrapy_command(
            ["crawl", "site"],
            {"seed": seed, "pagedir": directory, **arguments},
            {"LOG_LEVEL": "INFO", "TWISTED_DNS_RESOLVER": "testresolver.TestResolver", **settings},
        ),
        directory=ROOT,
        log=directory.with_suffix(".log"),
        environment={"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        look=look,
    )


def verdict(usage: Usage, directory: Path, expected: int) -> str:
    saved = sum(path.name.isdecimal() for path in directory.iterdir()) if directory.is_dir() else 0
    if (usage.status, saved) == (0, expected):
        return f"all {saved}"
    print(directory.with_suffix(".log").read_text(errors="replace")[-3000:], file=sys.stderr)
    return f"WRONG: {saved} of {expected}, exit status {usage.status}"


def site_row(site: RuleSite, scratch: Path) -> list[str]:
    counting = CountingSite(site)
    samples: list[tuple[int, int]] = []  # URLs, peak
    directory = scratch / f"{site.kind}-{site.pages}"
    with FastServer(counting) as server:
        usage = crawl(
            f"http://127.0.0.1:{server.port}/p0",
            directory,
            {"depth": site.last_level},
            {"DOWNLOAD_DELAY": 0, "CONCURRENT_REQUESTS_PER_DOMAIN": CONCURRENCY},
            lambda peak: samples.append((len(counting.urls), peak)),
        )
    urls = len(counting.urls)
    before = next(((urls, peak) for urls, peak in samples if urls >= FIRST_URLS), None)
    grown = f"{(usage.peak - before[1]) / (urls - before[0]):.0f}" if before and urls >= 2 * FIRST_URLS else "-"
    row = [
        site.kind,
        f"{site.pages}",
        f"{urls}",
        f"{usage.seconds:.1f}",
        f"{usage.seconds / site.pages * 1000:.2f}",
        f"{usage.cpu / site.pages * 1000:.2f}",
        f"{usage.peak / 1e6:.0f}",
        grown,
        verdict(usage, directory, site.pages),
    ]
    shutil.rmtree(directory, ignore_errors=True)
    return row


@dataclass(frozen=True)
class ManySites:
    """*hosts* sites of *pages* pages each. A hub links to the home of each, at depth 1, and these to their pages."""

    hosts: int
    pages: int

    def __call__(self, host: str, path: str, port: int) -> bytes | None:
        if path != "/" and not path.startswith("/p"):
            return None
        links = ["/", *(f"/p{i}" for i in range(1, self.pages))]
        if host == HUB:
            links = [f"http://site{n}.test:{port}/" for n in range(self.hosts)]
        return page(host + path, (links * LINKS)[: max(LINKS, len(links))])


def polite_rows(sites: ManySites, delay: float, settings: dict[str, object], scratch: Path) -> list[tuple[str, str]]:
    directory = scratch / f"polite-{sites.hosts}"
    server = FastServer(lambda host, path: sites(host, path, server.port))
    with server:
        usage = crawl(
            f"http://{HUB}:{server.port}/",
            directory,
            {"depth": 2, "scope": "all"},
            {"DOWNLOAD_DELAY": delay, "CONCURRENT_REQUESTS": 2 * sites.hosts, **settings},
        )
    pages = 1 + sites.hosts * sites.pages
    result = verdict(usage, directory, pages)
    shutil.rmtree(directory, ignore_errors=True)
    times = [seconds for host, seconds in server.times.items() if host != HUB]
    gaps = sorted(after - before for seconds in times for before, after in itertools.pairwise(seconds))
    if not gaps:
        return [("pages saved", result)]
    shares = sorted((len(seconds) - 1) * delay / (seconds[-1] - seconds[0]) for seconds in times)
    requests = sum(map(len, times))
    return [
        ("pages saved", result),
        ("requests to the sites, robots.txt included", f"{requests}"),
        ("seconds", f"{usage.seconds:.1f}, of which {(sites.pages + 2) * delay:.0f} are the delays of one site"),
        ("gap per host: shortest", f"{gaps[0]:.3f} s"),
        ("gap per host: median", f"{statistics.median(gaps):.3f} s"),
        ("gap per host: 95th percentile", f"{gaps[len(gaps) * 95 // 100]:.3f} s"),
        ("gap per host: longest", f"{gaps[-1]:.3f} s"),
        ("share of one request per delay: median host", f"{statistics.median(shares):.1%}"),
        ("share of one request per delay: worst host", f"{shares[0]:.1%}"),
        ("CPU use of the crawler", f"{usage.cpu / usage.seconds:.0%} of one core"),
        ("CPU per page", f"{usage.cpu / pages * 1000:.2f} ms"),
        ("peak", f"{usage.peak / 1e6:.0f} MB"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    sites = what.add_parser("sites", help="large sites")
    sites.add_argument("--pages", type=int, nargs="+", default=[2000, 20_000], help="200000 takes a quarter of an hour")
    sites.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    sites.add_argument("--new-links", type=int, default=2000, help="pages of the kinds whose links are new")
    polite = what.add_parser("polite", help="many sites at a time")
    polite.add_argument("--hosts", type=int, default=200)
    polite.add_argument("--pages", type=int, default=30, help="of each site")
    polite.add_argument("--delay", type=float, default=1.0, help="seconds")
    polite.add_argument(
        "--ahead", type=int, default=100_000, help="TINYCRAWL_AHEAD: all pages of a level are to be open"
    )
    options = parser.parse_args()
    server_core, crawler_core = two_cores()
    os.sched_setaffinity(0, {server_core})  # the server is a thread of this process
    scratch = Path(tempfile.mkdtemp(prefix="tinycrawl-scale-"))
    if options.what == "sites":
        cases = [RuleSite(pages, "repeated") for pages in options.pages if "repeated" in options.kinds]
        cases += [RuleSite(options.new_links, kind) for kind in options.kinds if kind != "repeated"]
        rows = [site_row(site, scratch) for site in cases]
        print(f"\n{LINKS} links a page; the server on core {server_core}, the crawler on core {crawler_core}\n")
        print_table(SITES_HEADS, rows)
        is_right = all(row[-1].startswith("all") for row in rows)
    else:
        many = ManySites(options.hosts, options.pages)
        facts = polite_rows(many, options.delay, {"TINYCRAWL_AHEAD": options.ahead}, scratch)
        print(f"\n{options.hosts} sites of {options.pages} pages in one crawl, a delay of {options.delay} s for each\n")
        print_table(("", "measured"), facts)
        is_right = facts[0][1].startswith("all")
    shutil.rmtree(scratch)
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main())
