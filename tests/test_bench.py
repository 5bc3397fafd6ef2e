"""The benchmark programs run and judge rightly, on sites far too small to measure anything."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench"))

from compare import judge
from peers import HERE, Saved
from staticsite import StaticSite

ORACLE = [("/", 0), ("/a.html", 1), ("/b.html", 1)]


def run_bench(program: str, *options: object) -> list[list[str]]:
    """Run a benchmark to its end and return the cells of its tables, without the lines of dashes."""
    done = subprocess.run(
        [sys.executable, HERE / program, *map(str, options)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("|") and "--" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_compare_tells_that_our_crawl_saves_the_oracle_pages() -> None:
    heads, ours = run_bench("compare.py", "--pages", 25, "--rounds", 1, "--bodies", "gzip", "--tools", "tinycrawl")

    assert heads == ["", "pages/s", "from-to", "x CrawlSpider", "CPU ms/page", "peak MB", "pages saved"]
    assert (ours[0], ours[-1]) == ("tinycrawl", "as the oracle")


@pytest.mark.parametrize(
    ("saved", "verdict"),
    [
        pytest.param([("/b.html", None), ("/", None), ("/a.html", None)], "as the oracle", id="no-depths-any-order"),
        pytest.param([("/", None), ("/c.html", None)], "WRONG: 2 missing, 1 too many", id="other-pages"),
        pytest.param([*ORACLE, ("/", 0)], "WRONG: 1 wrong order, 1 twice", id="twice-with-depths"),
        pytest.param([("/", 0), ("/a.html", 1), ("/b.html", 2)], "WRONG: 1 wrong depths", id="depth"),
        pytest.param([("/", 0), ("/b.html", 1), ("/a.html", 1)], "WRONG: 1 wrong order", id="order"),
        pytest.param([], "WRONG: 3 missing", id="nothing"),
    ],
)
def test_judge_says_what_differs_from_the_oracle(saved: Saved, verdict: str) -> None:
    assert judge(saved, ORACLE) == verdict


def test_static_site_has_sixty_links_a_page_and_an_oracle_for_them() -> None:
    site = StaticSite(pages=400)
    found: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.extend(  # type: ignore[method-assign]
        value or "" for name, value in attributes if (tag, name) == ("a", "href")
    )
    body = site.body(300)
    parser.feed(body.decode())
    links = [link for link in found if not link.startswith(("#", "mailto:"))]

    assert len(links) == 60
    assert [link for link in links if "//" in link] == [
        f"https://other{k}.invalid/access?from=3&to={k}" for k in range(3)
    ]
    assert 25_000 <= len(body) < 27_000
    assert site.oracle()[:3] == [("/", 0), ("/amount/branch-1.html", 1), ("/answer/codec-2.html", 1)]
    assert len(site.oracle()) == len(dict(site.oracle())) == 400


def test_delay_counts_robots_txt_as_a_request() -> None:
    _, (tool, requests, share, *_) = run_bench("delay.py", "--pages", 3, "--delay", 0.1, "--tools", "tinycrawl")

    assert (tool, requests, share[-1]) == ("tinycrawl", "4", "%")


def test_scale_counts_the_distinct_urls_it_has_served() -> None:
    _, row = run_bench("scale.py", "sites", "--kinds", "refused", "--new-links", 30)

    assert row[:3] == ["refused", "30", "1230"]  # 30 pages, and 40 URLs on each that lead elsewhere
    assert row[-1] == "all 30"


def test_polite_counts_the_pages_and_robots_txt_of_every_host() -> None:
    table = dict(run_bench("scale.py", "polite", "--hosts", 2, "--pages", 3, "--delay", 0.1))

    assert table["pages saved"] == "all 7"  # and the hub
    assert table["requests to the sites, robots.txt included"] == "8"


def test_shares_tell_where_all_of_the_time_goes() -> None:
    heads, *rows = run_bench("shares.py", "--pages", 25)

    assert heads == ["what", "share", "us/page"]
    assert sum(float(share.removesuffix("%")) for _, share, _ in rows) == pytest.approx(100, abs=1)
    assert "Twisted: HTTP, connections, Deferreds" in [what for what, *_ in rows]
