"""A site of any size made by rule, with the faults of the web at steady rates; and what a crawl of it must come to.

What a URL answers follows from the seed, the URL and, for a fault that passes, how often it was asked: nothing is
stored. ``/p/<i>`` are the pages; ``i`` decides the kind (KINDS). Page ``i`` links to pages shortly after it, so that
the known URLs grow with the crawl as on a real site, to earlier ones, and to everything that is found in links.

As a program it is the server: it prints its port, and at SIGTERM what was asked. The oracle, at the end of this file,
is DESIGN section 4 written down once more, without concurrency; it takes the rules, not the HTML.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import html
import json
import random
import signal
import socket
import struct
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from tinycrawl.content import brotli, zstd  # noqa: E402  # whichever of their packages are installed

MAX_REDIRECTS = 20
SLOW = 0.2  # seconds
OUT_OF_SCOPE = "out of scope"
ROBOTS = b"User-agent: *\nDisallow: /private/\n"

# kind -> (how many of 10,000 pages, what it comes to). "page" and "noindex" speak for themselves, "moved" is a
# redirect, anything else is a reason. A kind that ends in "?" fails once or twice, 503 and 429 up to five times, and
# is a page then.
KINDS: dict[str, tuple[int, str]] = {
    # Pages, and what is odd about them
    "gzip": (800, "page"),
    "br": (300, "page"),
    "zstd": (200, "page"),
    "deflate": (50, "page"),
    "chunked": (500, "page"),
    "close": (200, "page"),
    "http-1.0": (50, "page"),
    "slow": (200, "page"),
    "big": (10, "page"),
    "cookies": (200, "page"),
    "wall": (50, "page"),  # sets a cookie and sends the visitor to where he is
    "huge-headers": (50, "page"),
    "nested": (100, "page"),
    "unclosed": (100, "page"),
    "nul": (50, "page"),
    "soup": (200, "page"),
    "wrong-charset": (100, "page"),
    "no-such-charset": (50, "page"),
    "utf-16": (50, "page"),
    "latin-1": (100, "page"),
    "xhtml": (50, "page"),
    "octet-stream-html": (20, "page"),
    "untyped-html": (20, "page"),
    "203": (20, "page"),
    "base": (100, "page"),
    "refresh": (50, "page"),
    "nofollow": (50, "page"),
    "nofollow-header": (50, "page"),
    "noindex": (100, "noindex"),
    "noindex-header": (100, "noindex"),
    # Faults that pass
    "500?": (100, "page"),
    "503?": (200, "page"),
    "429?": (50, "page"),
    "reset?": (50, "page"),
    "reset-in-body?": (50, "page"),
    "cut?": (50, "page"),
    "cut-chunks?": (30, "page"),
    "bad-chunk?": (30, "page"),
    "cut-head?": (20, "page"),
    "cut-gzip?": (30, "page"),
    "cut-br?": (20, "page"),
    "cut-zstd?": (20, "page"),
    "bad-gzip?": (10, "page"),
    "garbage?": (20, "page"),
    # Faults that stay
    "404": (300, "http 404"),
    "403": (50, "http 403"),
    "410": (50, "http 410"),
    "204": (20, "http 204"),
    "500": (50, "http 500"),
    "503": (20, "http 503"),
    "429": (10, "http 429"),
    "reset": (20, "connection lost"),
    "reset-in-body": (20, "truncated"),
    "cut": (20, "truncated"),
    "cut-chunks": (10, "truncated"),
    "bad-chunk": (10, "truncated"),
    "cut-head": (10, "connection lost"),
    "cut-gzip": (10, "truncated gzip"),
    "cut-br": (10, "truncated br"),
    "cut-zstd": (10, "truncated zstd"),
    "bad-gzip": (10, "bad gzip"),
    "no-such-encoding": (10, "unknown content-encoding: klingon"),
    "garbage": (10, "not an HTTP answer"),
    "headers-without-end": (10, "headers too large"),
    "never": (3, "timeout"),
    "stall": (2, "timeout"),
    # No pages
    "pdf": (100, "not html: application/pdf"),
    "image": (50, "not html: image/png"),
    "text": (30, "not html: text/plain"),
    "json": (20, "not html: application/json"),
    "octet-stream": (20, "not html: application/octet-stream"),
    "untyped": (20, "not html: no type"),
    "empty": (50, "empty"),
    # Redirects
    "moved": (300, "moved"),
    "chain": (50, "moved"),
    "long-chain": (10, "moved"),
    "loop": (20, "moved"),
    "self": (10, "moved"),
    "out": (50, "moved"),
    "other-port": (10, "moved"),
    "to-private": (10, "moved"),
    "bad-location": (10, "malformed redirect"),
    "no-location": (10, "empty redirect"),
    "file-location": (10, "redirect to a file: URL"),
}
_NAMES = list(KINDS)
_STEPS = [name for name, (rate, _) in KINDS.items() for _ in range(rate)]

# Asked again up to twice; 503 and 429 up to five times.
RETRIED = {
    *("500", "reset", "reset-in-body", "cut", "cut-chunks", "bad-chunk", "cut-head", "cut-gzip", "cut-br", "cut-zstd"),
    *("bad-gzip", "garbage", "never", "stall"),
}
PATIENT = {"503", "429"}
STATUS = {"404": 404, "403": 403, "410": 410, "204": 204, "500": 500, "503": 503, "429": 429}
LOCATIONS = {"bad-location": "http://[bad", "no-location": "", "file-location": "file:///etc/hostname"}
TYPES = {
    "pdf": ("application/pdf", b"%PDF-1.4\n" + b"0 0 obj\n" * 30_000),
    "image": ("image/png", b"\x89PNG\r\n\x1a\n" + bytes(20_000)),
    "text": ("text/plain", b'<html><a href="/fake">no link</a>'),
    "json": ("application/json", b'{"html": "<a href=/fake>"}'),
    "octet-stream": ("application/octet-stream", bytes(5_000)),
    "untyped": (None, b"GIF89a" + bytes(5_000)),
}
DECLARED = {
    "latin-1": "text/html; charset=iso-8859-1",
    "no-such-charset": "text/html; charset=klingon",
    "utf-16": "text/html",
    "xhtml": "application/xhtml+xml",
    "octet-stream-html": "application/octet-stream",
    "untyped-html": None,
    "soup": "TEXT/HTML",
}


@cache
def _words() -> str:
    rng = random.Random("words")
    some = ["web", "crawl", "page", "café", "link", "a", "of", "the", "naïve", "to", "and", "seed", "depth", "order"]
    return " ".join(rng.choices(some, k=20_000))


class Link(NamedTuple):
    """*text* is what the page says; *url* where that leads, "" for no http(s) URL, None if it is malformed."""

    text: str
    url: str | None


@dataclass(frozen=True, slots=True)
class Moved:
    url: str
    cookie: bool = False  # set on the way, and needed there


@dataclass(slots=True)
class Reply:
    """*data* is sent as it is, after *delay* seconds. *then*: keep, close or reset the connection, or hang."""

    data: bytes
    delay: float = 0.0
    then: str = "keep"


class FaultySite:
    """The rules. *origin* is ``http://host:port``."""

    def __init__(self, pages: int, seed: int, origin: str) -> None:
        self.pages = pages
        self.seed = seed
        self.origin = origin

    def kind(self, i: int) -> str:
        """Each kind comes once among the first pages, then by chance, at its rate. The seed is a plain page."""
        if i == 0:
            return "plain"
        if i <= len(_NAMES):
            return _NAMES[i - 1]
        place = self._numbers(f"kind {i}", 1)[0] % 10_000
        return _STEPS[place] if place < len(_STEPS) else "plain"

    def _numbers(self, what: str, count: int) -> tuple[int, ...]:
        digest = hashlib.shake_128(f"{self.seed}/{what}".encode()).digest(8 * count)
        return struct.unpack(f"<{count}Q", digest)

    # Links

    def links(self, target: str) -> list[Link]:
        """The links of the page at *target*, in their order."""
        i, kind = self._page(target)
        count, *numbers = self._numbers(f"links {target}", 61)
        found = [self._link(i, number) for number in numbers[: 20 + count % 41]]
        if kind == "latin-1":
            j = numbers[0] % max(1, i) // 50 * 50
            found[0] = Link(f"/p/{j}?q=é", f"{self.origin}/p/{j}?q=%E9")
        elif kind == "refresh":
            j = self._after(i, numbers[0])
            found[0] = Link(f"/p/{j}", f"{self.origin}/p/{j}")
        elif kind == "base":
            j = self._after(i, numbers[0])
            found[0] = Link(f"../../p/{j}", f"{self.origin}/p/{j}")
        return found

    def _after(self, i: int, number: int) -> int:
        """A page shortly after *i*: a depth of about sqrt(pages) / 5 in all."""
        return int(i + 1 + number % max(40, int(10 * i**0.5))) % self.pages

    def _link(self, i: int, number: int) -> Link:
        choice, number = number % 1000, number // 1000
        if choice < 450:
            return self._spelled(self._after(i, number), number // self.pages)
        if choice < 770:
            return self._spelled(number % max(1, i), number // self.pages)
        if choice < 870:
            return self._spelled(number % min(20, self.pages), number // self.pages)
        return self._odd(i, choice, number)

    def _spelled(self, j: int, number: int) -> Link:
        """A link to page *j*, in one of the spellings that mean the same; or to another of its URLs."""
        path = f"/p/{j}"
        if j % 25 == 3:
            path += ("", "", "?sid=4f2a", "?sid=77c0")[number % 4]
        elif j % 25 == 8:
            path += ("?a=1&b=2", "?b=2&a=1")[number % 2]
        elif j % 500 == 1:
            path += "?long=" + "long" * 375
        url = f"{self.origin}{path}"
        host = self.origin.removeprefix("http://")
        spellings = (
            f"{path}#part",
            f"/x/..{path}",
            url,
            f"//{host}{path}",
            f"HTTP://user:secret@{host}{path}",
            f" \n{path[:2]}\t{path[2:]} ",
            path.replace("/", "\\"),
            path if "?" in path else f"{path}?",
        )
        number //= 4
        return Link(spellings[number % 64] if number % 64 < len(spellings) else path, url)

    def _odd(self, i: int, choice: int, number: int) -> Link:
        if choice < 930:
            url = f"http://site{i // 200}.invalid/{number % 50}"
            return Link(url, url)
        if choice < 940:
            path = f"/missing/{number % 300}"
        elif choice < 950:
            path = f"/private/{number % 300}"
        elif choice < 955:
            path = f"/p/{'x/' * 5}{number % 300}"
        elif choice < 956:
            path = f"/p/1?{'very-long-' * 210}{number % 100}"
        elif choice < 960:
            url = f"http://127.0.0.1:1/{number % 100}"
            return Link(url, url)
        elif choice < 965:
            return Link(("http://[bad", "http://a b/", "http://127.0.0.1:99999/")[number % 3], None)
        else:
            texts = ("mailto:a@b.invalid", "javascript:void(0)", "tel:+1", "data:text/html,x", "file:///etc/hostname")
            return Link(texts[number % len(texts)], "")
        return Link(path, f"{self.origin}{path}")

    # Answers

    def _page(self, target: str) -> tuple[int, str]:
        i = int(target.partition("?")[0].removeprefix("/p/"))
        return i, self.kind(i)

    def failures(self, target: str) -> int:
        """How often the page at *target* fails before it is one."""
        _, kind = self._page(target)
        if not kind.endswith("?"):
            return 0
        return 1 + self._numbers(f"failures {target}", 1)[0] % (5 if kind[:-1] in PATIENT else 2)

    def fate(self, target: str, has_cookie: bool = False) -> Moved | str:
        """What *target* comes to in the end: "page", "noindex", a reason, or a redirect."""
        _, start, *rest = target.split("/")
        if start == "private":
            return "robots"
        if start == "missing":
            return "http 404"
        if start == "hop":
            return self._hop(int(rest[0]), int(rest[1]))
        if start == "loop":
            return Moved(f"{self.origin}/loop/{rest[0]}/{(int(rest[1]) + 1) % 3}")
        i, kind = self._page(target)
        number = self._numbers(f"redirect {i}", 1)[0]
        match kind:
            case "wall" if not has_cookie:
                return Moved(f"{self.origin}{target}", cookie=True)
            case "moved":
                return Moved(f"{self.origin}/p/{self._after(i, number) if number % 2 else number % max(1, i)}")
            case "chain" | "long-chain":
                return self._hop(i, 0)
            case "loop":
                return Moved(f"{self.origin}/loop/{i}/0")
            case "self":
                return Moved(f"{self.origin}{target}")
            case "out":
                return Moved(f"http://away{number % 100}.invalid/{i}")
            case "other-port":
                return Moved(f"http://127.0.0.1:1/p/{i}")
            case "to-private":
                return Moved(f"{self.origin}/private/{number % 300}")
        return KINDS.get(kind, (0, "page"))[1]

    def _hop(self, i: int, k: int) -> Moved:
        number = self._numbers(f"hops {i}", 1)[0]
        last = 30 if self.kind(i) == "long-chain" else 1 + number % 5
        return Moved(f"{self.origin}/hop/{i}/{k + 1}" if k < last else f"{self.origin}/p/{self._after(i, number)}")

    def tries(self, target: str) -> int:
        """How often *target* has to be asked for that."""
        if not target.startswith("/p/"):
            return int(not target.startswith("/private/"))
        _, kind = self._page(target)
        return 1 + self.failures(target) + 2 * (kind in RETRIED) + 5 * (kind in PATIENT)

    def answer(self, target: str, number: int, cookie: str) -> Reply:
        """What is sent; *number* says how often *target* was asked before."""
        if target == "/robots.txt":
            return Reply(_http(200, ROBOTS, "text/plain"))
        fate = self.fate(target, bool(cookie))
        if isinstance(fate, Moved):
            i = target.partition("?")[0]
            cookies = ("Set-Cookie", f"wall=1; Path={i}") if fate.cookie else ("X-None", "")
            status = (301, 302, 303, 307, 308)[self._numbers(f"status {target}", 1)[0] % 5]
            location = fate.url if len(target) % 2 else fate.url.removeprefix(self.origin)
            return Reply(_http(status, b"moved", "text/html", ("Location", location), cookies))
        if fate == "robots":
            return Reply(_http(200, b"<html>nobody may see this", "text/html"))
        if not target.startswith("/p/"):
            return Reply(_http(404, b'<html><a href="/fake">not found</a>', "text/html"))
        kind = self._page(target)[1]
        if kind.endswith("?"):
            kind = kind[:-1] if number < self.failures(target) else "plain"
        return self._reply(kind, target)

    def _reply(self, kind: str, target: str) -> Reply:
        if kind in STATUS:
            wait = [("Retry-After", "0")] if kind in PATIENT else []
            return Reply(_http(STATUS[kind], b"" if kind == "204" else b"<html>sorry", "text/html", *wait))
        if kind in LOCATIONS:
            return Reply(_http(302, b"moved", "text/html", ("Location", LOCATIONS[kind])))
        if kind in TYPES:
            return Reply(_http(200, TYPES[kind][1], TYPES[kind][0]))
        declared = DECLARED.get(kind, "text/html; charset=utf-8")
        body = self.body(target)
        whole = _http(200, body, declared)
        match kind:
            case "never":
                return Reply(b"", then="hang")
            case "reset":
                return Reply(b"", then="reset")
            case "garbage":
                return Reply(b"<html>an old server's page</html>\r\n\r\n", then="close")
            case "cut-head":
                return Reply(whole[:40], then="close")
            case "stall" | "reset-in-body" | "cut":
                return Reply(whole[:-1000], then={"stall": "hang", "cut": "close"}.get(kind, "reset"))
            case "cut-chunks":
                return Reply(_http(200, body, declared, chunks="cut"), then="close")
            case "bad-chunk":
                return Reply(_http(200, body, declared, chunks="bad"), then="close")
            case "chunked":
                return Reply(_http(200, body, declared, chunks="good"))
            case "empty":
                return Reply(_http(200, b"", declared))
            case "slow":
                return Reply(whole, delay=SLOW)
            case "close":
                return Reply(_http(200, body, declared, ("Connection", "close")), then="close")
            case "http-1.0":
                return Reply(b"HTTP/1.0 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + body, then="close")
            case "203":
                return Reply(_http(203, body, declared))
            case "nofollow-header" | "noindex-header":
                return Reply(_http(200, body, declared, ("X-Robots-Tag", kind.removesuffix("-header"))))
            case "cookies":
                return Reply(_http(200, body, declared, *(("Set-Cookie", f"c{n}={target}; Path=/") for n in range(5))))
            case "huge-headers":
                many = [(f"X-Many-{n}", "v" * 200) for n in range(60)]
                return Reply(_http(200, body, declared, *many, ("X-Long", "v" * 15_000)))
            case "headers-without-end":
                return Reply(b"HTTP/1.1 200 OK\r\n" + b"X-Many: %b\r\n" % (b"v" * 8_000) * 200, then="hang")
            case "no-such-encoding":
                return Reply(_http(200, body, declared, ("Content-Encoding", "klingon")))
            case "bad-gzip":
                return Reply(_http(200, body, declared, ("Content-Encoding", "gzip")))
            case "gzip" | "br" | "zstd" | "deflate" | "cut-gzip" | "cut-br" | "cut-zstd":
                name = kind.removeprefix("cut-")
                coded = _encoded(body, name)
                if kind != name:
                    coded = coded[:-10]
                return Reply(_http(200, coded, declared, ("Content-Encoding", name)))
        return Reply(whole)

    def body(self, target: str) -> bytes:
        """The page at *target*, without content encoding."""
        _, kind = self._page(target)
        text = self._text(target)
        if kind == "utf-16":
            return text.encode("utf-16")
        return text.encode("latin-1" if kind in ("wrong-charset", "latin-1") else "utf-8")

    def stored(self, target: str) -> bytes:
        """The page as a crawl stores it."""
        return self._text(target).encode() if self._page(target)[1] == "utf-16" else self.body(target)

    def _text(self, target: str) -> str:
        i, kind = self._page(target)
        links = self.links(target)
        size, start, *_ = self._numbers(f"text {target}", 2)
        each, words = (5_000 + size % 13_000) // len(links), _words()
        head = ""
        if kind in ("nofollow", "noindex"):
            head = f'<meta name="robots" content="{kind}">'
        elif kind == "base":
            head = '<base href="/deep/down/x">'
        elif kind == "refresh":
            head = f'<meta http-equiv="refresh" content="60; url={links[0].text}">'
            links = links[1:]
        parts = [f"<!DOCTYPE html>\n<html><head><title>Page {i}</title>{head}</head><body>\n"]
        parts.append('<!-- <a href="/fake">none</a> --><script>"<a href=/fake>none</a>"</script>\n')
        if kind == "nested":
            parts.append("<div><em>" * (start % 151))  # up to 300 in all
        for n, link in enumerate(links):
            at = (start + n * each) % (len(words) - each)
            href = html.escape(link.text)
            if kind == "unclosed":
                parts.append(f'<div><table><tr><td><em>{words[at : at + each]}<a href="{href}">{n}\n')
            elif kind == "nul":
                parts.append(f'<p>\0{words[at : at + each]} <a \0title="\0" href="{href}">\0{n}</a>\r\n')
            elif kind == "soup" and "?" not in href and " " not in href:
                parts.append(f"</b></p><P CLASS=x y=z>{words[at : at + each]}<A HREF={href}>{n}<b></a></i>\n")
            else:
                rel = ' rel="nofollow ugc"' if n % 16 == 7 else ""
                parts.append(f'<p>{words[at : at + each]} <a class="link" href="{href}"{rel}>{n}</a></p>\n')
        if kind == "big":
            parts.append(f"<p>{words * (1_000_000 // len(words) + 1)}</p>\n")
        parts.append("" if kind in ("unclosed", "nested") else "</body></html>\n")
        return "".join(parts)


def _http(status: int, body: bytes, kind: str | None, *headers: tuple[str, str], chunks: str = "") -> bytes:
    lines = [f"HTTP/1.1 {status} Some", "Server: faulty", *(f"{name}: {value}" for name, value in headers)]
    if kind is not None:
        lines.append(f"Content-Type: {kind}")
    if chunks:
        lines.append("Transfer-Encoding: chunked")
        half = len(body) // 2
        body, rest = (b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:half], body[half:]))
        body += {"good": rest + b"0\r\n\r\n", "cut": rest, "bad": b"klingon\r\n" + rest}[chunks]
    elif status != 204:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _encoded(body: bytes, name: str) -> bytes:
    match name:
        case "gzip":
            return gzip.compress(body, 1)
        case "deflate":
            return zlib.compress(body, 1)
        case "br":
            return bytes(brotli.compress(body, quality=1))
    return bytes(zstd.compress(body))


# The server


class Connection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self.server = server
        self.buffer = b""
        self.is_busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_busy = True

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while not self.is_busy and b"\r\n\r\n" in self.buffer:
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            reply = self.server.answer(head.decode("latin-1"))
            if reply.delay:
                self.is_busy = True
                asyncio.get_running_loop().call_later(reply.delay, self.send_later, reply)
            else:
                self.send(reply)

    def send_later(self, reply: Reply) -> None:
        if not self.transport.is_closing():
            self.is_busy = False
            self.send(reply)
            self.data_received(b"")

    def send(self, reply: Reply) -> None:
        self.transport.write(reply.data)
        self.is_busy = reply.then != "keep"
        if reply.then == "close":
            self.transport.close()
        elif reply.then == "reset":  # when what was sent has arrived, which is at once on this machine
            asyncio.get_running_loop().call_later(0.01, self.reset)

    def reset(self) -> None:
        if not self.transport.is_closing():
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()


class Server:
    """Answers by the rules, counts what is asked, and notes what nobody should ask."""

    def __init__(self, site: FaultySite) -> None:
        self.site = site
        self.asked: Counter[str] = Counter()
        self.strange: list[str] = []

    def answer(self, head: str) -> Reply:
        first, *lines = head.split("\r\n")
        target = first.split(" ")[1]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        cookie = headers.get("cookie", "")
        number = self.asked[target]
        self.asked[target] += 1
        try:
            is_wall = target.startswith("/p/") and self.site._page(target)[1] == "wall"
            if cookie and not (is_wall and cookie == "wall=1"):
                self.strange.append(f"{target} with the cookie {cookie}")
            if target.startswith("/private/"):
                self.strange.append(f"{target}, which robots.txt forbids")
            return self.site.answer(target, number, cookie)
        except (ValueError, IndexError):
            self.strange.append(f"{target}, which is not of this site")
            return Reply(_http(404, b"", "text/html"))


async def serve(pages: int, seed: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    site = FaultySite(pages, seed, "")
    server = Server(site)
    listening = await asyncio.get_running_loop().create_server(lambda: Connection(server), "127.0.0.1", 0, backlog=1024)
    port = listening.sockets[0].getsockname()[1]
    site.origin = f"http://127.0.0.1:{port}"
    print(port, flush=True)
    await ended.wait()
    print(json.dumps({"asked": server.asked, "strange": server.strange}), flush=True)


@dataclass
class Running:
    """A server in a process of its own. *asked* and *strange* are known when it has ended."""

    site: FaultySite
    asked: Counter[str] = field(default_factory=Counter)
    strange: list[str] = field(default_factory=list)


@contextmanager
def running_site(pages: int, seed: int) -> Iterator[Running]:
    command = [sys.executable, __file__, "--pages", str(pages), "--seed", str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        running = Running(FaultySite(pages, seed, f"http://127.0.0.1:{int(process.stdout.readline())}"))
        try:
            yield running
        finally:
            process.terminate()
            told = json.loads(process.stdout.readline() or "{}")
            running.asked.update(told.get("asked", {}))
            running.strange += told.get("strange", ["the server did not end as it should"])


# The oracle


@dataclass
class Expected:
    """What a crawl of the site comes to.

    *settled* are the records of the URLs that were asked, in canonical order: ``docID`` or ``reason``, and how each
    was found. *refused* are those of the links that are never asked. *distinct*: how many URLs were known when page
    n (from 1) was saved. *failed* and *skipped* are the counts by reason, *asks* how often a target must be asked.
    """

    settled: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)
    distinct: list[int] = field(default_factory=lambda: [0])
    failed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    asks: Counter[str] = field(default_factory=Counter)

    @property
    def saved(self) -> int:
        return len(self.distinct) - 1


SKIPPED = ("duplicate", "robots", "empty", "noindex", OUT_OF_SCOPE)


def expected_crawl(site: FaultySite) -> Expected:
    """The serial breadth-first crawl, one page at a time."""
    seed = f"{site.origin}/p/0"
    expected = Expected()
    known, claimed, taken = {seed}, {seed}, set[str]()
    level: list[tuple[str, str | None]] = [(seed, None)]
    depth = 0
    while level:
        deeper: list[tuple[str, str | None]] = []
        for url, parent in level:
            if _key(url) in taken:
                continue
            record, is_page = _walk(site, url, taken, expected)
            urls = [url, *record.get("redirects", ())]
            taken.update(_key(one) for one in urls)
            known.update(urls)
            record |= {"depth": depth, "parent": parent}
            expected.settled.append(record)
            if is_page:
                final = urls[-1]
                kind = site._page(final.removeprefix(site.origin))[1]
                if kind.startswith("nofollow"):
                    record["nofollow"] = True
                    expected.skipped["nofollow"] += 1
                else:
                    for link in _links(site, final, expected):
                        if link in known:
                            continue
                        known.add(link)
                        if reason := refusal(site, link):
                            expected.skipped[reason] += 1
                            expected.refused.append(
                                {"reason": reason, "url": link, "depth": depth + 1, "parent": final}
                            )
                        elif _key(link) not in claimed and _key(link) not in taken:
                            claimed.add(_key(link))
                            deeper.append((link, final))
            if "docID" in record:
                expected.distinct.append(len(known))
        level, depth = deeper, depth + 1
    return expected


def _walk(site: FaultySite, url: str, taken: set[str], expected: Expected) -> tuple[dict[str, Any], bool]:
    """The record of a URL and its redirects, and whether it is a page with links."""
    asked: list[tuple[str, bool]] = [(url, False)]
    reason = target = ""
    while True:
        place = asked[-1][0].removeprefix(site.origin)
        expected.asks[place] += site.tries(place)
        fate = site.fate(place, asked[-1][1])
        if not isinstance(fate, Moved):
            break
        if (fate.url, fate.cookie) in asked:
            reason = "redirect loop"
        elif len(asked) > MAX_REDIRECTS:
            reason = "too many redirects"
        elif _key(fate.url) in taken:
            reason = "duplicate"
        else:
            reason = refusal(site, fate.url)
        if reason:
            target = fate.url
            break
        asked.append((fate.url, fate.cookie))
    record: dict[str, Any] = {"url": url}
    if len(asked) > 1:
        record["redirects"] = [one for one, _ in asked[1:]]
    if target:
        record["target"] = target
    if not reason and fate == "page":
        record["docID"] = expected.saved + 1
        return record, True
    record["reason"] = reason or str(fate)
    is_skipped = record["reason"].startswith("not html") or record["reason"] in SKIPPED
    (expected.skipped if is_skipped else expected.failed)[record["reason"]] += 1
    return record, record["reason"] == "noindex"


def _links(site: FaultySite, url: str, expected: Expected) -> Iterator[str]:
    for link in site.links(url.removeprefix(site.origin)):
        if link.url:
            yield link.url
        else:
            expected.skipped["malformed" if link.url is None else "not http"] += 1


def _key(url: str) -> str:
    """The order of the parameters does not matter."""
    return url.replace("?b=2&a=1", "?a=1&b=2")


def refusal(site: FaultySite, url: str) -> str:
    """Why a URL is never asked; "" if it is."""
    if not url.startswith(f"{site.origin}/"):
        return OUT_OF_SCOPE
    if len(url) > 2083:
        return "URL too long"
    return "repeated path segment" if "/x/x/x/x/x/" in url else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    asyncio.run(serve(options.pages, options.seed))
