"""Cookies, end to end (policy I): they live for one redirect chain, and the operator's go to the seed's host alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from conftest import CrawlCommand
from mockserver import MockServer, Reply, Request, page, redirect, robots
from tinycrawl.cookies import OperatorCookie, parse_cookie_line, read_cookies_file
from tinycrawl.exceptions import UsageError

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


# Cookies files


def read(tmp_path: Path, content: bytes) -> list[str]:
    """The cookies of a file, as they are sent."""
    path = tmp_path / "cookies.txt"
    path.write_bytes(content)
    return [cookie.pair for cookie in read_cookies_file(path).cookies]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"", [], id="empty"),
        pytest.param(b"# HTTP Cookie File\n\n \n#\n", [], id="comments"),
        pytest.param(b"h.test\tFALSE\t/\tFALSE\t0\ta\tb", ["a=b"], id="no-header-and-no-last-newline"),
        pytest.param(b"h.test\tFALSE\t/\tFALSE\t0\ta\tb\r\n", ["a=b"], id="crlf"),
        pytest.param(b"\xef\xbb\xbf# x\nh.test\tfalse\t/\ttrue\t\ta\tb\n", ["a=b"], id="bom-and-lower-case"),
        pytest.param(b"#HttpOnly_.h.test\tTRUE\t/\tTRUE\t0\ta\tb\n", ["a=b"], id="http-only"),
        pytest.param(b"h.test\tFALSE\t/\tFALSE\t-1\ta\t\n", ["a="], id="empty-value"),
        pytest.param(b"h.test\tFALSE\t/\tFALSE\t0\ta\n", ["a="], id="empty-value-without-its-tab"),
        pytest.param(b"h.test\tFALSE\t/\tFALSE\t0\t\tb\n", ["b"], id="no-name"),
        pytest.param(b'h.test\tFALSE\t/\tFALSE\t0\ta\t"b, c=d"\n', ['a="b, c=d"'], id="value-as-it-is"),
        pytest.param("h.test\tFALSE\t/\tFALSE\t1.5\ta\té\n".encode(), ["a=é"], id="utf-8"),
        pytest.param(
            b"h.test\tFALSE\t/\tFALSE\t0\ta\told\nh.test\tFALSE\t/x\tFALSE\t0\ta\tx\n"
            b".H.Test\tFALSE\t/\tFALSE\t0\ta\tnew\n",
            ["a=new", "a=x"],
            id="the-last-of-the-same",
        ),
    ],
)
def test_cookies_file_is_read_as_browsers_and_tools_write_it(
    content: bytes, expected: list[str], tmp_path: Path
) -> None:
    assert read(tmp_path, content) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(b"[", "seven fields separated by tabs, got 1", id="json"),
        pytest.param(b"h.test FALSE / FALSE 0 a secret", "seven fields separated by tabs, got 1", id="blanks"),
        pytest.param(b"h.test\tFALSE\t/\tFALSE\t0\ta\tsecret\t", "seven fields separated by tabs, got 8", id="eight"),
        pytest.param(b"\tFALSE\t/\tFALSE\t0\ta\tsecret", "a domain in the first field", id="no-domain"),
        pytest.param(b"h.test/x\tFALSE\t/\tFALSE\t0\ta\tsecret", "a domain in the first field", id="domain-with-path"),
        pytest.param(b"a@h.test\tFALSE\t/\tFALSE\t0\ta\tsecret", "a domain in the first field", id="domain-with-user"),
        pytest.param(
            b"h.test\tyes\t/\tFALSE\t0\ta\tsecret", "TRUE or FALSE in the second and fourth fields", id="flag"
        ),
        pytest.param(b"h.test\tTRUE\t/\t\t0\ta\tsecret", "TRUE or FALSE in the second and fourth fields", id="no-flag"),
        pytest.param(b"h.test\tTRUE\tx\tTRUE\t0\ta\tsecret", "a path in the third field", id="path"),
        pytest.param(
            b"h.test\tTRUE\t/\tTRUE\tsoon\ta\tsecret", "seconds since 1970, or 0, in the fifth field", id="expires"
        ),
        pytest.param(
            b"h.test\tTRUE\t/\tTRUE\t0\ta\tsecret;x",
            "a name and a value without ; and control characters in the last fields",
            id="semicolon",
        ),
        pytest.param(
            b"h.test\tTRUE\t/\tTRUE\t0\ta\tsec\rret",
            "a name and a value without ; and control characters in the last fields",
            id="control",
        ),
        pytest.param(b"h.test\tTRUE\t/\tTRUE\t0\t\t", "a name in the sixth field", id="nothing"),
        pytest.param(b"h.test\tTRUE\t/\tTRUE\t0\ta\tsecret\xff", "UTF-8", id="latin-1"),
    ],
)
def test_malformed_cookies_file_is_refused_with_file_and_line_alone(line: bytes, expected: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as info:
        read(tmp_path, b"# Netscape HTTP Cookie File\nh.test\tFALSE\t/\tFALSE\t0\ta\tb\n" + line + b"\n")

    assert str(info.value) == f"cookies file '{tmp_path / 'cookies.txt'}', line 3: expected {expected}"


@pytest.mark.parametrize(
    ("fields", "sent", "not_sent"),
    [
        pytest.param(
            "h.test FALSE / FALSE 0",
            ["http://h.test/", "https://h.test:8443/x?y"],
            ["http://www.h.test/", "http://xh.test/", "http://test/"],
            id="host",
        ),
        pytest.param(
            "h.test TRUE / FALSE 0",
            ["http://h.test/", "http://www.h.test/", "http://a.b.h.test/"],
            ["http://xh.test/", "http://h.test.evil/", "http://test/"],
            id="domain",
        ),
        pytest.param(
            ".h.test FALSE / FALSE 0",
            ["http://h.test/"],
            ["http://www.h.test/"],
            id="the-second-field-wins-as-with-curl",
        ),
        pytest.param(
            "h.test FALSE /a FALSE 0",
            ["http://h.test/a", "http://h.test/a?b", "http://h.test/a/b"],
            ["http://h.test/", "http://h.test/ab", "http://h.test/b/a", "http://h.test/A", "http://h.test/?/a"],
            id="path",
        ),
        pytest.param(
            "h.test FALSE /a/ FALSE 0", ["http://h.test/a/", "http://h.test/a/b"], ["http://h.test/a"], id="folder"
        ),
        pytest.param("h.test FALSE / TRUE 0", ["https://h.test/"], ["http://h.test/"], id="secure"),
        pytest.param("h.test FALSE / FALSE 1000", [], ["http://h.test/"], id="expires-now"),
        pytest.param("h.test FALSE / FALSE 1001", ["http://h.test/"], [], id="expires-later"),
        pytest.param("bücher.test FALSE / FALSE 0", ["http://xn--bcher-kva.test/"], [], id="idn"),
        pytest.param("localhost FALSE / FALSE 0", ["http://localhost:8000/"], ["http://x.localhost/"], id="one-label"),
        pytest.param("127.0.0.1 TRUE / FALSE 0", ["http://127.0.0.1/"], ["http://127.0.0.2/"], id="ipv4"),
        pytest.param("[::1] FALSE / FALSE 0", ["http://[::1]:8000/"], ["http://[::2]/"], id="ipv6"),
    ],
)
def test_cookie_of_a_file_is_sent_where_it_says(fields: str, sent: list[str], not_sent: list[str]) -> None:
    cookie = parse_cookie_line("\t".join([*fields.split(" "), "a", "b"]))

    assert isinstance(cookie, OperatorCookie)
    assert [url for url in sent if not cookie.is_for(url, now=1000)] == []
    assert [url for url in not_sent if cookie.is_for(url, now=1000)] == []
