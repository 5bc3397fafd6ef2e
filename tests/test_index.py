"""What the Tiny Search Engine does with a page directory: count, list, read, index, query."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import CrawlCommand
from tinycrawl.demo import serve
from tinycrawl.pagedir import PageDirectory

WORD = re.compile(rb"[A-Za-z]{3,}")
TAG = re.compile(rb"<[^>]*>")
# docID -> the page's name, in breadth-first order
NAMES = {n: f"/letters/{name}.html" for n, name in enumerate(("index", *"ABCDEFGH"), 1)}


def build_index(directory: Path) -> dict[str, Counter[int]]:
    """Word -> docID -> how often."""
    index: dict[str, Counter[int]] = {}
    for page in PageDirectory(directory):
        for word in WORD.findall(TAG.sub(b" ", page.body)):
            index.setdefault(word.lower().decode(), Counter())[page.doc_id] += 1
    return index


def search(index: dict[str, Counter[int]], query: str) -> dict[int, int]:
    """DocID -> score, the best first. ``and`` may be left out, and binds closer than ``or``.

    The score of an ``and`` is the smaller of the two, that of an ``or`` their sum.
    """
    total: Counter[int] = Counter()
    for sequence in query.split(" or "):
        words = [word for word in sequence.split() if word != "and"]
        found = index.get(words[0], Counter())
        for word in words[1:]:
            found &= index.get(word, Counter())
        total += found
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    with ExitStack() as stack:
        base = stack.enter_context(serve())
        crawl = CrawlCommand(tmp_path_factory.mktemp("demo"), stack)
        yield base, crawl(f"{base}/letters/index.html", 10).directory


def test_pages_are_counted_listed_and_read(demo: tuple[str, Path]) -> None:
    base, directory = demo

    pages = PageDirectory(directory)
    count, listed = len(pages), [(page.doc_id, page.url, page.depth) for page in pages]
    third = pages[2].body

    assert count == 9
    assert listed == [
        (n, f"{base}{NAMES[n]}", depth) for n, depth in zip(NAMES, (0, 1, 2, 3, 3, 3, 4, 4, 5), strict=True)
    ]
    assert b"<title>The letter B</title>" in third


def test_the_index_has_every_word_of_every_page(demo: tuple[str, Path]) -> None:
    index = build_index(demo[1])

    assert len(index) == 197
    assert index["algorithm"] == dict.fromkeys(range(2, 10), 1)
    assert index["letter"] == {1: 1, 2: 2, 3: 2, 4: 2, 5: 2, 6: 3, 7: 2, 8: 2, 9: 2}
    assert index["the"] == {1: 4, 2: 7, 3: 4, 4: 4, 5: 7, 6: 4, 7: 4, 8: 6, 9: 5}
    assert index["letters"] == {1: 3}
    assert "of" not in index
    assert "href" not in index


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("door", {1: 1, 8: 1}),
        ("key", {2: 1, 7: 1}),
        ("key and door", {}),
        ("key or door", {1: 1, 2: 1, 7: 1, 8: 1}),
        ("way and home or lamp", {2: 1, 8: 1}),
        ("letter the home", {2: 1, 9: 1}),
        ("letters or letter and way", {1: 4, 2: 1}),
        ("paper boat or boats or nothing", {3: 1, 7: 1}),
        ("nothing", {}),
    ],
)
def test_queries_have_the_right_answers(demo: tuple[str, Path], query: str, expected: dict[int, int]) -> None:
    assert search(build_index(demo[1]), query) == expected
    assert list(search(build_index(demo[1]), query)) == list(expected)
