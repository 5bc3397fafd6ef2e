"""What a site sends, in logs and feeds: escaped, on its own line, and never a formula."""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import CrawlCommand
from mockserver import MockServer, Reply, page
from tinycrawl.logs import SafeFormatter

Server = Callable[..., MockServer]


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("plain é 日本", "INFO plain é 日本"),
        ("\x1b[31mred\x1b]0;title\x07", r"INFO \x1b[31mred\x1b]0;title\x07"),
        ("one\n2026-01-01 [site] INFO: forged", "INFO one\n    2026-01-01 [site] INFO: forged"),
        ("a\rb\x85c\u2028d\u202ee\x00f\x9bg", r"INFO a\rb\x85c\u2028d\u202ee\x00f\x9bg"),
        ("tab\t", r"INFO tab\t"),
        ("\ud800", r"INFO \ud800"),
    ],
)
def test_lines_of_the_log_are_escaped_and_cannot_be_forged(message: str, line: str) -> None:
    record = logging.LogRecord("site", logging.INFO, "file", 1, "%s", (message,), None)

    assert SafeFormatter(logging.Formatter("%(levelname)s %(message)s")).format(record) == line


def test_a_traceback_is_indented(tmp_path: Path) -> None:
    try:
        raise ValueError("\x1b[2J\nINFO: forged")
    except ValueError as error:
        record = logging.LogRecord("site", logging.ERROR, "file", 1, "m", (), (ValueError, error, error.__traceback__))

    lines = SafeFormatter(logging.Formatter("%(message)s")).format(record).split("\n")

    assert lines[0] == "m"
    assert all(line.startswith("    ") for line in lines[1:])
    assert lines[-2:] == [r"    ValueError: \x1b[2J", "    INFO: forged"]


def test_what_a_site_sends_reaches_the_log_escaped_and_a_spreadsheet_as_text(
    server: Server, crawl: CrawlCommand, tmp_path: Path
) -> None:
    formulas = [b"=1+1", b"+1", b"-1", b"@SUM(A1)", b"\t=1", b"\r=1", "\uff1d1".encode(), b"<p>=1", b"x;=1", b"x; y-1"]
    site = server(
        {
            "/": page(*(f"/{number}" for number in range(len(formulas))), "/escape", "/forged"),
            **{f"/{number}": Reply(body=formula) for number, formula in enumerate(formulas)},
            "/escape": Reply(type="text/\x1b[31mx"),
            "/forged": Reply(404, headers=[("X-Note", b"a\rb")]),
        }
    )
    feed = tmp_path / "pages.csv"

    result = crawl(
        site.url(),
        1,
        settings={"LOG_LEVEL": "DEBUG", "FEED_EXPORT_FIELDS": "url,body"},
        events=tmp_path / "events",
        options=["-O", f"{feed}:csv"],
    )

    texts = [result.stderr, (tmp_path / "events").read_text(), result.files[".crawler"].decode()]
    assert all(line.isprintable() for text in texts for line in text.split("\n"))
    with feed.open(newline="", encoding="utf-8") as file:
        bodies = [row["body"] for row in csv.DictReader(file)][1:]
    assert bodies == ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t'=1", r"'\r=1", "'\uff1d1", "<p>=1", "x;'=1", "x; y-1"]
