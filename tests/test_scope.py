"""Scope: which URLs belong to a crawl, and the reason when one does not."""

import re
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinycrawl.scope import (
    EXCLUDED,
    KINDS,
    NOT_INCLUDED,
    OUT_OF_SCOPE,
    REPEATED_SEGMENT,
    URL_TOO_LONG,
    Scope,
    parse_domains,
)


@pytest.mark.parametrize(
    ("seed", "kind", "url", "belongs"),
    [
        pytest.param("http://h.test/", "host", "http://h.test/a?b", True, id="host"),
        pytest.param("http://h.test/", "host", "https://h.test/a", True, id="host-https"),
        pytest.param("https://h.test/", "host", "http://h.test/a", True, id="host-http"),
        pytest.param("http://h.test/", "host", "http://h.test:8080/", False, id="U7-other-port"),
        pytest.param("http://h.test:8080/", "host", "http://h.test/", False, id="U7-from-other-port"),
        pytest.param("http://h.test:8080/", "host", "http://h.test:80801/", False, id="U7-longer-port"),
        pytest.param("http://h.test:8080/", "host", "https://h.test:8080/", True, id="same-port-https"),
        pytest.param("http://h.test/", "host", "https://h.test:80/", False, id="https-on-80"),
        pytest.param("http://h.test/", "host", "http://sub.h.test/", False, id="U8-subdomain"),
        pytest.param("http://h.test/", "host", "http://noth.test/", False, id="U8-longer-name"),
        pytest.param("http://h.test/", "host", "http://h.test.evil.test/", False, id="U8-name-as-subdomain"),
        pytest.param("http://www.h.test/", "domain", "http://h.test/", True, id="domain-bare"),
        pytest.param("http://h.test/", "domain", "https://a.b.h.test:8080/", True, id="domain-subdomain-port"),
        pytest.param("http://h.test/", "domain", "http://noth.test/", False, id="domain-longer-name"),
        pytest.param("http://a.github.io/", "domain", "http://b.github.io/", False, id="domain-hosting-service"),
        pytest.param("http://github.io/", "domain", "http://b.github.io/", False, id="domain-bare-suffix"),
        pytest.param("http://a.co.uk/", "domain", "http://b.co.uk/", False, id="domain-two-label-suffix"),
        pytest.param("http://127.0.0.1/", "domain", "http://127.0.0.1:81/", True, id="domain-ipv4-port"),
        pytest.param("http://127.0.0.1/", "domain", "http://1.0.0.1/", False, id="domain-ipv4"),
        pytest.param("http://h.test/docs/x.html", "prefix", "https://h.test/docs/a/b", True, id="prefix"),
        pytest.param("http://h.test/docs/x.html", "prefix", "http://h.test/docs/", True, id="prefix-itself"),
        pytest.param("http://h.test/docs/x.html", "prefix", "http://h.test/docs", False, id="prefix-no-slash"),
        pytest.param("http://h.test/docs/x.html", "prefix", "http://h.test/docs2/", False, id="prefix-longer-name"),
        pytest.param("http://h.test/docs", "prefix", "http://h.test/other", True, id="prefix-of-a-file-at-the-root"),
        pytest.param("http://h.test/d/x?u=/a/b", "prefix", "http://h.test/d/y", True, id="prefix-slash-in-query"),
        pytest.param("http://h.test/docs/", "prefix", "http://h.test:81/docs/", False, id="prefix-other-port"),
        pytest.param("http://h.test/", "all", "https://other.test:81/", True, id="all"),
        pytest.param("http://[::1]/", "host", "http://[::1]/a", True, id="ipv6"),
        pytest.param("http://[::1]/", "host", "http://[::1]:81/a", False, id="ipv6-other-port"),
    ],
)
def test_the_kind_decides_the_place(seed: str, kind: str, url: str, belongs: bool) -> None:
    scope = Scope(seed, kind)

    assert scope.in_place(url) is belongs
    assert scope.refusal(url) == (None if belongs else "out of scope")
    assert scope.refusal(seed) is None


@pytest.mark.parametrize(
    ("url", "refusal"),
    [
        pytest.param("http://cdn.test/", None, id="domain"),
        pytest.param("https://a.cdn.test:8080/x", None, id="subdomain-port"),
        pytest.param("http://notcdn.test/", OUT_OF_SCOPE, id="longer-name"),
        pytest.param("http://test/", OUT_OF_SCOPE, id="parent"),
        pytest.param("http://o.test/cdn.test", OUT_OF_SCOPE, id="in-path"),
    ],
)
@pytest.mark.parametrize("kind", ["host", "domain", "prefix"])
def test_further_domains_belong(kind: str, url: str, refusal: str | None) -> None:
    assert Scope("http://h.test/docs/", kind, domains=("cdn.test",)).refusal(url) == refusal


@pytest.mark.parametrize(
    ("url", "refusal"),
    [
        pytest.param("http://h.test/docs/a", None, id="T4-included"),
        pytest.param("http://h.test/a/docs/", NOT_INCLUDED, id="T4-anchored"),
        pytest.param("http://h.test/docs/blog/1", EXCLUDED, id="T4-excluded"),
        pytest.param("http://h.test/docs/?print=1", EXCLUDED, id="T4-excluded-by-query"),
        pytest.param("http://o.test/docs/a", OUT_OF_SCOPE, id="place-first"),
        pytest.param("http://h.test/", None, id="the-seed-is-exempt"),
    ],
)
def test_patterns_search_path_and_query(url: str, refusal: str | None) -> None:
    scope = Scope("http://h.test/", include=re.compile("^/docs/"), exclude=re.compile("/blog/|print="))

    assert scope.refusal(url) == refusal
    assert scope.in_place(url) is (refusal != OUT_OF_SCOPE)


@pytest.mark.parametrize(
    ("limit", "path", "refusal"),
    [
        pytest.param(4, "infra/www/" * 4, None, id="T2-four-times"),
        pytest.param(4, "infra/www/" * 5, REPEATED_SEGMENT, id="T2-five-times"),
        pytest.param(4, "a/b/a/c/a/d/a/e/a", REPEATED_SEGMENT, id="T2-spread"),
        pytest.param(4, "a/a/b/b/c/c/d/d/e/e", None, id="T2-many-pairs"),
        pytest.param(4, "a/a/a/a/?u=/a/a", None, id="query-is-no-path"),
        pytest.param(4, "a/a/a/a/aa", None, id="whole-segments"),
        pytest.param(4, "a/a/a/a/A", None, id="case-counts"),
        pytest.param(4, "////x", None, id="four-empty"),
        pytest.param(4, "/////x", REPEATED_SEGMENT, id="five-empty"),
        pytest.param(1, "a/b/", None, id="limit-1"),
        pytest.param(1, "a/a", REPEATED_SEGMENT, id="limit-1-twice"),
        pytest.param(0, "a/" * 100, None, id="no-limit"),
    ],
)
def test_a_segment_may_repeat_up_to_the_limit(limit: int, path: str, refusal: str | None) -> None:
    assert Scope("http://h.test/", max_segment_repeats=limit).refusal(f"http://h.test/{path}") == refusal


@pytest.mark.parametrize(
    ("limit", "refusal"),
    [
        pytest.param(20, None, id="as-long"),
        pytest.param(19, URL_TOO_LONG, id="longer"),
        pytest.param(0, None, id="no-limit"),
    ],
)
def test_a_url_may_be_as_long_as_the_limit(limit: int, refusal: str | None) -> None:
    assert Scope("http://h.test/", max_url_length=limit).refusal("http://h.test/567890") == refusal


def test_the_limits_default_to_what_the_design_says() -> None:
    scope = Scope("http://h.test/")

    assert scope.refusal("http://h.test/" + "a" * 2069) is None
    assert scope.refusal("http://h.test/" + "a" * 2070) == "URL too long"


@pytest.mark.parametrize(
    ("seed", "url", "may"),
    [
        pytest.param("http://h.test/", "http://www.h.test/", True, id="R6-www"),
        pytest.param("http://www.h.test/", "https://h.test:8443/", True, id="bare-https-port"),
        pytest.param("http://h.test/", "http://h.test:8080/", True, id="other-port"),
        pytest.param("http://127.0.0.1:1/", "http://127.0.0.1:2/", True, id="ipv4-port"),
        pytest.param("http://localhost:1/", "http://localhost:2/", True, id="localhost-port"),
        pytest.param("http://h.test/", "http://h2.test/", False, id="R5-other-domain"),
        pytest.param("http://a.github.io/", "http://b.github.io/", False, id="R5-hosting-service"),
        pytest.param("http://127.0.0.1/", "http://1.0.0.1/", False, id="R5-other-address"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_may_move_within_its_domain(kind: str, seed: str, url: str, may: bool) -> None:
    assert Scope(seed, kind).may_join(url) is may


def test_what_joins_counts_like_a_second_seed() -> None:
    scope = Scope("http://h.test/docs/", "prefix", exclude=re.compile("^/en/docs/(home|old)"))
    wider = scope.joined_by("https://www.h.test/en/docs/home")

    assert scope.refusal("https://www.h.test/en/docs/a") == OUT_OF_SCOPE
    assert wider.refusal("https://www.h.test/en/docs/home") is None
    assert wider.refusal("http://www.h.test/en/docs/a") is None
    assert wider.refusal("https://www.h.test/en/docs/old") == EXCLUDED
    assert wider.refusal("https://www.h.test/en/") == OUT_OF_SCOPE
    assert wider.refusal("http://h.test/docs/a") is None
    assert wider.joined == ("https://www.h.test/en/docs/home",)
    assert wider.joined_by("https://www.h.test/en/docs/home") is wider
    assert scope.joined_by("http://h.test/docs/") is scope


def test_equal_rules_are_equal_scopes() -> None:
    assert Scope("http://h.test/") == Scope("http://h.test/", "host")
    assert Scope("http://h.test/") != Scope("http://h.test/").joined_by("http://www.h.test/")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of host, domain, prefix, all, got 'site'"):
        Scope("http://h.test/", "site")


@pytest.mark.parametrize(
    ("text", "domains"),
    [
        pytest.param("h.test", ("h.test",), id="one"),
        pytest.param(" A.test , b.TEST", ("a.test", "b.test"), id="trimmed-and-lower-case"),
        pytest.param("bücher.test", ("xn--bcher-kva.test",), id="U13-punycode"),
        pytest.param("b.test,a.test,B.test.", ("b.test", "a.test"), id="each-once"),
        pytest.param("localhost,127.0.0.1,[::1]", ("localhost", "127.0.0.1", "[::1]"), id="addresses"),
    ],
)
def test_parse_domains(text: str, domains: tuple[str, ...]) -> None:
    assert parse_domains(text) == domains


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        pytest.param("", "''", id="empty"),
        pytest.param("a.test,", "''", id="trailing-comma"),
        pytest.param("a.test, ,b.test", "''", id="blank-entry"),
        pytest.param("a.test,http://b.test", "'http://b.test'", id="scheme"),
        pytest.param("b.test/x", "'b.test/x'", id="path"),
        pytest.param("b.test\\x", r"'b.test\\x'", id="backslash"),
        pytest.param("b.test?x", "'b.test?x'", id="query"),
        pytest.param("b.test:80", "'b.test:80'", id="default-port"),
        pytest.param("[::1]:80", "'[::1]:80'", id="ipv6-port"),
        pytest.param("me@b.test", "'me@b.test'", id="user"),
        pytest.param("*.b.test", "'*.b.test'", id="wildcard"),
        pytest.param(".b.test", "'.b.test'", id="leading-dot"),
        pytest.param("a.test b.test", "'a.test b.test'", id="space"),
        pytest.param("b..test", "'b..test'", id="empty-label"),
        pytest.param("[bad", "'[bad'", id="open-bracket"),
    ],
)
def test_parse_domains_names_the_bad_one(text: str, bad: str) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(bad)}$"):
        parse_domains(text)


HOSTS = st.sampled_from(["h.test", "www.h.test", "a.www.h.test", "noth.test", "h.test.o.test", "127.0.0.1", "o.test"])
PATHS = st.lists(st.sampled_from(["", "a", "b", "docs", "x.html"]), max_size=8).map("/".join)
URLS = st.builds(
    "{}://{}{}/{}{}".format,
    st.sampled_from(["http", "https"]),
    HOSTS,
    st.sampled_from(["", "", ":8080"]),
    PATHS,
    st.sampled_from(["", "?", "?q=/a/b", "?docs/a"]),
)


def oracle_refusal(seed: str, kind: str, url: str) -> str | None:
    """Decide by parts, for the hosts above, whose registrable domain is the last two labels."""
    one, other = urlsplit(seed), urlsplit(url)
    ports = [parts.port or "default" for parts in (one, other)]
    same_site = one.hostname == other.hostname and ports[0] == ports[1]
    owners = [
        host if host.endswith(".1") else host.split(".")[-2:] for host in (one.hostname or "", other.hostname or "")
    ]
    directory = one.path.rsplit("/", 1)[0].split("/")
    in_place = {
        "host": same_site,
        "domain": owners[0] == owners[1],
        "prefix": same_site
        and other.path.split("/")[: len(directory)] == directory
        and other.path != "/".join(directory),
        "all": True,
    }[kind]
    if url == seed:
        return None
    if not in_place and not re.search(r"(^|\.)o\.test$", other.hostname or ""):
        return "out of scope"
    if "docs" not in url.split("/", 3)[3]:
        return "not included"
    segments = other.path.split("/")[1:]
    if segments[-1] == "":
        segments.pop()
    return "repeated path segment" if any(segments.count(segment) > 2 for segment in segments) else None


@settings(deadline=None, max_examples=500)
@given(URLS, st.sampled_from(KINDS), URLS)
def test_refusal_agrees_with_an_oracle(seed: str, kind: str, url: str) -> None:
    scope = Scope(seed, kind, domains=("o.test",), include=re.compile("docs"), max_segment_repeats=2)

    assert scope.refusal(url) == oracle_refusal(seed, kind, url)
