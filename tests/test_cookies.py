"""Cookies, end to end (policy I): they live for one redirect chain, and the operator's go to the seed's host alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from conftest import CrawlCommand
from mockserver import MockServer, Reply, Request, page, redirect, robots

Server = Callable[..., MockServer]


def with_cookies(reply: Reply, *cookies: str) -> Reply:
    reply.headers = [*reply.headers, *[("Set-Cookie", cookie) for cookie in cookies]]
    return reply


def cookies_sent(mock: MockServer) -> list[tuple[str, set[str]]]:
    """Host and target of each request, in order, with the cookies that came with it."""
    return [
        (request.host + request.target, set(filter(None, request.headers.get("cookie", "").split("; "))))
        for request in mock.requests
    ]


def test_a_cookie_is_not_sent_with_the_next_page(server: Server, crawl: CrawlCommand) -> None:
    mock = server(
        {
            "/robots.txt": with_cookies(robots(""), "robots=1; Path=/"),
            "/": with_cookies(page("/1", "/2", "/3"), "seed=1; Path=/"),
            "/1": with_cookies(page(), "one=1; Path=/; Domain=h.test; Max-Age=3600"),
            "/2": [with_cookies(Reply(503), "busy=1"), page()],
            "/3": page(),
        }
    )

    result = crawl(mock.url("/", "h.test"), 1, settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 1})

    assert len(result.pages) == 4
    assert [cookies for _, cookies in cookies_sent(mock)] == [set()] * 6


def test_cookies_go_along_a_redirect_chain_to_the_hosts_they_are_for(server: Server, crawl: CrawlCommand) -> None:
    """As in browsers: one without a domain to its host alone, one with a domain to the hosts below it too."""
    mock = server({})

    def to(path: str, host: str, *cookies: str) -> Reply:
        return with_cookies(redirect(mock.url(path, host)), *cookies)

    mock.reset(
        {
            "h.test/": page("/a", "/b"),
            "h.test/a": to("/a2", "h.test", "host=1; Path=/", "domain=1; Path=/; Domain=h.test", "path=1; Path=/x"),
            "h.test/a2": to("/a3", "www.h.test", "host=2; Path=/"),
            "www.h.test/a3": to("/a4", "other.test", "foreign=1; Domain=other.test", "suffix=1; Domain=test"),
            "other.test/a4": to("/a5", "h.test", "other=1; Path=/"),
            "h.test/a5": page(),
            "h.test/b": page(),
        }
    )

    result = crawl(
        mock.url("/", "h.test"), 1, domains="h.test,other.test", settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 1}
    )

    assert [url for url, _ in result.pages] == [mock.url(path, "h.test") for path in ("/", "/a5", "/b")]
    assert dict(cookies_sent(mock)) == {
        "h.test/robots.txt": set(),
        "h.test/": set(),
        "h.test/a": set(),
        "h.test/b": set(),
        "h.test/a2": {"host=1", "domain=1"},
        "www.h.test/robots.txt": set(),
        "www.h.test/a3": {"domain=1"},
        "other.test/robots.txt": set(),
        "other.test/a4": set(),
        "h.test/a5": {"host=2", "domain=1"},
    }


def test_the_operators_cookies_go_to_the_seeds_host_alone(server: Server, crawl: CrawlCommand) -> None:
    """Always: with robots.txt, retries and redirects back, and whatever the site sets meanwhile."""
    mock = server({})
    mock.reset(
        {
            "h.test/": page("/1", "/2", mock.url("/w", "www.h.test"), mock.url("/o", "other.test")),
            "h.test/1": with_cookies(redirect(mock.url("/1", "www.h.test")), "login=stolen; Path=/", "site=1; Path=/"),
            "www.h.test/1": with_cookies(redirect(mock.url("/back", "h.test")), "www=1; Path=/"),
            "h.test/back": page(),
            "h.test/2": [Reply(500), page()],
            "www.h.test/w": page(),
            "other.test/o": redirect(mock.url("/from-other", "h.test")),
            "h.test/from-other": page(),
        }
    )

    result = crawl(
        mock.url("/", "h.test"),
        1,
        scope="all",
        settings={"TINYCRAWL_COOKIES": json.dumps({"login": "secret", "lang": "en"})},
    )

    assert len(result.pages) == 5
    operator = {"login=secret", "lang=en"}
    for address, cookies in cookies_sent(mock):
        expected = operator if address.startswith("h.test/") else set()
        assert cookies - {"site=1", "www=1"} == expected, address
    assert ("h.test/back", operator | {"site=1"}) in cookies_sent(mock)


def test_a_site_that_wants_its_cookie_back_is_crawled(server: Server, crawl: CrawlCommand) -> None:
    """Every page sends the visitor for a cookie first; one page never has enough."""

    def wall(request: Request) -> Reply:
        if request.target == "/robots.txt":
            return robots("")
        if request.target.startswith("/greedy"):
            return with_cookies(redirect("/greedy"), f"n={request.number}; Path=/")
        if "seen=1" in request.headers.get("cookie", ""):
            return page("/1", "/2", "/greedy")
        return with_cookies(redirect(request.target), "seen=1; Path=/")

    mock = server(wall)

    result = crawl(mock.url(), 1)

    assert result.listing(mock) == ["1: / @0", "2: /1 @1", "3: /2 @1"]
    assert {target: mock.targets().count(target) for target in ("/", "/1", "/2")} == {"/": 2, "/1": 2, "/2": 2}
    assert result.entry(mock.url("/greedy"))["reason"] in {"redirect loop", "too many redirects"}
    assert mock.targets().count("/greedy") <= 21


def test_no_list_of_suffixes_is_downloaded(server: Server, crawl: CrawlCommand) -> None:
    """Scrapy's own middleware asks tldextract for one, over the network, at the first cookie."""
    proxy = server({})
    mock = server({"/": with_cookies(redirect("/1"), "a=1; Domain=h.test; Path=/"), "/1": page()})
    environment: Mapping[str, str] = {"https_proxy": proxy.url(), "TLDEXTRACT_CACHE": "/nonexistent", "no_proxy": ""}

    result = crawl(mock.url("/", "h.test"), 0, env=environment)

    assert ("h.test/1", {"a=1"}) in cookies_sent(mock)
    assert len(result.pages) == 1
    assert next(proxy.connection_numbers) == 0
