"""nginx, serving a folder of files on a free port of the loopback interface, pinned to the servers' core."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from measure import two_cores

CONFIGURATION = """\
daemon off;
master_process off;
pid {scratch}/pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
    include /etc/nginx/mime.types;
    log_format seconds "$msec $status $request_uri";
    access_log {scratch}/access.log seconds;
    client_body_temp_path {scratch}/body;
    proxy_temp_path {scratch}/proxy;
    fastcgi_temp_path {scratch}/fastcgi;
    uwsgi_temp_path {scratch}/uwsgi;
    scgi_temp_path {scratch}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root "{root}";
        gzip_static {compressed};
        gzip_vary {compressed};
    }}
}}
"""


@dataclass(frozen=True)
class WebServer:
    """*url* is that of the seed."""

    url: str
    log: Path

    def requests(self) -> list[tuple[float, int, str]]:
        """Second, status and target of each, in their order."""
        rows = (line.split(" ", 2) for line in self.log.read_text().splitlines())
        return [(float(second), int(status), target) for second, status, target in rows]


@contextmanager
def serve(root: Path, scratch: Path, *, compressed: bool = False) -> Iterator[WebServer]:
    """Serve the files below *root*; *compressed*: the ``.gz`` beside a file, to whoever accepts gzip.

    :raises SystemExit: nginx is not installed, or does not start.
    """
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise SystemExit("nginx is not installed (Debian: apt-get install nginx-light)")
    scratch.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configuration = scratch / "nginx.conf"
    configuration.write_text(
        CONFIGURATION.format(scratch=scratch, port=port, root=root, compressed="on" if compressed else "off")
    )
    core, _ = two_cores()
    with (scratch / "errors.log").open("wb") as errors:
        process = subprocess.Popen(
            [program, "-p", str(scratch), "-c", str(configuration)],
            stderr=errors,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
    try:
        while not _listens(port):
            if process.poll() is not None:
                raise SystemExit(f"nginx did not start:\n{(scratch / 'errors.log').read_text()}")
            time.sleep(0.01)
        yield WebServer(f"http://127.0.0.1:{port}/", scratch / "access.log")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
