"""Content encodings, end to end (C5, C6, T6 of CASES.md): a page is saved decoded and whole, or fails with a reason."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import brotli

from conftest import CrawlCommand, Result
from mockserver import MockServer, Reply, page
from tinycrawl.content import zstd

Server = Callable[..., MockServer]

HTML = b"<!DOCTYPE html>\n<title>a page</title>\n" + b"<p>words \xc3\xa9\n" * 1000
RAW_DEFLATE = zlib.compressobj(wbits=-15)


def reasons(result: Result, mock: MockServer) -> dict[str, str]:
    prefix = mock.url("")
    return {e["url"].removeprefix(prefix): e["reason"] for e in result.manifest[1:-1] if "reason" in e}


def encoded(body: bytes, *names: str, **fields: object) -> Reply:
    return Reply(body=body, headers=[("Content-Encoding", name) for name in names], **fields)  # type: ignore[arg-type]


def test_pages_are_saved_decoded(server: Server, crawl: CrawlCommand) -> None:
    answers = {
        "/gzip": encoded(gzip.compress(HTML), "gzip"),
        "/x-gzip": encoded(gzip.compress(HTML), "X-GZIP"),
        "/gzip-chunked": encoded(gzip.compress(HTML), "gzip", chunked=True),
        "/gzip-members": encoded(gzip.compress(HTML[:100]) + gzip.compress(HTML[100:]), "gzip"),
        "/gzip-twice": encoded(gzip.compress(gzip.compress(HTML)), "gzip"),
        "/gzip-stated-twice": encoded(gzip.compress(gzip.compress(HTML)), "gzip, gzip"),
        "/deflate": encoded(zlib.compress(HTML), "deflate"),
        "/deflate-raw": encoded(RAW_DEFLATE.compress(HTML) + RAW_DEFLATE.flush(), "deflate"),
        "/br": encoded(brotli.compress(HTML), "br"),
        "/zstd": encoded(zstd.compress(HTML), "zstd"),
        "/br-then-gzip": encoded(gzip.compress(brotli.compress(HTML)), "br", "gzip"),
        "/identity": encoded(HTML, "identity"),
        "/empty-name": encoded(HTML, ""),
        "/none": Reply(body=HTML),
    }
    mock = server({"/": page(*answers), **answers})

    result = crawl(mock.url(), 1)

    assert result.listing(mock)[1:] == [f"{i}: {target} @1" for i, target in enumerate(answers, 2)]
    assert result.bodies()[1:] == [HTML] * len(answers)
    offered = {request.headers["accept-encoding"] for request in mock.requests}
    assert offered == {"gzip, deflate, br, zstd"}


def test_what_is_not_whole_is_asked_again_and_never_saved(server: Server, crawl: CrawlCommand) -> None:
    zipped = gzip.compress(HTML)
    answers = {
        "/gzip": (encoded(zipped[:-10], "gzip"), "truncated gzip"),
        "/gzip-twice": (encoded(gzip.compress(zipped[:-10]), "gzip"), "truncated gzip"),
        "/bad-gzip": (encoded(HTML, "gzip"), "bad gzip"),
        "/deflate": (encoded(zlib.compress(HTML)[:-10], "deflate"), "truncated deflate"),
        "/br": (encoded(brotli.compress(HTML)[:-10], "br"), "truncated br"),
        "/zstd": (encoded(zstd.compress(HTML)[:-10], "zstd"), "truncated zstd"),
        "/length": (Reply(body=b"<html>short", headers=[("Content-Length", "500")], close=True), "truncated"),
        "/cut": (Reply(body=HTML, cut=11), "truncated"),
        "/chunks": (Reply(body=HTML, cut=11, chunked=True), "truncated"),
        "/no-body": (Reply(body=HTML, cut=0), "truncated"),
    }
    again = {f"{target}-once": [answer, Reply(body=HTML)] for target, (answer, _) in answers.items()}
    mock = server({"/": page(*answers, *again), **{t: answer for t, (answer, _) in answers.items()}, **again})

    result = crawl(mock.url(), 1, settings={"RETRY_TIMES": 1})

    assert reasons(result, mock) == {target: reason for target, (_, reason) in answers.items()}
    assert [line.split()[1] for line in result.listing(mock)[1:]] == list(again)
    assert result.bodies()[1:] == [HTML] * len(again)
    assert {mock.targets().count(target) for target in (*answers, *again)} == {2}


def test_what_cannot_be_decoded_fails_at_once(server: Server, crawl: CrawlCommand) -> None:
    bomb = gzip.compress(b"<html>" + bytes(20_000_000))
    answers = {
        "/unknown": (encoded(HTML, "compress"), "unknown content-encoding: compress"),
        "/unknown-after-known": (encoded(gzip.compress(HTML), "x-own", "gzip"), "unknown content-encoding: x-own"),
        "/bomb": (encoded(bomb, "gzip"), "too large"),
        "/bomb-octets": (encoded(bomb, "gzip", type="application/octet-stream"), "too large"),
        "/bomb-twice": (encoded(gzip.compress(bomb), "gzip"), "too large"),
        "/bomb-br": (encoded(brotli.compress(bytes(20_000_000)), "br"), "too large"),
        "/bomb-zstd": (encoded(zstd.compress(bytes(20_000_000)), "zstd"), "too large"),
        "/large": (Reply(body=bytes(1_000_001)), "too large"),
    }
    limit = b"<html>" + b"x" * 999_994
    mock = server(
        {"/": page(*answers, "/limit"), **{t: a for t, (a, _) in answers.items()}, "/limit": Reply(body=limit)}
    )
    result = crawl(mock.url(), 1, settings={"DOWNLOAD_MAXSIZE": 1_000_000})

    assert reasons(result, mock) == {target: reason for target, (_, reason) in answers.items()}
    assert result.bodies()[1:] == [limit]
    assert sorted(mock.targets()) == sorted(["/", *answers, "/limit"])


def test_the_encoding_of_redirects_and_failures_does_not_matter(server: Server, crawl: CrawlCommand) -> None:
    odd = ("Content-Encoding", "gzip")
    mock = server(
        {
            "/robots.txt": Reply(404, b"no zip", headers=[odd]),
            "/": page("/moved", "/gone", "/busy"),
            "/moved": Reply(301, b"no zip", headers=[("Location", "/new"), odd]),
            "/gone": Reply(404, b"no zip", headers=[("Content-Encoding", "none")]),
            "/busy": [*[Reply(503, b"no zip", headers=[odd])] * 4, page()],
            "/new": page(),
        }
    )

    result = crawl(mock.url(), 1, settings={"RETRY_TIMES": 0})

    assert result.listing(mock) == ["1: / @0", "2: /new @1", "3: /busy @1"]
    assert reasons(result, mock) == {"/gone": "http 404"}
