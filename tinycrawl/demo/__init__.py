"""The demo site: nine small pages packaged with the project, served on this machine only."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any


@contextmanager
def serve(port: int = 0) -> Iterator[str]:
    """Serve the demo site and give its base URL, ``http://127.0.0.1:PORT`` (no slash at the end).

    The first page is ``/letters/index.html``. The server runs in daemon threads until the block ends.

    :param port: 0 takes any free port.
    :raises OSError: *port* is taken.
    """
    with _DemoServer(("127.0.0.1", port), _DemoHandler) as server:
        # the poll interval (seconds) bounds how long shutdown() takes
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@cache
def _pages() -> dict[str, bytes]:
    """Return the bodies by path. Read at once: within a zipped egg there is no folder that could be served."""
    letters = files("tinycrawl.demo") / "site" / "letters"
    return {f"/letters/{entry.name}": entry.read_bytes() for entry in letters.iterdir()}


class _DemoHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = _pages().get(self.path.partition("?")[0])
        if body is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the output of a demo is the crawler's."""


class _DemoServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no traceback: a client that went away, as every stopped crawl does, is nothing to report."""
