"""Feeds: what `-O` writes of the pages, and titles as Chromium has them."""

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conftest import CrawlCommand
from mockserver import MockServer, Reply, page, redirect
from tinycrawl.markup import read_title
from urlgen import run_in_chromium

ServerFactory = Callable[..., MockServer]

PIECES = (
    *("<title>", "<title>", "<TITLE lang=en>", "</title>", "</title >", "</TITLE x='>'>", "<title/>", "</titles>"),
    *("one", " two\n\tthree ", "&amp; &copy", "\xa0", "\f", "é", "<b>", "</b>", "<p>", "<div>", "</div>", "\0", "\r\n"),
    *("<svg>", "</svg>", "<math>", "</math>", "<mi>", "<foreignObject>", "<desc>", "<template>", "</template>"),
    *("<table>", "<tr><td>", "</table>", "<select>", "</select>", "<script>", "</script>", "<style>", "</style>"),
    *("<!--", "-->", "<!-- x -->", "<textarea>", "</textarea>", "<noscript>", "</noscript>", "<html>", "<body>"),
    *("<head>", "</head>", "</body>", "</html>", "<frameset>", "<meta charset=utf-8>", "<base href=x>", "<a href=x>"),
    *("<iframe>", "</iframe>", "<plaintext>", "<![CDATA[", "]]>", "<title", "</title", "<xmp>", "</xmp>"),
)
TITLE = "const answer = text => new DOMParser().parseFromString(text, 'text/html').title;"


def soup(chance: random.Random) -> str:
    pieces = [
        chance.choice(PIECES[: chance.choice((8, 21, len(PIECES)))]) for _ in range(chance.choice((3, 6, 12, 30)))
    ]
    return "".join(pieces)


def test_title_of_any_soup_is_the_one_that_chromium_has(tmp_path: Path) -> None:
    """Left out is what differs by right: NUL before a <frameset>, which Chromium takes for white space."""
    chance = random.Random(6)
    soups = [text for text in (soup(chance) for _ in range(8_000)) if "\0" not in text or "<frameset" not in text]
    theirs = run_in_chromium(TITLE, soups, tmp_path)

    assert sum(bool(title) for title in theirs) > 3_000
    ours = [read_title(text) for text in soups]
    assert [case for case in zip(soups, ours, theirs, strict=True) if case[1] != case[2]] == []


@pytest.mark.parametrize(
    ("text", "title"),
    [
        pytest.param("<p><b x=1>" * 20_000 + "<title> a\n&amp; b</title>", "a & b", id="many-elements"),
        pytest.param(f"<script>{'x' * 40_000}</script><title>t</title>", "t", id="long-script"),
        pytest.param(f"<svg><title>s</title></svg><p x='{'y' * 40_000}'><title>t</title>", "t", id="picture-before"),
        pytest.param("<p>" * 30_000 + "<title>t", "t", id="not-closed"),
    ],
)
def test_title_of_a_page_whose_tree_would_be_out_of_proportion_is_found(text: str, title: str) -> None:
    assert read_title(text) == title


def test_feeds_have_every_page_in_order_however_often_the_crawl_is_run(
    server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    cyrillic = "<title>\n Привет,  мир </title><a href=/c>"
    site = server(
        {
            "/": page("/a", "/moved", "/gone", title="Start"),
            "/a": Reply(body=cyrillic.encode("cp1251"), type="text/html; charset=windows-1251"),
            "/moved": redirect("/b"),
            "/b": Reply(body=b"<title/><p>\x01x</p>", type="application/xhtml+xml"),
            "/c": Reply(body="\ufeff<title>=wide</title>".encode("utf-16"), type="text/html"),
        }
    )
    names = ("traversed.txt", "pages.jsonl", "pages.csv", "pages.xml")
    fields = {"fields": ["title", "body"]}
    formats = {"pages.csv": {"format": "csv", **fields}, "pages.xml": {"format": "xml", **fields}}
    feeds = {str(tmp_path / name): {"overwrite": True, **options} for name, options in formats.items()}

    def run(**arguments: object) -> list[bytes]:
        outputs = ["-O", f"{tmp_path}/traversed.txt:urls", "-O", f"{tmp_path}/pages.jsonl"]
        settings = {"FEEDS": json.dumps(feeds)}
        crawl(site.url("/"), 2, pagedir=tmp_path / "pages", settings=settings, options=outputs, check=None, **arguments)
        return [(tmp_path / name).read_bytes() for name in names]

    stopped = run(max_pages=2)
    whole = run()
    again = run()
    assert again == whole
    assert stopped[0] == b"".join(whole[0].splitlines(keepends=True)[:2])
    urls, pages, table, document = (tmp_path / name for name in names)

    assert urls.read_text() == "".join(f"{site.url(path)}\n" for path in ("/", "/a", "/b", "/c"))
    lines = [json.loads(line) for line in pages.read_text().splitlines()]
    assert lines[1] == {
        "doc_id": 2,
        "url": site.url("/a"),
        "depth": 1,
        "title": "Привет, мир",
        "status": 200,
        "content_type": "text/html",
        "charset": "cp1251",
        "length": 41,
        "sha256": "a70381b5906944527a71145751c4844e5229c340be1c0b5cf2f1614421ead8f8",
        "parent": site.url("/"),
    }
    assert [line["title"] for line in lines] == ["Start", "Привет, мир", "", "=wide"]
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["title"] for row in rows] == ["Start", "Привет, мир", "", "'=wide"]
    assert rows[1]["body"] == cyrillic
    bodies = [item.findtext("body") for item in ElementTree.parse(document).getroot()]
    assert bodies[1:] == [cyrillic, "<title/><p>\ufffdx</p>", "<title>=wide</title>"]


@pytest.mark.parametrize("feed", ["/dev/full:urls", "/proc/nope/pages.jsonl"])
def test_a_feed_that_cannot_be_written_is_a_failure_and_the_pages_are_kept(
    feed: str, server: ServerFactory, crawl: CrawlCommand
) -> None:
    site = server({"/": page("/a"), "/a": page()})

    result = crawl(site.url("/"), 1, options=["-O", feed], check=1)

    assert "tinycrawl: complete, but a feed could not be written\n" in result.stderr
    assert len(result.pages) == 2


def test_a_feed_that_is_not_to_be_stored_empty_is_not_lost(
    tmp_path: Path, server: ServerFactory, crawl: CrawlCommand
) -> None:
    site = server({"/": page()})
    feed = {"format": "jsonlines", "store_empty": False, "item_classes": ["tinycrawl.items.Unsaved"]}

    result = crawl(site.url("/"), 0, settings={"FEEDS": json.dumps({str(tmp_path / "none.jsonl"): feed})})

    assert "tinycrawl: complete\n" in result.stderr
    assert not (tmp_path / "none.jsonl").exists()
