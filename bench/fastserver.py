"""A small fast HTTP server in a thread, for sites that are made by rule: no disk, no log, a page per request."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Self

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nnone"


class FastServer:
    """Answers GET with what *answer* makes of host and path: the HTML, or None for 404. A context manager.

    *times*: when each request to a host came in, in seconds, robots.txt among them. It is served by the thread that
    the context has made, which takes the core of this process.
    """

    def __init__(self, answer: Callable[[str, str], bytes | None]) -> None:
        self.answer = answer
        self.times: dict[str, list[float]] = defaultdict(list)
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fast server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        listening = self._loop.create_server(lambda: Connection(self), "127.0.0.1", 0, backlog=1024)
        server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Connection(asyncio.Protocol):
    def __init__(self, server: FastServer) -> None:
        self._server = server
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, self._received = self._received.split(b"\r\n\r\n", 1)
            self._transport.write(self._reply(head.decode("latin-1")))

    def _reply(self, head: str) -> bytes:
        first, *lines = head.split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        host = headers["Host"].partition(":")[0]
        self._server.times[host].append(time.monotonic())
        body = self._server.answer(host, first.split(" ")[1])
        if body is None:
            return NOT_FOUND
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
