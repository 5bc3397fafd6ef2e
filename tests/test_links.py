"""End to end: where the links of a page lead, as in a browser. Names like U9 are rows of CASES.md.

Each case is a crawl of the page ``/dir/p`` on ``h.test``; what it leads to is an empty page. Rows are here but for what
other files have: the seed's redirect of U17 and its outputs in test_policies.py, U18's exit status in test_command.py,
U6 with the secret that must not be read in test_network.py, U9 to U11, U16 and U23 all together in test_policies.py,
all rows on plain strings in test_urls.py, test_markup.py and test_scope.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from selectolax.lexbor import LexborHTMLParser

from conftest import read_page_files
from many import CrawlPool
from mockserver import Answer, MockServer, Reply, Request, Routes, page, robots
from tinycrawl.analysis import edges
from tinycrawl.pagedir import PageDirectory

SETTINGS = {"DOWNLOAD_DELAY": 0, "CONCURRENT_REQUESTS_PER_DOMAIN": 16, "TINYCRAWL_SYNC": 0, "LOG_LEVEL": "ERROR"}


@dataclass
class Visit:
    """What a crawl of one page came to. URLs are without the server's port, those of ``h.test`` without their host."""

    followed: list[str]  # pages but the seed's, in docID order
    unsaved: dict[str, str]  # URL -> reason
    requested: list[str]  # all but robots.txt, sorted
    errors: int  # lines of the log
    files: dict[str, bytes]


class Visitor:
    """Crawls a page; what the table does not have is an empty page."""

    def __init__(self, pool: CrawlPool, mock: MockServer, directory: Path) -> None:
        self.pool = pool
        self.mock = mock
        self.directory = directory
        self.count = 0

    def shorten(self, url: str) -> str:
        ours = f"http://h.test:{self.mock.port}/"
        return url.removeprefix(ours[:-1]) if url.startswith(ours) else url.replace(f":{self.mock.port}/", "/", 1)

    def visit(
        self,
        start: str | bytes | Reply,
        *,
        seed: str = "http://h.test:{port}/dir/p",
        routes: Routes | None = None,
        settings: dict[str, object] | None = None,
        **arguments: object,
    ) -> Visit:
        """Crawl with depth 1; ``{port}`` in the page and the seed is the server's port."""
        self.count += 1
        port = str(self.mock.port)
        seed = seed.replace("{port}", port)
        body = start.replace("{port}", port).encode() if isinstance(start, str) else start
        first = body if isinstance(body, Reply) else Reply(body=body)
        others = {"/robots.txt": robots(""), **(routes or {})}

        def answer(request: Request) -> Answer:
            if request.target == "/dir/p":
                return first
            other = others.get(request.target, page())
            assert isinstance(other, Reply)
            return other

        self.mock.reset(answer)
        directory = self.last = self.directory / str(self.count)
        given = {"seed": seed, "depth": 1, "pagedir": str(directory), **arguments}
        result = self.pool.run(given, {**SETTINGS, **(settings or {})})
        assert result["error"] is None, result["error"]
        lines: list[dict[str, Any]] = [json.loads(line) for line in (directory / ".crawler").read_text().splitlines()]
        assert lines[-1]["end"] == "complete"
        hosts = [f"http://{request.host}{request.target}" for request in self.mock.requests]
        return Visit(
            [self.shorten(url) for url, _ in read_page_files(directory)][1:],
            {self.shorten(line["url"]): line["reason"] for line in lines if "reason" in line},
            sorted(url.replace("http://h.test/", "/", 1) for url in hosts if not url.endswith("/robots.txt")),
            result["stats"].get("log_count/ERROR", 0),
            {path.name: path.read_bytes() for path in directory.iterdir()},
        )

    def check(self, start: str | bytes | Reply, followed: list[str], *outside: str, **options: Any) -> Visit:
        """Crawl, and compare: what is *followed*, in order; nothing else is requested; *outside* is out of scope."""
        visit = self.visit(start, **options)
        assert visit.followed == followed
        assert visit.unsaved == dict.fromkeys(outside, "out of scope")
        seed = options.get("seed", "/dir/p").replace(":{port}", "").removeprefix("http://h.test")
        assert visit.requested == sorted([seed, *followed])
        assert visit.errors == 0
        return visit


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with CrawlPool() as pool, MockServer({}) as mock:
        yield Visitor(pool, mock, tmp_path_factory.mktemp("links"))


def a(*hrefs: str) -> str:
    """Links with these attribute values, unescaped."""
    return "".join([f'<a href="{href}">x</a>\n' for href in hrefs])


# References


@pytest.mark.parametrize(
    ("hrefs", "followed"),
    [
        pytest.param(["\n /a b\t\r\n", " \n\n /c "], ["/a%20b", "/c"], id="around"),
        pytest.param(["/lo\n\tng.ht\r\nml", "/t\ta?b\n=c"], ["/long.html", "/ta?b=c"], id="within"),
        pytest.param(
            ["ht\ntp://h.t\test:{port}/x", "htt\tp:\n//\nh.test:{po\nrt}/y".replace("{po\nrt}", "{port}")],
            ["/x", "/y"],
            id="in-scheme-and-host",
        ),
        pytest.param(["\f/f\f", "\x01/c\x1f"], ["/f", "/c"], id="form-feed-and-controls"),
        pytest.param(["&#10;/e&#9;e&#32;", "&Tab;/t&NewLine;t"], ["/ee", "/tt"], id="as-references"),
        pytest.param(["&nbsp;/n", "/\u3000i"], ["/dir/%C2%A0/n", "/%E3%80%80i"], id="other-spaces-stay"),
        pytest.param(["/v\x0bt", "/mid dle"], ["/v%0Bt", "/mid%20dle"], id="within-that-stay"),
        pytest.param(["  ", "\n", "\t#x"], [], id="nothing-but-white-space"),
    ],
)
def test_u1_white_space(visitor: Visitor, hrefs: list[str], followed: list[str]) -> None:
    visitor.check(a(*hrefs), followed)


@pytest.mark.parametrize(
    "bad",
    [
        "http://[bad", "http://h.test:99999/", "http://h.test:port/", "http://a b/", "//", "///", "http://", "https:",
        "http://%zz/", "http://ex%00.test/", "http://1.2.3.256/", "http://h.test../", "http://.", "http://[::1",
        "//[]/", "http://user@/", "http://h%2Ftest/", "//h.test:{port}x/",
    ],
)  # fmt: skip
def test_u2_a_malformed_link_costs_only_itself(visitor: Visitor, bad: str) -> None:
    visitor.check(a("/before", bad) + f'<iframe src="{bad}"></iframe>' + a("/after"), ["/before", "/after"])


@pytest.mark.parametrize(
    ("body", "followed"),
    [
        pytest.param('<base href="http://[bad">', ["/dir/x", "/y"], id="malformed"),
        pytest.param('<base href="http://h.test:99999/d/">', ["/dir/x", "/y"], id="port"),
        pytest.param("<base href=//>", ["/dir/x", "/y"], id="no-host"),
        pytest.param('<base href="http://[bad"><base href=/other/>', ["/dir/x", "/y"], id="the-second-does-not-count"),
        pytest.param("<base href=data:text/html,>", ["/dir/x", "/y"], id="data"),
        pytest.param("<base href=JavaScript:0>", ["/dir/x", "/y"], id="javascript"),
        # What is relative leads to a place of that scheme, or nowhere.
        pytest.param("<base href=ftp://h.test/d/>", [], id="ftp"),
        pytest.param("<base href='file:///C:/My%20Documents/index.html'>", [], id="file"),
        pytest.param("<base href=mailto:me@h.test>", [], id="mailto"),
        pytest.param("<base href=about:blank>", [], id="about"),
    ],
)
def test_u3_a_bad_base(visitor: Visitor, body: str, followed: list[str]) -> None:
    visitor.check(body + a("x", "/y", "http://h.test:{port}/z"), [*followed, "/z"])


@pytest.mark.parametrize(
    ("body", "followed", "outside"),
    [
        pytest.param(f"<!--{'x' * 5000}--><base href=/d/>" + a("x"), ["/d/x"], [], id="after-5000-characters"),
        pytest.param(f"<title>{'x' * 90_000}</title><base href=/d/>" + a("x"), ["/d/x"], [], id="after-90000"),
        pytest.param(a("x") + "<base href=/d/>" + a("y"), ["/d/x", "/d/y"], [], id="after-links"),
        pytest.param("<body><div>" + a("x") + "<base href=/d/></div>", ["/d/x"], [], id="in-the-body"),
        pytest.param("<base href=/d/><base href=/e/>" + a("x"), ["/d/x"], [], id="two"),
        pytest.param("<base target=_top><base href=/d/>" + a("x"), ["/d/x"], [], id="target-only-before"),
        pytest.param("<base target=_top>" + a("x"), ["/dir/x"], [], id="target-only"),
        pytest.param("<base href=sub/>" + a("x", "/y"), ["/dir/sub/x", "/y"], [], id="relative"),
        pytest.param("<base href=..>" + a("x"), ["/x"], [], id="up"),
        pytest.param("<base href=/d/p>" + a("x", "../y"), ["/d/x", "/y"], [], id="a-file"),
        pytest.param("<base href='/d/p?q#f'>" + a("", "#t", "?r", "x"), ["/d/p?q", "/d/p?r", "/d/x"], [], id="query"),
        pytest.param("<base href=?q>" + a("", "x"), ["/dir/p?q", "/dir/x"], [], id="query-alone"),
        pytest.param("<base href=''>" + a("x", ""), ["/dir/x"], [], id="empty"),
        pytest.param("<BASE HREF=' /d/\n'>" + a("x"), ["/d/x"], [], id="case-and-white-space"),
        pytest.param("<base href='\\d\\'>" + a("x"), ["/d/x"], [], id="backslashes"),
        pytest.param(
            "<base href=http://o.test/d/>" + a("x", "http:y", "//h.test:{port}/z"),
            *(["/z"], ["http://o.test/d/x", "http://o.test/d/y"]),
            id="another-host",
        ),
        pytest.param("<base href=//u:p@h.test:{port}/d/>" + a("x"), ["/d/x"], [], id="password"),
        pytest.param("<!-- <base href=/d/> -->" + a("x"), ["/dir/x"], [], id="in-a-comment"),
        pytest.param("<template><base href=/d/></template>" + a("x"), ["/dir/x"], [], id="in-a-template"),
        pytest.param("<base href=/d/><iframe src=f></iframe><map><area href=m></map>", ["/d/f", "/d/m"], [], id="all"),
        pytest.param(
            "<meta http-equiv=refresh content='0;url=m'><base href=/d/>" + a("x"), ["/d/m", "/d/x"], [], id="refresh"
        ),
    ],
)
def test_u4_base(visitor: Visitor, body: str, followed: list[str], outside: list[str]) -> None:
    visitor.check(body, followed, *outside)


def test_u5_other_schemes_are_not_requested(visitor: Visitor) -> None:
    """Nor are they failures: they have no record."""
    hrefs = [
        *["mailto:me@h.test", "tel:+442071838750", "JavaScript:;", "data:text/html,<a href=/no>", "about:blank"],
        *["sms:+1?body=/x", "ftp://h.test/x", "java\nscript:location='/x'", " \x01javascript:0", "vbscript:x"],
        *["javascript&colon;open('/x')", "JAVA&Tab;SCRIPT&#58;0", "view-source:http://h.test:{port}/x", "about:srcdoc"],
        *["blob:http://h.test:{port}/1-2", "filesystem:http://h.test:{port}/x", "feed:http://h.test:{port}/x"],
        *["ws://h.test:{port}/x", "wss://h.test:{port}/x", "httpx://h.test:{port}/x", "http+unix://h.test:{port}/x"],
        *["intent://h.test:{port}/x#Intent;scheme=http;end", "magnet:?xt=urn:x", "urn:isbn:1", "irc://h.test:{port}/x"],
        *["h.test:{port}/x", "localhost:8000/x", "C:\\site\\x.html", "x:", "MAILTO:", "whatsapp://send?text=/x"],
        *["gopher://h.test:{port}/", "chrome://settings", "ms-word:ofe|u|http://h.test:{port}/x", "s3://h.test/x"],
    ]
    framed = "".join([f"<iframe src='{url}'></iframe>" for url in ("about:blank", "javascript:''", "data:,x")])
    refresh = "<meta http-equiv=refresh content='0; url=javascript:0'>"

    visitor.check(a(*hrefs, "/ok") + framed + refresh, ["/ok"])


@pytest.mark.parametrize(
    ("href", "followed"),
    [
        pytest.param("http", "/dir/http", id="no-colon"),
        pytest.param(":x", "/dir/:x", id="colon-first"),
        pytest.param("1http:x", "/dir/1http:x", id="begins-with-a-digit"),
        pytest.param("ht*tp:x", "/dir/ht*tp:x", id="a-character-no-scheme-has"),
        pytest.param("./mailto:x", "/dir/mailto:x", id="behind-a-dot"),
        pytest.param("?javascript:x", "/dir/p?javascript:x", id="in-the-query"),
        pytest.param("h.test/x", "/dir/h.test/x", id="host-without-scheme"),
        pytest.param("www.h.test", "/dir/www.h.test", id="www"),
        pytest.param("java script:x", "/dir/java%20script:x", id="space-within"),
    ],
)
def test_u5_what_is_no_scheme_is_a_path(visitor: Visitor, href: str, followed: str) -> None:
    visitor.check(a(href), [followed])


def test_u6_files_are_never_opened(visitor: Visitor) -> None:
    """Whatever the scope."""
    urls = [
        *["file://h.test/etc/hostname", "file:///etc/hostname", "FILE:/etc/hostname", "file:etc/hostname"],
        *[
            "file:\\\\h.test\\etc\\hostname",
            "fi\nle:///etc/hostname",
            "file&colon;///etc/hostname",
            "file://localhost/",
        ],
        *["file://h.test:{port}/etc/hostname", "file://127.0.0.1/etc/hostname"],
    ]
    framed = "".join([f"<iframe src='{url}'></iframe><map><area href='{url}'></map>" for url in urls])
    refresh = f"<meta http-equiv=refresh content='0;{urls[1]}'>"

    visitor.check(a(*urls) + framed + refresh + a("/ok"), ["/ok"], scope="all")


@pytest.mark.parametrize(
    ("href", "outside"),
    [
        pytest.param("http://h.test/x", "http://h.test/x", id="no-port"),
        pytest.param("http://h.test:/x", "http://h.test/x", id="empty-port"),
        pytest.param("http://h.test:0080/x", "http://h.test/x", id="port-80-with-zeros"),
        pytest.param("//h.test:1/x", "http://h.test:1/x", id="another"),
        pytest.param("https://h.test/x", "https://h.test/x", id="https"),
        pytest.param("https:/h.test:443/x", "https://h.test/x", id="https-443"),
        pytest.param("http://h.test:0/x", "http://h.test:0/x", id="port-0"),
        pytest.param("http://h.test:65535/x", "http://h.test:65535/x", id="the-last-port"),
    ],
)
def test_u7_other_ports_are_out_of_scope(visitor: Visitor, href: str, outside: str) -> None:
    visitor.check(a(href, "http://h.test:0{port}/same"), ["/same"], outside)


@pytest.mark.parametrize(
    ("href", "outside"),
    [
        pytest.param("http://sub.h.test:{port}/", "http://sub.h.test/", id="subdomain"),
        pytest.param("http://noth.test:{port}/", "http://noth.test/", id="longer-name"),
        pytest.param("http://h.test.evil.test:{port}/", "http://h.test.evil.test/", id="as-subdomain"),
        pytest.param("http://test:{port}/", "http://test/", id="above"),
        pytest.param("http://h.test@evil.test:{port}/", "http://evil.test/", id="as-user"),
        pytest.param("http://h.test:{port}@evil.test:{port}/x", "http://evil.test/x", id="as-user-and-password"),
        pytest.param("http://evil.test:{port}?@h.test/", "http://evil.test/?@h.test/", id="in-the-query"),
        pytest.param("http://evil.test:{port}#@h.test:{port}/", "http://evil.test/", id="in-the-fragment"),
        pytest.param("http://evil.test:{port}\\@h.test/", "http://evil.test/@h.test/", id="behind-a-backslash"),
        pytest.param("//evil.test:{port}/h.test", "http://evil.test/h.test", id="no-scheme"),
        pytest.param("/\\evil.test:{port}/x", "http://evil.test/x", id="slash-and-backslash"),
        pytest.param("\\\\evil.test:{port}\\x", "http://evil.test/x", id="two-backslashes"),
        pytest.param("////evil.test:{port}/x", "http://evil.test/x", id="four-slashes"),
        pytest.param("/\t/evil.test:{port}/x", "http://evil.test/x", id="tab-between-slashes"),
        pytest.param("http://127.0.0.1:{port}/", "http://127.0.0.1/", id="its-address"),
        pytest.param("http://h-test:{port}/", "http://h-test/", id="not-any-character-for-the-dot"),
    ],
)
def test_u8_other_hosts_are_out_of_scope(visitor: Visitor, href: str, outside: str) -> None:
    visitor.check(a(href), [], outside)


def test_u9_fragments(visitor: Visitor) -> None:
    hrefs = [
        *["/a", "/a#one", "/a#two", "/a?page=2#two", "#", "#top", "", "?#", "/a#?page=3", "/a?page=2", "/a#b#c"],
        *["/b#!/hash/bang", "/c?x#y?z", "/c?x#/y/../z", "/d%23e", "/d#e", "http://h.test:{port}/a#http://o.test/"],
    ]

    visit = visitor.check(a(*hrefs), ["/a", "/a?page=2", "/b", "/c?x", "/d%23e", "/d"])

    assert [name for name, text in visit.files.items() if name.isdigit() and b"#" in text.split(b"\n")[0]] == []


@pytest.mark.parametrize(
    "same",
    [
        *["HTTP://H.TEST:{port}/Up", "hTtP:\\\\h.Test:{port}\\Up", "//h.test.:{port}/Up", "//%48.test:{port}/Up"],
        *[
            "//ｈ．ｔｅｓｔ:{port}/Up",
            "//h。test:{port}/Up",
            "http://h.te%53t%2e:{port}/Up",
            "//h.te\u00adst:{port}/Up",
        ],
        *["///h.test:{port}/Up", "http:Up/../../Up", "//h.test:000{port}/Up", "http:////h.test:{port}/Up"],
    ],
)
def test_u10_spellings_of_a_host(visitor: Visitor, same: str) -> None:
    """The path's case is the server's affair."""
    visitor.check(a("/Up", same, "/up", same), ["/Up", "/up"])
    visitor.check(a(same, "/Up"), ["/Up"])


@pytest.mark.parametrize(
    ("hrefs", "followed"),
    [
        pytest.param(["/x%3d", "/x%3D"], ["/x%3d"], id="case-of-escapes"),
        pytest.param(["/%e9", "/%E9", "/%c3%A9", "/é"], ["/%e9", "/%c3%A9"], id="case-of-other-escapes"),
        pytest.param(["/90%25", "/90%", "/90%2525"], ["/90%25", "/90%", "/90%2525"], id="percent"),
        pytest.param(["/%zz", "/%25zz", "/%4"], ["/%zz", "/%25zz", "/%4"], id="no-escape"),
        pytest.param(["/a%2Fb", "/a/b", "/a%2fb"], ["/a%2Fb", "/a/b"], id="slash"),
        pytest.param(["/a%3Fb", "/a?b", "/a%3fb"], ["/a%3Fb", "/a?b"], id="question-mark"),
        pytest.param(["/a%23b", "/a", "/a#b"], ["/a%23b", "/a"], id="hash"),
        pytest.param(["/%7Ea", "/~a"], ["/%7Ea"], id="tilde"),
        pytest.param(["/A%2DZ", "/A-Z", "/%41-Z"], ["/A%2DZ"], id="unreserved"),
        pytest.param(["/a%20b", "/a b", "/a+b"], ["/a%20b", "/a+b"], id="space-in-the-path"),
        pytest.param(["?q=a+b", "?q=a%20b", "?q=a b", "?q=a%2Bb"], ["/dir/p?q=a+b", "/dir/p?q=a%2Bb"], id="plus"),
        pytest.param(
            ["?q=a%26b", "?q=a&b", "?q=a%3Db"], ["/dir/p?q=a%26b", "/dir/p?q=a&b", "/dir/p?q=a%3Db"], id="amp"
        ),
        pytest.param(["/%00", "/%0A", "/%2525"], ["/%00", "/%0A", "/%2525"], id="controls"),
    ],
)
def test_u11_escapes(visitor: Visitor, hrefs: list[str], followed: list[str]) -> None:
    visitor.check(a(*hrefs), followed)


@pytest.mark.parametrize(
    ("hrefs", "followed"),
    [
        pytest.param(["/a/./b/../c", "/a/c", "././../d"], ["/a/c", "/d"], id="dots"),
        pytest.param(["../../../../x", "/../x"], ["/x"], id="above-the-root"),
        pytest.param(["/a/%2e%2e/x", "/a/.%2E/y", "/a/%2e./z", "/a/%2E/w"], ["/x", "/y", "/z", "/a/w"], id="escaped"),
        pytest.param(["/%2e%2e%2fx", "/a/..%2fx"], ["/%2e%2e%2fx", "/a/..%2fx"], id="not-a-segment"),
        pytest.param(["/a/...", "/a/.b", "/a/b..", "/a/%2e%2e%2e"], ["/a/...", "/a/.b", "/a/b.."], id="more-dots"),
        pytest.param(["/a/..", "/b/.", "."], ["/", "/b/", "/dir/"], id="at-the-end"),
        pytest.param(["/a//b", "/a/b", "/a//../c", "//h.test:{port}//d"], ["/a//b", "/a/b", "/a/c", "//d"], id="empty"),
        pytest.param(
            [f"//h.test:{{port}}{path}" for path in ("//", "///e;f?g;h", "//?i", "//j?")],
            ["//", "///e;f?g;h", "//?i", "//j"],
            id="empty-at-the-start",
        ),
        pytest.param(["?x=/../y", "/e?/./"], ["/dir/p?x=/../y", "/e?/./"], id="in-the-query"),
        pytest.param(["/\\..\\f", "/g;x/../h"], ["/h"], id="backslash-and-parameter"),
    ],
)
def test_u11_dot_segments(visitor: Visitor, hrefs: list[str], followed: list[str]) -> None:
    visit = visitor.visit(a(*hrefs))

    assert (visit.followed, visit.requested) == (followed, sorted(["/dir/p", *followed]))


@pytest.mark.parametrize(
    ("published", "other"),
    [
        *[("/content/", "/content"), ("/content", "/content/"), ("/p:1", "/p%3A1"), ("/p%3A1", "/p:1")],
        *[("/~me/", "/%7Eme/"), ("/%7eme/", "/~me/"), ("/(a)!*'", "/%28a%29%21%2A%27"), ("/a,b;c=d", "/a%2Cb%3Bc%3Dd")],
        *[("/index.html", "/"), ("/a//b", "/a/b"), ("/%c3%a9", "/%C3%A9"), ("/?b=2&a=1", "/?a=1&b=2")],
        *[("/?q=a+b", "/?q=a%20b"), ("/?a&b", "/?a=&b="), ("/?a=", "/?a"), ("/?&a=1&&b=2&", "/?a=1&b=2")],
        *[
            ("/?t=[1]", "/?t=%5B1%5D"),
            ("/a|b?c|d", "/a%7Cb?c%7Cd"),
            ("/@x/$y+z", "/%40x/%24y%2Bz"),
            ("/a[1]", "/a%5B1%5D"),
        ],
        *[("/a;;", "/a"), ("/a;/b", "/a/b"), ("/a;b=", "/a"), ("/a;b;", "/a;b")],
        *[("/?u=http://o.test/?x", "/?u=http%3A%2F%2Fo.test%2F%3Fx"), ("/wiki/%5BA%5D", "/wiki/[A]")],
        *[("/?{x}", "/?%7Bx%7D"), ("/?a^b`c", "/?a%5Eb%60c"), ("/?a\\b", "/?a%5Cb")],
    ],
)
def test_u12_the_published_spelling_is_requested(visitor: Visitor, published: str, other: str) -> None:
    visit = visitor.visit(a(published.replace("&", "&amp;")), routes={other: Reply(404)})

    assert visit.followed == [published]
    assert visit.requested == sorted(["/dir/p", published])
    assert visit.unsaved == {}


@pytest.mark.parametrize("href", ["/a;", "/a;?x", "/&;", "/d;/e;", "/a?", "/a?;"])
def test_u12_what_is_stored_is_what_was_requested(visitor: Visitor, href: str) -> None:
    """With or without what is empty; not by one name, while asked for by another."""
    visit = visitor.visit(a(href))

    assert len(visit.followed) == 1
    assert visit.requested == sorted(["/dir/p", *visit.followed])


@pytest.mark.parametrize(
    ("kind", "followed"),
    [
        pytest.param("utf-8", ["/%C3%A9?%C3%A9=%C3%BC", "/%C3%BC"], id="utf-8"),
        pytest.param("iso-8859-1", ["/%C3%A9?%E9=%FC", "/%C3%BC"], id="iso-8859-1"),
        pytest.param("windows-1252", ["/%C3%A9?%E9=%FC", "/%C3%BC"], id="windows-1252"),
        pytest.param("iso-8859-2", ["/%C3%A9?%E9=%FC", "/%C3%BC"], id="iso-8859-2"),
        pytest.param("macintosh", ["/%C3%A9?%8E=%9F", "/%C3%BC"], id="macintosh"),
    ],
)
def test_u13_path_and_query(visitor: Visitor, kind: str, followed: list[str]) -> None:
    body = a("/é?é=ü#é", "/ü#?ü").encode(kind)

    visitor.check(Reply(body=body, type=f"text/html; charset={kind}"), followed)


def test_u13_composed_and_decomposed_stay_two(visitor: Visitor) -> None:
    hrefs = ["/caf\u00e9", "/cafe\u0301", "/caf%C3%A9", "/cafe%CC%81", "?\u1e69", "?s\u0323\u0307"]

    visitor.check(
        a(*hrefs),
        ["/caf%C3%A9", "/cafe%CC%81", "/dir/p?%E1%B9%A9", "/dir/p?s%CC%A3%CC%87"],
    )


@pytest.mark.parametrize(
    ("host", "ascii_host", "spellings"),
    [
        pytest.param(
            "bücher.test",
            "xn--bcher-kva.test",
            ["xn--bcher-kva.test", "BÜCHER.test", "b%C3%BCcher.test", "bu\u0308cher.test", "XN--BCHER-KVA.TEST."],
            id="bücher",
        ),
        pytest.param("faß.test", "xn--fa-hia.test", ["xn--fa-hia.test", "fa%C3%9F.test", "FAẞ.test"], id="faß"),
        pytest.param(
            "例え.test",
            "xn--r8jz45g.test",
            ["xn--r8jz45g.test", "%E4%BE%8B%E3%81%88.test", "例え。test", "例え．TEST"],
            id="japanese",
        ),
        pytest.param("☃.test", "xn--n3h.test", ["xn--n3h.test", "%E2%98%83.test.", "☃.TEST"], id="snowman"),
    ],
)
def test_u13_names_of_a_host(visitor: Visitor, host: str, ascii_host: str, spellings: list[str]) -> None:
    """One host, asked for by its punycode."""
    urls = [f"//{spelling}:{{port}}/{number}" for number, spelling in enumerate(spellings)]

    visit = visitor.visit(a(*urls), seed=f"http://{host}:{{port}}/dir/p")

    assert visit.followed == [f"http://{ascii_host}/{number}" for number in range(len(spellings))]
    assert {request.host for request in visitor.mock.requests} == {ascii_host}


def test_hosts_in_other_forms_of_an_ipv4_address_are_one(visitor: Visitor) -> None:
    hosts = ["0x7f.1", "2130706433", "0177.0.0.1", "127.1", "0x7F000001", "127.0.0.1.", "１２７.0.0.1", "127%2e0.0.0x1"]
    more = ["http://127.0.0.256:{port}/", "http://127.0.0.1.5:{port}/", "http://0x100000000:{port}/"]
    urls = [f"http://{host}:{{port}}/{number}" for number, host in enumerate(hosts)]

    visit = visitor.visit(a(*urls, *more, "//127.0.0.2:{port}/"), seed="http://127.0.0.1:{port}/dir/p")

    assert visit.followed == [f"http://127.0.0.1/{number}" for number in range(8)]
    assert visit.unsaved == {"http://127.0.0.2/": "out of scope"}
    assert {request.host for request in visitor.mock.requests} == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("href", "followed"),
    [
        *[("..\\x\\y.html", "/x/y.html"), ("\\z.html", "/z.html"), ("http:\\\\h.test:{port}\\q", "/q")],
        *[("/w/%5Cdoc", "/w/%5Cdoc"), ("/\\h.test:{port}/m", "/m"), ("\\\\h.test:{port}\\n", "/n"), (".\\c", "/dir/c")],
        *[("/a\\..\\b", "/b"), ("\\/h.test:{port}\\o", "/o"), ("a\\b?c", "/dir/a/b?c"), ("a#\\", "/dir/a")],
        *[("http:\\one", "/one"), ("http:two", "/dir/two"), ("http:/three", "/three"), ("HTTP:/x", "/x")],
        *[
            ("///h.test:{port}/s", "/s"),
            ("http:///h.test:{port}/t", "/t"),
            ("http:/../u", "/u"),
            ("http:?v", "/dir/p?v"),
        ],
        *[("http://h.test:{port}\\@o.test/", "/@o.test/"), ("\\%5c\\", "/%5c/")],
    ],
)
def test_u14_slashes_backslashes_and_schemes(visitor: Visitor, href: str, followed: str) -> None:
    visitor.check(a(href), [followed])


@pytest.mark.parametrize(
    ("href", "followed"),
    [
        *[
            ("?a=1&amp;b=2", "/dir/p?a=1&b=2"),
            ("?a=1&copy=2", "/dir/p?a=1&copy=2"),
            ("?a=1&copy;=2", "/dir/p?a=1%C2%A9=2"),
        ],
        *[("?a=1&b=2", "/dir/p?a=1&b=2"), ("?a=1&AMP;b=2", "/dir/p?a=1&b=2"), ("?a=1&#38;b=2", "/dir/p?a=1&b=2")],
        *[
            ("?a=1&amp;amp;b=2", "/dir/p?a=1&amp;b=2"),
            ("?a=1&amp", "/dir/p?a=1&"),
            ("?a=1&ampb=2", "/dir/p?a=1&ampb=2"),
        ],
        *[
            ("?a&not;it", "/dir/p?a%C2%ACit"),
            ("?a&notit=1", "/dir/p?a&notit=1"),
            ("?a&notin;=1", "/dir/p?a%E2%88%89=1"),
        ],
        *[
            ("?a&not-it", "/dir/p?a%C2%AC-it"),
            ("?x&region=eu", "/dir/p?x&region=eu"),
            ("?x&lang=en", "/dir/p?x&lang=en"),
        ],
        *[("?x&sect=2&para=3&times=4", "/dir/p?x&sect=2&para=3&times=4"), ("?x=&reg", "/dir/p?x=%C2%AE")],
        *[("/&#x41;&#66;&#67", "/ABC"), ("/&#X2f;", "/dir/p?"), ("/&#128;", "/%E2%82%AC"), ("/&#0;", "/%EF%BF%BD")],
        *[("&sol;abs", "/abs"), ("&period;&period;&sol;up", "/up"), ("&quest;q", "/dir/p?q"), ("/a&num;b", "/a")],
        *[("http&colon;//h.test:{port}/c", "/c"), ("/t&Tab;a&NewLine;b", "/tab"), ("/&quot;&lt;&gt;", "/%22%3C%3E")],
        *[("/&unknown;x", "/&unknown;x"), ("/&;x", "/&;x"), ("/&#;", "/&"), ("/&#xD800;", "/%EF%BF%BD")],
        *[
            ("/&bsol;o", "/dir/p?"),
            ("/&percnt;41", "/%41"),
            ("/&fjlig;", "/fj"),
            ("/&NotEqualTilde;", "/%E2%89%82%CC%B8"),
        ],
    ],
)
def test_u15_character_references(visitor: Visitor, href: str, followed: str) -> None:
    """As in attributes: without its semicolon, a name is one only where no letter, digit or ``=`` follows."""
    # `/&#X2f;` is `//`, `/&bsol;o` is `/\o`: a host, the first of them none; `/&#;` has an empty fragment.
    outside = ["http://o/"] if href == "/&bsol;o" else []
    visitor.check(a(href), [] if followed == "/dir/p?" else [followed], *outside)


@pytest.mark.parametrize(
    ("hrefs", "followed"),
    [
        pytest.param(["/a", "/a?", "/a?#x"], ["/a"], id="empty-query"),
        pytest.param(["/a?", "/a"], ["/a"], id="empty-query-first"),
        pytest.param(["?", "??"], ["/dir/p??"], id="question-marks"),
        pytest.param(["?x=1&y=2", "?y=2&x=1", "?x=1&x=2"], ["/dir/p?x=1&y=2", "/dir/p?x=1&x=2"], id="order"),
        pytest.param(["/?y=2&x=1", "/?x=1&y=2"], ["/?y=2&x=1"], id="first-spelling"),
        pytest.param(["/?x", "/?x=", "/?X"], ["/?x", "/?X"], id="no-value"),
        pytest.param(["/?b&a", "/?a&b", "/?a&b&b"], ["/?b&a", "/?a&b&b"], id="names-alone"),
        pytest.param(["/?x=1", "/?x=01", "/?x=1.0"], ["/?x=1", "/?x=01", "/?x=1.0"], id="values-are-text"),
        pytest.param(["/a;x=1", "/a;x=2", "/a"], ["/a;x=1", "/a;x=2", "/a"], id="path-parameters"),
        pytest.param(["/?é=1&b=2", "/?b=2&%C3%A9=1"], ["/?%C3%A9=1&b=2"], id="escaped-names"),
    ],
)
def test_u16_queries(visitor: Visitor, hrefs: list[str], followed: list[str]) -> None:
    visitor.check(a(*hrefs), followed)


def test_u17_passwords_make_no_other_page_and_are_kept_nowhere(visitor: Visitor) -> None:
    users = [
        "user:secret@",
        "secret@",
        ":secret@",
        "secret@user:secret@",
        "us%40er:secret%3A@",
        "secret:@",
        "user:se/ret@",
    ]
    urls = [f"//{user}h.test:{{port}}/x" for user in users[:6]]
    urls += ["//user:secret@h.test:{port}/y", "http://sec\nret@o.test/z", "//h.test:{port}/user:pw@z"]

    visit = visitor.check(a("/x", *urls), ["/x", "/y", "/user:pw@z"], "http://o.test/z")

    assert {name for name, text in visit.files.items() if b"secret" in text} == {"1"}  # the page that has them
    assert all("authorization" not in request.headers for request in visitor.mock.requests)


@pytest.mark.parametrize(
    "seed",
    [
        *["example.com", "http://", "ftp://x/", "file:///etc/passwd", "", None, "//h.test/", "http:h.test", "/docs/"],
        *["http://h.test:99999/", "http://[bad", "javascript:0", "http://a b/", "http://h.test/\nhttp://o.test/", "é"],
    ],
)
def test_u18_a_bad_seed_is_refused_before_anything_is_made(visitor: Visitor, tmp_path: Path, seed: str | None) -> None:
    given = {"seed": seed} if seed is not None else {}
    visitor.mock.reset({})

    result = visitor.pool.run({**given, "depth": 1, "pagedir": str(tmp_path / "new" / "pages")}, SETTINGS)

    assert result["error"].startswith("UsageError(")
    assert "spider argument `seed`: expected one absolute http(s) URL" in result["error"]
    assert "\\n" not in result["error"].replace("\\\\n", "")
    assert list(tmp_path.iterdir()) == []
    assert visitor.mock.requests == []


# Markup


def test_u19_what_is_no_markup_has_no_links(visitor: Visitor) -> None:
    no = "<a href=/no>x</a><iframe src=/no></iframe>"
    places = [
        *[
            f"<!-- {no} -->",
            f"<!--{no}--!>",
            f"<!-- -- {no} -->",
            "<![CDATA[ <a href=/no> ]]>",
            "<?php '<a href=/no>' ?>",
        ],
        f"<!--[if lt IE 9]>{no}<![endif]-->",
        *[f"<script>document.write('{no}')</script>", f"<script type=text/template>{no}</script>"],
        f"<script><!-- <script>{no}</script> {no} --></script>",
        *[f"<{tag}>{no}</{tag}>" for tag in ("textarea", "title", "style", "xmp", "noembed", "noframes", "TEXTAREA")],
        *[f"<iframe>{no}</iframe>", f"<iframe srcdoc='{no}'></iframe>", f"<template>{no}</template>"],
        *[f"<svg><style><![CDATA[{no}]]></style></svg>", f"<p title='{no}'>", f"<img alt='{no}'>", "</a href=/no>"],
        *["< a href=/no>", "<a-b href=/no>", "<abbr href=/no>", "<a data-href=/no name=/no>", "<a hrefs=/no>"],
        *["&lt;a href=/no&gt;", "http://h.test/no", "<option value=/no>", "<a xlink:href=/no>", "<3 a href=/no>"],
    ]

    visitor.check("".join([f"<div>{place}</div>{a(f'/{n}')}" for n, place in enumerate(places)]) + f"<plaintext>{no}",
                  [f"/{n}" for n in range(len(places))])  # fmt: skip


@pytest.mark.parametrize(
    ("body", "followed"),
    [
        pytest.param("<noscript><a href=/x>y</a></noscript>", ["/x"], id="noscript"),
        pytest.param("<head><noscript><a href=/x>y</a></noscript></head>", ["/x"], id="noscript-in-head"),
        pytest.param("<noscript><iframe src=/x></iframe><p><a href=/y></noscript>", ["/x", "/y"], id="noscript-more"),
        pytest.param("<![if !IE]><a href=/x>y</a><![endif]>", ["/x"], id="revealed-conditional-comment"),
        pytest.param("<!--[if !IE]><!--><a href=/x>y</a><!--<![endif]-->", ["/x"], id="revealed-otherwise"),
        pytest.param("<!--><a href=/x><!---><a href=/y><!-- --><a href=/z>", ["/x", "/y", "/z"], id="short-comments"),
        pytest.param("<object data=/no><a href=/x>y</a></object>", ["/x"], id="fallback-of-an-object"),
        pytest.param(
            "<video src=/no><a href=/x></a></video><canvas><a href=/y></canvas>", ["/x", "/y"], id="fallbacks"
        ),
        pytest.param("<div hidden style='display:none'><a href=/x></div>", ["/x"], id="hidden"),
        pytest.param("<script>'</script><a href=/x>'</script>", ["/x"], id="script-ended-early"),
        pytest.param("<textarea></textarea ><a href=/x>", ["/x"], id="textarea-ended"),
        pytest.param("<script/><a href=/no></script><a href=/x>", ["/x"], id="no-self-closing-script"),
        pytest.param("<a href=/x><!-- unclosed <a href=/no>", ["/x"], id="unclosed-comment"),
        pytest.param("<title>unclosed <a href=/no>", [], id="unclosed-title"),
        pytest.param("<svg><title><a href=/x></a></title></svg>", ["/x"], id="a-title-in-svg-is-markup"),
        pytest.param("<svg><a href=/x><text>y</text></a></svg>", ["/x"], id="svg"),
        pytest.param("<svg><a xlink:href=/x><text>y</text></a></svg>", ["/x"], id="svg-xlink"),
        pytest.param("<svg><a xlink:href=/no href=/x></a><a XLINK:HREF='/y'/></svg>", ["/x", "/y"], id="svg-both"),
        pytest.param(
            "<svg><use href=/no /><image xlink:href=/no /><foreignObject><a href=/x></svg>", ["/x"], id="svg-rest"
        ),
        pytest.param("<math><mtext><a href=/x>y</a></mtext></math>", ["/x"], id="in-math"),
    ],
)
def test_u19_what_a_browser_without_scripts_shows_is_followed(visitor: Visitor, body: str, followed: list[str]) -> None:
    visitor.check(body, followed)


@pytest.mark.parametrize(
    ("body", "followed"),
    [
        pytest.param("<A HREF=/x>y</A><a hReF='/y'>", ["/x", "/y"], id="case"),
        pytest.param("<a href=/x/>y</a><a href=/y?a=1&b>", ["/x/", "/y?a=1&b"], id="unquoted"),
        pytest.param("<a href=/x'y\"z>", ["/x'y%22z"], id="quotes-in-unquoted"),
        pytest.param("<a href='/x\"y'><a href=\"/x'y\">", ["/x%22y", "/x'y"], id="quotes-in-quoted"),
        pytest.param("<a href=/1 href=/no><a class=b HREF=/2 href=/no>", ["/1", "/2"], id="the-first-of-two"),
        pytest.param("<a href = /x ><a\nhref\n=\n'/y'\n>", ["/x", "/y"], id="spaces-around-equals"),
        pytest.param("<a/href=/x><a class='b'href=/y><a ' href=/z>", ["/x", "/y", "/z"], id="separators"),
        pytest.param('<a href="/x>y</a><a href="/z">', ["/x%3Ey%3C/a%3E%3Ca%20href="], id="quote-left-open"),
        pytest.param("<a href=/x>y</a><a href='/no", ["/x"], id="end-within-a-tag"),
        pytest.param("<a href=/x>y</a><a href=/no", ["/x"], id="end-within-an-attribute"),
        pytest.param("<a href=`/x`>", ["/dir/%60/x%60"], id="backticks-are-no-quotes"),
        pytest.param("<a href=“/x”>", ["/dir/%E2%80%9C/x%E2%80%9D"], id="typographic-quotes-neither"),
        pytest.param("<a href>y</a><a href=''><a href=\"#\"><a href=?>", [], id="empty"),
        pytest.param("<p><a href=/x><p><a href=/y><div><a href=/z></p>", ["/x", "/y", "/z"], id="nested-links"),
        pytest.param(
            "<table><a href=/x><tr><a href=/y><td><a href=/z></table>", ["/x", "/y", "/z"], id="foster-parent"
        ),
        pytest.param("<a href=/x></body></html><a href=/y>", ["/x", "/y"], id="after-the-end"),
        pytest.param("<a href=/x>y</a><frameset><frame src=/no>", ["/x"], id="frameset-too-late"),
        pytest.param("<a href=//x.test:{port}/>", [], id="no-quotes-and-a-host"),
    ],
)
def test_u19_tags_and_attributes(visitor: Visitor, body: str, followed: list[str]) -> None:
    visitor.check(body, followed, *(["http://x.test/"] if "x.test" in body else []))


@pytest.mark.parametrize(
    ("body", "followed"),
    [
        pytest.param("<map><area href=/x><AREA HREF='/y' shape=rect></map>", ["/x", "/y"], id="area"),
        pytest.param("<area href=/x>", ["/x"], id="area-alone"),
        pytest.param("<frameset><frame src=/x><FRAME SRC=/y></frameset>", ["/x", "/y"], id="frame"),
        pytest.param("<frameset><frame src=/x><noframes><a href=/no></noframes></frameset>", ["/x"], id="noframes"),
        pytest.param("<frameset><frameset><frame src=/x></frameset><frame></frameset>", ["/x"], id="frames-nested"),
        pytest.param("<p><frame src=/no>", [], id="frame-elsewhere"),
        pytest.param("<a href=/no><frameset><frame src=/x></frameset>", ["/x"], id="frames-in-place-of-a-body"),
        pytest.param("<iframe src=/x></iframe><IFRAME SRC='/y'>", ["/x", "/y"], id="iframe"),
        pytest.param("<iframe></iframe><iframe src></iframe><iframe src=about:blank></iframe>", [], id="iframe-empty"),
        pytest.param("<a src=/no><iframe href=/no></iframe><area src=/no>", [], id="wrong-attribute"),
        pytest.param(
            "<link rel=next href=/no><link rel=alternate href=/no><link rel=canonical href=/no><img src=/no>"
            "<link rel=stylesheet href=/no><script src=/no></script><form action=/no><button formaction=/no></button>"
            "<input type=image src=/no></form><object data=/no></object><embed src=/no>"
            "<video src=/no poster=/no></video><audio src=/no></audio>"
            "<source src=/no srcset=/no><track src=/no><blockquote cite=/no></blockquote>"
            "<q cite=/no></q><body background=/no><img longdesc=/no usemap=/no><html manifest=/no><a ping=/no>"
            "<iframe longdesc=/no></iframe><applet code=/no></applet><bgsound src=/no><meta content=/no name=url>"
            "<portal src=/no></portal><a href=/x>",
            ["/x"],
            id="nothing-else",
        ),
    ],
)
def test_u20_elements(visitor: Visitor, body: str, followed: list[str]) -> None:
    visitor.check(body, followed)


@pytest.mark.parametrize(
    ("body", "followed"),
    [
        pytest.param(b"<p>a\0b</p><a href=/x>y</a>", ["/x"], id="in-text"),
        pytest.param(b"\0\0<!doctype html><a href=/x>", ["/x"], id="first"),
        pytest.param(b"<!-- \0 --><a href=/x>\0</a><a href=/y>", ["/x", "/y"], id="in-a-comment"),
        pytest.param(b"<script>'\0'</script><title>\0</title><a href=/x>", ["/x"], id="in-raw-text"),
        pytest.param(b"<a\0 href=/no><a title=\0 href=/x><a href=/y>", ["/x", "/y"], id="in-a-tag"),
        pytest.param(b"<a href='/a\0b'><a href=/c>", ["/a%EF%BF%BDb", "/c"], id="in-an-address"),
        pytest.param(
            b"<table>\0<tr>\0<td><a href=/x></table><select>\0</select><a href=/y>", ["/x", "/y"], id="in-a-table"
        ),
        pytest.param(b"<p>" + b"\0" * 100_000 + b"<a href=/x>", ["/x"], id="many"),
    ],
)
def test_u21_nul(visitor: Visitor, body: bytes, followed: list[str]) -> None:
    visit = visitor.check(body, followed)

    assert visit.files["1"].split(b"\n", 2)[2] == body


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("<div>" * 3000, id="nested"),
        pytest.param("<p><b>" * 3000, id="unclosed"),
        pytest.param("<div>" * 10_000, id="nested-10000"),
        pytest.param("<font>" * 3000 + "<p>" * 300, id="formatting"),
        pytest.param("<ul><li>" * 3000, id="lists"),
        pytest.param("<table><tr><td>" * 3000, id="tables"),
        pytest.param("<span>x</div>" * 3000, id="wrong-ends"),
        pytest.param("<svg><g>" * 3000, id="svg"),
        pytest.param("<a href=/z><i>" * 1000, id="links"),
        pytest.param("<blockquote>" * 3000 + "</blockquote>" * 3000 + "<dl><dt>" * 3000, id="closed-and-open"),
        pytest.param("<template>" * 3000 + "</template>" * 3000, id="templates"),
        pytest.param("<button><em>" * 1500, id="buttons"),
    ],
)
def test_u22_a_link_deep_down(visitor: Visitor, before: str) -> None:
    followed = ["/z", "/x", "/y"] if "/z" in before else ["/x", "/y"]
    if "<svg>" in before:
        followed.remove("/y")  # there it is no frame

    visitor.check(f"<!doctype html>{before}<a href=/x>y</a><iframe src=/y></iframe>", followed)


@pytest.mark.parametrize(
    ("rel", "followed"),
    [
        *[("ugc nofollow", []), ("nofollow", []), ("NOFOLLOW noopener", []), ("noreferrer\n\tNoFollow", [])],
        *[("ugc sponsored", ["/x"]), ("dofollow", ["/x"]), ("nofollow,ugc", ["/x"]), ("no-follow", ["/x"])],
    ],
)
def test_u23_nofollow_of_a_link(visitor: Visitor, rel: str, followed: list[str]) -> None:
    """A hint, unless the setting says not; another link to the same page counts as ever."""
    body = f"<a rel='{rel}' href=/x>1</a><map><area rel='{rel}' href=/x></map><a href=/y>2</a>"

    visitor.check(body, ["/x", "/y"])
    visitor.check(body, [*followed, "/y"], settings={"TINYCRAWL_FOLLOW_NOFOLLOW": 0})
    visitor.check(body + a("/x"), [*followed, "/y"] if followed else ["/y", "/x"],
                  settings={"TINYCRAWL_FOLLOW_NOFOLLOW": 0})  # fmt: skip


@pytest.mark.parametrize(
    ("head", "header", "is_saved", "is_followed"),
    [
        *[("noindex,nofollow", "", False, False), ("noindex", "", False, True), ("NOFOLLOW", "", True, False)],
        *[("none", "", False, False), ("index, follow", "", True, True), ("noarchive nofollow", "", True, False)],
        *[("", "noindex", False, True), ("", "NoFollow", True, False), ("nofollow", "noindex", False, False)],
        *[("", "otherbot: noindex", True, True), ("", "tinycrawl: noindex, nofollow", False, False)],
        *[("all", "max-snippet: 5, noindex", False, True), ("nofollowing", "noindexed", True, True)],
        *[("", "unavailable_after: Friday, 25-Jun-10 15:00:00 PST, nofollow", True, False)],
    ],
)
def test_u23_what_a_page_asks(visitor: Visitor, head: str, header: str, is_saved: bool, is_followed: bool) -> None:
    robot = Reply(
        body=f"<meta name=robots content='{head}'><a href=/x>y</a>".encode(),
        headers=[("X-Robots-Tag", header)] if header else [],
    )
    seed = page("/robot", "/z").body

    def visit(**settings: object) -> tuple[list[str], dict[str, str]]:
        done = visitor.visit(seed, routes={"/robot": robot}, depth=2, settings=settings)
        return done.followed, done.unsaved

    assert visit() == (
        [*(["/robot"] if is_saved else []), "/z", *(["/x"] if is_followed else [])],
        {} if is_saved else {"/robot": "noindex"},
    )
    if not (is_saved and is_followed):
        assert visit(TINYCRAWL_META_ROBOTS=0) == (["/robot", "/z", "/x"], {})


REFRESHES = [
    *[("content='0; url=/x'", ["/x"]), ("content='0;URL=/x'", ["/x"]), ("content='5;url=\"/x\"'", ["/x"])],
    *[("content=\"0; url='/x y'z\"", ["/x%20y"]), ("content='0,/x'", ["/x"]), ("content='0 /x'", ["/x"])],
    *[
        ("content='\n 0.5 ; \t url\n=\r /x '", ["/x"]),
        ("content=0;url=x", ["/dir/x"]),
        ("content='0;;x'", ["/dir/;x"]),
    ],
    *[("content='&#48;&semi;url&equals;&sol;x'", ["/x"]), ("content='0; url=&quot;/x&quot;'", ["/x"])],
    *[("content='0; url'", ["/dir/url"]), ("content='0;url=?q&amp;r'", ["/dir/p?q&r"]), ("content='.;/x'", ["/x"])],
    *[
        ("content=''", []),
        ("content=0", []),
        ("content='0;'", []),
        ("content='0; url='", []),
        ("content='url=/no'", []),
    ],
    *[("content='-1;/no'", []), ("content='x;/no'", []), ("content='0x/no'", []), ("content='0;url=#top'", [])],
    *[("content='0; url=http://[bad'", []), ("content='0; url=javascript:0'", []), ("content='0; url=/dir/p'", [])],
]


@pytest.mark.parametrize(("meta", "followed"), REFRESHES)
def test_meta_refresh_is_the_first_link(visitor: Visitor, meta: str, followed: list[str]) -> None:
    """R9's spellings"""
    for tag in (f"<meta http-equiv=refresh {meta}>", f"<META {meta} HTTP-EQUIV='Refresh'>"):
        visitor.check(a("/z") + f"<noscript>{tag}</noscript>", [*followed, "/z"])
    visitor.check(
        f"<!-- <meta http-equiv=refresh {meta}> --><template><meta http-equiv=refresh {meta}></template>"
        f"<meta name=refresh {meta}><meta http-equiv=refreshing {meta}>" + a("/z"),
        ["/z"],
    )


@pytest.mark.parametrize(("meta", "followed"), REFRESHES)
def test_a_refresh_header_is_read_as_a_meta_refresh(visitor: Visitor, meta: str, followed: list[str]) -> None:
    node = LexborHTMLParser(f"<meta {meta}>").css_first("meta")
    assert node is not None
    value = re.sub("[\r\n]", " ", node.attributes["content"] or "")

    reply = Reply(body=b"<base href=/elsewhere/>" + a("/z").encode(), headers=[("Refresh", value)])
    visitor.check(reply, [*followed, "/z"])

    found = [(visitor.shorten(edge.target), edge.kind) for edge in edges(PageDirectory(visitor.last))]
    assert [edge for edge in found if edge[0] != "/dir/p"] == [*((url, "refresh") for url in followed), ("/z", "link")]


# Encodings


@pytest.mark.parametrize(
    ("codec", "label", "letters", "query"),
    [
        pytest.param("cp1251", "windows-1251", "Жя", "%C6%FF", id="windows-1251"),
        pytest.param("cp1251", "win-1251", "Жя", "%C6%FF", id="another-label"),
        pytest.param("koi8-r", "KOI8-R", "Жя", "%F6%D1", id="koi8-r"),
        pytest.param("cp1252", "iso-8859-1", "€é", "%80%E9", id="latin-1-is-windows-1252"),
        pytest.param("cp1254", "iso-8859-9", "ğ€", "%F0%80", id="latin-5-is-windows-1254"),
        pytest.param("shift_jis", "Shift_JIS", "日本", "%93%FA%96{", id="shift_jis"),
        pytest.param("cp932", "x-sjis", "①", "%87@", id="shift_jis-is-windows-31j"),
        pytest.param("euc-jp", "euc-jp", "日本", "%C6%FC%CB%DC", id="euc-jp"),
        pytest.param("gb18030", "gb18030", "中𠀀", "%D6%D0%952%826", id="gb18030"),
        pytest.param("gbk", "gb2312", "镕", "%E9F", id="gb2312-is-gbk"),
        pytest.param("cp949", "euc-kr", "한똠", "%C7%D1%8Cc", id="euc-kr-is-cp949"),
        pytest.param("cp949", "ks_c_5601-1987", "한", "%C7%D1", id="korean-label"),
        pytest.param("big5", "Big5", "中文", "%A4%A4%A4%E5", id="big5"),
        pytest.param("cp874", "tis-620", "ก", "%A1", id="thai"),
        pytest.param("iso2022_jp", "iso-2022-jp", "日", "%1B$BF|%1B(B", id="iso-2022-jp"),
        pytest.param("utf-8", "utf8", "Ж中", "%D0%96%E4%B8%AD", id="utf-8"),
        pytest.param("utf-16-le", "utf-16", "Ж中", "%D0%96%E4%B8%AD", id="utf-16"),
        pytest.param("utf-16-be", "utf-16be", "Ж中", "%D0%96%E4%B8%AD", id="utf-16be"),
    ],
)
def test_u13_the_query_is_in_the_encoding_of_the_page(
    visitor: Visitor, codec: str, label: str, letters: str, query: str
) -> None:
    """Also the letters that it lacks; the path is UTF-8 always. By header, and by meta where that can be."""
    body = f"<a href='/{letters}?{letters}'>x</a><a href='/?&#9731;'>{letters}</a>"
    lacking = "%E2%98%83" if codec.startswith("utf") else {"gb18030": "%817%A30"}.get(codec)
    followed = [f"/{quote(letters)}?{query}", f"/?{lacking or '%26%239731%3B'}"]

    visitor.check(Reply(body=body.encode(codec), type=f"text/html; charset={label}"), followed)
    visitor.check(Reply(body=body.encode(codec), type=f'text/html;x=y; Charset="{label.lower()}"'), followed)
    if not codec.startswith("utf-16"):
        meta = f"<meta charset='{label}'>".encode()
        visitor.check(meta + body.encode(codec), followed)


ZHE = "<a href='/Ж?Ж'>x</a>"
XML_1251 = b'<?xml version="1.0" encoding="windows-1251"?>'


@pytest.mark.parametrize(
    ("body", "kind", "query"),
    [
        pytest.param(b"<meta charset=windows-1251>", None, "%C6", id="meta"),
        pytest.param(b"<META CHARSET='WINDOWS-1251'/>", None, "%C6", id="meta-upper-case"),
        pytest.param(b"<meta name=x content=y><meta charset = windows-1251 >", None, "%C6", id="meta-second"),
        pytest.param(
            b"<meta http-equiv=Content-Type content='text/html; charset=windows-1251'>", None, "%C6", id="http-equiv"
        ),
        pytest.param(
            b"<meta content=\"text/html;charset = 'windows-1251'\" http-equiv='content-type'>",
            None,
            "%C6",
            id="other-order",
        ),
        pytest.param(XML_1251, None, "%C6", id="xml-declaration"),
        pytest.param(XML_1251, "application/xhtml+xml", "%C6", id="xml-declaration-xhtml"),
        pytest.param(b"<!-- <meta charset=koi8-r> --><meta charset=windows-1251>", None, "%C6", id="not-in-a-comment"),
        pytest.param(b"<meta charset=windows-1251><meta charset=koi8-r>", None, "%C6", id="first-meta"),
        pytest.param(b"<meta charset=nonsense><meta charset=windows-1251>", None, "%C6", id="first-meta-that-is-one"),
        pytest.param(b"<!--" + b"x" * 1500 + b"--><meta charset=windows-1251>", None, "%C6", id="after-1024-bytes"),
        pytest.param(b"<!--" + b"x" * 5000 + b"--><meta charset=windows-1251>", None, "%C6", id="after-5000-bytes"),
        pytest.param(b"<meta charset=windows-1251>", "text/html; charset=koi8-r", "%F6", id="header-before-meta"),
        pytest.param(b"<meta charset=windows-1251>", "text/html; charset=none", "%C6", id="header-that-is-none"),
        pytest.param(b"<meta charset=windows-1251>", "text/html; charset=", "%C6", id="header-that-is-empty"),
        pytest.param(b"\xef\xbb\xbf", "text/html; charset=windows-1251", "%D0%96", id="bom-before-header"),
        pytest.param(b"\xef\xbb\xbf<meta charset=windows-1251>", None, "%D0%96", id="bom-before-meta"),
        pytest.param(b"<meta charset=utf-16>", None, "%D0%96", id="meta-cannot-say-utf-16"),
        pytest.param(b"", None, "%D0%96", id="utf-8-undeclared"),
        pytest.param(b"<meta charset=utf-8>", "text/html; charset=UTF-8", "%D0%96", id="utf-8-twice"),
        pytest.param(b"<meta charset=x-user-defined>", "text/html; charset=utf-8", "%D0%96", id="header-utf-8"),
    ],
)
def test_c4_which_encoding_a_page_has(visitor: Visitor, body: bytes, kind: str | None, query: str) -> None:
    codec = {"%C6": "cp1251", "%F6": "koi8-r", "%D0%96": "utf-8"}[query]

    visitor.check(Reply(body=body + ZHE.encode(codec), type=kind or "text/html"), [f"/%D0%96?{query}"])


def test_what_is_undeclared_and_not_utf_8_is_windows_1252(visitor: Visitor) -> None:
    visitor.check(b"<a href='/\x80?\x80\xe9'>\x93</a>", ["/%E2%82%AC?%80%E9"])


def test_pages_in_utf_16_are_read_by_their_byte_order_mark(visitor: Visitor) -> None:
    text = f"<meta charset=windows-1251>{ZHE}"
    for body in (text.encode("utf-16"), b"\xfe\xff" + text.encode("utf-16-be")):
        for kind in ("text/html", "text/html; charset=windows-1251", "text/html; charset=utf-8"):
            visitor.check(Reply(body=body, type=kind), ["/%D0%96?%D0%96"])


def test_c2_xhtml_is_read_as_xml(visitor: Visitor) -> None:
    """There an empty script, title or frame ends where it begins."""
    start = "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><head>"

    for empty in ("<script src='/s.js'/>", "<title/>", "<style />", "<script\nsrc='/a>b'/>", "<noscript/>"):
        body = f"{start}<title>t</title>{empty}</head><body><a href='/x'>x</a><textarea/><a href='/y'/></body></html>"
        visitor.check(Reply(body=body.encode(), type="application/xhtml+xml"), ["/x", "/y"])
