"""Publisher: what it means that a rank is settled. The same code serves the live crawl and the replay of a manifest.

Called in canonical order only, it decides what becomes a page, which links are new, and what the record says. Seen
URLs, scope, counts, events and records change here and nowhere else. It knows nothing of Scrapy.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from tinycrawl import events
from tinycrawl.exceptions import CrawlFailed
from tinycrawl.guard import PRIVATE_ADDRESS
from tinycrawl.items import Page, Record, Unsaved
from tinycrawl.links import LinkRules
from tinycrawl.markup import page_text, read_markup
from tinycrawl.pagedir import Held
from tinycrawl.plan import Plan
from tinycrawl.scope import (
    EXCLUDED,
    NOT_INCLUDED,
    OUT_OF_SCOPE,
    REPEATED_PARAMETER,
    REPEATED_SEGMENT,
    TOO_MANY_PARAMETERS,
    URL_TOO_LONG,
)
from tinycrawl.serial import DUPLICATE, Link, SerialCrawl, Settled
from tinycrawl.urls import ParameterFilter

logger = logging.getLogger(__name__)

NOINDEX = "noindex"
NOT_HTML = "not html"  # a colon and the type follow
EMPTY = "empty"
FOLDED = "duplicate of "  # the docID follows
DISALLOWED = "robots"
# Nothing failed: the site has no page there, forbids it, or redirects to where no link would be followed either.
SKIPPED = {
    NOT_HTML: events.NOT_A_PAGE,
    EMPTY: events.NOT_A_PAGE,
    DISALLOWED: events.FORBIDDEN,
    DUPLICATE: events.DUPLICATE,
    OUT_OF_SCOPE: events.EXTERNAL,
    **dict.fromkeys((URL_TOO_LONG, NOT_INCLUDED, EXCLUDED), events.FILTERED),
    **dict.fromkeys((REPEATED_SEGMENT, TOO_MANY_PARAMETERS, REPEATED_PARAMETER, PRIVATE_ADDRESS), events.FILTERED),
}
IN_WORDS = {
    DISALLOWED: "forbidden by robots.txt",
    OUT_OF_SCOPE: "it leads out of the crawl's scope",
    PRIVATE_ADDRESS: "its address is private; TINYCRAWL_ADDRESS_GUARD=0 allows that",
}


_MOST_BROKEN = 10  # failed URLs that are kept for the summary
_LONGEST_SHOWN = 4_096  # characters of a URL that are kept, in memory and in records


def _shown(url: str) -> str:
    """A URL that is far too long to be asked, cut, with its digest in place of the rest."""
    return f"{url[:_LONGEST_SHOWN]}...{blake2b(url.encode(), digest_size=16).hexdigest()}"


def is_failure(reason: str) -> bool:
    """Has a URL failed for this reason, or is it skipped?"""
    return reason.partition(":")[0] not in (*SKIPPED, NOINDEX) and not reason.startswith(FOLDED)


def kind_of(reason: str) -> str:
    """The reason as it is counted: folded pages all together.

    >>> kind_of("duplicate of 7"), kind_of("http 404")
    ('duplicate of a page', 'http 404')
    """
    return f"{FOLDED}a page" if reason.startswith(FOLDED) else reason


@dataclass(slots=True)
class Fetched:
    """A page that has arrived and waits for its turn.

    *body* is as stored, None while it waits in a file (*held*). *noindex* and *nofollow* are what the headers ask.
    *is_utf8*: it is stored as UTF-8, whatever *charset* it was served in. *refresh* is where a Refresh header leads.
    *links*: where they are known, and no body.
    """

    status: int
    content_type: str
    charset: str
    is_utf8: bool = False
    noindex: bool = False
    nofollow: bool = False
    refresh: str = ""
    held: Held | None = None
    body: bytes | None = None
    links: list[str] | None = None

    def read(self) -> bytes:
        if self.body is None:
            assert self.held is not None
            self.body = self.held.read()
        return self.body

    def drop(self) -> None:
        """Remove the hidden file: the page will not be published."""
        if self.held is not None:
            self.held.drop()


@dataclass(frozen=True, slots=True)
class Options:
    """The settings that matter here; the README's table says what each one means. 0 is no limit."""

    robots_name: str = "tinycrawl"
    obey_meta: bool = True
    follow_nofollow: bool = True
    max_links: int = 0
    max_bytes: int = 0


class NoRoom(Exception):
    """The next page would exceed *max_bytes*: raised by the publisher, which has not settled it."""


class Publisher:
    """Turns what is settled into items and new links."""

    def __init__(self, plan: Plan, serial: SerialCrawl, options: Options) -> None:
        self.scope = plan.scope
        self.event: Callable[[int, str, str], None] = events.EventLog(None)
        self.saved = 0
        self.saved_bytes = 0
        self.links_seen: int | None = 0  # None: not counted
        self.failed: Counter[str] = Counter()  # URLs by reason
        self.skipped: Counter[str] = Counter()  # URLs and links by reason
        self.broken: list[tuple[str, str, str | None]] = []  # the first that failed: URL, reason, parent
        self._serial = serial
        self._depth = plan.arguments.depth
        self._options = options
        self.drop_parameters = ParameterFilter(plan.drop_parameters)
        self._rules = LinkRules(self.drop_parameters, follow_nofollow=options.follow_nofollow)
        self._known: dict[str, str | None] = {}  # URL -> the reason why it is refused
        self._items = 0
        # SHA-256 of each saved page -> its docID; None where duplicates are kept.
        self._digests: dict[bytes, int] | None = {} if plan.arguments.duplicates == "fold" else None
        self._refused: deque[tuple[int, Record]] = deque()  # not yet written, with their depths

    def seed(self, url: str) -> Link:
        """The link that a crawl begins with."""
        rank = self._serial.claim(url)
        assert rank is not None
        self._known[url] = None
        return Link(rank, url, 0)

    def redirect_refusal(self, link: Link, url: str) -> str | None:
        """Why *link* must not be redirected to *url*. The seed may lead the crawl to its real home."""
        if link.parent is None and (self.scope.in_place(url) or self.scope.may_join(url)):
            return None
        return self.scope.refusal(url)

    def publish(self, settled: Settled) -> tuple[Page | Unsaved, list[Link]]:
        """The item of a settled rank, and the links found on it.

        :raises CrawlFailed: it is the seed that failed.
        :raises NoRoom: the page is too much for the limit of bytes.
        """
        link, page = settled.link, settled.outcome
        if not isinstance(page, Fetched):
            reason = settled.reason or page
            if link.parent is None:
                leads = settled.target or "".join(settled.redirects[-1:])
                more = f" ({leads})" if leads else ""
                raise CrawlFailed(f"seed {link.url}: {IN_WORDS.get(reason, reason)}{more}")
            self._tell_failure(link, settled.redirects, reason)
            return self._unsaved(self._record(settled, {"reason": reason})), []
        url = settled.redirects[-1] if settled.redirects else link.url
        original = self._digests.get(bytes.fromhex(page.held.sha256)) if self._digests and page.held else None
        if page.links is None:
            noindex, nofollow, links = self._read(url, page, page.read(), is_folded=original is not None)
        else:
            noindex, nofollow, links = page.noindex, page.nofollow, page.links
        is_folded = original is not None and not noindex
        if not (noindex or is_folded) and 0 < self._options.max_bytes < self.saved_bytes + len(page.read()):
            page.drop()
            raise NoRoom
        facts: dict[str, Any] = {"status": page.status, "type": page.content_type, "charset": page.charset}
        if page.is_utf8:
            facts["stored"] = "utf-8"
        if nofollow:
            facts["nofollow"] = True
        elif page.refresh:
            facts["refresh"] = page.refresh
        item: Page | Unsaved
        if is_folded:
            assert page.held is not None
            page.drop()
            reason = f"{FOLDED}{original}"
            self._tell_folded(link, settled.redirects, reason)
            folded = self._unsaved(self._record(settled, {"reason": reason} | facts))
            folded.sha256 = page.held.sha256
            return folded, []
        if noindex:
            page.drop()
            item = self._unsaved(self._record(settled, {"reason": NOINDEX} | facts | {"links": links}))
        else:
            item = self._page(self._record(settled, facts), page)
        return item, self._tell_page(link, settled.redirects, links, noindex=noindex, nofollow=nofollow)

    def replay(self, record: Record, read_body: Callable[[int], bytes]) -> tuple[Page | None, list[Link]]:
        """What `publish` gave when *record* was written. A page comes with its docID, anything else without an item.

        :raises ValueError: the record does not follow from those before it.
        """
        if self._refused and self._refused[0][1] == record:
            self._refused.popleft()
            return None, []
        redirects = tuple(record.get("redirects", ()))
        link = self._serial.replay([record["url"], *redirects])
        if link is None or (link.depth, link.parent) != (record["depth"], record["parent"]):
            raise ValueError("another URL would be next")
        if self._refused and self._refused[0][0] <= link.depth:
            raise ValueError("a refused link is missing before it")
        reason, nofollow = record.get("reason", ""), record.get("nofollow", False)
        if reason == NOINDEX:
            return None, self._tell_page(link, redirects, record["links"], noindex=True, nofollow=nofollow)
        if reason.startswith(FOLDED):
            if not self._digests or not 0 < int(reason.removeprefix(FOLDED)) <= self.saved:
                raise ValueError("there is no page that it could duplicate")
            self._tell_folded(link, redirects, reason)
            return None, []
        if reason:
            self._tell_failure(link, redirects, reason)
            return None, []
        page = Fetched(record["status"], record["type"], record["charset"], "stored" in record, nofollow=nofollow)
        page.refresh = record.get("refresh", "")
        page.body = read_body(record["docID"])
        _, _, links = self._read(redirects[-1] if redirects else link.url, page, page.body)
        item = self._page(record, page)
        return item, self._tell_page(link, redirects, links, noindex=False, nofollow=nofollow)

    def recall(self, records: Iterable[Record]) -> None:
        """Count what the records of a finished crawl say. No page is read, and so no link is counted."""
        self.links_seen = None
        for record in records:
            reason = record.get("reason")
            if reason is None:
                self.saved += 1
                self.saved_bytes += record["length"]
            else:
                (self.failed if is_failure(reason) else self.skipped)[kind_of(reason)] += 1
                if is_failure(reason) and len(self.broken) < _MOST_BROKEN:
                    self.broken.append((record["url"], reason, record.get("parent")))

    def refusals(self, depth: int) -> list[Record]:
        """The records of links that were refused, to be written before the first URL of their depth is settled.

        There they are in one order, and a crawl that goes deeper later writes the same as one that did at once.
        """
        records = []
        while self._refused and self._refused[0][0] <= depth:
            records.append(self._refused.popleft()[1])
        return records

    # Records and items

    def _record(self, settled: Settled, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The manifest line of a settled rank: how it was found, then what it was."""
        link = settled.link
        record: dict[str, Any] = {"url": link.url}
        if settled.redirects:
            record["redirects"] = list(settled.redirects)
        if settled.target:
            record["target"] = settled.target
        return {**record, "depth": link.depth, "parent": link.parent, **facts}

    def _unsaved(self, record: Record) -> Unsaved:
        self._items += 1
        return Unsaved(record, self.refusals(record["depth"]), self._items)

    def _page(self, record: Record, page: Fetched) -> Page:
        body = page.read()
        sha256 = page.held.sha256 if page.held else record.get("sha256", "")
        self._items += 1
        self.saved += 1
        self.saved_bytes += len(body)
        if self._digests is not None:
            self._digests.setdefault(bytes.fromhex(sha256), self.saved)
        if self._serial.remaining is not None:
            self._serial.remaining -= 1
            self._serial.is_stopped = self._serial.remaining <= 0
        return Page(
            [record["url"], *record.get("redirects", ())][-1],
            record["depth"],
            body,
            requested=record["url"],
            parent=record["parent"],
            status=page.status,
            content_type=page.content_type,
            charset=page.charset,
            length=len(body),
            sha256=sha256,
            doc_id=record.get("docID", 0),
            order=self._items,
            record=record,
            before=self.refusals(record["depth"]),
            held=page.held,
        )

    # Pages and links

    def _read(self, url: str, page: Fetched, body: bytes, *, is_folded: bool = False) -> tuple[bool, bool, list[str]]:
        """Is the page not to be saved, not to be followed, and where its links lead.

        *is_folded*: if it may be saved, it is folded, and its links are not looked at.
        """
        text = page_text(body, "utf-8" if page.is_utf8 else page.charset, page.content_type)
        markup = read_markup(text, self._options.robots_name, self._options.max_links)
        nofollow = page.nofollow or (self._options.obey_meta and markup.nofollow)
        noindex = page.noindex or (self._options.obey_meta and markup.noindex)
        if nofollow or (is_folded and not noindex):
            return noindex, nofollow, []
        if markup.surplus:
            self.skipped["too many links on a page"] += markup.surplus
        links = self._rules.resolve(markup.links, url, markup.base, page.charset, self.skipped)
        if page.refresh:
            links.insert(0, page.refresh)
        return noindex, nofollow, links

    def _tell_failure(self, link: Link, redirects: tuple[str, ...], reason: str) -> None:
        for url in redirects:
            self.event(link.depth, events.REDIRECTED, url)
        if is_failure(reason):
            self.event(link.depth, events.FAILED, f"{link.url} ({reason})")
            self.failed[reason] += 1
            if len(self.broken) < _MOST_BROKEN:
                self.broken.append((link.url, reason, link.parent))
        else:
            self.event(link.depth, SKIPPED[reason.partition(":")[0]], link.url)
            self.skipped[reason] += 1

    def _tell_folded(self, link: Link, redirects: tuple[str, ...], reason: str) -> None:
        for url in redirects:
            self.event(link.depth, events.REDIRECTED, url)
        url = redirects[-1] if redirects else link.url
        self.event(link.depth, events.FETCHED, url)
        self.event(link.depth, events.FOLDED, url)
        self.skipped[kind_of(reason)] += 1

    def _tell_page(
        self, link: Link, redirects: tuple[str, ...], links: list[str], *, noindex: bool, nofollow: bool
    ) -> list[Link]:
        """Count the page, and return the links on it that are new and in scope."""
        url = redirects[-1] if redirects else link.url
        if link.parent is None and not self.scope.in_place(url):
            self.scope = self.scope.joined_by(url)
            logger.warning("The seed %s leads to %s, which joins the crawl", link.url, url)
        for redirect in redirects:
            self.event(link.depth, events.REDIRECTED, redirect)
        self.event(link.depth, events.FETCHED, url)
        if noindex:
            self.event(link.depth, events.UNSAVED, url)
            self.skipped[NOINDEX] += 1
        if link.depth >= self._depth:
            return []
        if nofollow:
            self.skipped["nofollow"] += 1
            return []
        self.event(link.depth, events.SCANNING, url)
        self.links_seen = (self.links_seen or 0) + len(links)
        return self._new_links(url, link.depth + 1, links)

    def _new_links(self, parent: str, depth: int, links: list[str]) -> list[Link]:
        new = []
        known, is_told = self._known, bool(self.event)
        for url in links:
            shown = url if len(url) <= _LONGEST_SHOWN else _shown(url)
            if is_told:
                self.event(depth - 1, events.FOUND, shown)
            if shown not in known:
                reason = known[shown] = self.scope.refusal(url)
                if reason:
                    self.skipped[reason] += 1
                    record = {"reason": reason, "url": shown, "depth": depth, "parent": parent}
                    self._refused.append((depth, record))
                elif (rank := self._serial.claim(url)) is not None:
                    self.event(depth - 1, events.ADDED, shown)
                    new.append(Link(rank, url, depth, parent))
                    continue
            if not is_told:
                continue
            reason = known[shown]
            word = events.DUPLICATE if reason is None else events.FILTERED
            self.event(depth - 1, events.EXTERNAL if reason == OUT_OF_SCOPE else word, shown)
        return new
