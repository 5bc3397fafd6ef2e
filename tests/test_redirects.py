"""End to end: redirects, refreshes and duplicates of the seed. Names like R4 are rows of CASES.md."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conftest import CrawlCommand
from mockserver import MockServer, Reply, Request, Routes, page, redirect

Server = Callable[..., MockServer]


@pytest.mark.parametrize(
    ("seed", "links", "listing"),
    [
        pytest.param("/1", ["/1", "/1#f", "/1?", "#top", ""], ["1: /1 @0"], id="R1"),
        pytest.param("", ["/", "/#f", ".", "/x/.."], ["1: / @0"], id="R2"),
    ],
)
def test_seed_is_saved_once(
    seed: str, links: list[str], listing: list[str], server: Server, crawl: CrawlCommand
) -> None:
    def handler(request: Request) -> Reply | None:
        return None if request.target == "/robots.txt" else page(*links)

    site = server(handler)

    result = crawl(site.url(seed), 2)

    assert result.listing(site) == listing
    assert len(site.targets()) == len(listing)


def test_redirect_target_is_saved_once_for_the_first_that_leads_to_it(server: Server, crawl: CrawlCommand) -> None:
    """R3, with /b after and before what it leads to; and three redirects to one target, the first one slow"""
    site = server(
        {
            "/": page("/a", "/b", "/d", "/c", "/e1", "/e2", "/e3", "/f"),
            "/a": page("/e", "/deeper"),
            "/b": redirect("/a", 301),
            "/c": page(),
            "/d": redirect("/c", 308, delay=0.2),
            "/e1": redirect("/e", 302, delay=0.4),
            "/e2": redirect("/e", 303, delay=0.1),
            "/e3": redirect("/e", 307),
            "/e": page("/e4"),
            "/e4": redirect("/"),
            "/f": page(),
            "/deeper": page(),
        }
    )

    result = crawl(site.url("/"), 3)

    assert result.listing(site) == ["1: / @0", "2: /a @1", "3: /c @1", "4: /e @1", "5: /f @1", "6: /deeper @2"]
    assert [site.targets().count(path) for path in ("/", "/a", "/c", "/e")] == [1, 1, 1, 1]
    entries = {line["url"].removeprefix(site.url("")): line for line in result.manifest[1:-1]}
    assert entries["/d"]["docID"] == 3
    assert entries["/e1"]["redirects"] == [site.url("/e")]
    assert {path: entries[path]["reason"] for path in ("/b", "/e2", "/e3", "/e4")} == dict.fromkeys(
        ["/b", "/e2", "/e3", "/e4"], "duplicate"
    )
    assert "\n  failed    0\n  skipped   4 (4 duplicate)\n" in result.stderr


def test_retry_before_a_redirect_does_not_leave_the_site(server: Server, crawl: CrawlCommand) -> None:
    """R4, with other faults before the redirect too"""
    away = "http://away.test/x"
    site = server(
        {
            "/": page("/r", "/s", "/t", "/ok"),
            "/r": [Reply(503), redirect(away)],
            "/s": [Reply(429, headers=[("Retry-After", "0")]), redirect("/s2", 301)],
            "/s2": [Reply(raw=b""), redirect("//away.test:1/y")],
            "/t": [Reply(500), redirect("http://127.0.0.1:1/")],  # the same host, another port
            "/ok": page(),
        }
    )

    result = crawl(site.url("/"), 2)

    assert result.listing(site) == ["1: / @0", "2: /ok @1"]
    assert {request.host for request in site.requests} == {"127.0.0.1"}
    for path, target in {"/r": away, "/s": "http://away.test:1/y", "/t": "http://127.0.0.1:1/"}.items():
        entry = result.entry(site.url(path))
        assert (entry["reason"], entry["target"]) == ("out of scope", target)


def test_seed_that_leads_to_another_domain_fails(server: Server, crawl: CrawlCommand) -> None:
    """R5"""
    site = server({})
    targets = {"h.test": site.url("/home", host="away.test"), "www.h.test": "http://h.invalid/"}
    site.reset(
        {
            "/": redirect("/on"),
            **{f"{host}/on": redirect(target) for host, target in targets.items()},
            "/home": page(),
        }
    )

    crawls = [crawl.start(site.url("/", host=host), 2) for host in targets]

    for (host, target), running in zip(targets.items(), crawls, strict=True):
        result = running.wait()
        seed = site.url("/", host=host)
        assert result.status == 1
        assert result.pages == []
        assert len(result.manifest) == 2  # nothing is settled: only the identity and how it ended
        (line,) = [line for line in result.stderr.splitlines() if line.startswith("tinycrawl:")]
        assert line == f"tinycrawl: the crawl failed: seed {seed}: it leads out of the crawl's scope ({target})"
    assert {request.host for request in site.requests} == set(targets)


def test_seed_that_moves_within_its_domain_takes_the_crawl_along(server: Server, crawl: CrawlCommand) -> None:
    """R6, and to another port of its host"""
    site = server({})
    bare, www = site.url("/", host="h.test"), site.url("/", host="www.h.test")
    site.reset(
        {
            "h.test/": redirect(www, 301),
            "www.h.test/": page(f"{www}a", "/b", f"{bare}old", site.url("/", host="else.h.test"), bare),
            "www.h.test/a": page(),
            "www.h.test/b": page(),
            "h.test/old": page(),
        }
    )
    moved = crawl.start(bare, 1)
    ported = server({"/start": redirect(site.url("/a", host="www.h.test")), "/": page()})
    other_port = crawl.start(ported.url("/start", host="www.h.test"), 1)

    result = moved.wait()
    assert result.status == 0
    assert result.pages == [(www, 0), (f"{www}a", 1), (f"{www}b", 1), (f"{bare}old", 1)]
    assert f"The seed {bare} leads to {www}, which joins the crawl\n" in result.stderr
    assert {request.host for request in site.requests} == {"h.test", "www.h.test"}
    result = other_port.wait()
    assert result.status == 0
    assert result.pages == [(f"{www}a", 0)]


def test_cookies_live_for_one_redirect_chain(server: Server, crawl: CrawlCommand) -> None:
    """R7, a page that sends a visitor to itself, and one that sets a cookie and is followed by others"""

    def needs(cookie: str, otherwise: Reply) -> Callable[[Request], Reply]:
        return lambda request: page() if cookie in request.headers.get("cookie", "") else otherwise

    site = server(
        {
            "/": page("/cookie", "/self", "/setc", "/plain", "/last"),
            "/cookie": needs("seen=1", redirect("/setc")),
            "/setc": Reply(302, headers=[("Location", "/cookie"), ("Set-Cookie", "seen=1; Path=/")]),
            "/self": needs("self=1", Reply(302, headers=[("Location", "/self"), ("Set-Cookie", "self=1")])),
            "/plain": page(headers=[("Set-Cookie", "plain=1; Path=/")]),
            "/last": page(),
        }
    )

    result = crawl(site.url("/"), 2, settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 1})

    assert result.listing(site) == ["1: / @0", "2: /cookie @1", "3: /self @1", "4: /plain @1", "5: /last @1"]
    sent = {(request.target, request.headers["cookie"]) for request in site.requests if "cookie" in request.headers}
    assert sent == {("/cookie", "seen=1"), ("/self", "self=1")}


def test_loops_and_long_chains_fail_with_a_reason(server: Server, crawl: CrawlCommand) -> None:
    """R8; a chain of 20 is still followed, a loop through cookies ends too."""
    chains: Routes = {f"/{name}{i}": redirect(f"/{name}{i + 1}") for name in ("c", "d") for i in range(25)}
    count = {"n": 0}

    def counting(request: Request) -> Reply:
        count["n"] += 1
        return Reply(302, headers=[("Location", "/counting"), ("Set-Cookie", f"n={count['n']}")])

    site = server(
        {
            "/": page("/l1", "/c0", "/d0", "/same", "/counting", "/ok"),
            "/l1": redirect("/l2"),
            "/l2": redirect("/l1"),
            "/same": redirect("/same"),
            "/counting": counting,
            "/ok": page(),
            **chains,
            "/d20": page(),
            "/c25": page(),
        }
    )

    result = crawl(site.url("/"), 2)

    assert result.listing(site) == ["1: / @0", "2: /d20 @1", "3: /ok @1"]
    reasons = {line["url"].removeprefix(site.url("")): line["reason"] for line in result.manifest if "reason" in line}
    assert reasons == {
        "/l1": "redirect loop",
        "/c0": "too many redirects",
        "/same": "redirect loop",
        "/counting": "too many redirects",
    }
    assert [site.targets().count(path) for path in ("/l1", "/same", "/c20", "/c21", "/counting")] == [1, 1, 1, 0, 21]


def test_refresh_is_the_first_link_of_its_page(server: Server, crawl: CrawlCommand) -> None:
    """R9, in a <noscript> too; a refresh to the page itself loses nothing, a malformed one neither."""

    def refresh(content: str) -> str:
        return f'<meta http-equiv=refresh content="{content}">'

    site = server(
        {
            "/m": page("/b", "/n", "/o", "/p", extra=refresh("60; url=/m")),
            "/b": page("/b1", extra=f"<noscript>{refresh('0;URL=/b0')}</noscript>"),
            "/n": page("/n1", extra=refresh("5; url='/n0'") + refresh("5; url=/second")),
            "/o": page("/o1", extra=refresh("0; url=http://away.test/")),
            "/p": page("/p1", extra=refresh("soon; url=/never") + refresh("0; url=http://[bad")),
            **{f"/{name}": page() for name in ("b0", "b1", "n0", "n1", "o1", "p1", "never", "second")},
        }
    )

    result = crawl(site.url("/m"), 2)

    assert result.listing(site) == [
        "1: /m @0",
        *["2: /b @1", "3: /n @1", "4: /o @1", "5: /p @1"],
        *["6: /b0 @2", "7: /b1 @2", "8: /n0 @2", "9: /n1 @2", "10: /o1 @2", "11: /p1 @2"],
    ]


def test_odd_locations(server: Server, crawl: CrawlCommand) -> None:
    """R10 and R11: what can be followed is requested as sent, anything else fails with a reason."""
    odd: dict[str, Reply] = {
        "/utf-8": redirect("/café?q=é".encode()),
        "/latin-1": redirect("/café?q=é".encode("latin-1")),
        "/escaped": redirect("/a%20b"),
        "/space": redirect(" /spaced out#f "),
        "/empty": redirect(""),
        "/missing": Reply(301),
        "/malformed": redirect("http://[bad"),
        "/no-host": redirect("http://"),
        "/file": redirect("file:///etc/hostname"),
        "/file-host": redirect("file://127.0.0.1/etc/hostname"),
        "/ftp": redirect("ftp://127.0.0.1/"),
        "/data": redirect("data:text/html,<p>x"),
        "/script": redirect("javascript:alert(1)"),
    }
    targets = ["/caf%C3%A9?q=%C3%A9", "/caf%E9?q=%E9", "/a%20b", "/spaced%20out"]
    site = server({"/": page(*odd), **odd, **{target: page() for target in targets}})

    result = crawl(site.url("/"), 3)

    assert result.listing(site) == ["1: / @0", *[f"{i}: {target} @1" for i, target in enumerate(targets, 2)]]
    reasons = {line["url"].removeprefix(site.url("")): line["reason"] for line in result.manifest if "reason" in line}
    assert reasons == {
        "/empty": "empty redirect",
        "/missing": "empty redirect",
        "/malformed": "malformed redirect",
        "/no-host": "malformed redirect",
        "/file": "redirect to a file: URL",
        "/file-host": "redirect to a file: URL",
        "/ftp": "redirect to a ftp: URL",
        "/data": "redirect to a data: URL",
        "/script": "redirect to a javascript: URL",
    }
