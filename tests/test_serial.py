"""The serial crawl, driven with answers in every order: the result is that of one page at a time."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinycrawl.serial import Answer, Ask, Link, SerialCrawl, Settled

Node = tuple[str, list[str]]  # "page" with links, "to" with one target, "gone" with nothing
Graph = dict[str, Node]
FORBIDDEN = "x"  # a place where no redirect may lead


def plain_crawl(graph: Graph, depth: int, most: int, max_redirects: int) -> list[tuple[str, str, int]]:
    """One page at a time, no concurrency: the definition."""
    settled: set[str] = set()
    found = {"0"}
    result: list[tuple[str, str, int]] = []
    level = ["0"]
    for distance in range(depth + 1):
        following: list[str] = []
        for url in level:
            if url in settled or sum(kind == "page" for kind, _, _ in result) == most:
                continue
            chain = [url]
            while True:
                kind, links = graph[chain[-1]]
                if kind != "to":
                    break
                if links[0] in chain:
                    kind = "redirect loop"
                elif len(chain) > max_redirects:
                    kind = "too many redirects"
                elif links[0] in settled:
                    kind = "duplicate"
                elif links[0] == FORBIDDEN:
                    kind = "out of scope"
                if kind != "to":
                    break
                chain.append(links[0])
            settled.update(chain)
            found.update(chain)
            result.append((kind, chain[-1], distance))
            if kind == "page" and distance < depth:
                for link in links:
                    if link not in found:
                        found.add(link)
                        following.append(link)
        level = following
    return result


def concurrent_crawl(
    graph: Graph, depth: int, most: int, max_redirects: int, concurrency: int, ahead: int, choose: Callable[[int], int]
) -> tuple[list[tuple[str, str, int]], list[str], list[str]]:
    """The same through SerialCrawl; *choose* says which of the requests in flight is answered next."""
    discarded: list[str] = []
    asked: list[str] = []
    serial = SerialCrawl(
        ranks={},
        key=lambda url: url,
        refusal=lambda link, url: "out of scope" if url == FORBIDDEN else None,
        host=lambda url: str(len(url) % 3),
        discard=lambda outcome: discarded.append(outcome[1]),
        ahead=ahead,
        slack=concurrency,
        max_redirects=max_redirects,
    )
    serial.remaining = most
    rank = serial.claim("0")
    assert rank == 1
    serial.push(Link(rank, "0", 0))
    flying: list[Ask] = []
    result: list[tuple[str, str, int]] = []
    while True:
        while len(flying) < concurrency:
            ask = serial.next_ask(lambda host: len(flying) < concurrency, lambda: not flying)
            if ask is None:
                break
            asked.append(ask.url)
            flying.append(ask)
        if not flying:
            break
        ask = flying.pop(choose(len(flying)))
        kind, links = graph[ask.url]
        serial.answer(ask, Answer(None, redirect=links[0]) if kind == "to" else Answer((kind, ask.url)))
        for settled in serial.publish():
            result.append(describe(settled))
            if settled.outcome and settled.outcome[0] == "page":
                assert serial.remaining is not None
                serial.remaining -= 1
                if not serial.remaining:
                    serial.is_stopped = True
                    return result, asked, discarded
                if settled.link.depth < depth:
                    for url in graph[settled.outcome[1]][1]:
                        rank = serial.claim(url)
                        if rank is not None:
                            serial.push(Link(rank, url, settled.link.depth + 1, settled.outcome[1]))
    assert not serial.has_more()
    assert serial.level_left == 0
    return result, asked, discarded


def describe(settled: Settled) -> tuple[str, str, int]:
    if not settled.reason:
        return settled.outcome[0], settled.outcome[1], settled.link.depth
    return settled.reason, [settled.link.url, *settled.redirects][-1], settled.link.depth


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    names = [str(n) for n in range(draw(st.integers(1, 12)))]
    some = st.sampled_from([*names, FORBIDDEN])
    page = st.tuples(st.just("page"), st.lists(some.filter(lambda name: name != FORBIDDEN), max_size=6))
    moved = st.tuples(st.just("to"), st.lists(some, min_size=1, max_size=1))
    gone = st.tuples(st.just("gone"), st.just([]))
    return {name: draw(st.one_of(page, page, moved, gone)) for name in names}


@settings(max_examples=2000, deadline=None)
@given(
    graph=graphs(),
    depth=st.integers(0, 5),
    most=st.sampled_from([1000, 1, 3]),
    max_redirects=st.sampled_from([20, 1, 2]),
    concurrency=st.sampled_from([1, 2, 5, 20]),
    ahead=st.sampled_from([1, 3, 1000]),
    data=st.data(),
)
def test_the_order_of_answers_changes_nothing(
    graph: Graph, depth: int, most: int, max_redirects: int, concurrency: int, ahead: int, data: st.DataObject
) -> None:
    result, asked, _ = concurrent_crawl(
        graph, depth, most, max_redirects, concurrency, ahead, lambda n: data.draw(st.integers(0, n - 1))
    )

    assert result == plain_crawl(graph, depth, most, max_redirects)
    assert len(asked) == len(set(asked))  # no URL is asked twice


def outage_crawl(answers: str, outage_after: int, lifeline: str = "") -> tuple[list[str], bool]:
    """Links in one level; the i-th answer is a page (P), no server (x), or a refusal without asking one (r).

    *lifeline* is P or x, too. Returns what is settled, and if it is an outage.
    """
    serial = SerialCrawl(
        ranks={},
        key=lambda url: url,
        refusal=lambda link, url: None,
        host=lambda url: "h",
        outage_after=outage_after,
        lifeline=lifeline,
    )
    for number, url in enumerate(answers):
        url = f"{url}{number}"
        rank = serial.claim(url)
        assert rank is not None
        serial.push(Link(rank, url, 1))
    settled: list[str] = []
    while not serial.is_outage and (ask := serial.next_ask(lambda host: True, lambda: True)) is not None:
        serial.answer(ask, Answer(ask.url, is_offline=ask.url[0] == "x", is_live=ask.url[0] == "P"))
        settled += [one.outcome for one in serial.publish()]
    return settled, serial.is_outage


@pytest.mark.parametrize(
    ("answers", "settled", "is_outage"),
    [
        pytest.param("PxxP", ["P0", "x1", "x2", "P3"], False, id="two-dead-links"),
        pytest.param("PPxx", ["P0", "P1", "x2", "x3"], False, id="dead-links-at-the-end"),
        pytest.param("PxxxP", ["P0"], True, id="outage-leaves-its-urls-open"),
        pytest.param("xxx", [], True, id="outage-from-the-beginning"),
        pytest.param("xPxPxPx", ["x0", "P1", "x2", "P3", "x4", "P5", "x6"], False, id="never-in-a-row"),
    ],
)
def test_a_run_of_connection_failures_is_an_outage(answers: str, settled: list[str], is_outage: bool) -> None:
    assert outage_crawl(answers, 3) == (settled, is_outage)


@pytest.mark.parametrize(
    ("answers", "lifeline", "settled", "is_outage"),
    [
        pytest.param("PPxx", "x", ["P0", "P1"], True, id="outage-at-the-end-of-a-level"),
        pytest.param("PPxx", "P", ["P0", "P1", "x2", "x3"], False, id="dead-links-at-the-end-of-a-level"),
        pytest.param("PxxxxP", "x", ["P0"], True, id="outage-within-a-level"),
        pytest.param("PxxxxxxxP", "P", ["P0", *(f"x{n}" for n in range(1, 8)), "P8"], False, id="many-dead-links"),
        pytest.param("PxrxrP", "x", ["P0", "x1", "r2", "x3", "r4", "P5"], False, id="answered-in-time"),
        pytest.param("Pxrxr", "x", ["P0"], True, id="a-refusal-is-no-sign-of-life"),
    ],
)
def test_lifeline_decides_whether_failures_are_an_outage(
    answers: str, lifeline: str, settled: list[str], is_outage: bool
) -> None:
    assert outage_crawl(answers, 3, lifeline) == (settled, is_outage)
