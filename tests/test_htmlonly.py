"""HTML only, end to end (policy C; C1 and C2 of CASES.md): what is no HTML is not downloaded."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable

from conftest import CrawlCommand, Result
from mockserver import MockServer, Reply, page, redirect

Server = Callable[..., MockServer]

HTML = b"<!DOCTYPE html>\n<title>a page</title>\n" + b"<p>words\n" * 1000
LONG = HTML * 50  # more than arrives at once
NOISE = bytes(range(256)) * 20_000  # 5 MB


def reasons(result: Result, mock: MockServer) -> dict[str, str]:
    """Why what was not saved was not, by what follows the server's address."""
    prefix = mock.url("")
    return {e["url"].removeprefix(prefix): e["reason"] for e in result.manifest[1:-1] if "reason" in e}


def typed(kind: str | None, body: bytes = HTML, **fields: object) -> Reply:
    return Reply(body=body, type=kind, **fields)  # type: ignore[arg-type]


def test_bodies_of_other_types_are_not_downloaded(server: Server, crawl: CrawlCommand) -> None:
    """Each of them would take minutes, or never end; what only the first bytes tell, is stopped there."""
    answers = {
        "/pdf": typed("application/pdf", NOISE, drip=0.1),
        "/pdf-endless": typed("application/pdf", NOISE[:1024], endless=True),
        "/zip": typed("application/zip; charset=binary", NOISE, drip=0.1, chunked=True),
        "/text": typed("text/plain", HTML, drip=0.1),
        "/json": typed("Application/JSON", b"{}" * 2_000_000, drip=0.1),
        "/image-gzip": typed("image/png", gzip.compress(NOISE), drip=0.1, headers=[("Content-Encoding", "gzip")]),
        "/huge": typed("video/mp4", b"x", headers=[("Content-Length", "5000000000")]),
        "/octets-endless": typed("application/octet-stream", NOISE[:1024], endless=True),
        "/untyped-endless": typed(None, NOISE[:1024], endless=True),
        "/empty-type-endless": typed("", b"plain words ", endless=True),
    }
    mock = server({"/": page(*answers), **answers})
    start = time.monotonic()

    result = crawl(mock.url(), 1, settings={"DOWNLOAD_TIMEOUT": 60})

    assert time.monotonic() - start < 20
    assert reasons(result, mock) == {
        "/pdf": "not html: application/pdf",
        "/pdf-endless": "not html: application/pdf",
        "/zip": "not html: application/zip",
        "/text": "not html: text/plain",
        "/json": "not html: application/json",
        "/image-gzip": "not html: image/png",
        "/huge": "not html: video/mp4",
        "/octets-endless": "not html: application/octet-stream",
        "/untyped-endless": "not html: no type",
        "/empty-type-endless": "not html: no type",
    }
    assert sorted(mock.targets()) == sorted(["/", *answers])


def test_types_that_say_nothing_are_sniffed(server: Server, crawl: CrawlCommand) -> None:
    def zipped(kind: str | None, body: bytes) -> Reply:
        return typed(kind, gzip.compress(body), headers=[("Content-Encoding", "gzip")])

    octets = "application/octet-stream"
    pages = {
        "/octets": typed(octets),
        "/octets-short": typed(octets, b"<html>"),
        "/octets-chunked": typed(octets, chunked=True),
        "/octets-dripping": typed(octets, b"<!doctype html>" + b"<p>" * 20, drip=0.001),
        "/octets-gzip": zipped(octets, HTML),
        "/octets-parameter": typed("application/octet-stream; charset=utf-8"),
        "/untyped": typed(None),
        "/untyped-gzip": zipped(None, HTML),
        "/empty-type": typed(""),
        "/xhtml": typed("application/xhtml+xml"),
        "/upper": typed("TEXT/HTML"),
        "/twice": typed("text/html, text/html"),
        "/203": typed("text/html", status=203),
        "/python.py": typed("text/html"),
    }
    others = {
        "/octets-noise": (typed(octets, NOISE), "not html: application/octet-stream"),
        "/octets-noise-short": (typed(octets, b"\x7fELF"), "not html: application/octet-stream"),
        "/octets-noise-gzip": (zipped(octets, NOISE), "not html: application/octet-stream"),
        "/gzip-file": (typed(octets, gzip.compress(HTML)), "not html: application/octet-stream"),
        "/untyped-text": (typed(None, b"words and <html>"), "not html: no type"),
        "/octets-empty": (typed(octets, b""), "empty"),
        "/empty": (typed("text/html", b""), "empty"),
        "/204": (Reply(204, type="text/html"), "http 204"),
        "/206": (typed("text/html", status=206), "http 206"),
    }
    answers = pages | {target: answer for target, (answer, _) in others.items()}
    mock = server({"/": page(*answers), **answers})

    result = crawl(mock.url(), 1)

    assert result.listing(mock)[1:] == [f"{i}: {target} @1" for i, target in enumerate(pages, 2)]
    assert reasons(result, mock) == {target: reason for target, (_, reason) in others.items()}
    assert set(result.bodies()[1:]) == {HTML, b"<html>", b"<!doctype html>" + b"<p>" * 20}


def test_redirects_and_failures_may_have_any_type(server: Server, crawl: CrawlCommand) -> None:
    """The type is that of a body which nobody reads, also where it goes on for ever."""
    pdf = "application/pdf"
    mock = server(
        {
            "/": page("/moved", "/moved-long", "/busy", "/error", "/gone", "/untyped-busy", "/noise-busy", "/late-pdf"),
            "/moved": redirect("/a", type=pdf),
            "/moved-long": Reply(301, NOISE, pdf, headers=[("Location", "/b")], drip=0.1),
            "/busy": [Reply(503, b"later", "text/plain"), page()],
            "/error": [Reply(500, NOISE[:1024], pdf, endless=True), page()],
            "/gone": Reply(404, NOISE, pdf, drip=0.1),
            # What the first try said of itself must not be held against the second.
            "/untyped-busy": [Reply(503, b"come again later", None), typed("text/html", LONG)],
            "/noise-busy": [Reply(503, NOISE[:1000], "application/octet-stream"), typed("application/octet-stream")],
            "/late-pdf": [Reply(500, HTML[:500], None), typed(pdf, NOISE, drip=0.1)],
            "/a": page(),
            "/b": page(),
        }
    )

    result = crawl(mock.url(), 1, settings={"DOWNLOAD_TIMEOUT": 60})

    assert result.listing(mock) == [
        "1: / @0",
        "2: /a @1",
        "3: /b @1",
        "4: /busy @1",
        "5: /error @1",
        "6: /untyped-busy @1",
        "7: /noise-busy @1",
    ]
    assert result.bodies()[5:] == [LONG, HTML]
    assert reasons(result, mock) == {"/gone": "http 404", "/late-pdf": "not html: application/pdf"}
