"""The web as it is: a small crawl of a site with every fault, by the oracle; `python bench/soak.py` is the long one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import CrawlCommand
from mockserver import MockServer, Reply, page, robots

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench"))

from soak import Sample, Soak, differences, soak

Server = Callable[..., MockServer]

SEED = 2  # of which the pages that never answer are on one level
REASONS = {
    *("http 404", "http 403", "http 410", "http 204", "http 500", "http 503", "http 429"),
    *("connection lost", "truncated", "truncated gzip", "truncated br", "truncated zstd", "bad gzip"),
    "headers too large",
    *("unknown content-encoding: klingon", "not an HTTP answer", "timeout"),
    *("not html: application/pdf", "not html: image/png", "not html: text/plain", "not html: application/json"),
    *("not html: application/octet-stream", "not html: no type", "empty", "noindex", "robots", "duplicate"),
    *("redirect loop", "too many redirects", "malformed redirect", "empty redirect", "redirect to a file: URL"),
    *("out of scope", "URL too long", "repeated path segment"),
}


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Soak:
    return soak(400, SEED, tmp_path_factory.mktemp("soak"), timeout=2.5, sync=False)


def test_every_url_of_a_site_with_every_fault_is_a_page_or_has_its_reason(crawled: Soak) -> None:
    counted = {*crawled.summary["failed"], *crawled.summary["skipped"]} - {"nofollow", "malformed", "not http"}

    assert crawled.faults == []
    assert counted == REASONS
    assert len(crawled.expected.distinct) - 1 == crawled.summary["saved"] > 300


def test_no_page_is_asked_for_more_often_than_it_needs(crawled: Soak) -> None:
    assert crawled.repeated == {}


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        pytest.param("7", b"</p>", b"<p/>", ["is not what was served"], id="one page"),
        pytest.param(".crawler", b'"http 410"', b'"http 404"', ["'reason': 'http 404'"], id="one reason"),
        pytest.param(
            ".crawler", b'{"docID":7,', b'{"reason":"gone","x":7,', ["{'docID': None, 'reason': 'gone'}"], id="loss"
        ),
        pytest.param(".crawler", b'"out of scope"', b'"excluded"', ["refused links", "the refused link"], id="refusal"),
        pytest.param(".crawler", b'"complete"', b'"stopped"', ["the manifest ends with"], id="end"),
    ],
)
def test_the_comparison_sees(crawled: Soak, tmp_path: Path, name: str, old: bytes, new: bytes, told: list[str]) -> None:
    directory = shutil.copytree(crawled.directory, tmp_path / "pages")
    content = (directory / name).read_bytes()
    (directory / name).write_bytes(content.replace(old, new, 1))

    found = list(differences(crawled.site, crawled.expected, directory, 0, crawled.summary))

    assert [any(words in line for line in found) for words in told] == [True] * len(told)


@pytest.mark.parametrize(
    ("per_url", "open_per_100_pages", "told"),
    [
        pytest.param(390, 0, [], id="flat"),
        pytest.param(410, 0, ["memory grows by 410 bytes per distinct URL, more than 400"], id="memory"),
        pytest.param(0, 2, ["open files grow: 19.5 (at most 24), then 29.5 (34)"], id="open files, slowly"),
        pytest.param(0, 10, ["open files grow: 39.5 (at most 64), then 89.5 (114)"], id="open files"),
    ],
)
def test_growth_is_seen(crawled: Soak, per_url: int, open_per_100_pages: int, told: list[str]) -> None:
    """A page for each 50 URLs"""
    pages = range(0, 1000, 10)
    expected = replace(crawled.expected, distinct=[50 * page for page in range(1000)])
    samples = [
        Sample(page, page, per_url * 50 * page, 15 + page * open_per_100_pages // 100, 0, page) for page in pages
    ]

    assert replace(crawled, expected=expected, samples=samples, wrong=[]).faults == told


def test_no_request_is_lost_on_a_connection_that_a_stopped_download_closes(server: Server, crawl: CrawlCommand) -> None:
    """PDFs so small that the whole body has come when the headers are looked at, between pages"""
    pages, documents = [f"/page{i}" for i in range(100)], [f"/pdf{i}" for i in range(100)]
    pdf = Reply(body=b"%PDF-1.4", type="application/pdf")
    links = [path for pair in zip(documents, pages, strict=True) for path in pair]
    mock = server({"/": page(*links), **dict.fromkeys(pages, page()), **dict.fromkeys(documents, pdf)})

    result = crawl(mock.url(), 1, settings={"RETRY_TIMES": 0, "CONCURRENT_REQUESTS_PER_DOMAIN": 8})

    assert {entry["reason"] for entry in result.manifest[1:-1] if "reason" in entry} == {"not html: application/pdf"}
    assert len(result.pages) == 101


@pytest.mark.parametrize("failing", ["/private", "/broken"])
def test_a_page_that_never_answers_does_not_stop_the_crawl_for_good(
    server: Server, crawl: CrawlCommand, failing: str
) -> None:
    """The only link that may still be asked beyond those that wait for it fails in a way that tells of no server."""
    pages = {path: page(delay=0.1) for path in ("/a", "/b", "/c", "/d")}
    mock = server(
        {
            "/": page("/never", "/a", "/b", failing, "/c", "/d"),
            "/never": Reply(never=True),
            "/broken": Reply(raw=b""),
            "/robots.txt": robots("User-agent: *\nDisallow: /private\n"),
            **pages,
        }
    )
    settings = {"DOWNLOAD_TIMEOUT": 3, "RETRY_TIMES": 0, "TINYCRAWL_AHEAD": 3}

    running = crawl.start(mock.url(), 1, settings=settings)
    running.process.wait(30)

    result = running.wait()
    assert [url.removeprefix(mock.url("")) for url, _ in result.pages] == ["/", "/a", "/b", "/c", "/d"]
    assert result.entry(mock.url("/never"))["reason"] == "timeout"
