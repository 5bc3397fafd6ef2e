"""Right pages at their shortest distances under the same docIDs, whatever the network does (DESIGN section 4).

By the real crawler over HTTP; `python bench/exactness.py` runs the same for as many random sites as wanted.
"""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comparison import Comparison, comparison
from graph import Link, Node, Site, sites


@pytest.fixture(scope="module")
def crawls() -> Iterator[Comparison]:
    with comparison() as shared:
        yield shared


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(site=sites(), seed=st.integers(0, 2**32))
def test_random_sites_are_crawled_as_by_the_oracle_in_every_way(crawls: Comparison, site: Site, seed: int) -> None:
    assert crawls.differences(site, seed) == []


def made_by_rule(count: int, seed: int, padding: int = 0) -> Site:
    """A site of *count* nodes, two thirds of them pages: a tree with many short cuts."""
    rng = Random(seed)
    nodes = []
    for number in range(count):
        kind = "page" if number == 0 else rng.choice(["page"] * 8 + ["redirect"] * 3 + ["missing"])
        children = [child for child in range(3 * number + 1, 3 * number + 4) if child < count]
        links = [Link(child) for child in [*children, *(rng.randrange(count) for _ in range(3))]]
        rng.shuffle(links)
        nodes.append(
            Node(
                kind=kind,
                links=tuple(links) if kind == "page" else (),
                target=Link(rng.randrange(count)),
                noindex=kind == "page" and rng.random() < 0.05,
                failures=rng.choice([0] * 8 + [1, 2]),
                latency="small",
                padding=padding if kind == "page" else 0,
            )
        )
    return Site(tuple(nodes), 10)


def test_pages_of_a_megabyte_are_crawled_exactly(crawls: Comparison) -> None:
    site = made_by_rule(150, 7, padding=1_000_000)

    assert len(site.oracle()) > 75
    assert crawls.differences(site, 1) == []


def test_one_page_a_hundred_times_slower_than_the_rest_changes_nothing(crawls: Comparison) -> None:
    site = made_by_rule(150, 8)
    pages = [path for path, _ in site.oracle()]

    assert len(pages) > 75
    assert [crawls.differences(site, 2, late={pages[n]: 1.5}) for n in (1, 5, 30)] == [[], [], []]
