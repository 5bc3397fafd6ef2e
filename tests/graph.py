"""Sites and the pages that a serial breadth-first crawl of them saves: the oracle for the crawls under test.

Nothing here comes from tinycrawl: the oracle is DESIGN section 4 written down once more, without concurrency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from urllib.parse import unquote, urljoin, urlsplit

from hypothesis import strategies as st

from mockserver import Handler, Reply, Request

MAX_REDIRECTS = 20
EXTERNAL = "http://other.invalid/"
SLOW = 0.15  # seconds that the one slow page takes
SPELLINGS = {
    "root": "/n{0}",
    "absolute": "http://{1}/n{0}",
    "scheme-relative": "//{1}/n{0}",
    "relative": "n{0}",
    "fragment": "/n{0}#part",
    "empty-query": "/n{0}?",
    "dotted": "/./n{0}",
    "external": EXTERNAL,
}


@dataclass(frozen=True)
class Found:
    """The oracle's view of a page: is it saved, what does it link to, and what are its bytes, where that matters?"""

    links: tuple[str, ...] = ()
    is_saved: bool = True
    body: bytes | None = None


@dataclass(frozen=True)
class Moved:
    """A redirect; ``None`` leads out of scope."""

    target: str | None


def serial_crawl(
    seed: str,
    depth: int | None,
    answer: Callable[[str], Found | Moved | None],
    folded: dict[str, int] | None = None,
) -> list[tuple[str, int]]:
    """Crawl one URL at a time and return the saved pages with their depths, in the order of their docIDs.

    *answer* says what a URL answers in the end, after retries (None: nothing to save); *depth* None is no limit. With
    *folded*, a page whose body was saved before is not saved again and not followed: it gets its docID there.

    - A redirect costs no depth and no rank: its target, even if held for the next level, is fetched at once.
    - A URL fetched before, by its own rank or as a target, is not fetched again: what leads there saves nothing.
      That covers redirect loops.
    - A chain of more than 20 redirects fails.
    """
    saved: list[tuple[str, int]] = []
    held = {seed}  # every URL that has or had a rank of its own
    fetched: set[str] = set()
    doc_ids: dict[bytes | None, int] = {}
    level, this_level = 0, [seed]
    while this_level:
        next_level: list[str] = []
        for rank_url in this_level:
            url: str | None = rank_url
            for _ in range(1 + MAX_REDIRECTS):
                if url is None or url in fetched:
                    break
                fetched.add(url)
                reply = answer(url)
                if isinstance(reply, Moved):
                    url = reply.target
                    continue
                if folded is not None and reply is not None and reply.is_saved and reply.body in doc_ids:
                    folded[url] = doc_ids[reply.body]
                elif reply is not None:
                    if reply.is_saved:
                        saved.append((url, level))
                        doc_ids[reply.body] = len(saved)
                    if level != depth:
                        for link in reply.links:
                            if link not in held:
                                held.add(link)
                                next_level.append(link)
                break
        level, this_level = level + 1, next_level
    return saved


@dataclass(frozen=True)
class Link:
    node: int
    spelling: str = "root"


@dataclass(frozen=True)
class Node:
    """What one path of a site answers."""

    kind: str = "page"  # page, missing (404), redirect, pdf
    links: tuple[Link, ...] = ()
    status: int = 302  # of a redirect
    target: Link = Link(0)  # of a redirect
    noindex: bool = False
    nofollow: bool = False
    robots_header: bool = False  # says noindex, nofollow in X-Robots-Tag, not in the page
    failures: int = 0  # 503s before the real answer
    retry_after: bool = False  # the 503s carry Retry-After: 0
    latency: str = "none"  # none, small (up to 30 ms, another each time), slow
    padding: int = 0  # bytes between the first link and the others


@dataclass(frozen=True)
class Site:
    """Nodes ``/n0``, ``/n1``, ...; the seed is ``/n0``. *is_folded*: pages with the same bytes are to be folded."""

    nodes: tuple[Node, ...]
    depth: int = 5
    is_folded: bool = False
    seed: str = field(default="/n0", init=False)

    def oracle(self, depth: int | None = None) -> list[tuple[str, int]]:
        """The pages (path, depth) that a crawl saves, in docID order; without *depth*, at the site's own."""
        return serial_crawl(
            self.seed, self.depth if depth is None else depth, self._answer, {} if self.is_folded else None
        )

    def folded(self) -> dict[str, int]:
        """The paths that are folded, each with the docID of the page that has its bytes."""
        folded: dict[str, int] = {}
        serial_crawl(self.seed, self.depth, self._answer, folded)
        return folded if self.is_folded else {}

    def bodies(self, host: str) -> dict[str, bytes]:
        """The bytes of every page, by path, when the site is served at *host* (with its port)."""
        return {f"/n{i}": render(node, host) for i, node in enumerate(self.nodes) if node.kind == "page"}

    def handler(self, rng: Random) -> Handler:
        """A handler that serves the site, late by what *rng* says: another *rng* is another order of answers."""
        nodes = {f"/n{i}": node for i, node in enumerate(self.nodes)}
        rendered: dict[tuple[str, str], bytes] = {}

        def handler(request: Request) -> Reply | None:
            node = nodes.get(request.target)
            if node is None:
                return None
            delay = {"none": 0.0, "small": rng.uniform(0, 0.03), "slow": SLOW}[node.latency]
            if request.number < node.failures:
                headers = [("Retry-After", "0")] if node.retry_after else []
                return Reply(503, b"try again", "text/plain", headers, delay)
            host = request.headers.get("host", "")
            if node.kind == "missing":
                return Reply(404, b"<a href='/n0'>no page</a>", delay=delay)
            if node.kind == "pdf":
                return Reply(200, b"%PDF-1.4\n<a href='/n0'>no link</a>\n", "application/pdf", delay=delay)
            if node.kind == "redirect":
                return Reply(node.status, b"", headers=[("Location", spell(node.target, host))], delay=delay)
            key = (request.target, host)
            if key not in rendered:
                rendered[key] = render(node, host)
            headers = [("X-Robots-Tag", robots_words(node))] if node.robots_header and robots_words(node) else []
            return Reply(200, rendered[key], "text/html", headers, delay)

        return handler

    def _answer(self, path: str) -> Found | Moved | None:
        index = int(path.removeprefix("/n"))
        node = self.nodes[index] if index < len(self.nodes) else Node("missing")
        if node.kind == "redirect":
            return Moved(None if node.target.spelling == "external" else f"/n{node.target.node}")
        if node.kind != "page":
            return None
        links = () if node.nofollow else node.links
        targets = tuple(f"/n{link.node}" for link in links if link.spelling != "external")
        return Found(targets, not node.noindex, render(node, "any host") if self.is_folded else None)


def spell(link: Link, host: str) -> str:
    return SPELLINGS[link.spelling].format(link.node, host)


def robots_words(node: Node) -> str:
    return ", ".join(word for word, said in (("noindex", node.noindex), ("nofollow", node.nofollow)) if said)


def render(node: Node, host: str) -> bytes:
    words = "" if node.robots_header else robots_words(node)
    meta = f'<meta name="robots" content="{words}">' if words else ""
    links = [f'<p><a href="{spell(link, host)}">a link</a></p>\n' for link in node.links]
    if node.padding:
        links.insert(1, "<!-- " + "0123456789abcde\n" * (node.padding // 16) + " -->\n")
    head = f"<!DOCTYPE html>\n<html><head><title>page</title>{meta}</head>\n"
    return f"{head}<body>\n{''.join(links)}</body></html>".encode()


def one_in(count: int) -> st.SearchStrategy[bool]:
    """True once in *count* draws, shrinking to False."""
    return st.integers(0, count - 1).map(lambda number: number == count - 1)


@st.composite
def sites(draw: st.DrawFn, max_nodes: int = 14, max_padding: int = 1_000_000, is_folded: bool = False) -> Site:
    """Random sites of 1 to *max_nodes* nodes with a depth of 0 to 5.

    *is_folded*: a third of the pages have the bytes of one before them, some with another header, and are to be folded.
    """
    count = draw(st.integers(1, max_nodes) | st.integers((max_nodes + 1) // 2, max_nodes))
    kinds = [
        draw(st.sampled_from(["page"] * (30 if number == 0 else 6) + ["redirect"] * 3 + ["missing", "pdf"]))
        for number in range(count)
    ]
    usual = [spelling for spelling in SPELLINGS if spelling != "external"]
    # Three quarters plain, so that the graph, not its spelling, is what most examples try.
    link_spellings = st.sampled_from(["root"] * 3 * len(usual) + usual + ["external"])
    target_spellings = st.sampled_from(["root"] * 10 + ["absolute", "relative", "fragment", "external"])
    node_numbers = st.integers(0, count - 1)

    # Every node is led to by one before it, often the last: without that most sites would be one page and its orphans.
    children: list[list[int]] = [[] for _ in range(count)]
    for number in range(1, count):
        parents = [before for before in range(number) if kinds[before] in ("page", "redirect")] or [0]
        children[draw(st.sampled_from(parents) | st.sampled_from(parents[-2:]))].append(number)

    slow = draw(st.integers(0, 4 * max_nodes))  # in most sites no node has this number
    nodes = []
    for number, kind in enumerate(kinds):
        is_page = kind == "page"
        numbers = children[number]
        if is_page:
            numbers = numbers + draw(st.lists(node_numbers, max_size=4))
            numbers = list(draw(st.permutations(numbers)))
        target = draw(st.sampled_from(numbers) | node_numbers) if numbers else draw(node_numbers)
        has_robots = is_page and draw(one_in(8))
        nodes.append(
            Node(
                kind=kind,
                links=tuple(Link(to, draw(link_spellings)) for to in numbers) if is_page else (),
                status=draw(st.sampled_from([302, 301, 307, 308])) if kind == "redirect" else 302,
                target=Link(target, draw(target_spellings)) if kind == "redirect" else Link(0),
                noindex=has_robots and draw(st.booleans()),
                nofollow=has_robots and draw(st.booleans()),
                robots_header=has_robots and draw(st.booleans()),
                failures=draw(st.sampled_from([0, 0, 0, 0, 1, 2])),
                retry_after=draw(st.booleans()),
                latency="slow" if number == slow else draw(st.sampled_from(["none", "small", "small"])),
                padding=draw(st.integers(max_padding // 4, max_padding)) if is_page and draw(one_in(40)) else 0,
            )
        )
    for number, node in enumerate(nodes):
        originals = [before for before in nodes[:number] if before.kind == "page"]
        if is_folded and node.kind == "page" and originals and draw(one_in(3)):
            original = draw(st.sampled_from(originals))
            nodes[number] = replace(
                original, failures=node.failures, retry_after=node.retry_after, latency=node.latency
            )
            if (original.robots_header or not robots_words(original)) and draw(one_in(4)):
                noindex, nofollow = draw(st.booleans()), draw(st.booleans())
                nodes[number] = replace(nodes[number], robots_header=True, noindex=noindex, nofollow=nofollow)
    return Site(tuple(nodes), draw(st.sampled_from([3, 2, 4, 5, 3, 2, 1, 0])), is_folded)


LINK_ATTRIBUTES = {"a": "href", "area": "href", "frame": "src", "iframe": "src"}


class LinkParser(HTMLParser):
    """Collects the links of one page, in their order, resolved against its ``<base>``."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.base: str | None = None
        self.refreshed = False
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in reversed(attrs)}  # the first of a repeated attribute counts
        if tag == "base" and self.base is None and "href" in values:
            self.base = urljoin(self.url, values["href"].strip())
        elif tag == "meta" and values.get("http-equiv", "").lower() == "refresh" and not self.refreshed:
            _, _, rest = values.get("content", "").partition(";")
            name, _, url = rest.strip().partition("=")
            if name.strip().lower() == "url":
                self.refreshed = True
                self.hrefs.insert(0, url.strip().strip("'\""))
        elif (href := values.get(LINK_ATTRIBUTES.get(tag, ""))) is not None:
            self.hrefs.append(href)

    def links(self) -> Iterator[str]:
        """Each address once, without its fragment."""
        for href in dict.fromkeys(href.strip().partition("#")[0] for href in self.hrefs):
            path, mark, query = "".join(character for character in href if character not in "\t\r\n").partition("?")
            try:
                yield urljoin(self.base or self.url, path.replace("\\", "/") + mark + query)
            except ValueError:  # no URL: skipped, as by a browser
                continue


@cache
def read_links(file: Path, url: str) -> tuple[str, ...]:
    """The paths and queries of the links of *file*, served as *url*, that stay on its host."""
    host = "static.invalid"
    parser = LinkParser(f"http://{host}{url}")
    parser.feed(file.read_bytes().decode("utf-8", "replace"))
    parser.close()
    links = []
    for link in parser.links():
        parts = urlsplit(link)
        if (parts.scheme, parts.netloc) == ("http", host):
            links.append((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
    return tuple(links)


def files_oracle(root: Path, seed_path: str, depth: int | None) -> list[tuple[str, int]]:
    """The pages (path and query, depth) that a crawl of the static files below *root* saves, in docID order.

    As a web server with ``index index.html`` serves them: a directory without its slash redirects, one without
    ``index.html`` is forbidden, only ``.html`` is HTML, a query changes the URL but not the answer. Meta robots is
    not looked at.
    """

    def answer(url: str) -> Found | Moved | None:
        path, mark, query = url.partition("?")
        file = root / unquote(path).lstrip("/")
        if file.is_dir() and not path.endswith("/"):
            return Moved(path + "/" + mark + query)
        if path.endswith("/"):
            file = file / "index.html"
        if file.suffix != ".html" or not file.is_file():
            return None
        return Found(read_links(file, url))

    return serial_crawl(seed_path, depth, answer)
