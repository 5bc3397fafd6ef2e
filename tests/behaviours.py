"""What servers do, byte by byte: a raw server, the table of its behaviours, and what each must come to.

Every behaviour is a site of its own, ``http://<id>.test``: an innocent page, the bad one, another innocent page.
What is right where a standard leaves it open: what was cut or corrupted is never saved as if whole; what browsers show
as a page is saved; everything else has a reason that tells what happened.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import sys
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from types import TracebackType

SEED = b'<!DOCTYPE html><a href="/before">before</a> <a href="/bad">bad</a> <a href="/after">after</a>\n'
BEFORE = b"<!DOCTYPE html><p>before\n"
AFTER = b"<!DOCTYPE html><p>after\n"
TARGET = b"<!DOCTYPE html><p>where a redirect leads\n"
BAD = b"<!DOCTYPE html><title>bad</title><p>a page of fifty bytes, all told.\n"
FORGED = b"<!DOCTYPE html><p>FORGED\n"
MOST_BYTES = 64 * 1024 * 1024  # of an endless stream, if the client does not leave
REQUEST_LIMIT = 4 * 1024 * 1024  # bytes of a request's head: there may be many cookies in it
PIECE = 16_384
BOMB_SIZE = 64 * 1024 * 1024  # bytes to which a bomb inflates


class Wire:
    """The server's end of a connection; sending raises ConnectionError when the client has left."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def drip(self, data: bytes, seconds: float = 1.0) -> None:
        """A byte at a time."""
        for number in range(len(data)):
            await self.send(data[number : number + 1])
            await asyncio.sleep(seconds)

    async def endless(self, data: bytes) -> None:
        piece = data * (PIECE // len(data) + 1)
        for _ in range(MOST_BYTES // len(piece)):
            await self.send(piece)

    async def hold(self) -> None:
        """Say nothing more until the client leaves."""
        while await self.reader.read(PIECE):
            pass

    async def heard(self) -> None:
        """Wait until the client says something more, or leaves."""
        await self.reader.read(PIECE)

    async def half_close(self) -> None:
        self.writer.write_eof()
        await self.hold()

    async def reset(self) -> None:
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Talk = Callable[[Wire], Awaitable[None]]
Expected = bytes | str  # the body of the page that is saved, or the reason why there is none


@dataclass(frozen=True)
class Behaviour:
    """*answer*: bytes, after which the connection is closed unless it is to be *kept*; or what to do with the wire.

    *expected* is the body that is saved, or the reason why none is. *url* is the path under which it is saved.
    """

    id: str
    expected: Expected
    answer: bytes | Talk
    kept: bool = False
    url: str = "/bad"
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return f"{self.id}.test"


class RawServer:
    """Answers, in a thread of its own, as the behaviour named by the host says, at *path*; elsewhere it is innocent."""

    def __init__(self, behaviours: list[Behaviour], path: str = "/bad") -> None:
        self._behaviours = {behaviour.host: behaviour for behaviour in behaviours}
        self._path = path
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._connections: set[asyncio.Task[None]] = set()
        self.asked: list[tuple[str, str]] = []  # host, target
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def url(self, host: str, path: str = "/") -> str:
        return f"http://{host}:{self.port}{path}"

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=REQUEST_LIMIT)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._answer(reader, writer):
                    pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False where the connection ends."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        target = head[0].split(" ")[1]
        host = next(line[5:].strip() for line in head if line.lower().startswith("host:")).partition(":")[0]
        self.asked.append((host, target))
        wire = Wire(reader, writer)
        behaviour = self._behaviours.get(host)
        if behaviour is None or target != self._path:
            await wire.send(self._innocent(host, target))
            return True
        if isinstance(behaviour.answer, bytes):
            await wire.send(behaviour.answer)
            return behaviour.kept
        await behaviour.answer(wire)
        return behaviour.kept

    def _innocent(self, host: str, target: str) -> bytes:
        if host == "hub.test" and target == "/":
            links = "".join(f'<a href="{self.url(other)}">{other}</a>\n' for other in self._behaviours)
            return ok(f"<!DOCTYPE html>\n{links}".encode())
        pages = {"/": SEED, "/before": BEFORE, "/after": AFTER, "/target": TARGET}
        return ok(pages[target]) if target in pages else ok(b"not here", status="404 Not Found", type="text/plain")


# Answers


def head(*headers: str | bytes, status: str = "200 OK", type: str | None = "text/html") -> bytes:
    lines: list[str | bytes] = [f"HTTP/1.1 {status}"]
    if type is not None:
        lines.append(f"Content-Type: {type}")
    lines += headers
    return b"".join((line.encode() if isinstance(line, str) else line) + b"\r\n" for line in lines) + b"\r\n"


def ok(body: bytes = BAD, *headers: str | bytes, status: str = "200 OK", type: str | None = "text/html") -> bytes:
    return head(*headers, f"Content-Length: {len(body)}", status=status, type=type) + body


def moved(*locations: str | bytes, status: str = "302 Found") -> bytes:
    values = (value.encode() if isinstance(value, str) else value for value in locations)
    return ok(b"moved", *(b"Location: " + value for value in values), status=status)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


CHUNKED = head("Transfer-Encoding: chunked")
CLOSED = head("Connection: close")
LAST = b"0\r\n\r\n"
GZIPPED = gzip.compress(BAD, mtime=0)
DEFLATED = zlib.compress(BAD)
BROTLI = brotli.compress(BAD)
ZSTD = zstd.compress(BAD)


def encoded(body: bytes, *encodings: str) -> bytes:
    return ok(body, *(f"Content-Encoding: {encoding}" for encoding in encodings))


def raw_status(line: bytes, rest: bytes = b"") -> bytes:
    """*line* as the status line of a page that is otherwise in order."""
    return line + b"\r\n" + ok().split(b"\r\n", 1)[1] + rest


def then(data: bytes, *acts: Callable[[Wire], Awaitable[None]]) -> Talk:
    """Send *data*, then do all of *acts*."""

    async def talk(wire: Wire) -> None:
        await wire.send(data)
        for act in acts:
            await act(wire)

    return talk


def endless(data: bytes) -> Talk:
    return lambda wire: wire.endless(data)


def drip(data: bytes) -> Talk:
    return lambda wire: wire.drip(data)


def pause(seconds: float) -> Talk:
    return lambda wire: asyncio.sleep(seconds)


def send(data: bytes) -> Talk:
    return lambda wire: wire.send(data)


def made(make: Callable[[], bytes]) -> Talk:
    """For what takes time to make: not before it is asked for."""

    async def talk(wire: Wire) -> None:
        await wire.send(make())

    return talk


async def reset(wire: Wire) -> None:
    # What was sent must have left first, since a reset discards what has not.
    await asyncio.sleep(0.05)
    await wire.reset()


async def half_close(wire: Wire) -> None:
    await wire.half_close()


async def hold(wire: Wire) -> None:
    await wire.hold()


async def shift_answers(wire: Wire) -> None:
    """Answer twice, so that the next request on this connection is answered with what was meant for another."""
    await wire.send(ok() + ok(FORGED))
    await wire.reader.readuntil(b"\r\n\r\n")
    await wire.send(ok(FORGED))


def pages() -> list[Behaviour]:
    """What comes to an end by itself, or by a limit of bytes."""
    return [
        *cut_bodies(),
        *sizes(),
        *lengths(),
        *types(),
        *charsets(),
        *chunks(),
        *header_lines(),
        *interim(),
        *status_lines(),
        *other_protocols(),
        *connections(),
        *redirects(),
        *cookies(),
        *retry_afters(),
        *bombs(),
        *encodings(),
        *robots_headers(),
    ]


def cut_bodies() -> Iterator[Behaviour]:
    for size in (0, 1, len(BAD) // 2, len(BAD) - 1):
        yield Behaviour(f"cut-length-{size}", "truncated", ok()[: len(ok()) - len(BAD) + size])
    whole = chunk(BAD[:20]) + chunk(BAD[20:])
    places = {
        "before-chunks": b"",
        "in-size": b"1",
        "after-size": b"14\r\n",
        "in-size-crlf": b"14\r",
        "in-chunk": b"14\r\n" + BAD[:10],
        "after-data": b"14\r\n" + BAD[:20],
        "in-crlf": b"14\r\n" + BAD[:20] + b"\r",
        "between-chunks": chunk(BAD[:20]),
        "before-last": whole,
        "in-last": whole + b"0",
        "after-last": whole + b"0\r\n",
        "in-trailer": whole + b"0\r\nX-Sum: 1",
        "after-trailer": whole + b"0\r\nX-Sum: 1\r\n",
        "in-end": whole + b"0\r\n\r",
    }
    for name, data in places.items():
        yield Behaviour(f"cut-chunked-{name}", "truncated", CHUNKED + data)
    for encoding, body in {"gzip": GZIPPED, "deflate": DEFLATED, "br": BROTLI, "zstd": ZSTD}.items():
        for size in (1, 5, len(body) // 2, len(body) - 1):
            yield Behaviour(f"cut-{encoding}-{size}", f"truncated {encoding}", encoded(body[:size], encoding))
        yield Behaviour(f"cut-{encoding}-on-the-way", "truncated", encoded(body, encoding)[:-3])
        yield Behaviour(
            f"cut-{encoding}-closed",
            f"truncated {encoding}",
            head("Connection: close", f"Content-Encoding: {encoding}") + body[:-2],
        )
        yield Behaviour(
            f"cut-{encoding}-chunked",
            f"truncated {encoding}",
            head("Transfer-Encoding: chunked", f"Content-Encoding: {encoding}") + chunk(body[:-2]) + LAST,
        )
        yield Behaviour(f"corrupt-{encoding}", f"bad {encoding}", encoded(b"\xff" * 9 + body[9:], encoding))
    yield Behaviour("gzip-trailer-cut", "truncated gzip", encoded(GZIPPED[:-8], "gzip"))
    yield Behaviour("gzip-wrong-sum", "bad gzip", encoded(GZIPPED[:-8] + bytes(4) + GZIPPED[-4:], "gzip"))
    yield Behaviour("gzip-wrong-length", "bad gzip", encoded(GZIPPED[:-4] + bytes(4), "gzip"))
    yield Behaviour("gzip-then-more", "bad gzip", encoded(GZIPPED + b"more", "gzip"))
    yield Behaviour("gzip-two-members", BAD + BAD, encoded(GZIPPED * 2, "gzip"))
    yield Behaviour("gzip-second-member-cut", "truncated gzip", encoded(GZIPPED + GZIPPED[:-1], "gzip"))


def sizes() -> Iterator[Behaviour]:
    yield Behaviour("header-100-kb", BAD, ok(BAD, "X-Long: " + "x" * 100_000))
    yield Behaviour("header-1-mb", "headers too large", ok(BAD, "X-Long: " + "x" * 1_000_000))
    yield Behaviour("header-17-kb", BAD, ok(BAD, "X-Long: " + "x" * 17_000))
    yield Behaviour("headers-2000", BAD, ok(BAD, *(f"X-{number}: value" for number in range(2_000))))
    yield Behaviour("headers-20000", "headers too large", ok(BAD, *(f"X-{number}: value" for number in range(20_000))))
    yield Behaviour("headers-endless", "headers too large", then(head()[:-2], endless(b"X-More: and more\r\n")))
    yield Behaviour("header-endless", "headers too large", then(head()[:-2] + b"X-Endless: ", endless(b"x")))
    yield Behaviour("header-name-endless", "headers too large", then(head()[:-2], endless(b"x")))
    yield Behaviour("folds-endless", "headers too large", then(head()[:-2] + b"X-Folds: 1\r\n", endless(b" 2\r\n")))
    yield Behaviour("status-line-100-kb", BAD, ok(status="200 " + "O" * 100_000))
    yield Behaviour("status-line-1-mb", "headers too large", ok(status="200 " + "O" * 1_000_000))
    yield Behaviour("status-line-endless", "headers too large", then(b"HTTP/1.1 200 ", endless(b"O")))
    yield Behaviour("nothing-but-letters", "headers too large", endless(b"x"))
    yield Behaviour("body-endless", "too large", then(CLOSED, endless(b"<p>and on\n")))
    yield Behaviour("body-endless-chunks", "too large", then(CHUNKED, endless(chunk(b"<p>and on\n" * 200))))
    yield Behaviour("body-endless-no-type", "too large", then(head(type=None), endless(b"<p>and on\n")))
    yield Behaviour("body-endless-404", "http 404", then(head(status="404 Not Found"), endless(b"<p>and on\n")))
    yield Behaviour("body-endless-pdf", "not html: application/pdf", then(head(type="application/pdf"), endless(b"%")))
    yield Behaviour(
        "body-endless-redirect",
        TARGET,
        then(head("Location: /target", status="302 Found"), endless(b"<p>and on\n")),
        url="/target",
    )
    yield Behaviour(
        "body-endless-one-byte-chunks",
        "too large",
        then(CHUNKED, endless(b"1\r\nx\r\n")),
        settings={"DOWNLOAD_MAXSIZE": 10_000},
    )
    yield Behaviour("body-just-fits", BAD.ljust(1 << 20), ok(BAD.ljust(1 << 20)))
    yield Behaviour("body-one-byte-more", "too large", ok(BAD.ljust((1 << 20) + 1)))


def lengths() -> Iterator[Behaviour]:
    def length(*values: str) -> bytes:
        return head(*(f"Content-Length: {value}" for value in values)) + BAD

    size = len(BAD)
    yield Behaviour("length-5-gb", "too large", length("5000000000"))
    yield Behaviour("length-30-digits", "too large", length("1" + "0" * 29))
    yield Behaviour("length-5000-digits", "not an HTTP answer", length("1" * 5_000))
    yield Behaviour("length-negative", "not an HTTP answer", length("-1"))
    yield Behaviour("length-minus-size", "not an HTTP answer", length(f"-{size}"))
    yield Behaviour("length-no-number", "not an HTTP answer", length("many"))
    yield Behaviour("length-empty", "not an HTTP answer", length(""))
    yield Behaviour("length-plus", "not an HTTP answer", length(f"+{size}"))
    yield Behaviour("length-hexadecimal", "not an HTTP answer", length(f"0x{size:x}"))
    yield Behaviour("length-fraction", "not an HTTP answer", length(f"{size}.0"))
    yield Behaviour("length-underscore", "not an HTTP answer", length(f"{size // 10}_{size % 10}"))
    yield Behaviour("length-two-numbers", "not an HTTP answer", length(f"{size} 5"))
    yield Behaviour("length-two-different", "not an HTTP answer", length(str(size), "5"))
    yield Behaviour("length-list-different", "not an HTTP answer", length(f"{size}, 5"))
    yield Behaviour("length-twice-the-same", BAD, length(str(size), str(size)))
    yield Behaviour("length-list-the-same", BAD, length(f"{size}, {size}"))
    yield Behaviour("length-zeros", BAD, length(f"000{size}"))
    yield Behaviour("length-too-long", "truncated", length(str(size + 1)))
    yield Behaviour("length-far-too-long", "truncated", length("100000"))
    yield Behaviour("length-too-short", BAD[:40], length("40"))
    yield Behaviour("length-too-short-kept", BAD[:40], length("40"), kept=True)
    yield Behaviour("length-zero", "empty", length("0"))
    yield Behaviour("length-zero-kept", "empty", length("0"), kept=True)
    yield Behaviour("length-and-chunked", BAD, ok(b"", "Transfer-Encoding: chunked") + chunk(BAD) + LAST)
    yield Behaviour(
        "length-and-chunked-longer", BAD, head("Transfer-Encoding: chunked", "Content-Length: 9999") + chunk(BAD) + LAST
    )
    yield Behaviour(
        "length-and-chunked-cut",
        "truncated",
        head(f"Content-Length: {len(chunk(BAD))}", "Transfer-Encoding: chunked") + chunk(BAD),
    )
    yield Behaviour("length-none", BAD, CLOSED + BAD)
    yield Behaviour("length-none-no-body", "empty", CLOSED)
    yield Behaviour("length-none-keep-alive", BAD, head("Connection: keep-alive") + BAD)
    yield Behaviour("length-none-http-1-0", BAD, CLOSED.replace(b"HTTP/1.1", b"HTTP/1.0") + BAD)


def types() -> Iterator[Behaviour]:
    invalid = "not html: invalid type"
    pairs: list[tuple[str, bytes, Expected]] = [
        ("html-twice", b"text/html\r\nContent-Type: text/html; charset=utf-8", BAD),
        ("html-then-pdf", b"text/html\r\nContent-Type: application/pdf", "not html: application/pdf"),
        ("pdf-then-html", b"application/pdf\r\nContent-Type: text/html", BAD),
        ("missing-semicolon", b"text/html charset=utf-8", BAD),  # browsers read the type up to the blank
        ("html-comma-html", b"text/html, text/html", BAD),
        ("html-comma-pdf", b"text/html,application/pdf", "not html: application/pdf"),
        ("html-comma-anything", b"text/html, */*", BAD),
        ("anything", b"*/*", BAD),
        ("unknown-unknown", b"unknown/unknown", BAD),
        ("application-unknown", b"application/unknown", BAD),
        ("commas-first", b",,text/html", BAD),
        ("only-commas", b",,,", BAD),
        ("only-semicolons", b";;;", BAD),
        ("empty", b"", BAD),
        ("upper-case", b"TEXT/HTML", BAD),
        ("no-slash", b"html", BAD),
        ("only-slash", b"/", invalid),
        ("two-slashes", b"text/html/5", invalid),
        ("spaces", b"text / html", BAD),
        ("quoted", b'"text/html"', invalid),
        ("escape-sequence", b"text/\x1b[31mred\x1b[0m", invalid),
        ("bell", b"text/\x07html", invalid),
        ("backspaces", b"text/pdf\x08\x08\x08html", invalid),
        ("nul", b"text/\x00html", invalid),
        ("bare-cr", b"text/plain\rFORGED", "not html: text/plain"),
        ("vertical-tab", b"text/plain\x0bFORGED", invalid),
        ("c1-control", b"text/\x9b31mred", invalid),
        ("next-line", b"text/plain\x85FORGED", invalid),
        ("latin-1", b"t\xe9xt/html", invalid),
        ("utf-8", "text/ﬀ\u202e\u2028".encode(), invalid),
        ("10-kb", b"text/" + b"x" * 10_000, invalid),  # RFC 6838, 4.2: at most 127 characters
        ("10-kb-parameter", b"text/html; x=" + b"y" * 10_000, BAD),
        ("parameter-controls", b"text/html; x=\x1b[31m\x00\x07", BAD),
        ("parameter-quoted", b'text/html; x="a;b,c\\"d"; charset="utf-8"', BAD),
        ("folded", b"text/html;\r\n charset=utf-8", BAD),
        ("unknown", b"x-unknown/x-unknown", "not html: x-unknown/x-unknown"),
        ("format", b"text/%s%d%n", invalid),
        ("braces", b"text/{0}", invalid),
    ]
    for name, value, expected in pairs:
        answer = head(b"Content-Type: " + value, f"Content-Length: {len(BAD)}", type=None) + BAD
        yield Behaviour(f"type-{name}", expected, answer)


def charsets() -> Iterator[Behaviour]:
    for name, value in {
        "unknown": b"x-never-heard-of",
        "utf-7": b"utf-7",
        "utf-8-misspelled": b"utf8mb4",
        "empty": b"",
        "quote": b'"utf-8',
        "10-kb": b"x" * 10_000,
        "nul": b"utf\x00-8",
        "escape-sequence": b"\x1b[31m",
        "codec-base64": b"base64",
        "codec-rot13": b"rot13",
        "codec-idna": b"idna",
        "codec-undefined": b"undefined",
        "codec-unicode-escape": b"unicode_escape",
        "path": b"../../../etc/passwd",
        "latin-1": b"iso-8859-1",
        "shift-jis": b"shift_jis",
        "iso-2022": b"iso-2022-jp",
        "twice": b"utf-8; charset=latin-1",
    }.items():
        answer = head(b"Content-Type: text/html; charset=" + value, f"Content-Length: {len(BAD)}", type=None) + BAD
        yield Behaviour(f"charset-{name}", BAD, answer)
    noise = b"<!DOCTYPE html><p>\xff\xfe\x80\xc3\n"
    yield Behaviour("charset-utf-8-is-not", noise, ok(noise, type="text/html; charset=utf-8"))
    nuls = b"<!DOCTYPE html>\x00<p>a\x00b\x00\n"
    yield Behaviour("body-nuls", nuls, ok(nuls))
    nuls = b"<!DOCTYPE html>" + bytes(10_000)
    yield Behaviour("body-mostly-nuls", nuls, ok(nuls))
    controls = b"<!DOCTYPE html><title>\x1b[31m\x07\r\n2026-01-01 00:00:00 [x] ERROR: FORGED</title>"
    yield Behaviour("body-control-characters", controls, ok(controls))
    half = b"\xff\xfe" + "<p>ab".encode("utf-16-le")[:-1]
    yield Behaviour("utf-16-half-a-character", "<p>a\ufffd".encode(), ok(half))
    half = b"\xff\xfe" + "<p>\U0001f600".encode("utf-16-le")[:-2]
    yield Behaviour("utf-16-half-a-pair", "<p>\ufffd".encode(), ok(half))
    yield Behaviour("utf-16-only-bom", "empty", ok(b"\xff\xfe"))
    yield Behaviour("utf-16-is-ascii", "\u703c\u783e".encode(), ok(b"<p>x", type="text/html; charset=utf-16"))


def chunks() -> Iterator[Behaviour]:
    size = b"%x" % len(BAD)
    data = BAD + b"\r\n"
    one_by_one = b"".join(chunk(BAD[number : number + 1]) for number in range(len(BAD)))
    yield Behaviour("chunks-one-byte", BAD, CHUNKED + one_by_one + LAST)
    yield Behaviour("chunks-extension", BAD, CHUNKED + size + b';name=value;other="quo ted"\r\n' + data + LAST)
    yield Behaviour("chunks-extension-after-blanks", BAD, CHUNKED + size + b" \t; name = value\r\n" + data + LAST)
    yield Behaviour("chunks-extension-controls", BAD, CHUNKED + size + b";\x00\x1b[31m\r\n" + data + LAST)
    lines = (CHUNKED + chunk(BAD[:20]) + chunk(BAD[20:]) + b"0\r\nX-Sum: 1\r\n\r\n").replace(b"\r\n", b"\n")
    yield Behaviour("chunks-bare-lf", BAD, lines)
    yield Behaviour("chunks-bare-lf-in-small-pieces", BAD, lambda wire: wire.drip(lines, 0.001))
    yield Behaviour("chunks-bare-lf-cut", "truncated", lines[:-12])
    yield Behaviour("chunks-extension-on-last", BAD, CHUNKED + chunk(BAD) + b"0;end=1\r\n\r\n")
    yield Behaviour("chunks-trailers", BAD, CHUNKED + chunk(BAD) + b"0\r\nX-Sum: 1\r\nContent-Length: 3\r\n\r\n")
    yield Behaviour("chunks-upper-case", BAD.ljust(0xAB), CHUNKED + b"AB\r\n" + BAD.ljust(0xAB) + b"\r\n" + LAST)
    yield Behaviour("chunks-leading-zeros", BAD, CHUNKED + b"0000" + size + b"\r\n" + data + LAST)
    yield Behaviour("chunks-zeros-at-the-end", BAD, CHUNKED + chunk(BAD) + b"000\r\n\r\n")
    # Apache 1.3 and IIS pad the size with blanks; browsers take it.
    yield Behaviour("chunks-size-padded", BAD, CHUNKED + size + b"  \r\n" + data + LAST)
    yield Behaviour("chunks-coding-upper-case", BAD, head("Transfer-Encoding: Chunked") + chunk(BAD) + LAST)
    yield Behaviour("chunks-http-1-0", BAD, CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + chunk(BAD) + LAST)
    yield Behaviour("chunks-then-chunk", BAD, CHUNKED + chunk(BAD) + LAST + chunk(FORGED) + LAST, kept=True)
    yield Behaviour("chunks-then-garbage", BAD, CHUNKED + chunk(BAD) + LAST + b"\x00garbage\xff", kept=True)
    yield Behaviour("chunks-empty-body", "empty", CHUNKED + LAST)
    # Where the chunks cannot be read, the rest of the page is missing.
    bad = "truncated"
    for name, rest in {
        "no-hexadecimal": b"xyz\r\n" + data + LAST,
        "negative": b"-5\r\n" + data + LAST,
        "plus": b"+" + size + b"\r\n" + data + LAST,
        "0x": b"0x" + size + b"\r\n" + data + LAST,
        "empty-size": b"\r\n" + data + LAST,
        "missing-crlf": size + b"\r\n" + BAD + LAST,
        "size-too-small": b"5\r\n" + data + LAST,
        "size-underscore": b"1_0\r\n" + data + LAST,
        "escape-sequence": b"\x1b[31m\r\n" + data + LAST,
        "extension-long": size + b";" + b"x" * 100_000 + b"\r\n" + data + LAST,
        "second-bad": chunk(BAD) + b"oops\r\n",
    }.items():
        yield Behaviour(f"chunks-{name}", bad, CHUNKED + rest, kept=True)
    yield Behaviour("chunks-not-chunked", bad, CHUNKED + BAD)
    yield Behaviour("chunks-size-endless", bad, then(CHUNKED, endless(b"0")))
    yield Behaviour("chunks-extension-endless", bad, then(CHUNKED + size + b";", endless(b"x")))
    yield Behaviour("chunks-trailers-endless", bad, then(CHUNKED + chunk(BAD) + b"0\r\n", endless(b"X-More: 1\r\n")))
    yield Behaviour("chunks-trailer-endless", bad, then(CHUNKED + chunk(BAD) + b"0\r\nX: ", endless(b"x")))
    yield Behaviour("chunks-huge-size", "truncated", CHUNKED + b"fffffffffffffff\r\n" + data)
    yield Behaviour("chunks-size-too-large", "truncated", CHUNKED + b"fff\r\n" + data + LAST)
    yield Behaviour("coding-unknown", "not an HTTP answer", head("Transfer-Encoding: morse") + BAD)
    yield Behaviour("coding-identity", BAD, head("Transfer-Encoding: identity") + BAD)
    yield Behaviour(
        "coding-gzip-chunked",
        "not an HTTP answer",
        head("Transfer-Encoding: gzip, chunked") + chunk(GZIPPED) + LAST,
    )


def header_lines() -> Iterator[Behaviour]:
    for name, line in {
        "no-colon": b"no colon here",
        "no-colon-long": b"x" * 10_000,
        "space-before-colon": b"X-Space : 1",
        "space-in-name": b"X Powered By: 1",
        "nul-in-value": b"X-Nul: a\x00b",
        "nul-in-name": b"X-\x00: 1",
        "empty-name": b": nameless",
        "only-colon": b":",
        "utf-8-name": "X-Ü: 1".encode(),
        "latin-1-name": b"X-\xfc: 1",
        "latin-1-value": b"X-Value: \xfc",
        "escape-in-name": b"X-\x1b[31m: 1",
        "bare-cr-in-value": b"X-Cr: a\rSet-Cookie: FORGED=1",
        "bare-cr-in-name": b"X-C\rr: 1",
        "bare-cr-line": b"\r",
        "folded": b"X-Folded: 1\r\n 2\r\n\t3",
        "folded-empty": b"X-Folded: 1\r\n \r\n 2",
        "parentheses": b"(): 1",
        "injected": b"X-User: name\r\nX-Injected: 1",
        "date-garbage": b"Date: yesterday",
        "connection-garbage": b"Connection: \x00, what, keep-alive,,",
        "upgrade": b"Upgrade: h2c\r\nConnection: Upgrade",
        "link-1000": b"\r\n".join(b"Link: </%d>; rel=preload" % number for number in range(1_000)),
    }.items():
        yield Behaviour(f"line-{name}", BAD, ok(BAD, line))
    yield Behaviour("line-first-is-folded", BAD, ok().replace(b"\r\n", b"\r\n folded\r\n", 1))
    yield Behaviour("lines-bare-lf", BAD, head(f"Content-Length: {len(BAD)}").replace(b"\r\n", b"\n") + BAD)
    yield Behaviour("lines-bare-lf-closed", BAD, CLOSED.replace(b"\r\n", b"\n") + BAD)
    yield Behaviour("lines-mixed-ends", BAD, head(f"Content-Length: {len(BAD)}")[:-2] + b"\n" + BAD)
    # RFC 9112, 2.2: a bare CR ends no line, so all of this is the status line.
    yield Behaviour(
        "lines-bare-cr", "connection lost", head(f"Content-Length: {len(BAD)}").replace(b"\r\n", b"\r") + BAD[:-1]
    )
    yield Behaviour("lines-no-end", "connection lost", head(f"Content-Length: {len(BAD)}")[:-2])
    yield Behaviour("lines-cut", "connection lost", ok()[:30])
    yield Behaviour("lines-cut-status", "connection lost", ok()[:10])
    yield Behaviour("no-headers", BAD, b"HTTP/1.1 200 OK\r\n\r\n" + BAD)
    yield Behaviour("injected-end", b"\r\n" + BAD, ok(b"\r\n" + BAD, "X-User: name\r\nX-More: 1"))
    yield Behaviour("length-space-before-colon", BAD, head(f"Content-Length : {len(BAD)}") + BAD)


def interim() -> Iterator[Behaviour]:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"
    for name, before in {
        "100": b"HTTP/1.1 100 Continue\r\n\r\n",
        "102": b"HTTP/1.1 102 Processing\r\n\r\n",
        "103": hints,
        "103-many": hints * 50,
        "100-102-103": b"HTTP/1.1 100\r\n\r\nHTTP/1.1 102 P\r\n\r\n" + hints,
        "199": b"HTTP/1.1 199 Whatever\r\n\r\n",
    }.items():
        yield Behaviour(f"interim-{name}", BAD, before + ok(), kept=True)
    yield Behaviour("interim-103-pause", BAD, then(hints, pause(0.1), send(ok())), kept=True)
    yield Behaviour("interim-103-type", BAD, hints[:-2] + b"Content-Type: application/pdf\r\n\r\n" + ok())
    yield Behaviour("interim-endless", "headers too large", endless(hints))
    yield Behaviour("interim-then-closed", "connection lost", hints)
    yield Behaviour("interim-then-garbage", "not an HTTP answer", hints + b"garbage\r\n\r\n")
    yield Behaviour("status-101", "connection lost", head("Upgrade: h2c", status="101 Switching Protocols"))


def status_lines() -> Iterator[Behaviour]:
    nothing = "not an HTTP answer"
    lines: list[tuple[str, bytes, Expected]] = [
        ("no-reason", b"HTTP/1.1 200", BAD),
        ("no-reason-space", b"HTTP/1.1 200 ", BAD),
        ("long-reason", b"HTTP/1.1 200 " + b"very " * 1_000, BAD),
        ("odd-reason", b"HTTP/1.1 200 \x1b[31m\x00\x07\xff", BAD),
        ("reason-with-cr", b"HTTP/1.1 200 OK\rFORGED", BAD),
        ("http-1-0", b"HTTP/1.0 200 OK", BAD),
        ("http-3-7", b"HTTP/3.7 200 OK", BAD),
        ("http-0-9", b"HTTP/0.9 200 OK", BAD),
        ("lower-case", b"http/1.1 200 ok", BAD),
        ("http-2-no-minor", b"HTTP/2 200", nothing),
        ("no-version", b"HTTP 200 OK", nothing),
        ("version-garbage", b"HTTP/one.one 200 OK", nothing),
        ("version-negative", b"HTTP/-1.1 200 OK", nothing),
        ("only-version", b"HTTP/1.1", nothing),
        ("no-number", b"HTTP/1.1 OK", nothing),
        ("number-in-words", b"HTTP/1.1 two-hundred OK", nothing),
        ("number-and-letters", b"HTTP/1.1 200OK", nothing),
        ("two-spaces", b"HTTP/1.1  200 OK", nothing),
        ("blank", b"", nothing),
        ("icy", b"ICY 200 OK", nothing),
        ("minus-200", b"HTTP/1.1 -200 OK", "http -200"),
        ("5000-digits", b"HTTP/1.1 " + b"2" * 5_000 + b" OK", nothing),
        ("000", b"HTTP/1.1 000 Zero", "http 0"),
        ("99", b"HTTP/1.1 99 Low", "http 99"),
        ("1000", b"HTTP/1.1 1000 High", "http 1000"),
        ("201", b"HTTP/1.1 201 Created", "http 201"),
        ("202", b"HTTP/1.1 202 Accepted", "http 202"),
        ("203", b"HTTP/1.1 203 Non-Authoritative Information", BAD),
        ("206", b"HTTP/1.1 206 Partial Content", "http 206"),
        ("226", b"HTTP/1.1 226 IM Used", "http 226"),
        ("299", b"HTTP/1.1 299 Fine", "http 299"),
        ("300", b"HTTP/1.1 300 Multiple Choices", "http 300"),
        ("399", b"HTTP/1.1 399 What", "http 399"),
        ("402", b"HTTP/1.1 402 Payment Required", "http 402"),
        ("418", b"HTTP/1.1 418 I'm a teapot", "http 418"),
        ("451", b"HTTP/1.1 451 Unavailable For Legal Reasons", "http 451"),
        ("500", b"HTTP/1.1 500 Internal Server Error", "http 500"),
        ("520", b"HTTP/1.1 520 Web Server Returned an Unknown Error", "http 520"),
        ("599", b"HTTP/1.1 599 Timeout", "http 599"),
        ("600", b"HTTP/1.1 600 Up", "http 600"),
        ("999", b"HTTP/1.1 999 Request denied", "http 999"),
    ]
    for name, line, expected in lines:
        yield Behaviour(f"status-{name}", expected, raw_status(line))
    for status in ("204 No Content", "304 Not Modified"):
        number = status[:3]
        yield Behaviour(f"status-{number}-body", f"http {number}", ok(status=status), kept=True)
        body = chunk(FORGED) + LAST
        answer = head("Transfer-Encoding: chunked", status=status) + body
        yield Behaviour(f"status-{number}-chunks", f"http {number}", answer, kept=True)
        yield Behaviour(f"status-{number}-answer", f"http {number}", head(status=status) + ok(FORGED), kept=True)
    yield Behaviour("status-205-body", "http 205", ok(status="205 Reset Content"), kept=True)
    yield Behaviour("http-0-9", nothing, BAD)
    yield Behaviour("http-0-9-lines", nothing, b"<html>\n<p>three words\n<p>more\n</html>\n")
    yield Behaviour("blank-lines-first", BAD, b"\r\n\r\n" + ok())
    yield Behaviour("blank-lines-bare-lf-first", BAD, b"\n\n" + ok())
    yield Behaviour("blank-lines-three-first", nothing, b"\r\n\r\n\r\n" + ok())


def other_protocols() -> Iterator[Behaviour]:
    nothing = "not an HTTP answer"
    for name, data, expected in [
        ("http-2", b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"\x00\x03\x00\x00\x00\x80" * 3, "connection lost"),
        ("http-2-preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", nothing),
        ("tls-alert", b"\x15\x03\x03\x00\x02\x02\x46", "connection lost"),
        ("tls-handshake", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(32)), nothing),
        ("ssh", b"SSH-2.0-OpenSSH_9.6p1 Debian-3\r\n", nothing),
        ("smtp", b"220 mail.h.test ESMTP Postfix\r\n221 2.7.0 Error: I can break rules, too.\r\n", nothing),
        ("ftp", b"220 (vsFTPd 3.0.5)\r\n530 Please login with USER and PASS.\r\n", nothing),
        ("ftp-one-word", b"220-Welcome\r\n", nothing),
        ("pop3", b"+OK POP3 ready\r\n", nothing),
        ("imap", b"* OK IMAP4rev1 ready\r\n", nothing),
        ("mysql", b"J\x00\x00\x00\n8.0.36\x00" + bytes(range(60)), nothing),
        ("redis", b"-ERR unknown command\r\n", nothing),
        ("irc", b":h.test NOTICE AUTH :*** Looking up your hostname\r\n", nothing),
        ("rtsp", b"RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n", nothing),
        ("request", b"GET / HTTP/1.1\r\nHost: h.test\r\n\r\n", nothing),
        ("json", b'{"error": "not http"}\n', nothing),
        ("escape-sequences", b"\x1b]0;FORGED\x07\x1b[2J\x1b[31m one two\r\n", nothing),
        ("forged-log-lines", b"x\r2026-01-01 00:00:00 [site] ERROR: FORGED\r\n", nothing),
        ("binary", bytes(range(256)) * 4, nothing),
        ("nuls", bytes(10_000), "connection lost"),
        ("one-byte", b"H", "connection lost"),
        ("nothing", b"", "connection lost"),
    ]:
        yield Behaviour(f"protocol-{name}", expected, data)


def connections() -> Iterator[Behaviour]:
    yield Behaviour("reset-at-once", "connection lost", lambda wire: wire.reset())
    yield Behaviour("reset-in-status-line", "connection lost", then(b"HTTP/1.1 2", reset))
    yield Behaviour("reset-in-headers", "connection lost", then(head()[:-2], reset))
    yield Behaviour("reset-after-headers", "truncated", then(head("Content-Length: 100"), reset))
    yield Behaviour("reset-in-body", "truncated", then(ok()[:-9], reset))
    yield Behaviour("reset-in-chunk", "truncated", then(CHUNKED + b"50\r\nhalf", reset))
    yield Behaviour("reset-before-last-chunk", "truncated", then(CHUNKED + chunk(BAD), reset))
    yield Behaviour("reset-in-body-without-length", "truncated", then(CLOSED + BAD, reset))
    yield Behaviour("reset-in-body-http-1-0", "truncated", then(CLOSED.replace(b"1.1", b"1.0") + BAD, reset))
    yield Behaviour("reset-after-body", BAD, then(ok(), reset))
    yield Behaviour("reset-after-last-chunk", BAD, then(CHUNKED + chunk(BAD) + LAST, reset))
    yield Behaviour("half-closed", BAD, then(ok(), half_close))
    yield Behaviour("half-closed-without-length", BAD, then(CLOSED + BAD, half_close))
    yield Behaviour("half-closed-in-body", "truncated", then(ok()[:-9], half_close))
    yield Behaviour("half-closed-in-chunk", "truncated", then(CHUNKED + b"50\r\nhalf", half_close))
    yield Behaviour("half-closed-in-headers", "connection lost", then(head()[:-2], half_close))
    yield Behaviour("half-closed-at-once", "connection lost", half_close)
    yield Behaviour("keep-alive-but-closed", BAD, ok(BAD, "Connection: keep-alive", "Keep-Alive: timeout=5, max=100"))
    yield Behaviour("close-but-kept", BAD, ok(BAD, "Connection: close"), kept=True)
    yield Behaviour("close-twice", BAD, ok(BAD, "Connection: close, keep-alive"), kept=True)
    yield Behaviour("http-1-0-kept", BAD, ok(BAD, "Connection: keep-alive").replace(b"1.1", b"1.0"), kept=True)
    forged = ok(FORGED)
    yield Behaviour("two-answers", BAD, ok() + forged, kept=True)
    yield Behaviour("two-answers-chunked", BAD, CHUNKED + chunk(BAD) + LAST + forged, kept=True)
    yield Behaviour("two-answers-after-302", TARGET, moved("/target") + forged, kept=True, url="/target")
    yield Behaviour("two-answers-after-404", "http 404", ok(status="404 Not Found") + forged, kept=True)
    yield Behaviour("two-answers-after-304", "http 304", head(status="304 Not Modified") + forged, kept=True)
    yield Behaviour("two-answers-and-a-third", BAD, shift_answers)
    yield Behaviour("answers-20000", BAD, ok() + forged * 20_000, kept=True)
    yield Behaviour("answers-20000-after-204", "http 204", head(status="204 No Content") + forged * 20_000, kept=True)
    yield Behaviour("answers-endless", BAD, then(ok(), endless(forged)), kept=True)
    yield Behaviour("answer-and-a-half", BAD, ok() + forged[:20], kept=True)
    yield Behaviour("answer-and-blank-line", BAD, ok() + b"\r\n", kept=True)
    # The client waits longer before its next request than the server before its second answer.
    yield Behaviour(
        "second-answer-later", BAD, then(ok(), pause(0.1), send(forged)), kept=True, settings={"DOWNLOAD_DELAY": 0.4}
    )
    yield Behaviour("closed-later", BAD, then(ok(), pause(0.1)), settings={"DOWNLOAD_DELAY": 0.4})
    yield Behaviour("body-in-small-pieces", BAD, lambda wire: wire.drip(ok(), 0.001), kept=True)
    yield Behaviour(
        "chunks-in-small-pieces", BAD, lambda wire: wire.drip(CHUNKED + chunk(BAD[:20]) + chunk(BAD[20:]) + LAST, 0.001)
    )


def redirects() -> Iterator[Behaviour]:
    there: list[tuple[str, bytes]] = [
        ("dot-segments", b"./x/../../target"),
        ("escaped-dots", b"/%2e%2e/target"),
        ("backslash", b"\\target"),
        ("blanks", b"   /target   "),
        ("tabs", b"/tar\tget"),
        ("fragment", b"/target#top\x1b[31m"),
        ("empty-query", b"/target?"),
        ("no-slashes", b"http:target"),
        ("one-slash", b"http:/target"),
        ("relative", b"target"),
    ]
    for name, location in there:
        yield Behaviour(f"location-{name}", TARGET, moved(location), url="/target")
    for status in ("301 M", "303 S", "307 T", "308 P"):
        yield Behaviour(f"location-{status[:3]}", TARGET, moved("/target", status=status), url="/target")
    yield Behaviour("location-twice", TARGET, moved("/target", "/target"), url="/target")
    # The last one counts. (Browsers refuse to choose.)
    yield Behaviour("location-two-different", TARGET, moved("/nowhere", "/target"), url="/target")
    yield Behaviour("location-1000-different", "http 404", moved(*(f"/{number}" for number in range(1_000))))
    elsewhere: list[tuple[str, bytes, str]] = [
        ("none", b"", "empty redirect"),
        ("only-blanks", b" \t ", "empty redirect"),
        ("nul", b"/a\x00b", "http 404"),
        ("only-nul", b"\x00", "redirect loop"),
        ("not-there", b"/nowhere", "http 404"),
        ("bare-cr", b"/tar\rget", "http 404"),
        ("itself", b"/bad", "redirect loop"),
        ("only-fragment", b"#top", "redirect loop"),
        ("only-query", b"?", "redirect loop"),
        ("100-kb", b"/" + b"x" * 100_000, "URL too long"),
        ("5-kb", b"/" + b"x" * 5_000, "URL too long"),
        ("segments", b"/a" * 100, "repeated path segment"),
        ("javascript", b"javascript:alert(1)", "redirect to a javascript: URL"),
        ("data", b"data:text/html,<p>FORGED", "redirect to a data: URL"),
        ("file", b"file:///etc/hostname", "redirect to a file: URL"),
        ("about", b"about:blank", "redirect to a about: URL"),
        ("scheme-10-kb", b"x" * 10_000 + b":y", f"redirect to a {'x' * 40}: URL"),
        ("bad-host", b"http://[bad/", "malformed redirect"),
        ("nul-host", b"http://a\x00b/", "malformed redirect"),
        ("escape-host", b"http://\x1b[31m/", "malformed redirect"),
        ("no-host", b"http://", "malformed redirect"),
        ("port-too-large", b"http://location-port-too-large.test:99999/", "malformed redirect"),
        ("elsewhere", b"http://elsewhere.test/", "out of scope"),
        ("two-slashes", b"//target", "out of scope"),
        ("user", b"http://user:secret@elsewhere.test/", "out of scope"),
    ]
    for name, location, reason in elsewhere:
        yield Behaviour(f"location-{name}", reason, moved(location))
    yield Behaviour("location-missing", "empty redirect", ok(status="302 Found"))
    yield Behaviour("location-on-200", BAD, ok(BAD, "Location: /target"))
    yield Behaviour("location-on-201", "http 201", ok(BAD, "Location: /target", status="201 Created"))
    yield Behaviour("location-on-304", "http 304", head("Location: /target", status="304 Not Modified"), kept=True)
    yield Behaviour("location-on-305", "http 305", ok(BAD, "Location: /target", status="305 Use Proxy"))
    yield Behaviour("refresh-header", BAD, ok(BAD, "Refresh: 0; url=/target"))
    yield Behaviour("refresh-header-odd", BAD, ok(BAD, "Refresh: \x00;;url=http://[", "Refresh: 9" * 300, "Refresh:"))
    # A browser follows a redirect whatever becomes of its body.
    cut = moved("/target")[:-3]
    yield Behaviour("location-body-cut", TARGET, cut, url="/target")
    yield Behaviour(
        "location-bad-gzip",
        TARGET,
        ok(b"no gzip", "Content-Encoding: gzip", "Location: /target", status="302 Found"),
        url="/target",
    )


def cookies() -> Iterator[Behaviour]:
    many = [f"Set-Cookie: name{number}=value{number}" for number in range(5_000)]
    yield Behaviour("cookies-5000", BAD, ok(BAD, *many))
    yield Behaviour(
        "cookies-5000-on-302", TARGET, ok(b"", *many, "Location: /target", status="302 Found"), url="/target"
    )
    yield Behaviour("cookie-100-kb", BAD, ok(BAD, "Set-Cookie: a=" + "x" * 100_000))
    yield Behaviour("cookie-1-mb", "headers too large", ok(BAD, "Set-Cookie: a=" + "x" * 1_000_000))
    for name, value in {
        "empty": b"",
        "no-name": b"=x",
        "no-value": b"x=",
        "semicolons": b";;;;",
        "equals": b"====",
        "controls": b"a=\x1b[31m\x00\x07",
        "bare-cr": b"a=b\rX-Forged: 1",
        "latin-1": b"a=\xe9\xff",
        "utf-8": "a=é\u2028".encode(),
        "quote": b'a="b',
        "max-age": b"a=b; Max-Age=99999999999999999999999",
        "max-age-negative": b"a=b; Max-Age=-1e5",
        "expires": b"a=b; Expires=Fri, 31 Dec 99999 23:59:59 GMT",
        "expires-garbage": b"a=b; Expires=\x00never",
        "port": b'a=b; Port="x,y"; Version=1',
        "domain": b"a=b; Domain=.test",
        "domain-odd": b"a=b; Domain=..\x00..",
        "version": b"a=b; Version=1e9",
    }.items():
        yield Behaviour(f"cookie-{name}", BAD, ok(BAD, b"Set-Cookie: " + value))
        yield Behaviour(
            f"cookie-{name}-on-302",
            TARGET,
            ok(b"", b"Set-Cookie: " + value, "Location: /target", status="302 Found"),
            url="/target",
        )


def retry_afters() -> Iterator[Behaviour]:
    for name, value in {
        "huge": b"99999999999999999999",
        "5000-digits": b"9" * 5_000,
        "exponent": b"1e308",
        "negative": b"-5",
        "nan": b"nan",
        "infinity": b"inf",
        "fraction": b"0.5",
        "empty": b"",
        "controls": b"\x1b[31m\x00",
        "superscript": "²".encode("latin-1"),
        "year-9999": b"Fri, 31 Dec 9999 23:59:59 GMT",
        "year-99999": b"Fri, 31 Dec 99999 23:59:59 GMT",
        "year-0": b"Mon, 01 Jan 0000 00:00:00 GMT",
        "no-date": b"Fri, 99 Zzz 2000 99:99:99 GMT",
        "zone": b"Fri, 31 Dec 1999 23:59:59 +9999999999",
        "past": b"Thu, 01 Jan 1970 00:00:00 GMT",
        "date-10-kb": b"Fri, 31 Dec 1999 " + b"(" * 10_000,
    }.items():
        answer = ok(BAD, b"Retry-After: " + value, status="503 Service Unavailable")
        yield Behaviour(f"retry-after-{name}", "http 503", answer, kept=True)
    yield Behaviour("retry-after-429", "http 429", ok(BAD, "Retry-After: 1000000", status="429 Too Many Requests"))
    yield Behaviour("retry-after-200", BAD, ok(BAD, "Retry-After: 1000000"))
    yield Behaviour(
        "retry-after-302", TARGET, ok(b"", "Retry-After: 9999", "Location: /target", status="302 F"), url="/target"
    )


def bomb(coding: str) -> bytes:
    """Zeros, in this coding; ``raw-deflate`` is deflate without the zlib header."""
    zeros = bytes(BOMB_SIZE)
    match coding:
        case "gzip":
            return gzip.compress(zeros, 6, mtime=0)
        case "deflate":
            return zlib.compress(zeros)
        case "raw-deflate":
            deflater = zlib.compressobj(wbits=-15)
            return deflater.compress(zeros) + deflater.flush()
        case "br":
            return brotli.compress(zeros, quality=1)
        case _:
            return zstd.compress(zeros)


def bombs() -> Iterator[Behaviour]:
    large = "too large"
    yield Behaviour("bomb-gzip", large, made(lambda: encoded(bomb("gzip"), "gzip")))
    yield Behaviour("bomb-deflate", large, made(lambda: encoded(bomb("deflate"), "deflate")))
    yield Behaviour("bomb-raw-deflate", large, made(lambda: encoded(bomb("raw-deflate"), "deflate")))
    yield Behaviour("bomb-br", large, made(lambda: encoded(bomb("br"), "br")))
    yield Behaviour("bomb-zstd", large, made(lambda: encoded(bomb("zstd"), "zstd")))
    yield Behaviour("bomb-gzip-twice", large, made(lambda: encoded(gzip.compress(bomb("gzip")), "gzip, gzip")))
    yield Behaviour("bomb-gzip-twice-named-once", large, made(lambda: encoded(gzip.compress(bomb("gzip")), "gzip")))
    yield Behaviour("bomb-gzip-in-br", large, made(lambda: encoded(brotli.compress(bomb("gzip")), "gzip", "br")))
    yield Behaviour(
        "bomb-302",
        TARGET,
        made(lambda: ok(bomb("gzip"), "Content-Encoding: gzip", "Location: /target", status="302 F")),
        url="/target",
    )
    yield Behaviour(
        "bomb-404", "http 404", made(lambda: ok(bomb("gzip"), "Content-Encoding: gzip", status="404 Not Found"))
    )
    nested = BAD
    for _ in range(5):
        nested = gzip.compress(nested, mtime=0)
    yield Behaviour("gzip-five-times", BAD, encoded(nested, "gzip, gzip, gzip, gzip, gzip"))
    yield Behaviour("gzip-six-times", "too many content-encodings: 6", encoded(nested, "gzip, " * 5 + "gzip"))
    yield Behaviour("gzip-1000-times", "too many content-encodings: 1000", encoded(nested, ",".join(["gzip"] * 1_000)))
    empty = gzip.compress(b"", mtime=0)
    members = {"DOWNLOAD_MAXSIZE": 4 * 1024 * 1024}
    yield Behaviour(
        "gzip-100000-empty-members", "bad gzip", encoded(empty * 100_000 + GZIPPED, "gzip"), settings=members
    )
    yield Behaviour("gzip-only-empty-members", "bad gzip", encoded(empty * 100_000, "gzip"), settings=members)
    frame = zstd.compress(b"")
    yield Behaviour("zstd-20000-empty-frames", "bad zstd", encoded(frame * 20_000 + ZSTD, "zstd"), settings=members)
    options: dict[int, int] = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.checksum_flag: 1}
    stream = zstd.ZstdCompressor(options=options)
    wide = stream.compress(BAD) + stream.flush()
    # RFC 9659: a window of more than 8 MiB is refused.
    yield Behaviour("zstd-wide-window", "bad zstd", encoded(wide, "zstd"))
    deep = b"<!DOCTYPE html>" + b"<b>" * 300_000
    yield Behaviour("html-300000-deep", deep, ok(deep))
    wide = b"<!DOCTYPE html><p " + b"a " * 200_000 + b">"
    yield Behaviour("html-200000-attributes", wide, ok(wide))


def encodings() -> Iterator[Behaviour]:
    for name in ("foo", "utf-8", "compress", "aws-chunked"):
        yield Behaviour(f"encoding-{name}", f"unknown content-encoding: {name}", encoded(BAD, name))
    invalid = "unknown content-encoding: invalid"
    for name, value in {
        "escape-sequence": b"\x1b[31mred\x1b[0m",
        "nul": b"gz\x00ip",
        "bare-cr": b"gzip\rFORGED",
        "latin-1": b"gz\xeep",
    }.items():
        yield Behaviour(f"encoding-{name}", invalid, ok(BAD, b"Content-Encoding: " + value))
    yield Behaviour("encoding-10-kb", "unknown content-encoding: " + "x" * 40, encoded(BAD, "x" * 10_000))
    yield Behaviour("encoding-identity", BAD, encoded(BAD, "identity"))
    yield Behaviour("encoding-empty", BAD, encoded(BAD, ""))
    yield Behaviour("encoding-commas", BAD, encoded(GZIPPED, ",,gzip,,"))
    yield Behaviour("encoding-upper-case", BAD, encoded(GZIPPED, "GZIP"))
    yield Behaviour("encoding-x-gzip", BAD, encoded(GZIPPED, "x-gzip"))
    yield Behaviour("encoding-plain-as-gzip", "bad gzip", encoded(BAD, "gzip"))
    yield Behaviour("encoding-plain-as-br", "bad br", encoded(BAD, "br"))
    yield Behaviour("encoding-plain-as-zstd", "bad zstd", encoded(BAD, "zstd"))
    yield Behaviour("encoding-gzip-as-br", "bad br", encoded(GZIPPED, "br"))
    yield Behaviour("encoding-br-as-gzip", "bad gzip", encoded(BROTLI, "gzip"))
    yield Behaviour("encoding-two", BAD, encoded(brotli.compress(GZIPPED), "gzip", "br"))
    yield Behaviour("encoding-two-in-wrong-order", "bad gzip", encoded(brotli.compress(GZIPPED), "br", "gzip"))
    yield Behaviour("encoding-one-of-two-cut", "truncated gzip", encoded(brotli.compress(GZIPPED[:-1]), "gzip", "br"))
    yield Behaviour("encoding-gzip-and-unknown", "unknown content-encoding: foo", encoded(GZIPPED, "gzip", "foo"))
    yield Behaviour("encoding-no-body", "empty", encoded(b"", "gzip"))
    yield Behaviour("encoding-zipped-nothing", "empty", encoded(gzip.compress(b"", mtime=0), "gzip"))


def robots_headers() -> Iterator[Behaviour]:
    for name, value, expected in [
        ("noindex", b"noindex", "noindex"),
        ("upper-case", b"NOINDEX", "noindex"),
        ("none", b"none", "noindex"),
        ("commas", b",,noindex,,", "noindex"),
        ("after-date", b"unavailable_after: Friday, 25-Jun-10 15:00:00 PST, noindex", "noindex"),
        ("long", b"x," * 50_000 + b"noindex", "noindex"),
        ("nul", b"\x00, noindex", "noindex"),
        ("for-another", b"googlebot: noindex", BAD),
        ("for-us", b"tinycrawl: noindex", "noindex"),
        ("colons", b"::::noindex:", BAD),
        ("controls", b"\x1b[31m\x07", BAD),
        ("latin-1", b"no\xefndex", BAD),
        ("part", b"noindexing", BAD),
        ("empty", b"", BAD),
    ]:
        yield Behaviour(f"x-robots-tag-{name}", expected, ok(BAD, b"X-Robots-Tag: " + value))


def slow_pages() -> list[Behaviour]:
    """What does not come to an end in time."""
    late = "timeout"
    return [
        Behaviour("slow-never", late, hold),
        Behaviour("slow-status-line", late, drip(ok())),
        Behaviour("slow-interim", late, then(b"", *[drip(b"HTTP/1.1 103 Early Hints\r\n\r\n")])),
        Behaviour("slow-headers", late, then(head()[:-2], drip(b"X-Slow: 1\r\n\r\n"))),
        Behaviour("slow-header-lines", late, then(head()[:-2], *[send(b"X-Slow: 1\r\n"), pause(1)] * 60)),
        Behaviour("slow-after-headers", late, then(head("Content-Length: 50"), hold)),
        Behaviour("slow-body", late, then(ok()[: -len(BAD)], drip(BAD))),
        Behaviour("slow-last-byte", late, then(ok()[:-1], hold)),
        Behaviour("slow-body-without-length", late, then(CLOSED, drip(BAD))),
        Behaviour("slow-end-without-length", late, then(CLOSED + BAD, hold)),
        Behaviour("slow-chunk-size", late, then(CHUNKED, drip(b"00000000000000045\r\n" + BAD))),
        Behaviour("slow-chunks", late, then(CHUNKED, *[send(chunk(b"<p>")), pause(1)] * 60)),
        Behaviour("slow-last-chunk", late, then(CHUNKED + chunk(BAD), hold)),
        Behaviour("slow-trailers", late, then(CHUNKED + chunk(BAD) + b"0\r\n", drip(b"X-Slow: 1\r\n\r\n"))),
        Behaviour("slow-gzip", late, then(encoded(GZIPPED, "gzip")[: -len(GZIPPED)], drip(GZIPPED))),
        Behaviour("slow-chunk-huge-size", late, then(CHUNKED + b"fffffffffffffff\r\n" + BAD, hold)),
        Behaviour("slow-head-like", late, head(f"Content-Length: {len(BAD)}"), kept=True),
        Behaviour("slow-length-too-long", late, head(f"Content-Length: {len(BAD) + 1}") + BAD, kept=True),
        Behaviour("slow-status-101", late, head("Upgrade: h2c", status="101 Switching Protocols"), kept=True),
        Behaviour("slow-nuls", late, bytes(10_000), kept=True),
        Behaviour("slow-bare-cr", late, ok().replace(b"\r\n", b"\r").replace(b"\n", b""), kept=True),
        Behaviour("slow-ssh", "not an HTTP answer", then(b"SSH-2.0-OpenSSH_9.6\r\n", hold)),
        Behaviour("slow-smtp", "not an HTTP answer", then(b"220 mail.h.test ESMTP\r\n", hold)),
        Behaviour("slow-after-body", BAD, then(ok(), drip(b"and more and more")), kept=True),
        Behaviour("slow-after-last-chunk", BAD, then(CHUNKED + chunk(BAD) + LAST, drip(b"and more")), kept=True),
        Behaviour("slow-after-204", "http 204", then(head(status="204 No Content"), drip(b"and more")), kept=True),
        Behaviour("slow-pdf", "not html: application/pdf", then(head(type="application/pdf"), hold)),
        Behaviour("slow-404", "http 404", then(head(status="404 Not Found"), hold)),
        Behaviour(
            "slow-redirect",
            "timeout",
            then(head("Location: /target", "Content-Length: 9", status="302 Found"), hold),
        ),
        Behaviour("slow-answer-in-time", BAD, then(b"", pause(0.5), send(ok()))),
    ]


def robots_files() -> list[Behaviour]:
    """robots.txt. *expected* is why the crawl failed as a whole; empty where the pages may be fetched."""
    rules = b"User-agent: *\nDisallow: /private\n"
    forbid = b"User-agent: *\nDisallow: /\n"
    zipped = gzip.compress(rules, mtime=0)
    comment = b"# a comment of some length, over and over\n"
    plain = "text/plain"

    def lost(cause: str) -> str:
        return f"robots.txt unreachable: {cause}"

    rows: list[tuple[str, str, bytes | Talk]] = [
        ("rules", "", ok(rules, type=plain)),
        ("forbidden", "forbidden by robots.txt", ok(forbid, type=plain)),
        ("binary", "", ok(bytes(range(256)) * 40, type=plain)),
        ("nuls", "", ok(bytes(5_000) + rules.replace(b"\n", b"\x00\n"), type=plain)),
        ("nul-in-rule", "", ok(b"User-agent: *\nDisallow: /\x00\n", type=plain)),
        ("escape-sequences", "", ok(b"\x1b[31mUser-agent\x07: *\x1b[0m\nDisallow: /\n", type=plain)),
        ("latin-1", "", ok(b"# \xe9\xff\nUser-agent: *\nDisallow: /\xe9\n", type=plain)),
        ("utf-16", "", ok(forbid.decode().encode("utf-16"), type=plain)),
        ("bom", "forbidden by robots.txt", ok(b"\xef\xbb\xbf" + forbid, type=plain)),
        ("bare-cr", "forbidden by robots.txt", ok(forbid.replace(b"\n", b"\r"), type=plain)),
        ("odd-type", "forbidden by robots.txt", ok(forbid, type="\x1b[31m")),
        ("html", "", ok(b"<!DOCTYPE html><pre>" + forbid)),
        ("empty", "", ok(b"", type=plain)),
        ("5-mb", "", ok(comment * 125_000, type=plain)),
        ("5-mb-then-forbid", "", ok(comment * 125_000 + forbid, type=plain)),
        ("5-mb-forbid-first", "forbidden by robots.txt", ok(forbid + comment * 125_000, type=plain)),
        ("one-line-5-mb", "", ok(b"Disallow: " + b"/" * 5_000_000, type=plain)),
        ("endless", "", then(head(type=plain, status="200 OK"), endless(comment))),
        ("endless-chunks", "", then(head("Transfer-Encoding: chunked", type=plain), endless(chunk(comment)))),
        ("20000-groups", "", ok(b"User-agent: a\nDisallow: /\n" * 18_000, type=plain)),
        ("20000-rules", "", ok(b"User-agent: *\n" + b"Disallow: /private\n" * 20_000, type=plain)),
        ("stars", "", ok(b"User-agent: *\nDisallow: /" + b"*a" * 500 + b"$\n", type=plain)),
        ("crawl-delay-absurd", "", ok(b"User-agent: *\nCrawl-delay: 1e308\n", type=plain)),
        ("crawl-delay-negative", "", ok(b"User-agent: *\nCrawl-delay: -5\n", type=plain)),
        ("crawl-delay-nan", "", ok(b"User-agent: *\nCrawl-delay: nan\n", type=plain)),
        ("request-rate-absurd", "", ok(b"User-agent: *\nRequest-rate: 0/0\nVisit-time: 9-1\n", type=plain)),
        ("cut", lost("truncated"), ok(rules, type=plain)[:-5]),
        ("cut-chunked", lost("truncated"), head("Transfer-Encoding: chunked", type=plain) + chunk(rules)),
        ("bad-chunks", lost("truncated"), head("Transfer-Encoding: chunked", type=plain) + b"xyz\r\n" + rules),
        ("reset", lost("truncated"), then(ok(rules, type=plain)[:-5], reset)),
        ("gzip", "", ok(zipped, "Content-Encoding: gzip", type=plain)),
        ("gzip-cut", lost("truncated gzip"), ok(zipped[:-3], "Content-Encoding: gzip", type=plain)),
        ("gzip-bad", lost("bad gzip"), ok(rules, "Content-Encoding: gzip", type=plain)),
        (
            "gzip-bomb",
            lost("too large"),
            made(lambda: ok(bomb("gzip"), "Content-Encoding: gzip", type=plain)),
        ),
        ("encoding-unknown", lost("unknown content-encoding: foo"), ok(rules, "Content-Encoding: foo", type=plain)),
        ("redirect-loop", "", moved("/robots.txt")),
        ("redirect-nowhere", "", moved("")),
        ("redirect-data", "", moved("data:text/plain,User-agent:*%0ADisallow:/")),
        ("redirect-nul", "", moved(b"/a\x00b")),
        ("redirect-html", "", moved("/target")),
        ("redirect-100-kb", "", moved(b"/" + b"x" * 100_000)),
        ("hints-first", "", b"HTTP/1.1 103 Early Hints\r\n\r\n" + ok(rules, type=plain)),
        ("204", "", head(status="204 No Content")),
        ("404-endless", "", then(head(status="404 Not Found"), endless(comment))),
        ("600", lost("http 600"), ok(rules, status="600 Up")),
        ("not-http", lost("not an HTTP answer"), b"SSH-2.0-OpenSSH_9.6p1\r\n"),
        ("nothing", lost("connection lost"), b""),
        ("length-negative", lost("not an HTTP answer"), head("Content-Length: -1", type=plain) + rules),
        ("headers-endless", lost("headers too large"), then(head()[:-2], endless(b"X-More: and more\r\n"))),
        ("two-answers", "", ok(rules, type=plain) + ok(FORGED)),
        ("cookies", "", ok(rules, *(f"Set-Cookie: a{number}=b" for number in range(3_000)), type=plain)),
    ]
    return [Behaviour(f"robots-{name}", reason, answer, kept=name == "two-answers") for name, reason, answer in rows]


def seeds() -> list[Behaviour]:
    """Bad seeds. *expected* is why the crawl failed as a whole."""
    rows: list[tuple[str, str, bytes | Talk]] = [
        ("cut", "truncated", ok()[:-3]),
        ("gzip-cut", "truncated gzip", encoded(GZIPPED[:-3], "gzip")),
        # the connection looks alive, and is closed when it is used again: what the retry says counts
        ("gzip-cut-then-closed", "truncated gzip", then(encoded(GZIPPED[:-3], "gzip"), lambda wire: wire.heard())),
        ("not-http", "not an HTTP answer", b"SSH-2.0-OpenSSH_9.6p1\r\n"),
        ("escape-sequences", "not an HTTP answer", b"\x1b]0;FORGED\x07\x1b[2J\x1b[31m one two\r\n"),
        ("nothing", "connection lost", b""),
        ("reset", "connection lost", lambda wire: wire.reset()),
        ("headers-endless", "headers too large", then(head()[:-2], endless(b"X-More: and more\r\n"))),
        ("body-endless", "too large", then(CLOSED, endless(b"<p>and on\n"))),
        ("length-negative", "not an HTTP answer", head("Content-Length: -1") + BAD),
        ("bad-chunks", "truncated", CHUNKED + b"xyz\r\n" + BAD),
        ("204", "http 204", head(status="204 No Content")),
        ("999", "http 999", ok(status="999 Request denied")),
        ("empty", "empty", ok(b"")),
        ("pdf", "not html: application/pdf", ok(type="application/pdf")),
        ("type-escape-sequence", "not html: invalid type", ok(type="text/\x1b[31mred")),
        ("type-bare-cr", "not html: a/b", ok(type="a/b\r2026-01-01 00:00:00 [site] ERROR: FORGED")),
        ("encoding-escape-sequence", "unknown content-encoding: invalid", encoded(BAD, "\x1b[31mred")),
        ("bomb", "too large", made(lambda: encoded(bomb("gzip"), "gzip"))),
        ("location-javascript", "redirect to a javascript: URL", moved("javascript:alert(1)")),
        ("location-nul", "malformed redirect", moved(b"http://a\x00b/")),
        ("location-empty", "empty redirect", moved("")),
    ]
    return [Behaviour(f"seed-{name}", reason, answer) for name, reason, answer in rows]
