"""What a page says: its encoding, its links in order, its base, and its words for robots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinycrawl.markup import Link, Markup, decode_body, is_ascii_superset, read_markup, robots_header

RUSSIAN = "Привет <a href=/x>"
HTML = "text/html"
# fmt: off
LABELS = [
    "utf-8", "utf-8-sig", "utf-16", "utf-16le", "utf-32", "utf-32be", "utf-7", "gb18030", "hz", "iso-2022-jp", "big5",
    "iso-2022-kr", "shift_jis", "euc-kr", "cp037", "charmap", "raw_unicode_escape", "unicode_escape", "idna",
    "punycode", "undefined", "hex", "rot13", "zlib", "bz2", "uu", "x",
]
# fmt: on


def read_hrefs(text: str) -> list[str]:
    return [link.href for link in read_markup(text).links]


@pytest.mark.parametrize(
    ("body", "content_type", "text", "encoding"),
    [
        pytest.param(b"", None, "", "utf-8", id="empty"),
        pytest.param("é".encode(), None, "é", "utf-8", id="utf-8-undeclared"),
        pytest.param(b"\xe9", None, "é", "cp1252", id="not-utf-8-undeclared"),
        pytest.param(b"\x93\xe9\x94", f"{HTML}; charset=ISO-8859-1", "“é”", "cp1252", id="latin-1"),
        pytest.param(b"\x93", f"{HTML}; charset=us-ascii", "“", "cp1252", id="ascii"),
        pytest.param(b"a\xff", f"{HTML}; charset=UTF-8", "a\ufffd", "utf-8", id="invalid-byte"),
        pytest.param(RUSSIAN.encode("cp1251"), f"{HTML}; charset=windows-1251", RUSSIAN, "cp1251", id="C4-header"),
        pytest.param(b"<meta charset=windows-1251>\xcf", HTML, "<meta charset=windows-1251>П", "cp1251", id="C4-meta"),
        pytest.param(
            b'<meta http-equiv=content-type content="text/html; charset=koi8-r">\xf0',
            HTML,
            '<meta http-equiv=content-type content="text/html; charset=koi8-r">П',
            "koi8-r",
            id="meta-http-equiv",
        ),
        pytest.param(
            b"<meta charset=koi8-r>\xcf",
            f"{HTML}; charset=cp1251",
            "<meta charset=koi8-r>П",
            "cp1251",
            id="header-first",
        ),
        pytest.param(b"\xef\xbb\xbfx", f"{HTML}; charset=cp1251", "x", "utf-8", id="bom-first"),
        pytest.param(b"\xff\xfe<\0a\0", HTML, "<a", "utf-16-le", id="C8-utf-16-le-bom"),
        pytest.param(b"\xfe\xff\0<\0a", HTML, "<a", "utf-16-be", id="utf-16-be-bom"),
        pytest.param(b"\xff\xfe\0\0<\0\0\0", HTML, "<", "utf-32-le", id="utf-32-bom"),
        pytest.param(b"<\0a\0", f"{HTML}; charset=utf-16", "<a", "utf-16-le", id="utf-16-no-bom-le"),
        pytest.param(b"\0<\0a", f"{HTML}; charset=utf-16", "<a", "utf-16-be", id="utf-16-no-bom-be"),
        pytest.param(b"\0<\0a", f"{HTML}; charset=utf-16be", "<a", "utf-16-be", id="utf-16be"),
        pytest.param(b"<\0a\0", f"{HTML}; charset=utf-16le", "<a", "utf-16-le", id="utf-16le"),
        pytest.param("<meta charset=utf-16>é".encode(), HTML, "<meta charset=utf-16>é", "utf-8", id="utf-16-in-meta"),
        pytest.param("é".encode(), f"{HTML}; charset=x-no-such", "é", "utf-8", id="unknown-label"),
        pytest.param(b"<meta charset=nope>\xe9", HTML, "<meta charset=nope>é", "cp1252", id="unknown-label-meta"),
        pytest.param(b"+ADw-a", f"{HTML}; charset=utf-7", "+ADw-a", "utf-8", id="utf-7"),
        pytest.param(b"\\u003ca", f"{HTML}; charset=unicode_escape", "\\u003ca", "utf-8", id="unicode-escape"),
        pytest.param(b"3c61", f"{HTML}; charset=hex", "3c61", "utf-8", id="hex"),
        pytest.param(b"a", f"{HTML}; charset=idna", "a", "utf-8", id="idna"),
        pytest.param(b"<meta charset=base64>a", HTML, "<meta charset=base64>a", "utf-8", id="base64-meta"),
        pytest.param(b"a", f"{HTML}; charset=" + "x" * 5000, "a", "utf-8", id="long-label"),
    ],
)
def test_decode_body(body: bytes, content_type: str | None, text: str, encoding: str) -> None:
    assert decode_body(body, content_type) == (text, encoding)


@given(
    st.binary(),
    st.sampled_from(LABELS),
)
def test_decode_body_takes_any_bytes_and_label(body: bytes, label: str) -> None:
    for content, header in (
        (body, f"text/html; charset={label}"),
        (b"<meta charset=%b>" % label.encode() + body, None),
    ):
        text, encoding = decode_body(content, header)

        text.encode()  # no lone surrogates
        content.decode(encoding, "replace")
        read_markup(text)


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        *[(name, True) for name in ("utf-8", "cp1252", "cp1251", "gb18030", "shift_jis", "iso2022_jp", "koi8-r")],
        *[(name, False) for name in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "cp037")],
    ],
)
def test_is_ascii_superset(encoding: str, expected: bool) -> None:
    assert is_ascii_superset(encoding) is expected


@pytest.mark.parametrize(
    ("text", "hrefs"),
    [
        pytest.param("", [], id="empty"),
        pytest.param("plain text & <", [], id="no-markup"),
        pytest.param('<a href="http://[bad">1</a><a href="/ok">2</a>', ["http://[bad", "/ok"], id="U2"),
        pytest.param('<a href="\n /a\t\nb ">', ["\n /a\t\nb "], id="U1-raw"),
        pytest.param('<a href="?a=1&amp;b=2"><a href="?a=1&copy=2">', ["?a=1&b=2", "?a=1&copy=2"], id="U15"),
        pytest.param('<a href="?a&reg;b&#233;">', ["?a®bé"], id="U15-references"),
        pytest.param(
            "<!-- <a href=1> --><script>'<a href=2>'</script><textarea><a href=3></textarea>"
            "<noscript><a href=4>x</a></noscript>",
            ["4"],
            id="U19",
        ),
        pytest.param(
            "<title><a href=1></title><style><a href=2></style><xmp><a href=3></xmp><template><a href=4></template>"
            "<iframe><a href=5></iframe><head><noscript><a href=6></noscript></head>",
            ["6"],
            id="U19-other-text",
        ),
        pytest.param("<!-- a -- <a href=1> --!><a href=2><!--><a href=3>", ["2", "3"], id="U19-odd-comments"),
        pytest.param(
            "<iframe src=1></iframe><a href=2>x</a><map><area href=3></map><link rel=next href=4><img src=5>",
            ["1", "2", "3"],
            id="U20",
        ),
        pytest.param("<frameset><frame src=1><frame src=2></frameset>", ["1", "2"], id="U20-frameset"),
        pytest.param("\0<p>a\0b</p><a href=/x>\0</a>", ["/x"], id="U21"),
        pytest.param("<div>" * 3000 + "<a href=/x>", ["/x"], id="U22-nested"),
        pytest.param("<p><b>" * 3000 + "<a href=/x>", ["/x"], id="U22-unclosed"),
        pytest.param("<table><tr><td>" * 3000 + "<a href=/x>", ["/x"], id="U22-tables"),
        pytest.param("<a href=/x></a>" * 10_000, ["/x"] * 10_000, id="10000-links"),
        pytest.param("<A HREF=/x>1</A><a href='/x'>2</a>", ["/x", "/x"], id="case-and-duplicates"),
        pytest.param("<a href=1 href=2>", ["1"], id="first-attribute"),
        pytest.param('<a href>1</a><a href="">2</a><a name=x>3</a>', ["", ""], id="empty-href"),
        pytest.param("<iframe src></iframe><iframe src=''></iframe>", [], id="empty-src-is-about-blank"),
        pytest.param(
            "<svg><area href=/s><frame src=/s><iframe src=/s></iframe></svg><a href=/u>", ["/u"], id="names-of-svg"
        ),
        pytest.param("<math><a href=/m>m</a><mi><a href=/n>n</a></mi></math><a href=/u>", ["/n", "/u"], id="math"),
        pytest.param("<svg><a href=/s></a><a xlink:href=/t></a></svg>", ["/s", "/t"], id="svg"),
        pytest.param("<svg><desc><a xlink:href=/t></a></desc></svg><a xlink:href=/u>", [], id="not-svg"),
        pytest.param("<table><a href=1><tr><td><a href=2></table>", ["1", "2"], id="foster-parent"),
        pytest.param("<a href='/bücher?ü'>", ["/bücher?ü"], id="non-ascii"),
    ],
)
def test_links(text: str, hrefs: list[str]) -> None:
    assert read_hrefs(text) == hrefs


@pytest.mark.parametrize(
    ("content", "hrefs"),
    [
        pytest.param("60; url=/m", ["/m"], id="R9"),
        pytest.param("5; url='x y'z", ["x y"], id="quoted"),
        pytest.param('0; "x"', ["x"], id="quoted-without-url"),
        pytest.param("0;URL=x", ["x"], id="upper-case"),
        pytest.param("0,x", ["x"], id="comma"),
        pytest.param("0 x", ["x"], id="space"),
        pytest.param("\n 0.5 ; \t url\n=\r x ", ["x"], id="white-space"),
        pytest.param(".5;x", ["x"], id="fraction"),
        pytest.param("0;url", ["url"], id="url-is-the-address"),
        pytest.param("0;url x", ["url x"], id="url-without-equals"),
        pytest.param("0;urls=x", ["urls=x"], id="not-quite-url"),
        pytest.param("0;;x", [";x"], id="one-separator"),
        pytest.param("0; url='x", ["x"], id="open-quote"),
        pytest.param("0;url=a'b", ["a'b"], id="quote-inside"),
        pytest.param("30", [], id="time-only"),
        pytest.param("0;", [], id="nothing-after"),
        pytest.param("0; url=", [], id="empty-url"),
        pytest.param("0; url=' '", [], id="blank-url"),
        pytest.param("", [], id="empty"),
        pytest.param("url=x", [], id="no-time"),
        pytest.param("; url=x", [], id="separator-only"),
        pytest.param("0x", [], id="no-separator"),
        pytest.param("-1;x", [], id="negative"),
        pytest.param("\N{ARABIC-INDIC DIGIT ONE};x", [], id="not-ascii-digit"),
    ],
)
def test_meta_refresh_is_a_link(content: str, hrefs: list[str]) -> None:
    assert read_hrefs(f'<meta http-equiv=Refresh content="{content.replace(chr(34), "&quot;")}">') == hrefs


def test_meta_refresh_is_the_first_link_and_the_first_that_has_an_address() -> None:
    text = (
        "<a href=/b>b</a><meta http-equiv=refresh content=5><noscript>"
        '<meta http-equiv=refresh content="0; url=/m"></noscript><meta http-equiv=refresh content="0; url=/n">'
    )

    assert read_markup(text).links == [Link("/m", False), Link("/b", False)]


@pytest.mark.parametrize(
    ("text", "base"),
    [
        pytest.param("<a href=x>", None, id="none"),
        pytest.param('<base href="http://[bad">', "http://[bad", id="U3"),
        pytest.param(f"<!--{'x' * 5000}--><base href=/d/>", "/d/", id="U4"),
        pytest.param(f"<body>{'x' * 100_000}<base href=/d/>", "/d/", id="U4-in-body"),
        pytest.param("<base target=_top><base href=/1><base href=/2>", "/1", id="first-with-href"),
        pytest.param("<base href><base href=/2>", "", id="empty"),
        pytest.param("<svg><base href=/s></svg><math><base href=/m></math><base href=/2>", "/2", id="not-of-svg"),
        pytest.param("<svg><foreignObject><base href=/2></foreignObject></svg>", "/2", id="within-svg"),
        pytest.param("<!-- <base href=/1> --><template><base href=/2></template>", None, id="not-in-the-document"),
    ],
)
def test_base(text: str, base: str | None) -> None:
    assert read_markup(text).base == base


@pytest.mark.parametrize(
    ("rel", "nofollow"),
    [
        ("ugc nofollow", True),
        ("NoFollow", True),
        ("ugc\nnofollow", True),
        ("nofollow,ugc", False),
        ("dofollow", False),
        ("", False),
    ],
)
def test_rel_nofollow(rel: str, nofollow: bool) -> None:
    assert read_markup(f'<a rel="{rel}" href=/x>').links == [Link("/x", nofollow)]


@pytest.mark.parametrize(
    ("text", "noindex", "nofollow"),
    [
        pytest.param("<meta name=robots content=noindex,nofollow>", True, True, id="U23"),
        pytest.param("<META NAME=ROBOTS CONTENT='NOINDEX'>", True, False, id="upper-case"),
        pytest.param("<meta name=robots content='index, nofollow'>", False, True, id="space"),
        pytest.param("<meta name=robots content='noarchive nofollow'>", False, True, id="space-only"),
        pytest.param("<meta name=robots content=none>", True, True, id="none"),
        pytest.param("<meta name=robots content=noindex><meta name=robots content=nofollow>", True, True, id="several"),
        pytest.param("<meta name=Tinycrawl content=noindex>", True, False, id="ours"),
        pytest.param("<meta name=googlebot content=none>", False, False, id="another"),
        pytest.param("<meta name=robots content='noindexing, all'>", False, False, id="other-words"),
        pytest.param("<meta name=robots><meta content=noindex>", False, False, id="incomplete"),
        pytest.param("<body><p><meta name=robots content=noindex>", True, False, id="in-body"),
        pytest.param("<!-- <meta name=robots content=none> -->", False, False, id="comment"),
    ],
)
def test_meta_robots(text: str, noindex: bool, nofollow: bool) -> None:
    assert read_markup(text) == Markup(None, [], noindex, nofollow)


@pytest.mark.parametrize(
    ("values", "noindex", "nofollow"),
    [
        pytest.param([], False, False, id="absent"),
        pytest.param(["noindex"], True, False, id="U23"),
        pytest.param(["NoIndex, NOFOLLOW"], True, True, id="upper-case"),
        pytest.param(["none"], True, True, id="none"),
        pytest.param(["noindex", "nofollow"], True, True, id="two-headers"),
        pytest.param(["tinycrawl: noindex"], True, False, id="ours"),
        pytest.param(["TinyCrawl : noindex, nofollow"], True, True, id="ours-reaches-on"),
        pytest.param(["googlebot: noindex, nofollow"], False, False, id="another-reaches-on"),
        pytest.param(["googlebot: noindex", "nofollow"], False, True, id="scope-ends-with-the-value"),
        pytest.param(["noindex, googlebot: nofollow"], True, False, id="unscoped-then-another"),
        pytest.param(["googlebot: nofollow, tinycrawl: noindex"], True, False, id="another-then-ours"),
        pytest.param(["unavailable_after: 25 Jun 2010 15:00:00 PST, noindex"], True, False, id="date"),
        pytest.param(["unavailable_after: Friday, 25-Jun-10 15:00:00 PST, noindex"], True, False, id="date-comma"),
        pytest.param(["tinycrawl: max-snippet: 5, noindex"], True, False, id="parameter-in-scope"),
        pytest.param(["googlebot: max-snippet:5, noindex"], False, False, id="parameter-in-another-scope"),
        pytest.param(["*: noindex"], True, False, id="everyone"),
        pytest.param(["noindexed, ,:, all"], False, False, id="other-words"),
    ],
)
def test_robots_header(values: list[str], noindex: bool, nofollow: bool) -> None:
    assert robots_header(values) == (noindex, nofollow)


@given(st.text(st.characters() | st.sampled_from("<>&\"'=/!-\0 ")))
def test_read_markup_takes_any_text(text: str) -> None:
    read_markup(text)
    read_markup(f"<meta http-equiv=refresh content='{text}'><a href='{text}'>")
    robots_header([text])


FILLERS = st.sampled_from(["", "<p>", "</p>", "<b>", "<div>", "</div>", "<ul><li>", "text &", "<!-- <a href=no> -->"])
ADDRESSES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters='\0\r"&'), min_size=1)


@given(st.lists(st.tuples(FILLERS, st.sampled_from(["a href", "area href", "iframe src"]), ADDRESSES, st.booleans())))
def test_links_are_those_written_in_order(parts: list[tuple[str, str, str, bool]]) -> None:
    written = []
    text = "<!doctype html><title>t</title>"
    for filler, start, address, nofollow in parts:
        tag = start.split()[0]
        text += f'{filler}<{start}="{address}"{" rel=nofollow" if nofollow else ""}></{tag}>'
        written.append(Link(address, nofollow and tag != "iframe"))

    assert read_markup(text).links == written
