"""What a page directory says: its URLs, its links, what is broken, what is there twice, what has changed.

Everything is read through `PageDirectory`, also while a crawl writes. What is kept in memory grows with the number of
URLs, not with the links or the bytes of the pages.

Damaged lines of the manifest are left out, and pages that cannot be read have no links and no title: the directory's
`problems` and `lost` tell.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from tinycrawl.exceptions import DirectoryError
from tinycrawl.items import Record
from tinycrawl.links import LinkRules
from tinycrawl.markup import page_text, read_markup, read_title
from tinycrawl.pagedir import PageDirectory
from tinycrawl.publisher import FOLDED, is_failure
from tinycrawl.scope import (
    EXCLUDED,
    NOT_INCLUDED,
    OUT_OF_SCOPE,
    REPEATED_PARAMETER,
    REPEATED_SEGMENT,
    TOO_MANY_PARAMETERS,
    URL_TOO_LONG,
)
from tinycrawl.serial import DUPLICATE
from tinycrawl.urls import ParameterFilter, canonicalise_url

LINK = "link"
REFRESH = "refresh"
REDIRECT = "redirect"

SAVED = "saved"
NOT_CRAWLED = "not crawled"  # no record: beyond the depth or a limit, or the crawl has not got there

_REFUSALS = frozenset(
    (OUT_OF_SCOPE, URL_TOO_LONG, NOT_INCLUDED, EXCLUDED, REPEATED_SEGMENT, TOO_MANY_PARAMETERS, REPEATED_PARAMETER)
)
_LONGEST_TITLE = 1_000  # characters


@dataclass(frozen=True, slots=True)
class Entry:
    """A URL that the crawl settled.

    *url* is the one that a link or the seed named, *final* where its redirects led. *doc_id* is 0 and *reason* says
    why, if it is no page of the directory; for pages *reason* is "". What is not known is None or "".
    """

    doc_id: int
    url: str
    final: str
    depth: int
    parent: str | None
    reason: str
    status: int | None
    type: str
    charset: str
    length: int | None
    sha256: str
    redirects: tuple[str, ...]
    title: str


@dataclass(frozen=True, slots=True)
class Edge:
    """A link, or a step of a redirect.

    *source* is the final URL of the page with the link, *target* what the link says, normalised as the crawler has
    it. *status* is what came of the target in the end: ``saved``, the reason of the manifest, or ``not crawled``.
    """

    source: str
    target: str
    kind: str
    status: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A URL that failed, and every page that links to it, straight or by way of a redirect."""

    url: str
    reason: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to a page between two crawls.

    *kind* is new, gone, changed or moved; *before* the URL that a moved page had. *reason* says why a page that is
    gone is no page now, or why a new one was none before; ``not crawled`` if there is no record of it.
    """

    kind: str
    url: str
    before: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes by kind, those of one kind in canonical order; false if there is none."""

    new: tuple[Change, ...] = ()
    gone: tuple[Change, ...] = ()
    changed: tuple[Change, ...] = ()
    moved: tuple[Change, ...] = ()

    def __iter__(self) -> Iterator[Change]:
        return chain(self.new, self.gone, self.changed, self.moved)

    def __bool__(self) -> bool:
        return any(self)


def entries(directory: PageDirectory, titles: bool = False) -> Iterator[Entry]:
    """Every settled URL in canonical order. The pages are read for their *titles* alone."""
    return (_entry(directory, record, titles) for record in directory.records())


def find(directory: PageDirectory, which: int | str) -> Entry | None:
    """The entry, with its title, of a docID, or of a URL as it was found or redirected to."""
    for record in directory.records():
        is_page = isinstance(which, int) and record.get("docID") == which
        if is_page or which in (record["url"], *record.get("redirects", ())):
            return _entry(directory, record, has_title=True)
    return None


def _entry(directory: PageDirectory, record: Record, has_title: bool) -> Entry:
    redirects = tuple(record.get("redirects", ()))
    body = _body(directory, record) if has_title and "docID" in record else None
    return Entry(
        doc_id=record.get("docID", 0),
        url=record["url"],
        final=redirects[-1] if redirects else record["url"],
        depth=record.get("depth", 0),
        parent=record.get("parent"),
        reason=record.get("reason", ""),
        status=record.get("status"),
        type=record.get("type", ""),
        charset=record.get("charset", ""),
        length=record.get("length"),
        sha256=record.get("sha256", ""),
        redirects=redirects,
        title="" if body is None else read_title(_text(body, record))[:_LONGEST_TITLE],
    )


def edges(directory: PageDirectory) -> Iterator[Edge]:
    """Every link of every page, also to URLs that were known, and every redirect, in canonical order.

    Pages that ask that their links be not followed have none, as for the crawler. Pages of the last level have all,
    though the crawler did not look at them.
    """
    outcomes = _Outcomes(directory)
    reader = _LinkReader(directory)
    for record in directory.records():
        urls = _chain(record)
        for source, target in pairwise(urls):
            yield Edge(source, target, REDIRECT, outcomes.get(target, record.get("reason", SAVED)))
        source = urls[-1]
        for target, kind in reader.kinds(record):
            yield Edge(source, target, kind, outcomes.get(target))


def broken(directory: PageDirectory) -> list[Broken]:
    """Every URL that failed, not those that were skipped. It is named by where its redirects ended."""
    failed: list[tuple[str, str]] = []
    places: dict[str, int] = {}  # key of a URL that leads to a failed one -> its place in that list
    for record in directory.records():
        reason, target = record.get("reason", ""), record.get("target", "")
        urls = [record["url"], *record.get("redirects", ())]
        place = places.get(_key(target)) if reason == DUPLICATE and target else None
        if reason and is_failure(reason):
            place = len(failed)
            # Of a loop, or too many redirects, no URL is the one that failed: then it is the first.
            failed.append((urls[0] if target else urls[-1], reason))
        if place is not None:
            places.update((_key(url), place) for url in urls)
    sources: list[dict[str, None]] = [{} for _ in failed]
    reader = _LinkReader(directory)
    for record in directory.records() if failed else ():
        source = [record["url"], *record.get("redirects", ())][-1]
        for target in reader.links(record):
            place = places.get(_key(target))
            if place is not None:
                sources[place][source] = None
    return [Broken(url, reason, tuple(pages)) for (url, reason), pages in zip(failed, sources, strict=True)]


def duplicates(directory: PageDirectory) -> list[list[Entry]]:
    """The groups of pages with the same bytes, by their first docID. What was folded belongs to them."""
    groups: dict[str, list[Entry]] = {}
    digests: dict[int, str] = {}  # by docID
    for entry in entries(directory):
        if entry.doc_id:
            digests[entry.doc_id] = entry.sha256
            groups.setdefault(entry.sha256, []).append(entry)
        elif entry.reason.startswith(FOLDED):
            original = int(entry.reason.removeprefix(FOLDED))
            if original in digests:  # as it is, unless its line is damaged
                groups[digests[original]].append(entry)
    return [group for group in groups.values() if len(group) > 1]


def difference(a: PageDirectory, b: PageDirectory) -> Difference:
    """What has changed from *a* to *b*, by the final URLs of the pages.

    A page has moved if the same bytes are gone at one URL and new at another, and at no third.
    """
    before, after = _pages(a), _pages(b)
    gone, new = [key for key in before if key not in after], [key for key in after if key not in before]
    alone = {digest: keys[0] for digest, keys in _by_digest(before, gone).items() if len(keys) == 1}
    moves = {
        keys[0]: alone[digest] for digest, keys in _by_digest(after, new).items() if len(keys) == 1 and digest in alone
    }
    has_moved = {*moves, *moves.values()}
    earlier, later = _Outcomes(a), _Outcomes(b)

    def why(outcomes: _Outcomes, url: str) -> str:
        """Why *url* is no page of its own there."""
        outcome = outcomes.get(url)
        return REDIRECT if outcome == SAVED else outcome

    return Difference(
        new=tuple(
            Change("new", after[key][0], reason=why(earlier, after[key][0])) for key in new if key not in has_moved
        ),
        gone=tuple(
            Change("gone", before[key][0], reason=why(later, before[key][0])) for key in gone if key not in has_moved
        ),
        changed=tuple(
            Change("changed", url) for key, (url, digest) in after.items() if key in before and before[key][1] != digest
        ),
        moved=tuple(Change("moved", after[key][0], before=before[old][0]) for key, old in moves.items()),
    )


def _pages(directory: PageDirectory) -> dict[str, tuple[str, str]]:
    """Final URL and digest of each page, by the key under which URLs are compared."""
    pages = {}
    for record in directory.records():
        if "docID" in record:
            url = [record["url"], *record.get("redirects", ())][-1]
            pages[_key(url)] = (url, record["sha256"])
    return pages


def _by_digest(pages: Mapping[str, tuple[str, str]], keys: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(pages[key][1], []).append(key)
    return found


class _Outcomes:
    """What came of each URL that the manifest knows."""

    def __init__(self, directory: PageDirectory) -> None:
        self._taken: dict[str, str] = {}  # by the key under which URLs are compared
        self._refused: dict[str, str] = {}  # links: patterns look at their very spelling
        for record in directory.records():
            outcome = sys.intern(record.get("reason", SAVED))
            target, redirects = record.get("target"), record.get("redirects", ())
            if outcome in _REFUSALS and target is None:
                self._refused[record["url"]] = outcome
                continue
            if outcome == DUPLICATE and target is not None:  # it led to what was fetched before
                outcome = self._taken.get(_key(target), outcome)
            for url in (record["url"], *redirects):
                key = _key(url)
                self._taken[url if key == url else key] = outcome

    def get(self, url: str, default: str = NOT_CRAWLED) -> str:
        outcome = self._refused.get(url)
        return outcome if outcome is not None else self._taken.get(_key(url), default)


class _LinkReader:
    """Finds the links of a page as the crawl did, by the policies that its manifest keeps."""

    def __init__(self, directory: PageDirectory) -> None:
        self._directory = directory
        policies = (directory.identity or {}).get("policies") or {}
        self._max_links: int = policies.get("TINYCRAWL_MAX_LINKS", 0)
        self._rules = LinkRules(
            ParameterFilter(policies.get("TINYCRAWL_DROP_PARAMETERS", [])),
            follow_nofollow=policies.get("TINYCRAWL_FOLLOW_NOFOLLOW", True),
        )

    def links(self, record: Record) -> list[str]:
        """The URLs that the page of *record* links to, in order; none if it asks not to be followed, or is no page."""
        return [url for url, _ in self.kinds(record)]

    def kinds(self, record: Record) -> list[tuple[str, str]]:
        """The same, each with its kind; of a page that is not kept, all count as plain links."""
        if "docID" not in record:
            return [(url, LINK) for url in record.get("links", [])]
        body = None if record.get("nofollow") else _body(self._directory, record)
        if body is None:
            return []
        markup = read_markup(_text(body, record), max_links=self._max_links)
        url = [record["url"], *record.get("redirects", ())][-1]
        found = [(record["refresh"], REFRESH)] if "refresh" in record else []
        for kind, links in (
            (REFRESH, markup.links[: markup.refreshes]),
            (LINK, markup.links[markup.refreshes :]),
        ):
            urls = self._rules.resolve(links, url, markup.base, record.get("charset", "utf-8"), Counter())
            found += [(target, kind) for target in urls]
        return found


def _key(url: str) -> str:
    """What URLs are compared by. One that was refused need not be any."""
    try:
        return canonicalise_url(url)
    except ValueError:
        return url


def _chain(record: Record) -> list[str]:
    """The URLs of a record from the first to where the last one leads."""
    target = record.get("target")
    return [record["url"], *record.get("redirects", ()), *([target] if target is not None else ())]


def _body(directory: PageDirectory, record: Record) -> bytes | None:
    """The body of a page; None if it cannot be read, which is noted.

    It is not lost if it is missing because a crawl that writes, or that was killed, has not named its file yet.
    """
    doc_id: int = record["docID"]
    try:
        return directory[doc_id - 1].body
    except IndexError:
        if directory.end is not None:
            directory.lost[doc_id] = "is missing"
    except DirectoryError as error:
        directory.lost[doc_id] = str(error).rpartition(f": {doc_id} ")[2]
    return None


def _text(body: bytes, record: Record) -> str:
    charset = "utf-8" if "stored" in record else record.get("charset", "")
    return page_text(body, charset, record.get("type", ""))
