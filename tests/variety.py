"""A site with everything in it that resuming has to get right, made by rule; its oracle is that of graph.py."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from graph import Found, Moved, serial_crawl
from mockserver import Handler, Reply, Request

DEPTH = 3
# Path /n<i> is of the kind i % 20.
KINDS = {
    3: "moved",
    5: "noindex",
    6: "refreshed",  # its first link is in a header
    7: "latin-1",  # has a link with a query in its own encoding
    8: "refreshed noindex",
    9: "gone",
    11: "moved",
    12: "utf-16",
    13: "header-nofollow",
    14: "header-noindex",
    16: "loop",  # of two redirects
    17: "moved",
    18: "utf-16 noindex",
    19: "pdf",
}
CHARSETS = {"latin-1": "iso-8859-1", "utf-16": "utf-16", "utf-16 noindex": "utf-16"}


@dataclass(frozen=True)
class VariedSite:
    """Paths ``/n0`` to ``/n<count - 1>``. Every seventh answers 503 first; all of one ten are moved to one place."""

    count: int = 80
    seed: int = 1

    def kind(self, i: int) -> str:
        return "page" if i < 3 else KINDS.get(i % 20, "page")

    def target(self, i: int) -> int:
        """Where /n<i> is moved to: near, so often held for the next level already; many to one."""
        return min(self.count - 1, i // 10 * 10 + 15)

    def paths(self, i: int) -> list[str]:
        """The links of a page, in their order: three children, which make a tree, and others to anywhere."""
        rng = Random(f"{self.seed} {i}")
        numbers = [*(n for n in range(3 * i + 1, 3 * i + 4) if n < self.count), *rng.choices(range(self.count), k=3)]
        rng.shuffle(numbers)
        paths = [f"/n{n}" for n in numbers]
        if self.kind(i) == "latin-1":
            paths.insert(1, f"/n{i}?q=%E9")
        return paths

    def oracle(self, depth: int | None = DEPTH) -> list[tuple[str, int]]:
        return serial_crawl("/n0", depth, self._answer)

    def _answer(self, path: str) -> Found | Moved | None:
        i = int(path.partition("?")[0].removeprefix("/n"))
        kind = self.kind(i)
        if kind in ("gone", "pdf"):
            return None
        if kind == "moved":
            return Moved(f"/n{self.target(i)}")
        if kind == "loop":
            return Moved(f"/n{i}" if "?" in path else f"/n{i}?back")
        return Found(() if kind == "header-nofollow" else tuple(self.paths(i)), "noindex" not in kind)

    def body(self, i: int) -> bytes:
        kind = self.kind(i)
        meta = '<meta name="robots" content="noindex">' if kind.endswith("noindex") and kind[0] != "h" else ""
        links = [path.replace("%E9", "é") for path in self.paths(i)[kind.startswith("refreshed") :]]
        links.insert(2, f"http://other.invalid/{i % 5}")
        text = f"<!DOCTYPE html><html><head><title>café {i}</title>{meta}</head>\n"
        text += "".join(f'<p><a href="{link}">a link</a></p>\r\n' for link in links)
        return f"{text}</html>".encode(CHARSETS.get(kind, "utf-8"))

    def handler(self, rng: Random) -> Handler:
        def answer(request: Request) -> Reply | None:
            path, _, query = request.target.partition("?")
            number = path.removeprefix("/n")
            if not number.isdigit() or int(number) >= self.count:
                return None
            i, delay = int(number), rng.uniform(0, 0.02)
            kind = self.kind(i)
            if i % 7 == 4 and not request.number:
                return Reply(503, b"busy", "text/plain", delay=delay)
            if kind == "gone":
                return Reply(404, b"gone", delay=delay)
            if kind == "pdf":
                return Reply(200, b"%PDF-1.4", "application/pdf", delay=delay)
            if kind == "moved":
                return Reply(302, headers=[("Location", f"/n{self.target(i)}")], delay=delay)
            if kind == "loop":
                return Reply(301, headers=[("Location", path if query else f"{path}?back")], delay=delay)
            headers = [("X-Robots-Tag", kind.removeprefix("header-"))] if kind.startswith("header-") else []
            headers += [("Refresh", f"5; url={self.paths(i)[0]}")] if kind.startswith("refreshed") else []
            return Reply(200, self.body(i), f"text/html; charset={CHARSETS.get(kind, 'utf-8')}", headers, delay)

        return answer
