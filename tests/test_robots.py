"""robots.txt, end to end (policy G; N1, N2 of CASES.md): what may be fetched, and what is said where nothing may.

Most tests are one crawl over many hosts, one for each robots.txt: the seed links ``/x`` on every host.
"""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Callable, Mapping
from random import Random
from urllib.parse import urlsplit

from conftest import CrawlCommand, Result
from mockserver import MockServer, Reply, Request, Routes, page, redirect, robots, route

Server = Callable[..., MockServer]
RobotsAnswer = Reply | Callable[[Request], Reply | None] | list[Reply] | None

SAVED = "saved"
ROBOTS = "robots"
UNREACHABLE = "robots.txt unreachable: "
FORBID_X = "User-agent: *\nDisallow: /x\n"
FORBID_ALL = "User-agent: *\nDisallow: /\n"
HALF_MIB = 512 * 1024
INCOMPRESSIBLE = b64encode(Random(1).randbytes(600_000)).decode()  # more than half a MiB, also when zipped
SETTINGS = {"RETRY_TIMES": 1, "TINYCRAWL_PATIENCE": 2}


def crawl_hosts(
    server: Server, crawl: CrawlCommand, answers: Mapping[str, RobotsAnswer], **settings: object
) -> tuple[dict[str, str], MockServer]:
    """Crawl ``/x`` on each host ``<name>.test``, whose robots.txt is given; return what became of each name."""
    routes: Routes = {f"{name}.test/robots.txt": answer for name, answer in answers.items() if answer is not None}
    mock = server(routes)

    def handler(request: Request) -> Reply | None:
        if request.target == "/x":
            return page()
        if request.host == "seed.test" and request.target == "/":
            return page(*[mock.url("/x", f"{name}.test") for name in answers])
        return route(routes)(request)

    mock.reset(handler)
    result = crawl(mock.url("/", "seed.test"), 1, scope="all", settings=SETTINGS | settings)
    return outcomes(result), mock


def outcomes(result: Result) -> dict[str, str]:
    """What became of the one page on each host, by the host's name."""
    hosts = {str(urlsplit(entry["url"]).hostname): entry.get("reason", SAVED) for entry in result.manifest[2:-1]}
    return {host.removesuffix(".test"): outcome for host, outcome in hosts.items()}


def hosts_asked_for_x(mock: MockServer) -> set[str]:
    return {request.host.removesuffix(".test") for request in mock.requests if request.target == "/x"}


def large(size: int, *, rule_at: int, rule: str = "Disallow: /x\n") -> str:
    """A robots.txt of comments with *rule* for everybody at this position."""
    before = "User-agent: *\n"
    return before + "#" * (rule_at - len(before) - 1) + "\n" + rule + ("#" * 1023 + "\n") * ((size - rule_at) // 1024)


def without_length(text: str) -> Reply:
    return Reply(raw=b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + text.encode())


ANSWERS: dict[str, tuple[RobotsAnswer, str]] = {
    # there is none
    "missing": (None, SAVED),
    "forbidden": (Reply(403), SAVED),
    "unauthorised": (Reply(401), SAVED),
    "gone": (Reply(410, FORBID_ALL.encode()), SAVED),
    "always-429": (Reply(429), SAVED),
    "no-content": (Reply(204, type=None), SAVED),
    "empty": (robots(""), SAVED),
    # it cannot be had
    "error": (Reply(500), f"{UNREACHABLE}http 500"),
    "allowing-error": (Reply(502, b"User-agent: *\nAllow: /\n", "text/plain"), f"{UNREACHABLE}http 502"),
    "overloaded": (Reply(503), f"{UNREACHABLE}http 503"),
    "odd-error": (Reply(599), f"{UNREACHABLE}http 599"),
    "cut": (robots("User-agent: *\nAllow: /\n", cut=5), f"{UNREACHABLE}truncated"),
    "cut-chunks": (robots("User-agent: *\nAllow: /\n", cut=5, chunked=True), f"{UNREACHABLE}truncated"),
    "cut-gzip": (
        Reply(body=gzip.compress(b"User-agent: *\n")[:-9], type="text/plain", headers=[("Content-Encoding", "gzip")]),
        f"{UNREACHABLE}truncated gzip",
    ),
    "no-answer": (Reply(raw=b""), f"{UNREACHABLE}connection lost"),
    "no-http": (Reply(raw=b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), f"{UNREACHABLE}not an HTTP answer"),
    "silent": (Reply(never=True), f"{UNREACHABLE}timeout"),
    "dripping": (robots("User-agent: *\nAllow: /\n", drip=0.2), f"{UNREACHABLE}timeout"),
    # it comes in the end
    "late-429": ([Reply(429), robots(FORBID_ALL)], ROBOTS),
    "late-503": ([Reply(503), Reply(503), robots(FORBID_ALL)], ROBOTS),
    "late-500": ([Reply(500), robots("User-agent: *\nDisallow: /y")], SAVED),
    "late-cut": ([robots(FORBID_ALL, cut=20), robots("")], SAVED),
    # it is a page
    "page": (page("/x"), SAVED),
    "page-of-rules": (page(extra=f"<pre>\n{FORBID_ALL}</pre>"), SAVED),
    "page-as-text": (Reply(body=f"<!doctype html>\n{FORBID_ALL}".encode(), type="text/plain"), SAVED),
    # rules in odd clothes
    "typed-html": (Reply(body=FORBID_X.encode(), type="text/html"), ROBOTS),
    "untyped": (Reply(body=FORBID_X.encode(), type=None), ROBOTS),
    "octets": (Reply(body=FORBID_X.encode(), type="application/octet-stream"), ROBOTS),
    "pdf": (Reply(body=FORBID_X.encode(), type="application/pdf"), ROBOTS),
    "bom": (Reply(body=b"\xef\xbb\xbf" + FORBID_X.encode(), type="text/plain"), ROBOTS),
    "carriage-returns": (robots(FORBID_X.replace("\n", "\r")), ROBOTS),
    "gzip": (
        Reply(body=gzip.compress(FORBID_X.encode()), type="text/plain", headers=[("Content-Encoding", "gzip")]),
        ROBOTS,
    ),
    "gzip-file": (Reply(body=gzip.compress(FORBID_X.encode()), type="application/gzip"), SAVED),
    "not-utf8": (Reply(body=b"# caf\xe9\n" + FORBID_X.encode(), type="text/plain"), ROBOTS),
    "without-length": (without_length(FORBID_X), ROBOTS),
    "chunked": (robots(FORBID_X, chunked=True), ROBOTS),
    # size: the first 512 KiB count, also where DOWNLOAD_MAXSIZE is less than the file
    "large-inside": (robots(large(2 << 20, rule_at=HALF_MIB - 100)), ROBOTS),
    "large-outside": (robots(large(2 << 20, rule_at=HALF_MIB + 100)), SAVED),
    "large-half-a-rule": (robots(large(2 << 20, rule_at=HALF_MIB - 11, rule="Disallow: /xenon\n")), SAVED),
    "large-gzip": (
        Reply(
            body=gzip.compress(f"{FORBID_X}# {INCOMPRESSIBLE}\n".encode()),
            type="text/plain",
            headers=[("Content-Encoding", "gzip")],
        ),
        ROBOTS,
    ),
    "endless": (Reply(body=(FORBID_X + "# on and on\n").encode(), type="text/plain", endless=True), ROBOTS),
    "large-after-cut": (
        [robots("#" * 400_000, cut=399_000), robots(large(600_000, rule_at=HALF_MIB - 100))],
        ROBOTS,
    ),
    # redirects
    "moved": ([redirect("/robots.txt?v=2", 301)], SAVED),  # to a 404
    "to-nowhere": (redirect(""), SAVED),
    "without-location": (Reply(302), SAVED),
    "not-modified": (Reply(304), SAVED),
    "to-a-file": (redirect("file:///etc/hostname"), SAVED),
    "to-itself": (redirect("/robots.txt"), SAVED),
    "in-a-circle": (lambda request: redirect(f"/robots.txt?{request.number % 2}"), SAVED),
    "without-end": (lambda request: redirect(f"/robots.txt?{'1' * (request.number + 1)}"), SAVED),
}


def test_each_answer_to_robots_txt(server: Server, crawl: CrawlCommand) -> None:
    found, mock = crawl_hosts(
        server,
        crawl,
        {name: answer for name, (answer, _) in ANSWERS.items()},
        DOWNLOAD_TIMEOUT=2,
        DOWNLOAD_MAXSIZE=1_000_000,
    )

    expected = {name: outcome for name, (_, outcome) in ANSWERS.items()}
    assert found == expected
    assert hosts_asked_for_x(mock) == {name for name, outcome in expected.items() if outcome == SAVED}
    asked = [request.host for request in mock.requests if request.target.startswith("/robots.txt")]
    assert {asked.count("always-429.test"), asked.count("overloaded.test")} == {3}  # TINYCRAWL_PATIENCE
    assert {asked.count("error.test"), asked.count("silent.test"), asked.count("cut.test")} == {2}  # RETRY_TIMES
    assert {asked.count("to-itself.test"), asked.count("missing.test"), asked.count("empty.test")} == {1}


def test_redirects_of_robots_txt_lead_to_other_hosts(server: Server, crawl: CrawlCommand) -> None:
    """The rules found there are those of the host that sent us, not of the one that holds the file (RFC 9309, 2.3.1.2).

    The last host sets a cookie first and wants it back, as some do.
    """

    def to(path: str, host: str, status: int = 302) -> Callable[[Request], Reply]:
        return lambda request: redirect(f"//{host}.test:{request.headers['host'].rpartition(':')[2]}{path}", status)

    def wants_cookie(request: Request) -> Reply:
        if request.headers.get("cookie") == "ok=1":
            return robots(FORBID_ALL)
        return Reply(302, headers=[("Location", "/robots.txt"), ("Set-Cookie", "ok=1; Path=/")])

    found, mock = crawl_hosts(
        server,
        crawl,
        {
            "forbids": to("/robots.txt", "holder", 301),
            "forbids-late": to("/robots.txt", "forbids"),
            "holder": [robots("User-agent: *\nDisallow: /x\n")],
            "allows": to("/robots.txt", "open", 301),
            "open": robots("User-agent: *\nDisallow: /y\n"),
            "to-error": to("/robots.txt", "broken"),
            "broken": Reply(500),
            "to-nobody": to("/robots.txt", "nobody.invalid"),
            "cookie": wants_cookie,
        },
    )

    assert found == {
        "forbids": ROBOTS,
        "forbids-late": ROBOTS,
        "holder": ROBOTS,
        "allows": SAVED,
        "open": SAVED,
        "to-error": f"{UNREACHABLE}http 500",
        "broken": f"{UNREACHABLE}http 500",
        "to-nobody": SAVED,
        "cookie": ROBOTS,
    }
    assert hosts_asked_for_x(mock) == {"allows", "open", "to-nobody"}


GROUPS = {
    # name: rules, what becomes of /x
    "ours-forbids": ("User-agent: *\nAllow: /\n\nUser-agent: tinycrawl\nDisallow: /x", ROBOTS),
    "ours-allows": ("User-agent: *\nDisallow: /\n\nUser-agent: tinycrawl\nDisallow: /y", SAVED),
    "ours-allows-all": ("User-agent: tinycrawl\nDisallow:\n\nUser-agent: *\nDisallow: /", SAVED),
    "another": ("User-agent: otherbot\nDisallow: /", SAVED),
    "another-and-all": ("User-agent: otherbot\nAllow: /\n\nUser-agent: *\nDisallow: /x", ROBOTS),
    "longer-name": ("User-agent: tinycrawler\nDisallow: /", SAVED),
    "dashed-name": ("User-agent: tinycrawl-images\nDisallow: /", SAVED),
    "shorter-name": ("User-agent: tiny\nDisallow: /", SAVED),
    "shorter-name-allows": ("User-agent: tiny\nAllow: /\n\nUser-agent: *\nDisallow: /", ROBOTS),
    "word-of-our-header": ("User-agent: example\nDisallow: /\n\nUser-agent: https\nDisallow: /", SAVED),
    "any-case": ("USER-AGENT: TinyCrawl\nDISALLOW: /x", ROBOTS),
    "version": ("User-agent: tinycrawl/0.1\nDisallow: /x", ROBOTS),
    "comment": ("User-agent: tinycrawl # the small one\nDisallow: /x # but why", ROBOTS),
    "several-names": ("User-agent: otherbot\nUser-agent: tinycrawl\nUser-agent: third\nDisallow: /x", ROBOTS),
    "two-groups": (
        "User-agent: tinycrawl\nDisallow: /y\n\nUser-agent: a\nDisallow:\n\nUser-agent: tinycrawl\nDisallow: /x",
        ROBOTS,
    ),
    "no-group": ("Disallow: /x", SAVED),
    "longest-allows": ("User-agent: *\nDisallow: /\nAllow: /x", SAVED),
    "longest-forbids": ("User-agent: *\nAllow: /\nDisallow: /x", ROBOTS),
    "tie-allows": ("User-agent: *\nDisallow: /x\nAllow: /x", SAVED),
    "wildcard": ("User-agent: *\nDisallow: /*x$", ROBOTS),
    "anchored": ("User-agent: *\nDisallow: /x/$\nDisallow: /x?", SAVED),
    "delay-between": ("User-agent: *\nCrawl-delay: 0\nDisallow: /x", ROBOTS),
    "bad-delays": (
        "User-agent: *\nCrawl-delay: nan\nCrawl-delay: -5\nCrawl-delay: soon\nCrawl-delay:\nDisallow: /x",
        ROBOTS,
    ),
    "sitemap": ("Sitemap: http://sitemap.test/s.xml\nUser-agent: *\nSitemap: /s\nDisallow: /x", ROBOTS),
}


def test_the_group_for_our_name_counts_and_else_that_for_all(server: Server, crawl: CrawlCommand) -> None:
    found, mock = crawl_hosts(server, crawl, {name: robots(text) for name, (text, _) in GROUPS.items()})

    expected = {name: outcome for name, (_, outcome) in GROUPS.items()}
    assert found == expected
    assert hosts_asked_for_x(mock) == {name for name, outcome in expected.items() if outcome == SAVED}


def test_our_name_is_that_of_the_user_agent_setting(server: Server, crawl: CrawlCommand) -> None:
    answers = {
        "named": robots("User-agent: Lib_Bot\nDisallow: /x"),
        "tinycrawl": robots("User-agent: tinycrawl\nDisallow: /x"),
    }

    found, mock = crawl_hosts(server, crawl, answers, USER_AGENT="lib_bot/3.0 (+mailto:lib@example.org)")

    assert found == {"named": ROBOTS, "tinycrawl": SAVED}
    assert {request.headers["user-agent"] for request in mock.requests} == {"lib_bot/3.0 (+mailto:lib@example.org)"}


def test_redirects_and_other_ports_are_checked_too(server: Server, crawl: CrawlCommand) -> None:
    other = server({"/robots.txt": robots(FORBID_ALL), "/x": page()})
    mock = server(
        {
            "/robots.txt": robots("User-agent: *\nDisallow: /secret\nDisallow: /*?secret"),
            "/": page("/to-secret", "/ok?secret=1", "/ok", other.url("/x", "h.test")),
            "/to-secret": redirect("/secret/plans"),
            "/ok": page(),
        }
    )

    result = crawl(mock.url("/", "h.test"), 1, scope="domain")

    assert mock.targets() == ["/", "/to-secret", "/ok"]
    assert other.targets() == []
    assert [entry.get("reason", SAVED) for entry in result.manifest[1:-1]] == [SAVED, ROBOTS, ROBOTS, SAVED, ROBOTS]
    assert len([request for request in mock.requests if request.target == "/robots.txt"]) == 1


def test_robots_txt_can_be_ignored(server: Server, crawl: CrawlCommand) -> None:
    mock = server({"/robots.txt": robots(FORBID_ALL), "/": page()})

    result = crawl(mock.url(), 0, settings={"ROBOTSTXT_OBEY": 0})

    assert result.listing(mock) == ["1: / @0"]
    assert [request.target for request in mock.requests] == ["/"]


SEEDS = {
    "disallow": (robots(FORBID_ALL), "forbidden by robots.txt"),
    "disallow-us": (robots("User-agent: tinycrawl\nDisallow: /"), "forbidden by robots.txt"),
    "503": (Reply(503), "robots.txt unreachable: http 503"),
    "timeout": (Reply(never=True), "robots.txt unreachable: timeout"),
    "lost": (Reply(raw=b""), "robots.txt unreachable: connection lost"),
}


def test_a_seed_that_may_not_be_fetched_fails_the_crawl(server: Server, crawl: CrawlCommand) -> None:
    mock = server({f"{name}.test/robots.txt": answer for name, (answer, _) in SEEDS.items()})
    quick = {"DOWNLOAD_TIMEOUT": 3, "RETRY_TIMES": 0, "LOG_LEVEL": "CRITICAL"}
    seeds = {name: mock.url("/", f"{name}.test") for name in SEEDS}
    running = {name: crawl.start(seed, 1, settings=quick) for name, seed in seeds.items()}

    results = {name: one.wait() for name, one in running.items()}

    assert {name: result.stderr for name, result in results.items()} == {
        name: f"tinycrawl: the crawl failed: seed {seeds[name]}: {cause}\n" for name, (_, cause) in SEEDS.items()
    }
    assert {(result.status, len(result.pages)) for result in results.values()} == {(1, 0)}
    assert mock.targets() == []
