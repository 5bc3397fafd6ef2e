"""The serial crawl: what a crawl does is defined by one page at a time, in canonical order.

Concurrency only fetches ahead. Answers may come in any order; they take effect in the order of their ranks:

- A *rank* is the place of a link in the canonical order: within a level by the position of the parent, then by the
  position of the link on the parent. `claim` gives the next one; `push` puts it into the frontier.
- An *ask* is one URL to be requested. Ranks that lead to the same URL share one ask, whichever of them came first.
- A *walk* is the way of one rank: its own URL, then every redirect. A redirect costs neither depth nor rank.
- `publish` settles walks in rank order, as soon as every smaller rank is settled. Only then is a URL *taken*: a later
  rank that leads to a taken URL is a duplicate, even if its answer was here first.

So the result cannot depend on timing: nothing but `publish` decides, and it sees the answers in one order only. This
module knows nothing of Scrapy, HTTP or files; the property tests drive it with answers in every order.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, takewhile
from typing import Any

TAKEN = 0  # in place of a rank: the URL was reached by a settled rank

DUPLICATE = "duplicate"
REDIRECT_LOOP = "redirect loop"
TOO_MANY_REDIRECTS = "too many redirects"


@dataclass(frozen=True, slots=True)
class Link:
    """A URL in the frontier. *parent* is None for the seed."""

    rank: int
    url: str
    depth: int
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What one URL gave.

    *outcome* belongs to the caller (a page, the reason of a failure); *redirect* is the URL it leads to instead, ""
    for none, *full_redirect* the same before parameters that make no difference were removed, if there were any.
    *cookies* are those of the redirect chain so far, this answer's included. *is_offline* says that no
    server answered: the network itself may be gone. *is_live*: one did, so it is there. Neither, where none was asked
    (robots.txt forbids it) or the connection broke.
    """

    outcome: Any
    redirect: str = ""
    full_redirect: str = ""
    cookies: tuple[Any, ...] = ()
    is_offline: bool = False
    is_live: bool = True


@dataclass(slots=True, eq=False)
class Ask:
    """One URL to be requested, with the cookies of its redirect chain, for the walks that wait for it.

    *rank* is the smallest of theirs. *is_sent*: it has been handed out. *is_probe*: no walk waits, only whether a
    server answers matters. *seconds*: what its requests and those that led to it have taken.
    """

    url: str
    depth: int
    rank: int
    cookies: tuple[Any, ...] = ()
    is_sent: bool = False
    answer: Answer | None = None
    walks: list["Walk"] = field(default_factory=list)
    is_probe: bool = False
    seconds: float = 0.0


@dataclass(slots=True, eq=False)
class Walk:
    """The way of one rank. *reason* is set where a redirect must not be followed to *target*."""

    link: Link
    asks: list[Ask] = field(default_factory=list)
    reason: str = ""
    target: str = ""

    @property
    def is_done(self) -> bool:
        answer = self.asks[-1].answer
        return bool(self.reason) or (answer is not None and not answer.redirect)


@dataclass(frozen=True, slots=True)
class Settled:
    """A rank that is settled, with the *outcome* of its last URL; or a *reason*, where a redirect was not followed.

    *redirects* are the URLs asked after that of the link, *target* the one that was not.
    """

    link: Link
    redirects: tuple[str, ...]
    outcome: Any
    reason: str = ""
    target: str = ""


class SerialCrawl:
    """The order of a crawl: the frontier, what to ask next, what is settled.

    :param ranks: key of a URL -> rank, or `TAKEN`; shared with the dupefilter.
    :param key: what makes two URLs the same for comparison.
    :param refusal: the reason why the walk of a link must not be redirected to a URL, or None.
    :param host: the host of a URL, for which `next_ask` asks whether there is room.
    :param discard: called with each outcome that nobody will use.
    :param ahead: how many ranks may be open at once, from 1.
    :param slack: how many of them may wait to be published, though nothing keeps them from it, before more is asked.
    :param last_in_first_out: depth-first: the link found last is asked first, one at a time.
    :param outage_after: so many answers in a row from no server at all are an outage; 0 switches this off.
    :param lifeline: a URL at the seed's server. Once the seed has answered, asking it decides whether there is an
        outage: after so many answers, and where the level has no other ask that would tell.
    """

    def __init__(
        self,
        *,
        ranks: MutableMapping[Hashable, int],
        key: Callable[[str], Hashable],
        refusal: Callable[[Link, str], str | None],
        host: Callable[[str], str],
        discard: Callable[[Any], None] = lambda outcome: None,
        ahead: int = 1000,
        slack: int = 16,
        max_redirects: int = 20,
        last_in_first_out: bool = False,
        outage_after: int = 0,
        lifeline: str = "",
    ) -> None:
        self.ranks = ranks
        self.key = key
        self.refusal = refusal
        self.host = host
        self.discard = discard
        self.ahead = 1 if last_in_first_out else ahead
        self.slack = max(slack, 1)
        self.max_redirects = max_redirects
        self.last_in_first_out = last_in_first_out
        self.outage_after = outage_after
        self.lifeline = lifeline
        self.remaining: int | None = None  # pages that may still be saved; None for no limit
        self.level = -1  # depth of the links that may be asked now
        self.is_stopped = False  # nothing more is asked
        self.is_replaying = False  # nothing is asked yet
        self._end = -1 if last_in_first_out else 0  # of the frontier
        self._claimed = 0
        self._frontier: deque[Link] = deque()
        self._pushed: Counter[int] = Counter()  # links by depth, ever
        self._queued: Counter[int] = Counter()  # links by depth, in the frontier
        self._open: dict[int, Walk] = {}  # in the order in which they are published
        self._asks: dict[str, Ask] = {}  # of open walks, asked without cookies
        self._ready: dict[str, list[tuple[int, int, Ask]]] = {}  # per host, a heap by rank
        self._hosts: set[str] = set()  # of all links ever
        self._waiting = 0  # asks that have no answer yet
        self._tie = 0  # keeps asks of one rank in their order
        self._offline: list[Ask] = []  # the latest answers, as long as none came from a server
        self._probe: Ask | None = None  # asked, and not answered yet

    # The frontier

    def claim(self, url: str) -> int | None:
        """Give *url* the next rank, or return None if it is known already."""
        rank = self._claimed + 1
        if self.ranks.setdefault(self.key(url), rank) != rank:
            return None
        self._claimed = rank
        return rank

    def push(self, link: Link) -> None:
        """Put a claimed link into the frontier, which is in the order of the ranks.

        The links of two pages published one right after the other may come mixed: they take their ways through
        Scrapy side by side. All have come before their level begins.
        """
        place = len(self._frontier)
        while place and self._frontier[place - 1].rank > link.rank:
            place -= 1
        self._frontier.insert(place, link)
        self._hosts.add(self.host(link.url))
        self._pushed[link.depth] += 1
        self._queued[link.depth] += 1

    def has_more(self) -> bool:
        """Is anything left that is not settled?"""
        return bool(self._open) or self._next_link() is not None

    @property
    def level_size(self) -> int:
        """How many links of the present level are known: all of them, in breadth-first order."""
        return self._pushed[self.level]

    @property
    def level_left(self) -> int:
        """How many links of the present level are not settled yet."""
        return len(self._open) + self._queued[self.level]

    @property
    def pending(self) -> int:
        """How many URLs are known and not settled, of all levels."""
        return len(self._open) + len(self._frontier)

    @property
    def processed(self) -> int:
        """How many URLs are settled."""
        return self._pushed.total() - self.pending

    def left_by_host(self) -> Counter[str]:
        """How many links of the present level are not settled, of each host. Looks at every one of them."""
        waiting = takewhile(lambda link: link.depth == self.level, self._frontier)
        return Counter(self.host(link.url) for link in chain((walk.link for walk in self._open.values()), waiting))

    def is_soon(self, ask: Ask, lead: int) -> bool:
        """Will this ask be published within the next *lead* ranks?"""
        return ask.rank - next(iter(self._open), ask.rank) < lead

    @property
    def is_outage(self) -> bool:
        """Is the network gone?"""
        if self._has_lifeline:
            return any(ask.is_probe for ask in self._offline)
        return self._may_be_outage

    @property
    def _may_be_outage(self) -> bool:
        return 0 < self.outage_after <= len(self._offline)

    @property
    def _has_lifeline(self) -> bool:
        return bool(self.lifeline) and self.level > 0

    def _next_link(self) -> Link | None:
        """The next link of the frontier that no redirect has taken since it was found."""
        while self._frontier:
            link = self._frontier[self._end]
            if self.ranks.get(self.key(link.url)) != TAKEN:
                return link
            self._pop()
        return None

    def _pop(self) -> Link:
        link = self._frontier[self._end]
        del self._frontier[self._end]
        self._queued[link.depth] -= 1
        return link

    # Asking

    def next_ask(self, has_room: Callable[[str], bool], is_idle: Callable[[], bool]) -> Ask | None:
        """The ask of the smallest rank whose host has room, or None.

        A new level, and in depth-first order each link, is begun only when *is_idle*: nothing in flight, everything
        published and every new link pushed.
        """
        while not (self.is_stopped or self.is_replaying or self._is_behind()):
            hosts = [host for host in self._ready if has_room(host)]
            if hosts:
                host = min(hosts, key=lambda name: self._ready[name][0][:2])
                ask = heappop(self._ready[host])[2]
                if not self._ready[host]:
                    del self._ready[host]
                if ask.is_sent:  # it was here twice
                    continue
                ask.is_sent = True
                if ask.walks or ask.is_probe:
                    return ask
                self._waiting -= 1  # settled otherwise in the meantime
            elif not self._open_next(is_idle):
                return None
        return None

    def _open_next(self, is_idle: Callable[[], bool]) -> bool:
        room = self.ahead if self.remaining is None else min(self.ahead, self.remaining)
        if self._ready and len(self._hosts) == 1:
            return False  # one host, which has no room: to look further would only take memory
        link = self._next_link()
        if link is None or self._probe is not None:
            return False
        if len(self._open) - len(self._offline) >= room and not self._lacks_witness:
            return False
        if (self.last_in_first_out or link.depth > self.level) and not (not self._waiting and is_idle()):
            return False
        self._begin(link)
        return True

    @property
    def _lacks_witness(self) -> bool:
        """Does publication wait for an answer that tells an outage from a failure, with none on its way?

        One more is then asked beyond the lead: those within it may all have failed in ways that tell nothing.
        """
        return not self._waiting and bool(self._open) and next(iter(self._open.values())).asks[-1] in self._offline

    def _is_behind(self) -> bool:
        """Is much waiting that could be published? Then that comes first: a kill would lose it."""
        if len(self._open) - self._waiting < self.slack:
            return False
        head = next(iter(self._open.values()))
        return head.is_done and head.asks[-1] not in self._offline

    def _begin(self, link: Link) -> None:
        self._pop()
        self.level = link.depth
        walk = self._open[link.rank] = Walk(link)
        self._ask(walk, link.url, ())
        self._advance(walk)  # another walk may have the answer already

    def _ask(self, walk: Walk, url: str, cookies: tuple[Any, ...]) -> None:
        ask = None if cookies else self._asks.get(url)
        if ask is None:
            ask = Ask(url, walk.link.depth, walk.link.rank, cookies)
            ask.seconds = walk.asks[-1].seconds if walk.asks else 0.0
            if not cookies:
                self._asks[url] = ask
            self._waiting += 1
            self._make_ready(ask)
        elif walk.link.rank < ask.rank and not ask.is_sent:
            ask.rank = walk.link.rank  # more urgent than it was
            self._make_ready(ask)
        ask.walks.append(walk)
        walk.asks.append(ask)

    def _make_ready(self, ask: Ask) -> None:
        self._tie += 1
        heappush(self._ready.setdefault(self.host(ask.url), []), (ask.rank, self._tie, ask))

    def _send_probe(self) -> None:
        self._probe = Ask(self.lifeline, self.level, TAKEN, is_probe=True)  # TAKEN is before every rank
        self._waiting += 1
        self._make_ready(self._probe)

    # Answers

    def answer(self, ask: Ask, answer: Answer) -> None:
        """Take in what *ask* gave. Call `publish` afterwards."""
        ask.answer = answer
        self._waiting -= 1
        if answer.is_offline:
            self._offline.append(ask)
        elif answer.is_live or ask.is_probe:
            self._offline.clear()
        if ask is self._probe:
            self._probe = None
        elif self._may_be_outage and self._has_lifeline and self._probe is None:
            self._send_probe()
        if not ask.walks:  # settled otherwise in the meantime
            self._release(ask)
        for walk in list(ask.walks):
            self._advance(walk)

    def _advance(self, walk: Walk) -> None:
        """Follow the redirects of *walk* as far as their answers are here."""
        while not walk.is_done and (answer := walk.asks[-1].answer) is not None:
            target = answer.redirect
            # A site may send a URL to itself with a session id: without that it would be a loop.
            if answer.full_redirect and any(ask.url == target for ask in walk.asks):
                target = answer.full_redirect
            reason = self._redirect_refusal(walk, target, answer.cookies)
            if reason:
                walk.reason, walk.target = reason, target
            else:
                self._ask(walk, target, answer.cookies)

    def _redirect_refusal(self, walk: Walk, target: str, cookies: tuple[Any, ...]) -> str | None:
        if any(ask.url == target and ask.cookies == cookies for ask in walk.asks):
            return REDIRECT_LOOP
        if len(walk.asks) > self.max_redirects:
            return TOO_MANY_REDIRECTS
        if self.ranks.get(self.key(target)) == TAKEN:
            return DUPLICATE
        return self.refusal(walk.link, target)

    # Publication

    def publish(self) -> Iterator[Settled]:
        """Settle, in rank order, each rank all of whose predecessors are settled.

        More answers may be taken in while the iterator is suspended; it goes on with them.
        """
        while self._open:
            walk = next(iter(self._open.values()))
            known = next((i for i, ask in enumerate(walk.asks) if self.ranks.get(self.key(ask.url)) == TAKEN), None)
            if known is None and not (walk.is_done and self._is_sure(walk.asks[-1])):
                return
            del self._open[walk.link.rank]
            settled = self._settle(walk, known)
            if settled is not None:
                yield settled

    def _is_sure(self, ask: Ask) -> bool:
        """May a failure be believed? Not while it could be the beginning of an outage."""
        if not self.outage_after or ask not in self._offline:
            return True
        if self.is_outage or self._probe is not None:
            return False
        while (link := self._next_link()) is not None and (self.last_in_first_out or link.depth <= self.level):
            if link.url not in self._asks:
                return False  # this one will tell
            self._begin(link)
        if not self._waiting and self._has_lifeline:
            self._send_probe()
        return not self._waiting

    def _settle(self, walk: Walk, known: int | None) -> Settled | None:
        """Take the URLs of *walk*. *known* is the first of them that a smaller rank has taken, if any."""
        urls = [ask.url for ask in walk.asks]
        reason, target, outcome = walk.reason, walk.target, None
        if known is not None:
            reason, target, urls = DUPLICATE, urls[known], urls[:known]
        self._take(urls)
        for ask in walk.asks:
            ask.walks.remove(walk)
        if not reason:
            last = walk.asks[-1]
            assert last.answer is not None
            outcome, last.answer = last.answer.outcome, Answer(None)  # from here on it is the caller's
        for ask in walk.asks:
            if not ask.walks:
                self._release(ask)
        if not urls:  # a smaller rank was redirected here: its record is the record of this URL
            return None
        return Settled(walk.link, tuple(urls[1:]), outcome, reason, target)

    def replay(self, urls: Sequence[str]) -> Link | None:
        """Settle the next link from a record: *urls* are its own and those of its redirects that were asked.

        Returns the link, or None if another one would be next: the record does not belong to this crawl.
        """
        link = self._next_link()
        if link is None or link.url != urls[0]:
            return None
        self._pop()
        self.level = link.depth
        self._take(urls)
        return link

    def _take(self, urls: Sequence[str]) -> None:
        for url in urls:
            self.ranks[self.key(url)] = TAKEN

    def _release(self, ask: Ask) -> None:
        if self._asks.get(ask.url) is ask:
            del self._asks[ask.url]
        if ask.answer is not None and ask.answer.outcome is not None:
            self.discard(ask.answer.outcome)
