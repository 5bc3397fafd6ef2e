"""Pages whose tree would be out of proportion: read by their outline, with the same links as the tree gives."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import CrawlCommand, peak_memory
from mockserver import MockServer, Reply, page
from tinycrawl.markup import Link, decode_body, page_text, read_markup
from tinycrawl.outline import is_costly, outline

# None of these would be done in the lifetime of a crawl, or in the memory of a machine, if a tree were made of it.
HOSTILE = {
    "unclosed elements": "<div>" * 200_000,
    "end tags without a beginning": "<div>" * 100_000 + "</p>" * 100_000,
    "a tag of 100,000 attributes": "<p " + " ".join(f"a{i}" for i in range(100_000)) + ">",
    "long tags": ("<p " + " ".join(f"a{i}" for i in range(2_500)) + ">") * 400,
    "formatting that every paragraph opens again": "<p>" + "".join(f"<b x{i}>" for i in range(9_000)) + "<p>x" * 9_000,
    "the same in 31 kB": "<p>" + "".join(f"<b a{i}>" for i in range(2_500)) + "<p>x" * 2_500,
    "lists in lists": "<ul><li>" * 100_000,
    "comments that do not end": "<!--" * 500_000 + "-->",
    "nothing but the beginning of tags": "<" * 500_000,
    "a page of links": "<a href=/x>" * 100_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_page_is_read_to_its_last_link(text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    markup = read_markup(f"<a href=/first>{text}<a href=/last>", max_links=200_000)

    assert markup.links[0] == Link("/first", False)
    assert markup.links[-1] == Link("/last", False)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # kB


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        pytest.param(b"<html><body><a " + b"x" * 8_000_000 + b">", "application/xhtml+xml", id="xhtml-a-long-name"),
        pytest.param(b"<html><body><a " + b'""' * 4_000_000 + b">", "application/xhtml+xml", id="xhtml-empty-values"),
        pytest.param(b"\xff<html>" + b"<meta charset>" * 600_000, "text/html", id="metas-without-a-charset"),
        pytest.param(b"\xff<html>" + b"<meta>" * 1_300_000, "text/html", id="metas"),
    ],
)
def test_a_hostile_body_costs_no_more_memory_than_another(body: bytes, content_type: str) -> None:
    process = Path("/proc/self")
    (process / "clear_refs").write_text("5")  # the peak begins anew
    before = peak_memory(process)

    page_text(body, "", content_type)

    assert peak_memory(process) - before < 10 * len(body)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_page_is_told_by_a_look(text: str) -> None:
    assert is_costly(text)


@pytest.mark.parametrize(
    "text",
    [
        "<p>a page</p>" * 300,
        "<div>" * 3_000,
        "<table>" + "<tr><td><a href=x>y</a><td><b class=z>w</b>" * 100,
        "<li><code class=x>y</code>" * 250,
        f"<script>{'x' * 10_000}</script>",
        "",
    ],
)
def test_a_page_of_ordinary_size_is_not_costly(text: str) -> None:
    assert not is_costly(text)


def outlined(text: str) -> list[str]:
    return [link.href for link in read_markup("".join(outline(text))).links]


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("<!--><a href=1>--><a href=2>", ["1", "2"]),
        ("<!---><a href=1>", ["1"]),
        ("<!-- <a href=1> --!><a href=2>", ["2"]),
        ("<!-- <a href=1> -- ><a href=2>", []),
        ("<!x <a href=1>y<a href=2>", ["2"]),
        ("<?x><a href=1><? <a href=2>", ["1"]),
        ("</ x <a href=1>y</><a href=2>", ["2"]),
        ("< a href=1><a href=2>", ["2"]),
        ("<p title='<a href=1>'><p title=\"<a href=2>\"><p x=<a href=3>y<a href=4>", ["4"]),
        ("<p title = '<a href=1>' <a href=2>><a href=3>", ["3"]),
        ("<p '><a href=1>", ["1"]),
        ("<p/title='<a href=1>'/><a/href=2>", ["2"]),
        ("<a href='1", []),
        ("<div <a href=1>x<a href='2", []),
        ("<a href=1><p title='<a href=2>", ["1"]),
        ("<A HREF=1><Script><a href=2></SCRIPT ><AREA href=3>", ["1", "3"]),
        ("<textarea><a href=1></textareas></textarea/><a href=2>", ["2"]),
        ("<title><a href=1></title x><a href=2><title>", ["2"]),
        ("<style><a href=1></style><xmp><a href=2></xmp><noembed><a href=3></noembed><a href=4>", ["4"]),
        ("<noframes><a href=1></noframes><noscript><a href=2></noscript><iframe src=3><a href=4></iframe>", ["2", "3"]),
        ("<script><!-- <script></script><a href=1> --></script><a href=2>", ["2"]),
        ("<script><!-- <script></script></script><a href=1>", ["1"]),
        ("<script><!--><script></script><a href=1>", ["1"]),
        ("<script><!-- <scripts></script><a href=1>", ["1"]),
        ("<script><!-- --><script></script><a href=1>", ["1"]),
        ("<script><!-- <script> <script></script><a href=1></script><a href=2>", ["2"]),
        ("<script><a href=1>", []),
        ("<plaintext><a href=1>", []),
        ("<template><a href=1><template><a href=2></template><a href=3></template><a href=4>", ["4"]),
        ("<svg><style><a href=1></style><![CDATA[<a href=2>]]><a href=3></svg><![CDATA[<a href=4>]]><a href=5>", "135"),
        ("<svg/><style><a href=1></style><a href=2>", ["2"]),
        ("<svg><p><script><a href=1></script><template><a href=2></template><textarea><a href=3></textarea>", []),
        ("<div><svg></div><style><a href=1></style><svg></div><style><a href=2></style>", ["2"]),
        ("<svg></p><style><a href=1></style><svg><font><style><a href=2></style></svg>", ["2"]),
        ("<svg><font color=x><style><a href=1></style></svg><a href=2>", ["2"]),
        ("<svg><desc><style><a href=1></style></div><a href=2></a></desc><style><a href=3></style>", ["2", "3"]),
        ("<svg><area href=1><iframe src=2></iframe><base href=3></svg>", []),
        ("<math><a href=1></a><mi><a href=2></a></mi></math>", ["2"]),
        ("<math><annotation-xml><style><a href=1></style></math><a href=2>", ["2"]),
        ("<math><annotation-xml encoding=text/html><style><a href=1></style><area href=2>", ["2"]),
        (f"<a {' '.join(f'data-a{n}=xxxx' for n in range(300))} href=1 href=2>", ["1"]),
        ("<frame src=1><p><a href=2>", ["2"]),
        ("<frameset><frame src=1></frameset>", ["1"]),
        ("<iframe src=1></iframe><iframe src=>", ["1"]),
        ("<abbr href=1><area href=2><a href=3 href=4>", ["2", "3"]),
        ("<a href='?a&amp;b&copy=2'><a href=\"x\0y\">", ["?a&b&copy=2", "x�y"]),
    ],
)
def test_the_outline_has_the_links_of_the_tree(text: str, links: list[str] | str) -> None:
    assert outlined(text) == list(links)
    assert [link.href for link in read_markup(text).links] == list(links)  # the tree


def test_the_outline_of_real_documentation_has_the_links_of_its_tree() -> None:
    files = sorted(Path("/usr/share/doc/python3-doc/html").resolve().rglob("*.html"))
    files = random.Random(1).sample(files, 60)
    for file in files:
        text = decode_body(file.read_bytes(), None)[0][:900_000]
        if not is_costly(text):
            assert read_markup("".join(outline(text))) == read_markup(text), file


def test_bases_metas_and_refreshes_are_in_the_outline() -> None:
    text = "<base href=/b/><meta name=robots content=noindex><meta http-equiv=refresh content='0; url=m'>"
    hostile = f"{HOSTILE['unclosed elements']}{text}<a rel=nofollow href=x>"

    markup = read_markup(hostile)

    assert markup == read_markup(f"{text}<a rel=nofollow href=x>")
    assert markup.base == "/b/"
    assert markup.noindex
    assert markup.links == [Link("m", False), Link("x", True)]


def test_links_beyond_the_limit_are_counted_and_not_kept() -> None:
    markup = read_markup("<a href=x>" * 30_000 + "<meta http-equiv=refresh content='0; url=m'>", max_links=5)

    assert markup.links == [Link("m", False), *[Link("x", False)] * 4]
    assert markup.surplus == 29_996


def test_hostile_pages_hold_a_crawl_up_for_moments_only(server: Callable[..., MockServer], crawl: CrawlCommand) -> None:
    site = server(
        {
            "/": page("/a", *(f"/{i}" for i in range(len(HOSTILE))), "/b"),
            "/a": page(),
            "/b": page(),
            "/last": page(),
            **{f"/{i}": Reply(body=f"{text}<a href=/last>".encode()) for i, text in enumerate(HOSTILE.values())},
        }
    )

    result = crawl(site.url("/"), 2)

    assert result.listing(site)[-3:] == [
        f"{len(HOSTILE) + 2}: /9 @1",
        f"{len(HOSTILE) + 3}: /b @1",
        f"{len(HOSTILE) + 4}: /last @2",
    ]
