"""A small HTTP/1.1 server whose answers the test decides: late, cut short, malformed or none at all.

It runs on an asyncio loop in a thread of its own, so that hundreds of slow answers cost nothing.
"""

from __future__ import annotations

import asyncio
import html
import itertools
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

REASONS = {
    200: "OK",
    203: "Non-Authoritative Information",
    204: "No Content",
    206: "Partial Content",
    301: "Moved Permanently",
    302: "Found",
    303: "See Other",
    304: "Not Modified",
    307: "Temporary Redirect",
    308: "Permanent Redirect",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    410: "Gone",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
SO_TIMESTAMPNS = 35  # of Linux; no constant of the socket module
TIMESPEC = struct.Struct("qq")
ENDLESS_CHUNK = 16_384  # bytes per write of an endless body without drip


@dataclass(slots=True)
class Request:
    """One request as it came over the wire."""

    method: str
    target: str  # path and query as sent
    headers: dict[str, str]  # names in lower case; of a repeated one the last
    raw_headers: list[tuple[str, str]]  # as sent, in order
    host: str  # the Host header without its port
    time: float  # time.monotonic() when the head had come, however late a busy server read it
    number: int  # how often this host and target were asked for before
    connection: int  # which TCP connection it came over


@dataclass(slots=True)
class Reply:
    """What to answer; :class:`MockServer` describes the order in which the oddities are looked at."""

    status: int = 200
    body: bytes = b""
    type: str | None = "text/html"  # None: no Content-Type
    headers: Sequence[tuple[str, str | bytes]] = ()  # text is sent as UTF-8; a Content-Length here replaces ours
    delay: float = 0.0  # seconds before answering
    chunked: bool = False
    raw: bytes | None = None  # send exactly this, then close
    cut: int | None = None  # announce the whole body, close after this many bytes of it
    close: bool = False  # close the connection after the answer
    drip: float | None = None  # seconds before each byte of the body
    never: bool = False  # leave the client waiting
    endless: bool = False  # chunked, repeating the body until the client leaves


Answer = Reply | None
Handler = Callable[[Request], Answer]
Routes = dict[str, "Reply | Callable[[Request], Reply | None] | list[Reply]"]


def page(*hrefs: str, title: str = "", extra: str = "", **fields: Any) -> Reply:
    """An HTML page with these links; *extra* is HTML for the end of its body, *fields* are Reply's."""
    links = "".join(f'<a href="{html.escape(href)}">link</a>\n' for href in hrefs)
    head = f"<!DOCTYPE html>\n<html><head><title>{html.escape(title)}</title></head>\n"
    return Reply(body=f"{head}<body>\n{links}{extra}</body></html>\n".encode(), **fields)


def redirect(url: str | bytes, status: int = 302, **fields: Any) -> Reply:
    """A redirect whose Location is *url*, unchanged (bytes are sent as they are)."""
    return Reply(status=status, headers=[("Location", url)], **fields)


def robots(text: str, **fields: Any) -> Reply:
    """A robots.txt with these lines."""
    return Reply(body=text.encode(), type="text/plain", **fields)


def route(routes: Routes) -> Handler:
    """Turn a table into a handler.

    A key is a target (``/a?x=1``) or, before those, a host and a target (``h.test/a``). A list is answered one by one,
    its last element from then on. What is in no table, robots.txt too, is a 404.
    """

    def handler(request: Request) -> Answer:
        answer = routes.get(request.host + request.target) or routes.get(request.target)
        if isinstance(answer, list):
            return answer[min(request.number, len(answer) - 1)]
        return answer if answer is None or isinstance(answer, Reply) else answer(request)

    return handler


class StampedSocket(socket.socket):
    """Knows when the kernel had what was read last; so do the sockets that it accepts."""

    arrived: float | None = None  # time.monotonic(), None where the kernel does not tell (TLS reads otherwise)

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, address = super().accept()
        stamped = StampedSocket(fileno=accepted.detach())
        stamped.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        return stamped, address

    def recv(self, size: int, flags: int = 0) -> bytes:
        data, ancillary, _, _ = self.recvmsg(size, socket.CMSG_SPACE(TIMESPEC.size), flags)
        ago = time.time() - time.monotonic()
        self.arrived = None
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, nanoseconds = TIMESPEC.unpack(content)
                self.arrived = seconds + nanoseconds / 1e9 - ago
        return data


class Connection(asyncio.Protocol):
    """One TCP connection: requests are answered one after the other."""

    def __init__(self, server: MockServer) -> None:
        self.server = server
        self.number = next(server.connection_numbers)
        self.buffer = b""
        self.skip = 0  # bytes of a request body still to be thrown away
        self.busy = False
        self.later: asyncio.TimerHandle | None = None
        self.resume: Callable[[], None] | None = None  # what an endless body does when the client takes more

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.socket: StampedSocket = transport.get_extra_info("socket")._sock
        transport.set_write_buffer_limits(0)  # else resume_writing is not called for the last 64 KiB
        self.server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.connections.discard(self)
        self.busy = True
        self.resume = None
        if self.later is not None:
            self.later.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.busy:
            self.read()

    def read(self) -> None:
        """Answer what the buffer holds, up to the first answer that takes time."""
        while not self.busy:
            if self.skip:
                skipped = min(self.skip, len(self.buffer))
                self.buffer = self.buffer[skipped:]
                self.skip -= skipped
            head, end, rest = self.buffer.partition(b"\r\n\r\n")
            if self.skip or not end:
                return
            self.buffer = rest
            self.busy = True
            request = self.server.receive(head.decode("latin-1"), self.number, self.socket.arrived)
            self.skip = int(request.headers.get("content-length", 0))
            reply = self.server.answer(request)
            if reply.never:
                return
            if reply.delay:
                self.later = self.server.loop.call_later(reply.delay, self.send_later, reply)
                return
            self.send(reply)

    def send_later(self, reply: Reply) -> None:
        self.send(reply)
        self.read()

    def send(self, reply: Reply) -> None:
        if reply.raw is not None:
            self.transport.write(reply.raw)
            self.transport.close()
            return
        head = format_head(reply)
        if reply.endless:
            self.transport.write(head)
            self.send_endlessly(reply)
            return
        if reply.drip is not None:
            self.transport.write(head)
            self.drip(reply, 0)
            return
        body = reply.body if reply.cut is None else reply.body[: reply.cut]
        if reply.chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"0\r\n\r\n" if reply.cut is None else b"")
        self.transport.write(head + body)
        self.end(reply)

    def end(self, reply: Reply) -> None:
        if reply.close or reply.cut is not None:
            self.transport.close()
        else:
            self.busy = False

    def drip(self, reply: Reply, position: int) -> None:
        if position:
            byte = reply.body[position - 1 : position]
            self.transport.write(b"1\r\n%b\r\n" % byte if reply.chunked else byte)
        if position == (len(reply.body) if reply.cut is None else min(reply.cut, len(reply.body))):
            if reply.chunked and reply.cut is None:
                self.transport.write(b"0\r\n\r\n")
            self.end(reply)
            self.read()
        else:
            self.later = self.server.loop.call_later(reply.drip or 0.0, self.drip, reply, position + 1)

    def send_endlessly(self, reply: Reply) -> None:
        chunk = reply.body if reply.drip else reply.body * max(1, ENDLESS_CHUNK // len(reply.body))
        self.resume = None
        self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        if self.transport.get_write_buffer_size():
            self.resume = lambda: self.send_endlessly(reply)
        else:
            self.later = self.server.loop.call_later(reply.drip or 0.0, self.send_endlessly, reply)

    def resume_writing(self) -> None:
        if self.resume is not None:
            self.resume()

    def pause_writing(self) -> None:
        """An endless body looks at the transport's buffer itself."""


def format_head(reply: Reply) -> bytes:
    head = f"HTTP/1.1 {reply.status} {REASONS.get(reply.status, 'Unknown')}\r\n"
    if reply.type is not None:
        head += f"Content-Type: {reply.type}\r\n"
    if reply.chunked or reply.endless:
        head += "Transfer-Encoding: chunked\r\n"
    elif reply.status not in (204, 304) and not any(name.lower() == "content-length" for name, _ in reply.headers):
        head += f"Content-Length: {len(reply.body)}\r\n"
    if reply.close:
        head += "Connection: close\r\n"
    encoded = head.encode()
    for name, value in reply.headers:
        encoded += b"%b: %b\r\n" % (name.encode(), value.encode() if isinstance(value, str) else value)
    return encoded + b"\r\n"


class MockServer:
    """Serves what *handler* (a function or a table for :func:`route`) says, on 127.0.0.1, while the context lasts.

    The handler runs in the server's thread and must not block; an exception in it is answered with 500 and raised when
    the context ends. Any host name that leads here is served, so ``Request.host`` can tell several sites apart.

    Of a Reply, ``never`` is looked at first, then ``delay``, ``raw``, ``endless``, ``drip`` and last ``cut``;
    ``close``, ``chunked`` and ``cut`` can be had together with ``drip``.
    """

    def __init__(self, handler: Handler | Routes, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []  # in the order in which their heads had been read
        self.loop = asyncio.new_event_loop()
        self.connections: set[Connection] = set()
        self.connection_numbers = itertools.count()
        self._tls = tls
        self._error: Exception | None = None
        self.reset(handler)
        self._socket = self._bind(port)
        self.port: int = self._socket.getsockname()[1]
        self._listening: asyncio.Server | None = None
        self._thread = threading.Thread(target=self.loop.run_forever, name="mock server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.start_listening()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if self._error is not None and exc is None:
            raise self._error

    def close(self) -> None:
        """Close every connection and end the thread."""
        if self.loop.is_closed():
            return
        self.stop_listening()
        self._socket.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def reset(self, handler: Handler | Routes) -> None:
        """Serve *handler* from now on, at the same address, as if nothing had been asked before."""
        self._handler = route(handler) if isinstance(handler, dict) else handler
        self._asked: Counter[str] = Counter()
        self.requests = []

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{host}:{self.port}{path}"

    def targets(self) -> list[str]:
        """The targets asked for, in order, without robots.txt."""
        return [request.target for request in self.requests if request.target != "/robots.txt"]

    def stop_listening(self) -> None:
        """Refuse new connections and reset the open ones; the port stays ours."""
        asyncio.run_coroutine_threadsafe(self._stop_listening(), self.loop).result()

    def start_listening(self) -> None:
        asyncio.run_coroutine_threadsafe(self._start_listening(), self.loop).result()

    async def _start_listening(self) -> None:
        if self._listening is None:
            self._listening = await self.loop.create_server(
                lambda: Connection(self), sock=self._socket, ssl=self._tls, backlog=1024
            )

    async def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            for _ in range(5):  # what was just accepted takes some turns until it is known here
                for connection in list(self.connections):
                    connection.transport.abort()
                await asyncio.sleep(0)  # connection_lost runs now
            self._socket = self._bind(self.port)

    @staticmethod
    def _bind(port: int) -> socket.socket:
        """A socket that holds the port; until it listens, connections are refused."""
        bound = StampedSocket()
        bound.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)  # from the first packet on
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
        return bound

    def receive(self, head: str, connection: int, arrived: float | None) -> Request:
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ", 2)
        raw_headers = []
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            value = value.strip()
            raw_headers.append((name, value))
            headers[name.lower()] = value
        host = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
        asked = host + target
        number = self._asked[asked]
        self._asked[asked] = number + 1
        request = Request(method, target, headers, raw_headers, host, arrived or time.monotonic(), number, connection)
        self.requests.append(request)
        return request

    def answer(self, request: Request) -> Reply:
        try:
            return self._handler(request) or Reply(status=404, body=b"not found", type="text/plain")
        except Exception as error:  # noqa: BLE001 - kept for the end of the context, where the test sees it
            self._error = self._error or error
            return Reply(status=500, body=b"the handler raised", type="text/plain")
