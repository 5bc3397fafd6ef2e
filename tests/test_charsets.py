"""Legacy encodings as Chromium has them: what it reads, and what it writes into the queries of links."""

from __future__ import annotations

import hashlib
import random
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest

from tinycrawl.charsets import decode, encode, encoder_name
from tinycrawl.markup import decode_body
from tinycrawl.urls import join_url
from urlgen import run_in_chromium

CHARACTERS = [chr(code) for code in (*range(0x80, 0xD800), *range(0xE000, 0x10000), *range(0x20000, 0x2A6E0))]
REFERENCES = [b"%%26%%23%d%%3B" % ord(char) for char in CHARACTERS]

QUERY = """
const link = document.createElement('a');
function answer(query) { link.href = 'http://h.test/?' + query; return link.search.slice(1); }
"""


@pytest.mark.parametrize(
    ("encoding", "written", "digest"),
    [
        ("gbk", 23957, "ad81e0e6a8e9462d"),
        ("gb18030", 106079, "a6ede2baf0659979"),
        ("big5", 14651, "52cacee2c3aba4cd"),
        ("euc-jp", 7392, "76257f835baaf689"),
        ("iso-2022-jp", 7392, "d32c78b8e50e8a43"),
        ("shift_jis", 7393, "b3b5ffc65760f0c0"),
        ("euc-kr", 17048, "c44c18c75f04ee5e"),
        ("windows-874", 120, "dfa123f7076aff86"),
        ("windows-1250", 128, "2f3f8b662fd7f6ca"),
        ("windows-1251", 128, "238fcdfc238967c8"),
        ("windows-1252", 128, "974dfc1960c2718c"),
        ("windows-1253", 125, "a9adcbd3599eec54"),
        ("windows-1254", 128, "d56996ee3bea08c8"),
        ("windows-1255", 118, "86b918fb7d16fdf6"),
        ("windows-1256", 128, "16ee7ea200cb872e"),
        ("windows-1257", 126, "cc50a7f419c94262"),
        ("windows-1258", 128, "921eb34d0b7d73a4"),
        ("koi8-r", 128, "db33616391e0a2b8"),
        ("koi8-u", 128, "c37d9288fc689166"),
        ("iso-8859-2", 128, "775820651012518b"),
        ("iso-8859-7", 125, "df02981581ba6375"),
        ("ibm866", 128, "a822025f8bf74f3e"),
        ("macintosh", 128, "010688888325682f"),
    ],
)
def test_every_character_of_the_bmp_and_of_extension_b_is_escaped_as_in_chromium(
    encoding: str, written: int, digest: str
) -> None:
    """The digests are of Chromium 156's bytes, *written* of which are not character references."""
    name = encoder_name(encoding)
    escapes = [encode(char, name) for char in CHARACTERS]

    assert sum(escape != reference for escape, reference in zip(escapes, REFERENCES, strict=True)) == written
    assert hashlib.sha256(b"|".join(map(unquote_to_bytes, escapes))).hexdigest()[:16] == digest


def test_queries_in_an_encoding_with_states_are_those_of_chromium(tmp_path: Path) -> None:
    chance = random.Random(7)
    pool = "¥‾¥‾abc=&\\~ \t\n\r'\"<>#%?\x0e\x0f\x1b\0\x7f|^`{}[]/;:@éñกЖ−〜～ｱｶﾞﾟ①ⅰ㈱あい漢字\u3099"
    queries = ["¥" + "".join(chance.choices(pool, k=chance.randint(1, 14))) for _ in range(4000)]
    theirs = run_in_chromium(QUERY, queries, tmp_path, "iso-2022-jp")
    ours = [join_url("http://h.test/", f"?{query}", "iso-2022-jp") for query in queries]

    assert len(set(theirs)) > 3500
    assert [
        row
        for row in zip(queries, ours, theirs, strict=True)
        if row[1] != f"http://h.test/{'?' * bool(row[2])}{row[2]}"
    ] == []


@pytest.mark.parametrize(
    ("encoding", "query", "url"),
    [
        pytest.param("iso-2022-jp", "あ\nい", "%1B$B$%22$$%1B(B", id="newline-between"),
        pytest.param("iso-2022-jp", " ¥ ", "%20%1B(J\\%1B(B", id="space-at-the-end"),
        pytest.param("iso-2022-jp", "¥ #x", "%1B(J\\%20%1B(B", id="space-before-a-fragment"),
        pytest.param("iso-2022-jp", "¥a¥", "%1B(J\\a\\%1B(B", id="ascii-in-roman"),
        pytest.param("iso-2022-jp", "あ\x0e", "%1B$B$%22%1B(B", id="shift-out-at-the-end"),
        pytest.param("iso-2022-jp", "あ\x0eb", "%1B$B$%22%1B(B%26%2365533%3Bb", id="shift-out"),
        pytest.param("gbk", "q='漢'&<x>", "q=%27%9Dh%27&%3Cx%3E", id="ascii-as-ever"),
        pytest.param("utf-16", "é", "%C3%A9", id="utf-16-is-utf-8"),
        pytest.param("no such", "é", "%C3%A9", id="unknown-is-utf-8"),
        pytest.param("cp437", "é€", "%82%26%238364%3B", id="python-alone"),
        pytest.param("gbk", "\ud800", "%26%2355296%3B", id="surrogate"),
    ],
)
def test_what_is_around_a_character_is_no_obstacle(encoding: str, query: str, url: str) -> None:
    assert join_url("http://h.test/", f"?{query}", encoding) == f"http://h.test/?{url}"


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("gbk", "gbk"),
        ("GB2312", "gbk"),
        ("gb_2312-80", "gbk"),
        ("chinese", "gbk"),
        ("gb18030", "gb18030"),
        ("iso-8859-1", "cp1252"),
        ("us-ascii", "cp1252"),
        ("shift_jis", "cp932"),
        ("euc-kr", "cp949"),
        ("big5", "big5hkscs"),
        ("utf-7", "utf-8"),
        ("idna", "utf-8"),
        ("base64", "utf-8"),
        ("hz", "utf-8"),
        ("", "utf-8"),
    ],
)
def test_encoders_by_label(label: str, name: str) -> None:
    assert encoder_name(label) == name


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        pytest.param("euc_jp", b"\xad\xa1\xad\xea\xf9\xa1\xfc\xf1", "①㈱纊ⅰ", id="nec-and-ibm-in-euc-jp"),
        pytest.param("euc_jp", b"\xa1\xc1\xa1\xc2\xa1\xdd\xa1\xf1\xa1\xf2\xa2\xcc", "～∥－￠￡￢", id="wide-forms"),
        pytest.param("euc_jp", b'\xad"\xad<\xff\xa2\xaf>\xad', '\ufffd"\ufffd<\ufffd\ufffd\ufffd>\ufffd', id="bad"),
        pytest.param("euc_jp", b"\x8f\xb0\xa1", "丂", id="jis-x-0212-is-read"),
        pytest.param("iso2022_jp", b'\x1b$B-!!A$"\x1b(B-!', "①～あ-!", id="nec-in-iso-2022-jp"),
        pytest.param("cp1252", b"\x80\x81\x8d\x8f\x90\x9d\xe9", "€\x81\x8d\x8f\x90\x9dé", id="controls"),
        pytest.param("cp1253", b"\x81\xaa\xd2\xff", "\x81\ufffd\ufffd\ufffd", id="no-controls-beyond-9f"),
        pytest.param("cp1255", b"\xca\xd9", "\u05ba\ufffd", id="holam-haser"),
        pytest.param("koi8-u", b"\xae\xbe", "ўЎ", id="koi8-u-is-ru"),
        pytest.param("gb18030", b"\x80\xa3\xa0\xa8\xbc\xa6\xda\xfe\xa0", "€\u3000ḿ︒龻", id="gb18030-of-2022"),
        pytest.param("big5hkscs", b"\xa1\x45\xa1\x4e\xa2\x44\xa2\x46\xa1\xe3", "‧﹑￥￠～", id="big5"),
        pytest.param("utf-8", b"\xc3\xa9\xff", "é\ufffd", id="utf-8"),
    ],
)
def test_pages_are_read_by_the_decoders_of_the_standard(name: str, body: bytes, text: str) -> None:
    assert decode(body, name) == text


@pytest.mark.parametrize(
    "name", ["gbk", "gb18030", "euc_jp", "iso2022_jp", "cp932", "cp949", "cp1255", "cp874", "koi8-u"]
)
def test_what_is_read_is_written_and_read_again(name: str) -> None:
    """All but private use and the spellings that are the same in bytes."""
    text = "".join(
        char
        for char in CHARACTERS
        if encode(char, name)[:6] != b"%26%23" and not re.match("[¥‾−｡-ﾟ\ue000-\uf8ff]", char)
    )
    assert decode(encode(text, name), "gb18030" if name == "gbk" else name) == text


@pytest.mark.parametrize(
    ("body", "content_type", "name"),
    [
        pytest.param(b"\x80", "text/html; charset=gbk", "gbk", id="header"),
        pytest.param(b"\x80", "text/html; charset=GB2312", "gbk", id="header-gb2312"),
        pytest.param(b"\x80", 'text/html; charset="GB18030"', "gb18030", id="header-gb18030"),
        pytest.param(b"<meta charset=gbk>\x80", "text/html", "gbk", id="meta"),
        pytest.param(b"<meta charset='gb18030'>\x80", "text/html", "gb18030", id="meta-gb18030"),
        pytest.param(b"<meta charset=gb18030>\x80", "text/html; charset=gbk", "gbk", id="header-wins"),
        pytest.param(b"<p>GB18030<meta charset=gbk>\x80", None, "gbk", id="mere-mention"),
        pytest.param(b'<?xml version="1.0" encoding="GB18030"?>\x80', None, "gb18030", id="xml"),
        pytest.param(b"<p>%b<meta charset=gb18030>\x80" % (b"x" * 5000), None, "gb18030", id="late-gb18030"),
        pytest.param(b"<p>%b<meta charset=gbk>\x80" % (b"x" * 5000), None, "gbk", id="late"),
    ],
)
def test_gbk_and_gb18030_are_told_apart_and_read_alike(body: bytes, content_type: str | None, name: str) -> None:
    text, charset = decode_body(body, content_type)

    assert (text[-1], charset) == ("€", name)
    assert decode_body(body, f"text/html; charset={charset}") == (text, charset)


def test_what_is_no_text_of_its_encoding_is_not_read_error_by_error() -> None:
    """Each that is looked at exactly takes microseconds: a body of nothing else would take minutes."""
    circled = b"\xad\xa1"

    assert decode(circled + b"\xff" * 10_000, "euc_jp") == "①" + "\ufffd" * 10_000
    assert decode(circled + b"\xff" * 1_000_000, "euc_jp").endswith("\ufffd" * 1_000_000)
    assert "①" not in decode(circled + b"\xff" * 1_000_000, "euc_jp")
