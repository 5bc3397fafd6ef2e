"""Feeds: what `-O` writes of the pages, and titles as Chromium has them."""

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from scrapy.settings import Settings

from conftest import CrawlCommand
from mockserver import MockServer, Reply, page, redirect
from tinycrawl.exceptions import UsageError
from tinycrawl.feedcheck import check_feeds
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


# What a site could do to a terminal


HOSTILE = "a\x1b[31mb\x07c\x7fd\x9b1me\x85f\u2028g\u202eh\u2066i\xa0j\u3000k\u200dl"


@pytest.mark.parametrize("encoding", [None, "utf-8"])
def test_no_feed_has_a_character_that_commands_a_terminal(
    encoding: str | None, server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    """In JSON and XML the text is what it was, but for what XML cannot have; in CSV it is as our tables show it."""
    body = f"<p>1\r2\r\n3\t{HOSTILE}"
    site = server({"/": Reply(body=body.encode(), type="text/html; charset=utf-8")})
    names = ("f.json", "f.jsonl", "f.csv", "f.xml")

    result = crawl(
        site.url(),
        0,
        settings={"FEED_EXPORT_FIELDS": "body", "FEED_EXPORT_ENCODING": encoding},
        options=[part for name in names for part in ("-O", str(tmp_path / name))],
    )
    shown = crawl(site.url(), 0, settings={"FEED_EXPORT_FIELDS": "body"}, options=["-O", "-:csv"]).stdout

    assert len(result.pages) == 1
    files = {name: (tmp_path / name).read_bytes().decode() for name in names}
    for text in (*files.values(), shown):
        assert not {char for char in text if char in "\x1b\x07\x7f\x9b\x85\u2028\u202e\u2066"}
    assert [json.loads(files["f.json"]), json.loads(files["f.jsonl"])] == [[{"body": body}], {"body": body}]
    (item,) = ElementTree.fromstring(files["f.xml"])
    assert item.findtext("body") == body.replace("\x1b", "\ufffd").replace("\x07", "\ufffd")
    assert (files["f.xml"].count("\r"), files["f.csv"].count("\r") - files["f.csv"].count("\r\n")) == (0, 0)
    (row,) = csv.DictReader(files["f.csv"].splitlines(keepends=True))
    escaped = r"a\x1b[31mb\x07c\x7fd\x9b1me\x85f\u2028g\u202eh\u2066i"
    assert row["body"] == f"<p>1\\r2\r\n3\t{escaped}\xa0j\u3000k\u200dl"


# Feeds that cannot be


def check(feeds: Any, directory: Path, settings: dict[str, Any] | None = None, **arguments: Any) -> None:
    project = Settings()
    project.setmodule("tinycrawl.settings", priority="project")
    project.setdict({"FEEDS": feeds, **(settings or {})}, priority="cmdline")
    check_feeds(project, directory=directory, **arguments)


FORMATS = "json, jsonlines, jsonl, jl, csv, xml, marshal, pickle, urls"


@pytest.mark.parametrize(
    ("uri", "options", "problem"),
    [
        pytest.param("x.nope", {}, f"a format of {FORMATS}, got 'nope'", id="format-by-name"),
        pytest.param("x", {"format": "nope"}, f"a format of {FORMATS}, got 'nope'", id="format"),
        pytest.param("x", {"format": 5}, f"a format of {FORMATS}, got 5", id="format-number"),
        pytest.param("x.json", {"fields": 5}, "names separated by commas, got 5, for fields", id="fields"),
        pytest.param("x.json", {"indent": "x"}, "a whole number, got 'x', for indent", id="indent"),
        pytest.param("x.json", {"encoding": "no"}, "an encoding, like utf-8, got 'no', for encoding", id="encoding"),
        pytest.param("x.json", {"store_empty": "no"}, "0 or 1, got 'no', for store_empty", id="store_empty"),
        pytest.param(
            "x.json",
            {"batch_item_count": 2},
            "%(batch_time)s or %(batch_id)d in its name, with batch_item_count",
            id="batches",
        ),
        pytest.param(
            "x.json",
            {"item_classes": ["nope.X"]},
            "the import path of a class or function (ModuleNotFoundError: No module named 'nope'), for item_classes,"
            " got 'nope.X'",
            id="classes",
        ),
        pytest.param(
            "x.json", {"item_export_kwargs": {"no": 1}}, "item_export_kwargs that the format json takes", id="keywords"
        ),
        pytest.param(
            "%(nope)s.json",
            {},
            "no placeholders in its name but %(time)s, %(batch_time)s, %(batch_id)s, %(name)s",
            id="placeholder",
        ),
        pytest.param("nope://h/x.json", {}, "a path, or a URL of file, ftp, ftps, gs, s3, stdout", id="scheme"),
        pytest.param("new/pages/x.json", {}, "a file outside the page directory {}/new/pages", id="in-the-directory"),
        pytest.param("file://{}/new/pages/x.json", {}, "a file outside the page directory {}/new/pages", id="by-url"),
        pytest.param("file/x.json", {}, "a file that can be written, got 'file/x.json'", id="below-a-file"),
        pytest.param("x" * 300 + ".json", {}, f"a file that can be written, got '{'x' * 100}...'", id="name-too-long"),
    ],
)
def test_feed_that_cannot_be_is_refused_before_the_crawl(
    uri: str, options: dict[str, Any], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    uri = uri.replace("{}", str(tmp_path))

    with pytest.raises(UsageError) as info:
        check({uri: options}, tmp_path / "new" / "pages")

    shown = uri if len(uri) < 100 else f"{uri[:100]}..."
    assert str(info.value) == f"feed '{shown}': expected {problem.replace('{}', str(tmp_path))}"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_two_never_write_one_file_by_whatever_name(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a.json")
    (tmp_path / "folder").symlink_to(tmp_path)
    link, path = str(tmp_path / "link"), str(tmp_path / "a.json")
    json_feed = {"format": "json"}
    cases: list[tuple[Any, dict[str, Any], dict[str, Any], str]] = [
        ({link: json_feed, f"{tmp_path}/folder/a.json": {}}, {}, {}, f"feed '{link}'"),
        ({f"file://{path}": {}, path: {}}, {}, {}, f"feed 'file://{path}'"),
        ({link: json_feed}, {"LOG_FILE": path}, {}, "setting `LOG_FILE`"),
        ({link: json_feed}, {}, {"events": path}, "spider argument `events`"),
        ({link: json_feed}, {"TINYCRAWL_COOKIES_FILE": path}, {}, "setting `TINYCRAWL_COOKIES_FILE`"),
        ({}, {"LOG_FILE": path}, {"events": link}, "setting `LOG_FILE`"),
        ({"stdout:": json_feed}, {}, {"events": "-"}, "spider argument `events`"),
    ]
    for feeds, settings, arguments, owner in cases:
        with pytest.raises(UsageError) as info:
            check(feeds, tmp_path / "pages", settings, **arguments)
        assert str(info.value).endswith(f": expected a file of its own, {owner} has it too")

    check({"/dev/null": json_feed}, tmp_path / "pages", {"LOG_FILE": "/dev/null"}, events="/dev/null")
    check({path: {}, f"{path}l": {}}, tmp_path / "pages", {"LOG_FILE": f"{path}.log"}, events=f"{path}.events")


def test_log_in_the_page_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^setting `LOG_FILE`: expected a file outside the page directory "):
        check({}, tmp_path / "pages", {"LOG_FILE": tmp_path / "pages" / "log"})


def test_a_crawl_that_goes_on_does_not_double_what_was_appended(
    server: ServerFactory, crawl: CrawlCommand, tmp_path: Path
) -> None:
    """The pages of earlier runs are in a feed again: that is what makes -O whole."""
    site = server({"/": page("/a"), "/a": page("/b"), "/b": page()})
    feed, pages = tmp_path / "new" / "f.urls", tmp_path / "pages"
    appended = ["-o", f"{feed}:urls"]

    crawl(site.url("/"), 0, pagedir=pages, options=appended)
    first = feed.read_text()
    site.requests.clear()
    refused = crawl(site.url("/"), 1, pagedir=pages, options=appended, check=2)

    assert refused.stderr == (
        f"tinycrawl: feed '{feed}': holds something already, and gets the pages of earlier runs again; expected -O in"
        " place of -o, which replaces it\n"
    )
    assert (feed.read_text(), site.requests) == (first, [])
    crawl(site.url("/"), 1, pagedir=pages, options=["-O", f"{feed}:urls"])
    assert feed.read_text() == f"{first}{site.url('/a')}\n"
    crawl(site.url("/b"), 0, options=appended)  # another crawl, and one that begins anew
    crawl(site.url("/"), 0, pagedir=pages, fresh=1, options=appended)
    assert feed.read_text() == f"{first}{site.url('/a')}\n{site.url('/b')}\n{first}"
