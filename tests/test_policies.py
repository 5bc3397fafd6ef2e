"""End to end: what is saved of a page, and how URLs are spelled. Names like U9 are rows of CASES.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conftest import CrawlCommand
from mockserver import MockServer, Reply, page, redirect

Server = Callable[..., MockServer]


# Bytes


def test_pages_that_are_no_superset_of_ascii_are_stored_as_utf_8(server: Server, crawl: CrawlCommand) -> None:
    """C8: all others as served; a rerun finds the same links in what was stored."""
    text = '<html>\r\n<a href="/é?ü">naïve</a> {}</html>'
    pages = {
        "/le": text.format(1).encode("utf-16"),
        "/be": b"\xfe\xff" + text.format(2).encode("utf-16-be"),
        "/utf-32": text.format(3).encode("utf-32"),
        "/latin-1": text.format(4).encode("latin-1"),
        "/bom": text.format(5).encode("utf-8-sig"),
        "/invalid": b"<html>\xff\x00\r\n",
    }
    site = server(
        {
            "/": page(*pages),
            **{path: Reply(body=body) for path, body in pages.items()},
            "/declared": Reply(body=text.encode("utf-16-be"), type="text/html; charset=utf-16be"),
            "/%C3%A9?%C3%BC": page("/declared"),
            "/%C3%A9?%FC": page(),
        }
    )

    first = crawl(site.url("/"), 2)

    stored = dict(zip([url.removeprefix(site.url("")) for url, _ in first.pages], first.bodies(), strict=True))
    assert list(stored) == ["/", *pages, "/%C3%A9?%C3%BC", "/%C3%A9?%FC"]
    assert stored["/le"] == text.format(1).encode()
    assert stored["/be"] == text.format(2).encode()
    assert stored["/utf-32"] == text.format(3).encode()
    assert [stored[path] for path in ("/latin-1", "/bom", "/invalid")] == [*pages.values()][3:]

    second = crawl(site.url("/"), 3, pagedir=first.directory)
    assert second.listing(site)[9:] == ["10: /declared @3"]
    assert second.bodies()[9] == text.encode()


def test_every_page_is_stored_as_utf_8_where_asked_for(server: Server, crawl: CrawlCommand) -> None:
    text = '<html>\r\n<a href="/?ü">naïve</a></html>'
    site = server(
        {
            "/": page("/latin-1", "/koi", "/ascii", "/invalid", "/bom"),
            "/latin-1": Reply(body=text.encode("latin-1"), type="text/html; charset=iso-8859-1"),
            "/koi": Reply(body="<meta charset=koi8-r><p>мир".encode("koi8-r")),
            "/ascii": Reply(body=b"<p>plain\r\n"),
            "/invalid": Reply(body=b"<p>\xc3\xa9\xff", type="text/html; charset=utf-8"),
            "/bom": Reply(body=b"\xef\xbb\xbf<p>b"),
            "/?%FC": page(),
        }
    )

    result = crawl(site.url("/"), 2, settings={"TINYCRAWL_ENCODING": "utf-8"})

    assert [url.removeprefix(site.url("")) for url, _ in result.pages] == [
        *["/", "/latin-1", "/koi", "/ascii", "/invalid", "/bom", "/?%FC"]
    ]
    assert [body.decode() for body in result.bodies()[1:6]] == [
        *[text, "<meta charset=koi8-r><p>мир", "<p>plain\r\n", "<p>é\ufffd", "<p>b"]
    ]
    assert [line["charset"] for line in result.manifest[2:5]] == ["cp1252", "koi8-r", "utf-8"]


# Robots


def test_noindex_is_not_saved_and_nofollow_not_followed(server: Server, crawl: CrawlCommand) -> None:
    """U23, by header and by meta; the seed is a noindex page, so the first docID is another's."""

    def meta(words: str, name: str = "robots") -> str:
        return f'<meta name="{name}" content="{words}">'

    names = ["meta-noindex", "meta-nofollow", "meta-both", "head-noindex", "head-nofollow", "head-both", "other", "rel"]
    site = server(
        {
            "/": page(*[f"/{name}" for name in names], extra=meta("noindex")),
            "/meta-noindex": page("/1", extra=meta("NoIndex")),
            "/meta-nofollow": page("/2", extra=meta("nofollow", name="TinyCrawl")),
            "/meta-both": page("/3", extra=meta("noindex") + meta("follow, nofollow")),
            "/head-noindex": page("/4", headers=[("X-Robots-Tag", "noindex, noarchive")]),
            "/head-nofollow": page("/5", headers=[("X-Robots-Tag", "tinycrawl: nofollow")]),
            "/head-both": page("/6", headers=[("X-Robots-Tag", "none")]),
            "/other": page("/7", extra=meta("none", name="googlebot"), headers=[("X-Robots-Tag", "otherbot: none")]),
            "/rel": page(extra='<a href="/8" rel="ugc nofollow">'),
            **{f"/{number}": page() for number in range(1, 9)},
        }
    )

    result = crawl(site.url("/"), 2)

    assert result.listing(site) == [
        *["1: /meta-nofollow @1", "2: /head-nofollow @1", "3: /other @1", "4: /rel @1"],
        *["5: /1 @2", "6: /4 @2", "7: /7 @2", "8: /8 @2"],
    ]
    lines = {line["url"].removeprefix(site.url("")): line for line in result.manifest[1:-1]}
    assert [path for path, line in lines.items() if line.get("reason") == "noindex"] == [
        *["/", "/meta-noindex", "/meta-both", "/head-noindex", "/head-both"]
    ]
    assert [path for path, line in lines.items() if line.get("nofollow")] == [
        *["/meta-nofollow", "/meta-both", "/head-nofollow", "/head-both"]
    ]
    assert result.manifest[-1]["saved"] == 8


# URLs


def test_one_page_in_many_spellings_is_one_file(server: Server, crawl: CrawlCommand) -> None:
    """U9, U10, U11, U16"""
    site = server({})
    host = f"h.test:{site.port}"
    paths = ["/a", "/a?page=2", "/Up", "/up", "/?x=1&y=2", "/?x=1&x=2", "/x%3d", "/a%2Fb", "/a/b"]
    site.reset(
        {
            "/": page(
                *["/a", "/a#one", "/a#two", "/a?page=2#two", "/a?", " /./a\n"],
                *[f"HTTP://H.TEST:{site.port}/Up", f"//h.test.:{site.port}/Up", f"http://u:p@{host}/Up", "/up"],
                *["?x=1&y=2", "/?y=2&x=1", "?x=1&x=2"],
                *["/x%3d", "/x%3D", "/x=", "/a%2Fb", "/a%2fb", "/a/b", "a//../b"],
            ),
            **{path: page() for path in paths},
        }
    )

    result = crawl(f"http://{host}/#top", 1)

    assert [url.removeprefix(f"http://{host}") for url, _ in result.pages] == ["/", *paths]
    assert site.targets() == ["/", *paths]


def test_password_of_the_seed_and_of_links_is_in_no_output(tmp_path: Path, server: Server, crawl: CrawlCommand) -> None:
    """U17"""
    site = server({})

    def with_password(path: str) -> str:
        return site.url(path).replace("http://", "http://user:s3cret@")

    site.reset(
        {
            "/": page("/x", *map(with_password, ("/x", "/moved", "/gone", "/"))),
            "/x": page(),
            "/moved": redirect(with_password("/y")),
            "/y": page(),
        }
    )
    outputs = {"LOG_FILE": tmp_path / "log", "LOG_LEVEL": "DEBUG"}
    feed = tmp_path / "feed.jsonl"

    failing = crawl.start(with_password("/gone"), 1, settings={"LOG_LEVEL": "DEBUG"})
    refused = crawl.start(with_password("/").replace("http:", "ftp:"), 1)
    result = crawl(with_password("/"), 1, settings=outputs, events=tmp_path / "events", options=["-O", str(feed)])

    assert result.listing(site) == ["1: / @0", "2: /x @1", "3: /y @1"]
    assert {request.headers.get("authorization") for request in site.requests} == {"Basic dXNlcjpzM2NyZXQ="}
    ended = [running.wait() for running in (failing, refused)]
    assert [one.status for one in ended] == [1, 2]
    texts = [one.stdout + one.stderr for one in (result, *ended)]
    texts += [path.read_text() for path in (tmp_path / "log", tmp_path / "events", feed)]
    texts += [body.decode() for name, body in result.files.items() if name != "1"]  # that page itself has it in links
    assert len(texts) == 9
    assert all(texts)
    assert [text for text in texts if "s3cret" in text or "dXNlcjpzM2NyZXQ=" in text] == []
    assert result.files["1"].startswith(site.url("/").encode() + b"\n0\n")
