"""Legacy encodings as browsers have them, where Python's codecs differ: the text of pages, and the queries of links.

The standard is https://encoding.spec.whatwg.org/. What is not named here is the same in Python, but for 194 pairs of
bytes of Big5, which it reads otherwise or not at all. Encodings are named as w3lib does.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from functools import lru_cache

from w3lib.encoding import resolve_encoding, to_unicode

_MOST_ERRORS = 20_000  # in one text; with more it is no text in that encoding
_PRINTABLE = bytes(range(0x20, 0x7F))


def decode(body: bytes, name: str) -> str:
    r"""Decode *body*; what cannot be decoded becomes U+FFFD.

    >>> decode(b"\xad\xa1\xa1\xc1", "euc_jp"), decode(b"\x81", "cp1252")
    ('①～', '\x81')
    """
    if name in _SINGLE_BYTE:
        return codecs.charmap_decode(body, "replace", _characters(name))[0]
    text = body.decode(name, "replace")
    if 0 < text.count("\ufffd") <= _MOST_ERRORS:  # seldom: what is exact takes microseconds for each of them
        text = body.decode(name, "tinycrawl.japanese") if name in {"euc_jp", "iso2022_jp"} else to_unicode(body, name)
    for ours, theirs in zip(*_SPELLINGS.get(name, ("", "")), strict=True):
        text = text.replace(ours, theirs)
    return text


@lru_cache(maxsize=1_000)
def encoder_name(encoding: str) -> str:
    """Return the name of the encoder for a page in *encoding*; ``utf-8`` for UTF-16 and for what is no charset.

    >>> encoder_name("iso-8859-1"), encoder_name("gb2312"), encoder_name("utf-16"), encoder_name("no such")
    ('cp1252', 'gbk', 'utf-8', 'utf-8')
    """
    name = resolve_encoding(encoding)
    if name == "gb18030" and "18030" not in encoding:
        return "gbk"  # w3lib names the decoder, which is one for both
    try:
        if name is not None and _PRINTABLE.decode().encode(name) == _PRINTABLE:
            return name
    except (LookupError, UnicodeError):
        pass
    return "utf-8"


def encode(text: str, name: str) -> bytes:
    r"""Encode *text*; what the encoder lacks becomes a character reference, escaped, as in HTML forms.

    >>> encode("é=①", "cp1252"), encode("é=①", "cp932")
    (b'\xe9=%26%239312%3B', b'%26%23233%3B=\x87@')
    """
    if name == "iso2022_jp":
        return b"".join(_iso_2022_jp(text))
    return b"".join([char.encode() if char < "\x80" else _encode(char, name) or _reference(char) for char in text])


@lru_cache(maxsize=16_384)
def _encode(char: str, name: str) -> bytes:
    """The bytes of a *char* that is not ASCII; none if the encoder lacks it."""
    if name in _SINGLE_BYTE:
        byte = -1 if char == _NONE else _characters(name).find(char)
        return bytes([byte]) if byte >= 0 else b""
    exceptions, rule = _EXCEPTIONS.get(name, {}), _RULES.get(name)
    if char in exceptions:
        return exceptions[char]
    return rule(char) if rule else char.encode(name, "ignore")


def _reference(char: str) -> bytes:
    return b"%%26%%23%d%%3B" % ord(char)


def _table(words: str) -> dict[str, bytes]:
    """Of words that are a character and its bytes, none if it is not written."""
    return {word[0]: bytes.fromhex(word[1:]) for word in words.split()}


# One byte: in the code pages of Windows, bytes from 80 to 9F without another meaning are controls.

_NONE = "\ufffe"  # in what codecs.charmap_decode takes
_SINGLE_BYTE = {f"cp{number}": "" for number in (874, *range(1250, 1259))} | {"cp1255": "\u05baCA", "koi8-u": "ўAE ЎBE"}


@lru_cache
def _characters(name: str) -> str:
    chars = [bytes([byte]).decode(name, "ignore") or (chr(byte) if byte < 0xA0 else _NONE) for byte in range(256)]
    for char, data in _table(_SINGLE_BYTE[name]).items():
        chars[data[0]] = char
    return "".join(chars)


# Chinese


def _gbk(char: str) -> bytes:
    data = char.encode("gb18030", "ignore")
    return data if len(data) == 2 else b""


def _big5(char: str) -> bytes:
    data = char.encode("big5hkscs", "ignore")
    return data if data >= b"\xa1" else b""  # Hong Kong's characters before that are only read


# Python has the version of 2000.
_GB18030 = _table(
    "\ue5e5 \ue7c78135F437 ḿA8BC ︐A6D9 ︑A6DB ︒A6DA ︓A6DC ︔A6DD ︕A6DE ︖A6DF ︗A6EC ︘A6ED ︙A6F3"
    " 龴FE59 龵FE61 龶FE66 龷FE67 龸FE6D 龹FE7E 龺FE90 龻FEA0"
)
_BIG5 = _table(
    "¢ £ ¥ • ‾ ∼ ☉ ♁ ､ ¯A1C2 ‧A145 €A3E1 ∕A241 ⊕A1F2 ⊙A1F3 ␡A3E0 ╭A27E ╮A2A1 ╯A2A3 ╰A2A2 仝C6DF 嘅FB48 廐FBF9"
    " 廴C6CF 悤FC6C 无C6D3 猪FE52 癶C6D5 隶C6D7 ﹑A14E ﹨A242 ／A1FE ＼A240 ～A1E3 ￠A246 ￡A247 ￥A244"
) | {chr(0x2400 + number): bytes([0xA3, 0xC0 + number]) for number in range(32)}


# Japanese: the standard's index JIS X 0208, with what NEC and IBM added, is that of cp932.


def _pair(pointer: int) -> bytes:
    lead, trail = divmod(pointer, 188)
    return bytes([lead + (0x81 if lead < 31 else 0xC1), trail + (0x40 if trail < 63 else 0x41)])


@lru_cache
def _jis_x_0208() -> dict[int, str]:
    """Characters by their pointers, without those for private use."""
    chars = {pointer: _pair(pointer).decode("cp932", "replace") for pointer in (*range(8836), *range(10716, 11280))}
    return {pointer: char for pointer, char in chars.items() if len(char) == 1 and char != "\ufffd"}


@lru_cache
def _first_pointers(*, shift_jis: bool) -> dict[str, int]:
    """Shift JIS writes IBM's characters as IBM, not as NEC does."""
    pointers = {
        char: pointer for pointer, char in reversed(_jis_x_0208().items()) if not (shift_jis and 8272 <= pointer < 8836)
    }
    return pointers | {"−": pointers["－"]}


@lru_cache
def _euc_pairs() -> dict[bytes, str]:
    """The characters of two bytes in EUC-JP and in ISO-2022-JP."""
    return {
        bytes([start + pointer // 94, start + pointer % 94]): char
        for pointer, char in _jis_x_0208().items()
        for start in (0x21, 0xA1)
        if pointer < 94 * 94
    }


def _japanese(error: UnicodeError) -> tuple[str, int]:
    """Python knows what NEC and IBM added in cp932 alone."""
    assert isinstance(error, UnicodeDecodeError)
    char = _euc_pairs().get(error.object[error.start : error.start + 2])
    return (char, error.start + 2) if char else ("\ufffd", error.end)


codecs.register_error("tinycrawl.japanese", _japanese)


def _shift_jis(char: str) -> bytes:
    if "｡" <= char <= "ﾟ":
        return char.encode("cp932")
    pointer = _first_pointers(shift_jis=True).get(char)
    return b"" if pointer is None else _pair(pointer)


def _euc_jp(char: str) -> bytes:
    if "｡" <= char <= "ﾟ":
        return b"\x8e" + char.encode("cp932")
    pointer = _first_pointers(shift_jis=False).get(char)
    return b"" if pointer is None else bytes([0xA1 + pointer // 94, 0xA1 + pointer % 94])


def _iso_2022_jp(text: str) -> Iterator[bytes]:
    pointers = _first_pointers(shift_jis=False)
    ascii_, roman, jis_x_0208 = b"\x1b(B", b"\x1b(J", b"\x1b$B"
    state = ascii_
    for char in text:
        pointer = pointers.get(_FULL_WIDTH.get(char, char))
        if pointer is not None:
            needed, data = jis_x_0208, bytes([0x21 + pointer // 94, 0x21 + pointer % 94])
        elif char in _YEN_AND_OVERLINE:
            needed, data = roman, _YEN_AND_OVERLINE[char]
        else:
            needed = roman if state == roman and char not in "\\~" else ascii_
            if char in "\x0e\x0f\x1b":  # they would change the state
                char = "\ufffd"
            data = char.encode() if char < "\x80" else _reference(char)
        if needed != state:
            yield needed
        yield data
        state = needed
    if state != ascii_:
        yield ascii_


_YEN_AND_OVERLINE = _table("¥5C ‾7E")
_FULL_WIDTH = dict(
    zip(
        map(chr, range(0xFF61, 0xFFA0)),
        "。「」、・ヲァィゥェォャュョッーアイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワン゛゜",
        strict=True,
    )
)

_EXCEPTIONS = {
    "gb18030": _GB18030,
    "gbk": _GB18030 | _table("\ue7c7 €80"),
    "big5hkscs": _BIG5,
    "cp932": _YEN_AND_OVERLINE | {"\x80": b"\x80"},
    "euc_jp": _YEN_AND_OVERLINE,
}
_RULES: dict[str, Callable[[str], bytes]] = {"gbk": _gbk, "big5hkscs": _big5, "cp932": _shift_jis, "euc_jp": _euc_jp}
# Characters that Python's decoders give, and those that they are in the standard.
_SPELLINGS = {
    "gb18030": (
        "\ue5e5\ue7c7\ue78d\ue78e\ue78f\ue790\ue791\ue792\ue793\ue794\ue795\ue796"
        "\ue81e\ue826\ue82b\ue82c\ue832\ue843\ue854\ue864",
        "\u3000ḿ︐︒︑︓︔︕︖︗︘︙龴龵龶龷龸龹龺龻",
    ),
    "big5hkscs": ("•､‾∼♁☉¥¢£", "‧﹑¯～⊕⊙￥￠￡"),
    "euc_jp": ("〜‖−¢£¬", "～∥－￠￡￢"),
    "iso2022_jp": ("〜‖−¢£¬", "～∥－￠￡￢"),
}
