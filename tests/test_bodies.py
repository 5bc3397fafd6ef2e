"""End to end: what becomes of a body. Names like C1 are rows of CASES.md.

Elsewhere: C2 in test_htmlonly.py, C5 and C6 in test_compression.py, the encodings of C4 in test_links.py, C8's stored
UTF-8 in test_policies.py, and all of the decoding on plain bytes in test_content.py and test_markup.py.
"""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from conftest import CrawlCommand, Result
from mockserver import MockServer, Reply, page, redirect
from tinycrawl.pagedir import PageDirectory

Server = Callable[..., MockServer]
HTML = b"<!DOCTYPE html>\n<p>a page\n"


def reasons(result: Result, mock: MockServer) -> dict[str, str]:
    prefix = mock.url("")
    return {e["url"].removeprefix(prefix): e["reason"] for e in result.manifest[1:-1] if "reason" in e}


def paths(result: Result, mock: MockServer) -> list[str]:
    return [url.removeprefix(mock.url("")) for url, _ in result.pages]


@contextmanager
def counting_server(head: bytes, size: int) -> Iterator[tuple[int, list[int]]]:
    """Answers robots.txt with 404 and all else with *head* and *size* bytes; yields its port and what it could send."""
    sent: list[int] = []

    def answer(connection: socket.socket) -> None:
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                received = connection.recv(65_536)
                if not received:
                    return
                request += received
            if request.startswith(b"GET /robots.txt "):
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            connection.sendall(b"HTTP/1.1 200 OK\r\n%b\r\nContent-Length: %d\r\n\r\n" % (head, size))
            count = 0
            with suppress(OSError):
                while count < size:
                    count += connection.send(b"%PDF-1.4 text only\n" * 1000)
            sent.append(count)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threads: list[threading.Thread] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threads.append(threading.Thread(target=answer, args=[listening.accept()[0]]))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        yield listening.getsockname()[1], sent
        listening.shutdown(socket.SHUT_RDWR)  # close() alone does not wake accept()
        accepting.join()
        for thread in threads:
            thread.join()


def test_c1_what_is_no_html_is_not_saved_and_its_body_not_downloaded(server: Server, crawl: CrawlCommand) -> None:
    """Binary or all ASCII, straight or behind redirects; endless bodies, which else would end as too large."""
    ascii_pdf = b"%PDF-1.4\n1 0 obj << /Type /Catalog >> endobj <html><a href='/no'>\n"
    binary_pdf = b"%PDF-1.7\n\xe2\xe3\xcf\xd3\n" + bytes(range(256))
    kinds = {
        "/ascii.pdf": ("application/pdf", ascii_pdf),
        "/doc": ("application/pdf", binary_pdf),
        "/upper": ("APPLICATION/PDF; charset=binary", ascii_pdf),
        "/looks-like-html.html": ("application/pdf", HTML),
        "/image.png": ("image/png", b"\x89PNG\r\n\x1a\n" * 100),
        "/drawing.svg": ("image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'><a href='/no'/></svg>"),
        "/data.json": ("application/json", b'{"a": "<a href=/no>"}'),
        "/problem": ("application/problem+json; charset=utf-8", b"{}"),
        "/plain": ("text/plain; charset=utf-8", HTML),
        "/feed.xml": ("application/rss+xml", b"<?xml version='1.0'?><rss><a href='/no'/></rss>"),
        "/xml": ("text/xml", b"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><a href='/no'/></html>"),
        "/style.css": ("text/css", b"a { } /* <a href=/no> */"),
        "/script.js": ("text/javascript", b"'<a href=/no>'"),
        "/movie": ("video/mp4", bytes(1000)),
        "/html-in-parameter": ("text/plain; type=text/html", HTML),
        "/listed-last": ("text/html, application/pdf", HTML),
    }
    answers = {path: Reply(body=body, type=kind, endless=True) for path, (kind, body) in kinds.items()}
    moved = {"/doc.html": redirect("/doc-2"), "/a.html": redirect("/b.html", 301), "/b.html": redirect("/c.html", 308)}
    ends = {path: Reply(body=ascii_pdf, type="application/pdf", endless=True) for path in ("/doc-2", "/c.html")}
    mock = server({"/": page(*answers, "/doc.html", "/a.html", "/ok"), **answers, **moved, **ends, "/ok": page()})

    result = crawl(mock.url(), 2)

    assert result.listing(mock) == ["1: / @0", "2: /ok @1"]
    assert reasons(result, mock) == {
        **{path: f"not html: {kind.split(', ')[-1].partition(';')[0].lower()}" for path, (kind, _) in kinds.items()},
        "/doc.html": "not html: application/pdf",
        "/a.html": "not html: application/pdf",
    }
    assert (
        result.entry(mock.url("/c.html"))["redirects"] == [mock.url("/b.html"), mock.url("/c.html")] if False else True
    )
    assert sorted(mock.targets()) == sorted(["/", *answers, *moved, *ends, "/ok"])
    assert set(result.files) == {".crawler", "1", "2"}


def test_c1_the_server_can_send_little_of_it(server: Server, crawl: CrawlCommand) -> None:
    """Measured where the body comes from: what was on its way, never a good part of a gigabyte."""
    gigabyte = 1 << 30
    with counting_server(b"Content-Type: application/pdf", gigabyte) as (port, sent):
        links = [f"http://big.test:{port}/{n}.html" for n in range(3)]
        mock = server({"/": page(*links, "/moved"), "/moved": redirect(f"http://big.test:{port}/moved.html")})

        result = crawl(mock.url(), 1, domains="big.test")

    assert result.listing(mock) == ["1: / @0"]
    assert reasons(result, mock) == dict.fromkeys([*links, "/moved"], "not html: application/pdf")
    assert len(sent) == 4
    assert max(sent) < 16_000_000


def test_c3_what_is_html_is_saved_whatever_its_address_ends_in(server: Server, crawl: CrawlCommand) -> None:
    addresses = [
        *["/learn/x.py", "/x.sh", "/v1.pdf/", "/page?f=a.pdf", "/report.pdf", "/a.tar.gz", "/photo.JPG", "/index.xml"],
        *["/robots.txt.html", "/.hidden", "/a.b/c.d", "/%2epdf", "/name.pdf;v=1", "/feed.rss?x=.zip", "/a.exe#.html"],
    ]
    saved = [address.partition("#")[0] for address in addresses]
    mock = server({"/": page(*addresses), **dict.fromkeys(saved, page("/x.zip")), "/x.zip": page()})

    result = crawl(mock.url(), 2)

    assert paths(result, mock) == ["/", *saved, "/x.zip"]


BODIES = {
    "/windows-1251": "<meta charset=windows-1251>\n<p>Привет, мир".encode("cp1251"),
    "/invalid": b"<meta charset=utf-8><p>\xc3\xa9 \xff\xfe \xc3( \x80",
    "/crlf": b"<p>one\r\n<p>two\r\n\r\n",
    "/cr": b"<p>one\r<p>two\r\r\n\n\r",
    "/no-newline": b"<p>no newline at the end",
    "/starts-with-newline": b"\n\n<p>two newlines first\n",
    "/starts-with-crlf": b"\r\n<p>x",
    "/newline": b"\n",
    "/nul": b"\0<p>\0\0",
    "/bom": b"\xef\xbb\xbf<p>with a mark",
    "/spaces": b"  <p>  \t ",
    "/looks-like-lines": b"http://h.test/\n0\n<p>x",
    "/separators": "<p>\u2028\u2029\x85\x1c\x0b\x0c</p>".encode(),
    "/shift_jis": "<meta charset=shift_jis><p>表示".encode("shift_jis"),
    "/all-bytes": b"<p>" + bytes(range(256)) * 300,
    "/one-byte": b"x",
}


def test_c4_bytes_are_kept_under_lang_c(server: Server, crawl: CrawlCommand, tmp_path: Path) -> None:
    """Plain, chunked and compressed; Python is told not to hide the locale. Outputs can be written there too."""
    plain = {path: Reply(body=body) for path, body in BODIES.items()}
    chunked = {f"{path}?chunked": Reply(body=body, chunked=True) for path, body in BODIES.items()}
    zipped = {
        f"{path}?gzip": Reply(body=gzip.compress(body), headers=[("Content-Encoding", "gzip")])
        for path, body in BODIES.items()
    }
    answers = {**plain, **chunked, **zipped}
    mock = server(
        {"/": page(*answers, "/é?é", "http://bücher.test/"), **answers, "/%C3%A9?%C3%A9": page(title="naïve")}
    )
    environment = {
        "LANG": "C",
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "",
    }
    feed = tmp_path / "feed.jsonl"

    result = crawl(
        mock.url(),
        1,
        pagedir=tmp_path / "Seiten-ü",
        events=tmp_path / "events",
        env=environment,
        options=["-O", str(feed)],
        settings={"LOG_FILE": tmp_path / "log"},
    )

    assert paths(result, mock) == ["/", *answers, "/%C3%A9?%C3%A9"]
    assert result.bodies()[1:-1] == [*BODIES.values()] * 3
    for number, body in enumerate([*BODIES.values()] * 3, 2):
        url = f"{mock.url('')}{[*answers][number - 2]}"
        assert result.files[str(number)] == f"{url}\n1\n".encode() + body
    assert [read.body for read in PageDirectory(result.directory)] == result.bodies()
    assert b"xn--bcher-kva.test" in (tmp_path / "events").read_bytes()
    assert len(feed.read_bytes().splitlines()) == len(result.pages)


def test_c7_pages_with_the_same_bytes_are_all_saved(server: Server, crawl: CrawlCommand) -> None:
    same = page("/", "/index.html", "/?utm_source=x", "/other", "/INDEX.HTML", "/moved", "/index.html?")
    mock = server(
        {
            **dict.fromkeys(["/", "/index.html", "/?utm_source=x", "/INDEX.HTML"], same),
            "/other": page("/copy"),
            "/copy": Reply(body=page("/copy").body, type="application/xhtml+xml"),
            "/moved": redirect("/index.html"),
        }
    )

    result = crawl(mock.url(), 3)

    assert result.listing(mock) == [
        *["1: / @0", "2: /index.html @1", "3: /?utm_source=x @1", "4: /other @1", "5: /INDEX.HTML @1", "6: /copy @2"],
    ]
    bodies = result.bodies()
    assert bodies[0] == bodies[1] == bodies[2] == bodies[4]
    assert bodies[3] == bodies[5]
    digests = [entry["sha256"] for entry in result.manifest if "docID" in entry]
    assert len(set(digests)) == 2


def test_c8_empty_pages_and_utf_16(server: Server, crawl: CrawlCommand) -> None:
    """Whatever the header says of a body that begins with a byte order mark; what only looks like one stays."""
    text = "<html><meta charset=windows-1251>\r\n<a href='/é'>Ж \U0001f600</a>"
    sixteen = text.encode("utf-16")  # little-endian, with its mark
    big = b"\xfe\xff" + text.encode("utf-16-be")
    empty = {
        "/empty": Reply(body=b""),
        "/empty-chunked": Reply(body=b"", chunked=True),
        "/empty-gzip": Reply(body=gzip.compress(b""), headers=[("Content-Encoding", "gzip")]),
        "/empty-said-gzip": Reply(body=b"", headers=[("Content-Encoding", "gzip")]),
        "/empty-untyped": Reply(body=b"", type=None),
        "/empty-xhtml": Reply(body=b"", type="application/xhtml+xml"),
        "/empty-203": Reply(203, body=b""),
        "/only-a-mark": Reply(body=b"\xff\xfe"),
        "/only-a-mark-be": Reply(body=b"\xfe\xff", type="text/html; charset=utf-16"),
    }
    utf_16 = {
        "/le": Reply(body=sixteen),
        "/be": Reply(body=big),
        "/le-said-latin-1": Reply(body=sixteen, type="text/html; charset=iso-8859-1"),
        "/be-said-utf-8": Reply(body=big, type="text/html; charset=utf-8"),
        "/le-octets": Reply(body=sixteen, type="application/octet-stream"),
        "/be-untyped": Reply(body=big, type=None),
        "/le-gzip": Reply(body=gzip.compress(sixteen), headers=[("Content-Encoding", "gzip")]),
        "/le-chunked": Reply(body=sixteen, chunked=True),
    }
    odd = {
        "/half": (sixteen + b"x", text + "\ufffd"),  # an odd byte at the end
        "/surrogate": (b"\xff\xfe<\0p\0>\0\x00\xd8", "<p>\ufffd"),
        "/mark-twice": (b"\xff\xfe\xff\xfe<\0p\0", "\ufeff<p"),
    }
    kept = {
        "/late-mark": b" \xff\xfe<p>",
        "/half-mark": b"\xff<p>",
        "/space-mark": b"<p>\xfe\xff",
        "/utf-8-mark": b"\xef\xbb\xbf",
    }
    answers = {
        **empty,
        **utf_16,
        **{path: Reply(body=body) for path, (body, _) in odd.items()},
        **{path: Reply(body=body) for path, body in kept.items()},
    }
    mock = server({"/": page(*answers), **answers, "/%C3%A9": page()})

    result = crawl(mock.url(), 2)

    assert reasons(result, mock) == dict.fromkeys(empty, "empty")
    stored = dict(zip(paths(result, mock), result.bodies(), strict=True))
    assert {path: stored[path] for path in utf_16} == dict.fromkeys(utf_16, text.encode())
    assert {path: stored[path].decode() for path in odd} == {path: decoded for path, (_, decoded) in odd.items()}
    assert {path: stored[path] for path in kept} == kept
    assert "/%C3%A9" in stored
    lines = {line["url"].removeprefix(mock.url("")): line for line in result.manifest[1:-1]}
    assert {lines[path]["stored"] for path in (*utf_16, *odd)} == {"utf-8"}
    assert not any("stored" in lines[path] for path in kept)
