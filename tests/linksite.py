"""A site made by rule, in two versions, and what is to be said of a crawl of it: links, broken ones, twins, changes.

Nothing here comes from tinycrawl: what a link means is known since the rule spelled it, not by joining URLs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import pairwise

from mockserver import Reply, Request, robots

OUTSIDE = "http://other.invalid"
FOOTER = "/footer"  # a dead link on every page
KINDS = (
    *("page", "page", "based", "moved", "gone", "refresh", "noindex", "nofollow", "twin", "pdf"),
    *("page", "moved to gone", "error", "moved out", "loop", "forbidden", "twin", "moved twice", "page", "page"),
)
RENAMED = {  # what becomes of the pages of these kinds, by number, in the second version
    0: "redirected",  # the old URL leads to the new one
    1: "renamed",  # nothing leads to the old URL any more
    10: "changed",
    16: "renamed",  # all of them twins, so that nobody can say which became which
    19: "gone",
    4: "page",
}


@dataclass(frozen=True)
class Outcome:
    """What the serial crawl settles: the URLs asked, where the last one leads if that was not asked, and the end."""

    urls: tuple[str, ...]
    reason: str  # "" for a page
    target: str
    links: tuple[str, ...]
    refreshes: bool = False  # the first link is a meta refresh


@dataclass
class Expected:
    """What is to be said of one crawl."""

    outcomes: list[Outcome] = field(default_factory=list)
    statuses: dict[str, str] = field(default_factory=dict)  # by URL

    @property
    def pages(self) -> list[str]:
        return [outcome.urls[-1] for outcome in self.outcomes if not outcome.reason]

    def edges(self) -> list[tuple[str, str, str, str]]:
        found = []
        for outcome in self.outcomes:
            steps = [*outcome.urls, *([outcome.target] if outcome.target else [])]
            for source, target in pairwise(steps):
                found.append((source, target, "redirect", self.statuses.get(target, outcome.reason)))
            page = outcome.urls[-1]
            for n, target in enumerate(outcome.links):
                kind = "refresh" if outcome.refreshes and not n else "link"
                found.append((page, target, kind, self.statuses.get(target, "not crawled")))
        return found

    def broken(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """By looking, for each failed URL, at every link of every page."""
        leads_to = {}  # every URL -> the one that failed
        for outcome in self.outcomes:
            if outcome.reason in ("http 404", "http 500", "redirect loop"):
                leads_to |= dict.fromkeys(outcome.urls, outcome.urls[-1])
            elif outcome.reason == "duplicate" and outcome.target in leads_to:
                leads_to |= dict.fromkeys(outcome.urls, leads_to[outcome.target])
        return [
            (
                failed,
                self.statuses[failed],
                tuple(o.urls[-1] for o in self.outcomes if any(leads_to.get(link) == failed for link in o.links)),
            )
            for failed in dict.fromkeys(o.urls[-1] for o in self.outcomes if leads_to.get(o.urls[-1]) == o.urls[-1])
        ]


@dataclass(frozen=True)
class LinkSite:
    """*size* URLs; *origin* is ``http://host:port``; *version* 1 or 2."""

    origin: str
    version: int = 1
    size: int = 211

    # The rule

    def kind(self, i: int) -> str:
        return KINDS[i % 20]

    def fate(self, i: int) -> str:
        return RENAMED.get(i % 20, "") if self.version == 2 and i >= 20 else ""

    def path(self, i: int) -> str:
        """Where links lead."""
        if self.kind(i) == "forbidden":
            return f"/private/p{i}"
        return f"/q{i}" if self.fate(i) == "renamed" else f"/p{i}"

    def links(self, i: int) -> list[tuple[str, str]]:
        """Each link of a page as it is spelled, and the URL that it means."""
        size, way = self.size, i
        numbers = [(2 * i + 1) % size, (2 * i + 2) % size, (i * i + 3 * i + 5) % size, (7 * i + 11) % size]
        if self.kind(i) == "twin":
            numbers, way = [3, 4, 5], 0
        found = [(self._spell(self.path(n), way + k), f"{self.origin}{self.path(n)}") for k, n in enumerate(numbers)]
        found.append(found[0])  # the second time
        outside = f"{OUTSIDE}/{numbers[2] % 3}"
        return [*found, (FOOTER, f"{self.origin}{FOOTER}"), (outside, outside)]

    def _spell(self, path: str, way: int) -> str:
        host = self.origin.removeprefix("http:")
        return (path, f"{self.origin}{path}", f"{host}{path}#part", f"/x/..{path}", f"{path}?")[way % 5]

    def body(self, i: int) -> bytes:
        links = self.links(i)
        head, number = "", str(i)
        if self.kind(i) == "twin":
            number = f"of a kind {i % 3}"
        elif self.kind(i) == "refresh":
            head = f'<meta http-equiv=refresh content="9; url={links.pop(0)[0]}">'
        elif self.kind(i) == "based":
            head = f'<base href="{OUTSIDE}/">'
            links = [(url.removeprefix(f"{OUTSIDE}/"), url) for _, url in links]
        elif self.kind(i) in ("noindex", "nofollow"):
            head = f'<meta name=robots content="{self.kind(i)}">'
        if self.fate(i) == "changed" or (self.fate(i) == "redirected" and i % 40 == 20):
            number += ", second edition"
        anchors = "".join(f'<a href="{href}">x</a>\n' for href, _ in links)
        return (
            f"<!DOCTYPE html><title>Page {number}</title>{head}\n<a href='mailto:a@b.test'>m</a>{anchors}"
            "<a href='http://[bad'>b</a>"
        ).encode()

    def answer(self, path: str) -> int | str | bytes:
        """A status that is no page, the path or URL that it redirects to, or the body of a page."""
        name = path.rpartition("/")[2]
        if name[:1] not in ("p", "q") or not name[1:].isdigit():
            return 404
        i = int(name[1:])
        kind, fate = self.kind(i), self.fate(i)
        if name[0] == "q":
            return self.body(i) if fate in ("renamed", "redirected") else 404
        if fate == "redirected":
            return f"/q{i}"
        if fate in ("gone", "renamed") or (kind == "gone" and fate != "page"):
            return 404
        if kind == "error":
            return 500
        if kind == "pdf":
            return 200
        redirects = {
            "moved": f"/p{(i + 7) % self.size}",
            "moved to gone": f"/p{i - 7}",
            "moved twice": f"/p{i - 14}",
            "moved out": f"{OUTSIDE}/moved",
            "loop": f"/p{i}",
        }
        return redirects[kind] if kind in redirects else self.body(i)

    def handler(self, request: Request) -> Reply | None:
        path = request.target.removesuffix("?")
        if path == "/robots.txt":
            return robots("User-agent: *\nDisallow: /private/\n")
        answer = self.answer(path)
        if answer == 200:
            return Reply(200, b"%PDF-1.4", "application/pdf")
        if isinstance(answer, int):
            return Reply(answer, b"no")
        return Reply(301, headers=[("Location", answer)]) if isinstance(answer, str) else Reply(body=answer)

    # The oracle

    def expect(self, depth: int, *, folds: bool = False) -> Expected:
        """One page after the other, level by level; a redirect costs no depth."""
        expected = Expected()
        statuses = expected.statuses
        level, known = [f"{self.origin}/p0"], {f"{self.origin}/p0"}
        doc_ids: dict[bytes, int] = {}
        for deep in range(depth + 1):
            following = []
            for url in level:
                if url in statuses:  # a redirect was here before
                    continue
                outcome = self._settle(url, statuses, doc_ids, folds)
                expected.outcomes.append(outcome)
                says = statuses[outcome.target] if outcome.reason == "duplicate" else outcome.reason or "saved"
                statuses.update(dict.fromkeys(outcome.urls, says))
                for link in outcome.links if deep < depth else ():
                    if link.startswith(OUTSIDE):
                        statuses[link] = "out of scope"
                    elif link not in known:
                        known.add(link)
                        following.append(link)
            level = following
        return expected

    def _settle(self, url: str, statuses: dict[str, str], doc_ids: dict[bytes, int], folds: bool) -> Outcome:
        urls: list[str] = []
        while True:
            if url in urls:
                return Outcome(tuple(urls), "redirect loop", url, ())
            if url in statuses:
                return Outcome(tuple(urls), "duplicate", url, ())
            if url.startswith(OUTSIDE):
                return Outcome(tuple(urls), "out of scope", url, ())
            urls.append(url)
            path = url.removeprefix(self.origin)
            if path.startswith("/private/"):
                return Outcome(tuple(urls), "robots", "", ())
            answer = self.answer(path)
            if isinstance(answer, int):
                reason = "not html: application/pdf" if answer == 200 else f"http {answer}"
                return Outcome(tuple(urls), reason, "", ())
            if isinstance(answer, str):
                url = answer if answer.startswith("http") else f"{self.origin}{answer}"
                continue
            i = int(path[2:])
            links = () if self.kind(i) == "nofollow" else tuple(link for _, link in self.links(i))
            if self.kind(i) == "noindex":
                return Outcome(tuple(urls), "noindex", "", links)
            if folds and answer in doc_ids:
                return Outcome(tuple(urls), f"duplicate of {doc_ids[answer]}", "", ())
            doc_ids[answer] = len(set(doc_ids.values())) + 1 if folds else 0
            return Outcome(tuple(urls), "", "", links, self.kind(i) == "refresh")

    def body_of(self, url: str) -> bytes:
        answer = self.answer(url.removeprefix(self.origin))
        assert isinstance(answer, bytes)
        return answer


def expected_twins(site: LinkSite, expected: Expected) -> list[list[tuple[int, str]]]:
    """DocIDs (0: folded) and URLs of pages with the same bytes."""
    found: dict[str, list[tuple[int, str]]] = {}
    doc_id = 0
    for outcome in expected.outcomes:
        if outcome.reason and not outcome.reason.startswith("duplicate of"):
            continue
        doc_id += not outcome.reason
        digest = hashlib.sha256(site.body_of(outcome.urls[-1])).hexdigest()
        found.setdefault(digest, []).append((0 if outcome.reason else doc_id, outcome.urls[-1]))
    return [group for group in found.values() if len(group) > 1]


def expected_changes(
    before: LinkSite, earlier: Expected, after: LinkSite, later: Expected
) -> dict[str, list[tuple[str, str, str]]]:
    """By kind: URL, the URL before, the reason."""
    old = {url: before.body_of(url) for url in earlier.pages}
    new = {url: after.body_of(url) for url in later.pages}
    gone, came = [url for url in old if url not in new], [url for url in new if url not in old]
    moved = []
    for url in came:
        twins = [other for other in gone if old[other] == new[url]]
        if len(twins) == 1 and sum(new[other] == new[url] for other in came) == 1:
            moved.append((url, twins[0], ""))
    ends = {part for url, other, _ in moved for part in (url, other)}

    def why(statuses: dict[str, str], url: str) -> str:
        status = statuses.get(url, "not crawled")
        return "redirect" if status == "saved" else status

    return {
        "new": [(url, "", why(earlier.statuses, url)) for url in came if url not in ends],
        "gone": [(url, "", why(later.statuses, url)) for url in gone if url not in ends],
        "changed": [(url, "", "") for url in new if url in old and old[url] != new[url]],
        "moved": moved,
    }
