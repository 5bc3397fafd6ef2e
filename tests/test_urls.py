"""URLs as strings: what a link means, what is requested, and which URLs are one page."""

import re
from collections.abc import Callable

import ada_url
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from w3lib.url import canonicalize_url

from tinycrawl.urls import (
    canonicalise_url,
    host_of,
    join_location,
    join_url,
    normalise_url,
    registrable_domain,
    site_of,
)

PAGE = "http://h.test/dir/p"


@pytest.mark.parametrize(
    ("url", "normalised"),
    [
        pytest.param("http://h.test", "http://h.test/", id="no-path"),
        pytest.param("http://h.test?q", "http://h.test/?q", id="no-path-but-query"),
        pytest.param("  http://h.test/a\r\n", "http://h.test/a", id="white-space-around"),
        pytest.param("ht\ntp://h.t\test/a\n/b", "http://h.test/a/b", id="line-breaks-within"),
        pytest.param("HTTP://H.TEST/Up", "http://h.test/Up", id="U10-case"),
        pytest.param("http://h.test:80/Up", "http://h.test/Up", id="U10-port-80"),
        pytest.param("https://h.test:0443/Up", "https://h.test/Up", id="U10-port-443"),
        pytest.param("https://h.test:80/Up", "https://h.test:80/Up", id="other-scheme's-port"),
        pytest.param("http://h.test./Up", "http://h.test/Up", id="U10-trailing-dot"),
        pytest.param("http://h.test.:8080/", "http://h.test:8080/", id="trailing-dot-and-port"),
        pytest.param("http://h.test%2E/", "http://h.test/", id="escaped-trailing-dot"),
        pytest.param("http://h.test\u3002/", "http://h.test/", id="ideographic-trailing-dot"),
        pytest.param("http://h.test/a./b", "http://h.test/a./b", id="dot-in-path"),
        pytest.param("http://user:secret@h.test/x", "http://h.test/x", id="U17-password"),
        pytest.param("http://user@h.test.:80", "http://h.test/", id="U17-user-dot-port"),
        pytest.param("http://a@b:c@h.test/@x", "http://h.test/@x", id="U17-at-signs"),
        pytest.param("http://h.test/u:p@x", "http://h.test/u:p@x", id="at-sign-in-path"),
        pytest.param("http://h.test/a?page=2#two", "http://h.test/a?page=2", id="U9-fragment"),
        pytest.param("http://h.test/a#b#c@d?e", "http://h.test/a", id="U9-odd-fragment"),
        pytest.param("http://h.test/a#", "http://h.test/a", id="U9-empty-fragment"),
        pytest.param("http://h.test/x%3d", "http://h.test/x%3d", id="U11-lower-case-escape"),
        pytest.param("http://h.test/90%", "http://h.test/90%", id="U11-stray-percent"),
        pytest.param("http://h.test/90%25", "http://h.test/90%25", id="U11-escaped-percent"),
        pytest.param("http://h.test/a%2Fb", "http://h.test/a%2Fb", id="U11-escaped-slash"),
        pytest.param("http://h.test/p%3A1", "http://h.test/p%3A1", id="U12-escaped-colon"),
        pytest.param("http://h.test/p:1", "http://h.test/p:1", id="U12-colon"),
        pytest.param("http://h.test/content/", "http://h.test/content/", id="U12-slash-kept"),
        pytest.param("http://h.test/a?", "http://h.test/a", id="U16-empty-query"),
        pytest.param("http://h.test/a?#f", "http://h.test/a", id="empty-query-before-fragment"),
        pytest.param("http://h.test/a??", "http://h.test/a??", id="query-of-a-question-mark"),
        pytest.param("http://h.test/?y=2&x=1&&", "http://h.test/?y=2&x=1&&", id="query-order-kept"),
        pytest.param("http://bücher.test/é?é", "http://xn--bcher-kva.test/%C3%A9?%C3%A9", id="U13-names"),
        pytest.param("http://XN--BCHER-KVA.test/", "http://xn--bcher-kva.test/", id="U13-punycode"),
        pytest.param("http:\\\\h.test\\x\\y?a\\b", "http://h.test/x/y?a\\b", id="U14-backslashes"),
        pytest.param("http://h.test/a/./b/../%2e%2E/c", "http://h.test/c", id="dot-segments"),
        pytest.param("http://[0:0::1]:80/", "http://[::1]/", id="ipv6"),
        pytest.param("http://0x7f.1./", "http://127.0.0.1/", id="ipv4"),
    ],
)
def test_normalise_url_gives_what_is_requested(url: str, normalised: str) -> None:
    assert normalise_url(url) == normalised


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        pytest.param("", "empty", id="empty"),
        pytest.param(" \n", "empty", id="blank"),
        pytest.param("example.com", "no scheme", id="no-scheme"),
        pytest.param("//h.test/x", "no scheme", id="scheme-relative"),
        pytest.param("http://", "no host", id="no-host"),
        pytest.param("https:///", "no host", id="no-host-but-slash"),
        pytest.param("http://./", "malformed host", id="only-a-dot"),
        pytest.param("http://h.test../", "malformed host", id="two-trailing-dots"),
        pytest.param("ftp://x/", "not an http", id="ftp"),
        pytest.param("file:///etc/passwd", "not an http", id="file"),
        pytest.param("file://h.test/etc/hostname", "not an http", id="U6-file-on-host"),
        pytest.param("mailto:me@h.test", "not an http", id="mailto"),
        pytest.param("localhost:8000", "not an http", id="host-and-port-alone"),
        pytest.param("http://[bad", "malformed", id="open-bracket"),
        pytest.param("http://h.test:99999/", "malformed", id="port-too-large"),
        pytest.param("http://user:secret@h test/", "malformed", id="space-in-host"),
    ],
)
def test_normalise_url_refuses_with_a_reason_without_the_url(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        normalise_url(url)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "url"),
    [
        pytest.param(" \n/a b\t\r\n", "http://h.test/a%20b", id="U1-around"),
        pytest.param("/lo\n\tng.ht\r\nml", "http://h.test/long.html", id="U1-within"),
        pytest.param("http://\nh2.test/", "http://h2.test/", id="U1-in-host"),
        pytest.param("/\u00a0", "http://h.test/%C2%A0", id="no-break-space-kept"),
        pytest.param("/ok", "http://h.test/ok", id="U2-the-good-one"),
        pytest.param("", PAGE, id="empty"),
        pytest.param("#one", PAGE, id="U9-fragment-alone"),
        pytest.param("?page=2#two", "http://h.test/dir/p?page=2", id="U9-query-and-fragment"),
        pytest.param("HTTP://H.TEST.:80/Up", "http://h.test/Up", id="U10"),
        pytest.param("//H2.test./x", "http://h2.test/x", id="U10-scheme-relative"),
        pytest.param("/x%3d/90%", "http://h.test/x%3d/90%", id="U11"),
        pytest.param("./p:1", "http://h.test/dir/p:1", id="U12"),
        pytest.param("..\\x\\y.html", "http://h.test/x/y.html", id="U14-up"),
        pytest.param("\\z.html", "http://h.test/z.html", id="U14-root"),
        pytest.param("http:\\\\H\\q", "http://h/q", id="U14-host"),
        pytest.param("/\\h2.test\\x", "http://h2.test/x", id="U14-mixed"),
        pytest.param("/w/%5Cdoc", "http://h.test/w/%5Cdoc", id="U14-escaped"),
        pytest.param("?a=1&b=2", "http://h.test/dir/p?a=1&b=2", id="U15-decoded"),
        pytest.param("?a=1©=2", "http://h.test/dir/p?a=1%C2%A9=2", id="U15-entity"),
        pytest.param("?", "http://h.test/dir/p", id="U16-empty-query"),
        pytest.param("//user:secret@h.test/x", "http://h.test/x", id="U17"),
        pytest.param("../../../../x", "http://h.test/x", id="above-the-root"),
        pytest.param("http:x", "http://h.test/dir/x", id="scheme-without-slashes"),
        pytest.param("https:h2.test", "https://h2.test/", id="other-scheme-without-slashes"),
    ],
)
def test_join_url_resolves_like_a_browser(reference: str, url: str) -> None:
    assert join_url(PAGE, reference) == url


@pytest.mark.parametrize(
    "reference",
    [
        "mailto:me@h.test",
        "tel:+44 20",
        "JavaScript:;",
        " java\nscript:void(0)",
        "data:text/html,<p>",
        "about:blank",
        "sms:1?body=é",
        "ftp://h.test/x",
        "file://h.test/etc/hostname",
        "file:///etc/hostname",
        "blob:http://h.test/1",
        "view-source:http://h.test/",
        "httpx://h.test/",
        "s3://h.test/x",
    ],
)
def test_join_url_gives_none_for_what_is_never_requested(reference: str) -> None:
    assert join_url(PAGE, reference, "iso-8859-1") is None


@pytest.mark.parametrize(
    "reference", ["http://[bad", "//h.test:x/", "http://", "//./", "//h.test../", "http://a b/", "//h.test:99999/"]
)
def test_join_url_raises_on_a_malformed_reference(reference: str) -> None:
    with pytest.raises(ValueError):
        join_url(PAGE, reference)


@pytest.mark.parametrize(
    ("encoding", "reference", "url"),
    [
        pytest.param("utf-8", "/é?é=1", "http://h.test/%C3%A9?%C3%A9=1", id="U13-utf-8"),
        pytest.param("iso-8859-1", "/é?é=1", "http://h.test/%C3%A9?%E9=1", id="U13-latin-1"),
        pytest.param("iso-8859-1", "?€", "http://h.test/dir/p?%80", id="latin-1-is-windows-1252"),
        pytest.param("cp1251", "/Ж?Ж&é", "http://h.test/%D0%96?%C6&%26%23233%3B", id="lacking"),
        pytest.param("cp1252", "?日本", "http://h.test/dir/p?%26%2326085%3B%26%2326412%3B", id="two-lacking"),
        pytest.param("cp1252", "?%E9=é%", "http://h.test/dir/p?%E9=%E9%", id="escapes-kept"),
        pytest.param("cp1252", "?é\n&é\t", "http://h.test/dir/p?%E9&%E9", id="white-space"),
        pytest.param("cp1252", "?é?é#é?é", "http://h.test/dir/p?%E9?%E9", id="question-marks-and-fragment"),
        pytest.param("cp1252", "é#?é", "http://h.test/dir/%C3%A9", id="question-mark-in-fragment"),
        pytest.param("cp1252", "http://bücher.test?ü", "http://xn--bcher-kva.test/?%FC", id="U13-host"),
        pytest.param("Shift_JIS", "?表", "http://h.test/dir/p?%95\\", id="trail-byte-in-ascii"),
        pytest.param("iso-2022-jp", "?日a", "http://h.test/dir/p?%1B$BF|%1B(Ba", id="stateful"),
        pytest.param("utf-16le", "?é", "http://h.test/dir/p?%C3%A9", id="utf-16"),
        pytest.param("utf-32", "?é", "http://h.test/dir/p?%C3%A9", id="utf-32"),
        pytest.param("replacement", "?é", "http://h.test/dir/p?%C3%A9", id="replacement"),
        pytest.param("no such charset", "?é", "http://h.test/dir/p?%C3%A9", id="unknown"),
        pytest.param("hex", "?é", "http://h.test/dir/p?%C3%A9", id="codec-that-is-no-charset"),
    ],
)
def test_join_url_escapes_the_query_in_the_encoding_of_the_page(encoding: str, reference: str, url: str) -> None:
    assert join_url(PAGE, reference, encoding) == url


@pytest.mark.parametrize(
    ("location", "url"),
    [
        pytest.param("/café?q=é".encode(), "http://h.test/caf%C3%A9?q=%C3%A9", id="R10-utf-8"),
        pytest.param("/café?q=é".encode("latin-1"), "http://h.test/caf%E9?q=%E9", id="R10-latin-1"),
        pytest.param("http://bücher.test/".encode(), "http://xn--bcher-kva.test/", id="utf-8-host"),
        pytest.param(b"/%e9%", "http://h.test/%e9%", id="escapes-kept"),
        pytest.param(b" ../new/ ", "http://h.test/new/", id="relative"),
        pytest.param(b"\\new", "http://h.test/new", id="backslash"),
        pytest.param(b"https://user:secret@H.test.:443/x#top", "https://h.test/x", id="normalised"),
        pytest.param(b"#top", PAGE, id="fragment-alone"),
    ],
)
def test_join_location_escapes_bytes_as_sent(location: bytes, url: str) -> None:
    assert join_location(PAGE, location) == url


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        pytest.param(b"", "empty redirect", id="R10-empty"),
        pytest.param(b" \t", "empty redirect", id="R10-blank"),
        pytest.param(b"http://[bad", "malformed redirect", id="R10-malformed"),
        pytest.param(b"http://", "malformed redirect", id="no-host"),
        pytest.param(b"//h.test../", "malformed redirect", id="malformed-host"),
        pytest.param(b"http://b\xfccher.test/", "malformed redirect", id="latin-1-host"),
        pytest.param(b"file:///etc/hostname", "redirect to a file: URL", id="R11-file"),
        pytest.param(b"File:/etc/hostname", "redirect to a file: URL", id="R11-file-spelt-otherwise"),
        pytest.param(b"data:text/html,x", "redirect to a data: URL", id="data"),
    ],
)
def test_join_location_says_why_it_cannot_be_followed(location: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        join_location(PAGE, location)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("/a", "/a?", id="U16-empty-query"),
        pytest.param("/", "/?", id="R1-empty-query"),
        pytest.param("/?x=1&y=2", "/?y=2&x=1", id="U16-order"),
        pytest.param("/x%3d", "/x%3D", id="U11-case-of-escapes"),
        pytest.param("/%7Ea", "/~a", id="needless-escape"),
        pytest.param("/?q=a+b", "/?q=a%20b", id="space-in-query"),
    ],
)
def test_canonicalise_url_makes_one_of(one: str, other: str) -> None:
    assert canonicalise_url(f"http://h.test{one}") == canonicalise_url(f"http://h.test{other}")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("http://h.test/?x=1&x=2", "http://h.test/?x=1&y=2", id="U16-keys"),
        pytest.param("http://h.test/?x=1&x=2", "http://h.test/?x=1", id="U16-repeated-key"),
        pytest.param("http://h.test/90%", "http://h.test/90%25", id="U11-percent"),
        pytest.param("http://h.test/a%2Fb", "http://h.test/a/b", id="U11-slash"),
        pytest.param("http://h.test/%5Cdoc", "http://h.test//doc", id="U14-backslash"),
        pytest.param("http://h.test/Up", "http://h.test/up", id="U10-case"),
        pytest.param("http://h.test/content/", "http://h.test/content", id="U12-slash"),
        pytest.param("http://h.test/", "https://h.test/", id="scheme"),
        pytest.param("http://h.test/", "http://h.test:8080/", id="port"),
        pytest.param("http://h.test/a%3Fb", "http://h.test/a?b", id="question-mark"),
    ],
)
def test_canonicalise_url_keeps_apart(one: str, other: str) -> None:
    assert canonicalise_url(one) != canonicalise_url(other)


@pytest.mark.parametrize(
    ("url", "site", "host"),
    [
        pytest.param("http://h.test/a", "h.test", "h.test", id="http-80"),
        pytest.param("https://h.test/a", "h.test", "h.test", id="https-443"),
        pytest.param("http://h.test:8080/", "h.test:8080", "h.test", id="U7-other-port"),
        pytest.param("https://h.test:80/", "h.test:80", "h.test", id="https-80"),
        pytest.param("http://h/?u=http://x.test:1/", "h", "h", id="one-letter"),
        pytest.param("http://[::1]/", "[::1]", "[::1]", id="ipv6"),
        pytest.param("https://[::1]:8443/", "[::1]:8443", "[::1]", id="ipv6-port"),
    ],
)
def test_site_of_is_host_and_port(url: str, site: str, host: str) -> None:
    assert (site_of(url), host_of(url)) == (site, host)


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        pytest.param("h.test", "h.test", id="unlisted-suffix"),
        pytest.param("a.b.h.test", "h.test", id="below-unlisted-suffix"),
        pytest.param("www.example.co.uk", "example.co.uk", id="two-label-suffix"),
        pytest.param("docs.me.github.io", "me.github.io", id="hosting-service"),
        pytest.param("github.io", "github.io", id="bare-hosting-suffix"),
        pytest.param("co.uk", "co.uk", id="bare-suffix"),
        pytest.param("com", "com", id="top-level"),
        pytest.param("a.xn--bcher-kva.de", "xn--bcher-kva.de", id="punycode"),
        pytest.param("localhost", "localhost", id="localhost"),
        pytest.param("127.0.0.1", "127.0.0.1", id="ipv4"),
        pytest.param("[::1]", "[::1]", id="ipv6"),
    ],
)
def test_registrable_domain(host: str, domain: str) -> None:
    assert registrable_domain(host) == domain


ALPHABET = st.sampled_from(
    [*"aZ09-._~:@!$&'()*+,;=|/\\?#[]{}^` \t\n<>\"\0é日\u00a0\ud800", "%3d", "%2F", "%2e", "%25", "%"]
)
TEXT = st.lists(ALPHABET, max_size=12).map("".join)
REFERENCES = st.one_of(
    TEXT, st.tuples(st.sampled_from(["//", "http://", "HTTPS:", "http://h.test:80", "/"]), TEXT)
).map(lambda value: value if isinstance(value, str) else "".join(value))
ENCODINGS = st.sampled_from(["utf-8", "iso-8859-1", "windows-1251", "shift_jis", "iso-2022-jp", "gb18030", "utf-16"])


@settings(deadline=None)
@given(REFERENCES, ENCODINGS)
@example("//u:p@h.test.:80/a@b#c@d", "utf-8")
def test_a_joined_url_is_normalised_and_bare(reference: str, encoding: str) -> None:
    try:
        url = join_url(PAGE, reference, encoding)
    except ValueError:
        url = None
    assume(url is not None)
    assert url is not None

    assert normalise_url(url) == url
    assert join_url(PAGE, url, encoding) == url
    assert join_location(PAGE, url.encode()) == url
    assert url.isascii()
    assert "#" not in url
    assert re.fullmatch(r"https?://[^/@?#]*[^/@?#.:](:[0-9]+)?/.*", url)
    assert url == f"{url.partition('//')[0]}//{site_of(url)}{url[url.index('/', 8) :]}"


NEARLY_PLAIN = st.text(st.sampled_from("ab.-_~/?#0%:;=&+,@\\ \t\né"), max_size=12)
UP = st.builds("../".__mul__, st.integers(0, 4))
BASES = st.sampled_from(
    [
        "http://h.test/",
        "https://h.test:81/a/b/c?d/e",
        "http://h.test//a//b/",
        "http://u:p@h.test/a/b/c",
        "http://h.test./a/b",
        "http://[::1]:8/a/b",
        "http://h.test/a;x/.b./c;",
        "mailto:a@h.test",
    ]
)


@settings(deadline=None, max_examples=1_000)
@given(BASES, st.one_of(NEARLY_PLAIN, st.builds("{}{}".format, st.one_of(UP, st.just("/"), BASES), NEARLY_PLAIN)))
def test_plain_links_are_joined_as_all_others_are(base: str, reference: str) -> None:
    def outcome(join: Callable[[], str | None]) -> str | None:
        try:
            return join()
        except ValueError:
            return "malformed"

    def by_the_parser() -> str | None:
        href = ada_url.join_url(base, reference)
        return normalise_url(href) if href.startswith(("http:", "https:")) else None

    assert outcome(lambda: join_url(base, reference)) == outcome(by_the_parser)


@settings(deadline=None)
@given(st.binary(max_size=20))
def test_a_location_is_followed_as_a_normalised_url_or_refused(location: bytes) -> None:
    try:
        result = join_location(PAGE, location)
    except ValueError as error:
        result = str(error)

    assert (
        re.fullmatch(r"(empty|malformed) redirect|redirect to a [a-z0-9+.-]+: URL", result)
        or normalise_url(result) == result
    )


@settings(deadline=None)
@given(REFERENCES)
# A stray % before an escape is left out: w3lib unescapes once, so that "%%361" becomes "%61", a key of its own.
def test_canonicalising_twice_changes_nothing(reference: str) -> None:
    assume(not re.search(r"%(?![0-9A-Fa-f]{2})", reference))
    try:
        url = join_url(PAGE, reference)
    except ValueError:
        url = None
    assume(url is not None)
    assert url is not None

    assert canonicalise_url(canonicalise_url(url)) == canonicalise_url(url)


@settings(deadline=None)
@given(
    st.sampled_from(["http://h.test", "https://a-b.xn--bcher-kva.test:8080", "http://127.0.0.1", "http://.a..b"]),
    st.text(st.characters(max_codepoint=0x7F), max_size=20),
)
@example("http://h.test", "-._~!$&'()*+,=:@|")
@example("http://h.test", ".well-known//x../...")
@example("http://[::ffff:7f00:1]", "a;")
def test_canonicalise_url_agrees_with_w3lib(host: str, path: str) -> None:
    url = normalise_url(f"{host}/{path}")

    assert canonicalise_url(url) == canonicalize_url(url)


@pytest.mark.parametrize("label", ["a", "a" * 63, "a" * 64, "-", "a" * 300])
def test_canonicalise_url_agrees_with_w3lib_on_long_and_odd_hosts(label: str) -> None:
    url = normalise_url(f"http://{label}.test:81/x")

    assert canonicalise_url(url) == canonicalize_url(url)
