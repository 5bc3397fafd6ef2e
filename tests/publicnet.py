"""A network of its own, in which one address of this machine is a public one: run it by ``unshare -n``.

It reads a job from stdin (a table of pages, crawls), serves the pages on every address there is, runs the crawls one
after the other, and prints what came of them: above all, which addresses were ever connected to.
"""

from __future__ import annotations

import itertools
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from twisted.internet.abstract import isIPAddress
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IHostnameResolver, IHostResolution
from zope.interface import implementer

PUBLIC = "93.184.216.34"
PUBLIC_6 = "2606:2800:220:1::1"
ADDRESSES = [
    *(PUBLIC, "10.0.0.5", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200", "168.63.129.16"),
    *(PUBLIC_6, "fd00:ec2::254", "64:ff9b::7f00:1"),
]
PORT = 8000
# A name is all of these addresses; where there are lists, one list after the other, each time that it is asked for.
NAMES: dict[str, list[list[str]]] = {
    "public.test": [[PUBLIC]],
    "six.test": [[PUBLIC_6]],
    "loopback.test": [["127.0.0.1"]],
    "loopback-six.test": [["::1"]],
    "mapped.test": [["::ffff:10.0.0.5"]],
    "ten.test": [["10.0.0.5"]],
    "metadata.test": [["169.254.169.254"]],
    "both.test": [["10.0.0.5", PUBLIC]],
    "rebinding.test": [[PUBLIC], [PUBLIC], ["127.0.0.1"]],
    "any.test": [["0.0.0.0"]],
}


@implementer(IHostResolution)
class Resolution:
    def __init__(self, name: str) -> None:
        self.name = name

    def cancel(self) -> None:
        raise NotImplementedError


@implementer(IHostnameResolver)
class ChangingResolver:
    """What a site's own DNS server may do; TWISTED_DNS_RESOLVER of the crawls."""

    def __init__(self, reactor: Any) -> None:
        self.reactor = reactor
        self.asked = dict.fromkeys(NAMES, 0)

    @classmethod
    def from_crawler(cls, crawler: Any, reactor: Any) -> ChangingResolver:
        return cls(reactor)

    def install_on_reactor(self) -> None:
        self.reactor.installNameResolver(self)

    def resolveHostName(self, receiver: Any, hostName: str, portNumber: int = 0, *rest: object) -> Resolution:
        resolution = Resolution(hostName)
        receiver.resolutionBegan(resolution)
        answers = NAMES.get(hostName) or ([[hostName]] if isIPAddress(hostName) or ":" in hostName else [[]])
        number = self.asked.get(hostName, 0)
        self.asked[hostName] = number + 1
        for address in answers[min(number, len(answers) - 1)]:
            kind = IPv6Address if ":" in address else IPv4Address
            receiver.addressResolved(kind("TCP", address, portNumber))
        receiver.resolutionComplete()
        return resolution


class EveryAddress:
    """Serves *pages* (``host/path`` or ``/path`` -> an answer), and notes the address of each connection."""

    def __init__(self, pages: dict[str, str]) -> None:
        self.pages = pages
        self.connected: list[str] = []
        self._selector = selectors.DefaultSelector()
        for family, everywhere in ((socket.AF_INET, ""), (socket.AF_INET6, "::")):
            listener = socket.socket(family)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((everywhere, PORT))
            listener.listen(100)
            self._selector.register(listener, selectors.EVENT_READ)

    def serve(self) -> None:
        for _ in itertools.repeat(None):
            for key, _events in self._selector.select():
                connection, _peer = key.fileobj.accept()  # type: ignore[union-attr]
                self.connected.append(connection.getsockname()[0])
                with connection:
                    connection.settimeout(5)
                    head = b""
                    while b"\r\n\r\n" not in head and (data := connection.recv(65_536)):
                        head += data
                    connection.sendall(self.answer(head.decode("latin-1")))

    def answer(self, head: str) -> bytes:
        target = head.split(" ")[1]
        if "://" in target:  # asked as a proxy
            target = target[target.index("/", 8) :]
        host = next((line[6:] for line in head.split("\r\n") if line.lower().startswith("host:")), "")
        page = self.pages.get(host.partition(":")[0] + target) or self.pages.get(target)
        return (page or "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").encode()


def run_crawl(job: dict[str, Any]) -> dict[str, Any]:
    options = [part for name, value in job["arguments"].items() for part in ("-a", f"{name}={value}")]
    options += [part for name, value in job["settings"].items() for part in ("-s", f"{name}={value}")]
    command = [sys.executable, "-m", "scrapy", "crawl", "site", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **job["env"]})
    marker = Path(job["arguments"]["pagedir"], ".crawler")
    manifest = [json.loads(line) for line in marker.read_text().splitlines()] if marker.exists() else []
    return {"status": ended.returncode, "stderr": ended.stderr, "manifest": manifest}


def main() -> None:
    job = json.load(sys.stdin)
    for command in ("link set lo up", *(f"addr add {one} dev lo{' nodad' * (':' in one)}" for one in ADDRESSES)):
        subprocess.run(["ip", *command.split()], check=True)
    server = EveryAddress(job["pages"])
    threading.Thread(target=server.serve, daemon=True).start()
    answers = []
    for crawl in job["crawls"]:
        server.connected.clear()
        answers.append({**run_crawl(crawl), "connected": sorted(set(server.connected))})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
