"""End to end: the demo site, whose depth-first transcript is the ancestor's, and the contracts checked on it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from conftest import REPOSITORY, CrawlCommand
from mockserver import MockServer, Reply, page, redirect
from tinycrawl.demo import serve

# Written out by the rules of DESIGN section 7 and the links of the site, with * for the site's folder and W for the
# one external link. Depth in 2, a blank, a blank per depth, the word in 9.
DEPTH_FIRST = """\
 0   Fetched: *index.html
 0  Scanning: *index.html
 0     Found: *A.html
 0     Added: *A.html
 1    Fetched: *A.html
 1   Scanning: *A.html
 1      Found: W
 1   IgnExtrn: W
 1      Found: *B.html
 1      Added: *B.html
 1      Found: *index.html
 1    IgnDupl: *index.html
 2     Fetched: *B.html
 2    Scanning: *B.html
 2       Found: W
 2    IgnExtrn: W
 2       Found: *C.html
 2       Added: *C.html
 2       Found: *D.html
 2       Added: *D.html
 2       Found: *E.html
 2       Added: *E.html
 2       Found: *index.html
 2     IgnDupl: *index.html
 3      Fetched: *E.html
 3     Scanning: *E.html
 3        Found: W
 3     IgnExtrn: W
 3        Found: *F.html
 3        Added: *F.html
 3        Found: *G.html
 3        Added: *G.html
 3        Found: *A.html
 3      IgnDupl: *A.html
 3        Found: *index.html
 3      IgnDupl: *index.html
 4       Fetched: *G.html
 4      Scanning: *G.html
 4         Found: W
 4      IgnExtrn: W
 4         Found: *H.html
 4         Added: *H.html
 4         Found: *index.html
 4       IgnDupl: *index.html
 5        Fetched: *H.html
 5       Scanning: *H.html
 5          Found: W
 5       IgnExtrn: W
 5          Found: *B.html
 5        IgnDupl: *B.html
 5          Found: *index.html
 5        IgnDupl: *index.html
 4       Fetched: *F.html
 4      Scanning: *F.html
 4         Found: W
 4      IgnExtrn: W
 4         Found: *H.html
 4       IgnDupl: *H.html
 4         Found: *index.html
 4       IgnDupl: *index.html
 3      Fetched: *D.html
 3     Scanning: *D.html
 3        Found: W
 3     IgnExtrn: W
 3        Found: *index.html
 3      IgnDupl: *index.html
 3      Fetched: *C.html
 3     Scanning: *C.html
 3        Found: W
 3     IgnExtrn: W
 3        Found: *D.html
 3      IgnDupl: *D.html
 3        Found: *index.html
 3      IgnDupl: *index.html
"""


def transcript(text: str, base: str) -> str:
    return text.replace(f"{base}/letters/", "*").replace("https://en.wikipedia.org/wiki/Algorithm", "W")


def test_depth_first_transcript_of_the_demo_site(crawl: CrawlCommand) -> None:
    with serve() as base:
        result = crawl(f"{base}/letters/index.html", 10, order="depth-first", events="-")
        again = crawl(f"{base}/letters/index.html", 10, order="depth-first", events="-", pagedir=result.directory)

    assert transcript(result.stdout, base) == DEPTH_FIRST
    assert len(DEPTH_FIRST.splitlines()) == 74
    names = [re.sub(r".*/|\.html", "", url) for url, _ in result.pages]
    assert names == ["index", "A", "B", "E", "G", "H", "F", "D", "C"]
    assert [depth for _, depth in result.pages] == [0, 1, 2, 3, 4, 5, 4, 3, 3]
    assert again.stdout == result.stdout  # replayed
    assert again.files == result.files


def test_breadth_first_has_the_same_events_in_its_own_order(tmp_path: Path, crawl: CrawlCommand) -> None:
    log = tmp_path / "events"
    with serve() as base:
        result = crawl(f"{base}/letters/index.html", 10, events=log)

    lines = transcript(log.read_text(), base).splitlines()
    assert sorted(lines) == sorted(DEPTH_FIRST.splitlines())
    assert [line for line in lines if "Fetched" in line] == [
        " 0   Fetched: *index.html",
        " 1    Fetched: *A.html",
        " 2     Fetched: *B.html",
        " 3      Fetched: *C.html",
        " 3      Fetched: *D.html",
        " 3      Fetched: *E.html",
        " 4       Fetched: *F.html",
        " 4       Fetched: *G.html",
        " 5        Fetched: *H.html",
    ]
    assert [re.sub(r".*/|\.html", "", url) for url, _ in result.pages] == ["index", *"ABCDEFGH"]
    assert [depth for _, depth in result.pages] == [0, 1, 2, 3, 3, 3, 4, 4, 5]
    assert result.stdout == ""


def test_events_of_what_the_ancestor_did_not_know(server: Callable[..., MockServer], crawl: CrawlCommand) -> None:
    site = server(
        {
            "/": page("/moved", "/gone", "/hidden", "/no", "/back", "/out", "http://[bad", "mailto:a@b"),
            "/moved": redirect("/new"),
            "/new": page("/", "/deeper"),
            "/hidden": page("/deeper", headers=[("X-Robots-Tag", "noindex")]),
            "/back": redirect("/"),
            "/out": redirect("http://away.test/"),
            "/deeper": Reply(body=b"<a href=/too-deep>"),
        }
    )

    result = crawl(site.url("/"), 2, events="-", exclude="^/no$")

    assert (
        result.stdout.replace(site.url(""), "")
        == """\
 0   Fetched: /
 0  Scanning: /
 0     Found: /moved
 0     Added: /moved
 0     Found: /gone
 0     Added: /gone
 0     Found: /hidden
 0     Added: /hidden
 0     Found: /no
 0  IgnFiltr: /no
 0     Found: /back
 0     Added: /back
 0     Found: /out
 0     Added: /out
 1   Redirect: /new
 1    Fetched: /new
 1   Scanning: /new
 1      Found: /
 1    IgnDupl: /
 1      Found: /deeper
 1      Added: /deeper
 1     Failed: /gone (http 404)
 1    Fetched: /hidden
 1    NoIndex: /hidden
 1   Scanning: /hidden
 1      Found: /deeper
 1    IgnDupl: /deeper
 1    IgnDupl: /back
 1   IgnExtrn: /out
 2     Fetched: /deeper
"""
    )
    for line in result.stdout.splitlines():
        assert re.fullmatch(r"[ \d]\d +[A-Za-z]{5,9}: \S+( \(.*\))?", line)


def test_contracts_pass_on_the_demo_site() -> None:
    command = [sys.executable, "-m", "scrapy", "check", "-a", "seed=http://127.0.0.1/", "-a", "depth=1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    match = re.search(r"^Ran (\d+) contracts? in ", done.stderr, re.MULTILINE)
    assert match is not None
    assert int(match[1]) >= 3
    assert done.stderr.endswith("\nOK\n")
