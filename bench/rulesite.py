"""A site made by rule, of any size, with every fault at a steady rate; and what a serial crawl of it must save.

Page i is decided by a hash of the seed and i alone, so nothing is stored. Paths are ``/n<i>``. Its oracle is that of
the tests, tests/graph.py, which shares no code with tinycrawl.
"""

import random
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from graph import Found, Moved, serial_crawl  # noqa: E402
from mockserver import Reply, Request  # noqa: E402

LATENCY = 0.02  # seconds before each answer
KINDS = (
    ["page"] * 78 + ["gone"] * 4 + ["moved"] * 6 + ["pdf"] * 2 + ["noindex"] * 3 + ["header-noindex"] * 2
    + ["header-nofollow"] * 2 + ["utf-16"] * 1 + ["latin-1"] * 2
)  # fmt: skip


@dataclass(frozen=True)
class RuleSite:
    """*pages* paths with *links* links each; *failing* of a hundred answer 503 once or twice first."""

    pages: int = 2000
    links: int = 6
    failing: int = 5
    seed: int = 1
    latency: float = LATENCY

    def kind(self, i: int) -> str:
        return "page" if i == 0 else KINDS[self._hash(i, "kind") % len(KINDS)]

    def targets(self, i: int) -> tuple[int, ...]:
        """Two pages near by, which lead everywhere in the end, and others anywhere."""
        near = (2 * i + 1, 2 * i + 2)
        far = (self._hash(i, f"link {k}") for k in range(self.links - 2))
        return tuple(target % self.pages for target in (*near, *far))

    def _hash(self, i: int, what: str) -> int:
        return random.Random(f"{self.seed}/{i}/{what}").getrandbits(32)

    def oracle(self, depth: int | None = None) -> list[tuple[str, int]]:
        return serial_crawl("/n0", depth, self._answer)

    def _answer(self, path: str) -> Found | Moved | None:
        i = int(path.partition("?")[0].removeprefix("/n"))
        kind = self.kind(i)
        if kind in ("gone", "pdf"):
            return None
        if kind == "moved":
            return Moved(f"/n{self.targets(i)[2]}")
        links = () if kind == "header-nofollow" else self._paths(i)
        return Found(links, kind not in ("noindex", "header-noindex"))

    def _paths(self, i: int) -> tuple[str, ...]:
        first, *others = self.targets(i)
        query = "?q=%E9" if self.kind(i) == "latin-1" else ""
        return (f"/n{first}{query}", *(f"/n{target}" for target in others))

    def handler(self, request: Request) -> Reply | None:
        path = request.target.partition("?")[0]
        if not path.startswith("/n") or not path[2:].isdigit() or int(path[2:]) >= self.pages:
            return None
        i = int(path[2:])
        fails = self._hash(i, "fails") % 100
        if fails < self.failing and request.number < 1 + fails % 2:
            return Reply(503, b"busy", "text/plain", delay=self.latency)
        kind = self.kind(i)
        if kind == "gone":
            return Reply(404, b"gone", delay=self.latency)
        if kind == "pdf":
            return Reply(200, b"%PDF-1.4", "application/pdf", delay=self.latency)
        if kind == "moved":
            return Reply(302, headers=[("Location", f"/n{self.targets(i)[2]}")], delay=self.latency)
        headers = [("X-Robots-Tag", kind.removeprefix("header-"))] if kind.startswith("header-") else []
        charset = {"utf-16": "utf-16", "latin-1": "iso-8859-1"}.get(kind, "utf-8")
        return Reply(200, self._body(i), f"text/html; charset={charset}", headers, self.latency)

    @lru_cache(maxsize=100_000)  # noqa: B019  # one site per process
    def _body(self, i: int) -> bytes:
        kind = self.kind(i)
        first, *others = self.targets(i)
        links = [f"/n{first}?q=é" if kind == "latin-1" else f"/n{first}", *(f"n{target}" for target in others)]
        meta = '<meta name="robots" content="noindex">' if kind == "noindex" else ""
        text = f"<!DOCTYPE html><html><head><title>Page {i}</title>{meta}</head><body>\n"
        text += "".join(f'<p>café {i} <a href="{link}">on</a></p>\n' for link in links)
        text += f"<a href='http://other{i % 7}.invalid/{i % 50}'>elsewhere</a></body></html>\n"
        return text.encode({"utf-16": "utf-16", "latin-1": "iso-8859-1"}.get(kind, "utf-8"))
