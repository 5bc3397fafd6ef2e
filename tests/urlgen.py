"""Generated URLs, hostile and plain, and what two implementations of the URL standard make of them.

Ours is ada's, by tinycrawl.urls; the other one is Chromium's own.
"""

from __future__ import annotations

import html
import json
import subprocess
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import urlsplit

from tinycrawl.urls import join_url, normalise_url

BASES = (
    *("http://h.test/", "http://h.test/dir/p", "http://h.test/a/b/c/?q=1&r=%20", "https://h.test:8443/dir/"),
    *("https://xn--bcher-kva.test/x;y=1/z", "http://127.0.0.1:8080/a//b/", "http://[2001:db8::1]/a/b"),
    *("http://h.test/%2e%2f/C:/x",),
)

_VALID = (
    *("http://h.test/a/b.html?x=1&y=2#top", "https://www.example.org:443/path/to/page/"),
    *("http://user:secret@h.test:8080/x?q=a+b", "//cdn.h.test/lib.js?v=1.2", "/absolute/path;p=1?query=%41"),
    *("../up/./here/../index.html", "?page=2", "#fragment", "a/b/c", "https://bücher.test/straße?grüße=ö#ü"),
    *("http://192.168.0.1/x", "http://[::ffff:192.168.0.1]:81/", "mailto:me@h.test", "http:relative"),
)
_SCHEMES = (
    *("http:", "https:", "HTTP:", "hTtPs:", "http", "ftp:", "file:", "ws:", "wss:", "mailto:", "javascript:", "data:"),
    *("blob:", "tel:", "about:", "http+x:", "ht tp:", "1http:", "ht\ttp:", "htt%70:", "hттp:", "https:\n", ":", ""),
)
_SLASHES = ("//", "//", "//", "//", "/", "", "///", "\\\\", "/\\", "\\/", "////", "/\t/", "/ /")
_USERS = ("", "", "", "", "", "u@", "u:p@", ":@", "@", "u:p@q@", "u%40:p%3a@", "ü:日@", "u\\@", "u/@", "u?@", "a:b:c@")
_DOTS = (
    *(".", "..", "%2e", "%2E", ".%2e", "%2e.", "%2E%2e", "...", "%2e%2e%2e", "%252e", ". ", " .", ".\t.", "%2 e"),
    *("。",),
)
_SEPARATORS = ("/", "/", "/", "/", "\\", "//", "/\n/", "%2f", "%5C", "/./", "\\..\\")
_PORTS = (
    *("", "", "", "", ":", ":80", ":443", ":8080", ":0", ":00080", ":65535", ":65536", ":99999999999999999999"),
    *(":-1", ":+80", ":8 0", ":8\t0", ":0x50", ":a", ":８０", ":80:80", ":%38%30", ":80a", ":80\\", ": 80"),
)
_SPECIAL = [chr(code) for code in range(0x80) if not chr(code).isalnum()]
_UNICODE: tuple[str, ...] = (
    *"éßςÉ日本ЖαΩıİ\u00a0\u00ad\u0085\u200b\u200c\u200d\u2028\u3000\u3002\uff0e\uff61\ufeff\ufffd\uffff\u0301\u0660",
    *("\U0001f600", "\U0001d400", "\U0010ffff", "℡", "㏂", "½", "％", "／", "？", "＃"),
    *("٠", "א", "ك", "\u202e", "\u2060", "ﬀ", "Å", "ſ", "K", "≠", "℀", "。", "＠", "：", "\u180e", "\u17b4", "ẞ", "ᏸ"),
)
_ESCAPES = (
    *("%", "%%", "%4", "%41", "%00", "%0a", "%20", "%25", "%2F", "%5c", "%7f", "%80", "%C3%A9", "%c3", "%ff", "%zz"),
    *("%G0",),
)
_LABELS = (
    *("h", "www", "a-b", "a_b", "-a", "a-", "a--b", "ab--c", "xn--", "xn--a", "xn--bcher-kva", "XN--BCHER-KVA"),
    *("xn--ls8h",),
    *("bücher", "straße", "faß", "βόλος", "日本", "例え", "مثال", "א1", "1א", "a\u200cb", "क्\u200d", "\u00ad"),
    *("ＡＢ", "Ⅷ"),
    *("xn--zca", "xn--ss-", "xn--0", "xn--a-ecp", "xn--1ch", "xn--99999999", "0", "1", "09", "0x", "0xg", "1a"),
    *("*", "%41"),
    *("", "a" * 63, "a" * 64, "é" * 60, "%C3%BC", "%c3", "b%2ec", "☃", "💩", "ſ", "ⓐ", "\u0301a", "\u2260"),
    *("％34１", "․"),
)
_TOPS = (
    *("test", "TEST", "org", "test.", "test..", "test。", "co.uk", "", "1", "0x1", "com%2e", "xn--p1ai", "рф"),
    *("テスト",),
)
_IPV6 = (
    *("::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "::1::", ":1:2:3:4:5:6:7:8"),
    *("1:::2",),
    *("::ffff:1.2.3.4", "::1.2.3", "::1.2.3.4.5", "::256.0.0.1", "::01.2.3.4", "1:2:3:4:5:6:1.2.3.4"),
    *("1.2.3.4::", "0:0:1::0"),
    *("::00001", "::fFfF", "::g", "::1%25eth0", "::1%eth0", "", ":", "1:0:0:2:0:0:0:3", "1:0:2:0:3:0:4:0"),
    *("::1.2.3.4:5", "v1.a"),
)


def _ipv4(random: Random) -> str:
    """One to five numbers in decimal, octal or hexadecimal, up to and beyond what an address holds."""
    values = [
        random.choice([0, 1, 7, 8, 127, 255, 256, 65535, 65536, 2**24, 2**32 - 1, 2**32, 2**64]) for _ in range(8)
    ]
    forms = (
        *("{:d}", "{:d}", "0{:o}", "0x{:x}", "0X{:X}", "00{:d}", "{:d}.", "0x", "0{:d}8", "%3{:d}", "{:d}a"),
        *("-{:d}", "+{:d}"),
    )
    return ".".join(random.choice(forms).format(value) for value in values[: random.randint(1, 5)])


def _name(random: Random) -> str:
    return ".".join([*random.choices(_LABELS, k=random.choice((0, 1, 1, 1, 2, 3))), random.choice(_TOPS)])


def _odd_name(random: Random) -> str:
    """A host with one character in it that is forbidden, mapped away or odd."""
    odd = random.choice((random.choice(_SPECIAL), random.choice(_UNICODE), random.choice(_ESCAPES)))
    name = random.choice(("h.test", "a.b", "127.0.0.1", "xn--bcher-kva.test", "é.test"))
    at = random.randint(0, len(name))
    return f"{name[:at]}{odd}{name[at:]}"


def _escaped_name(random: Random) -> str:
    name = random.choice(
        ("h.test", "127.0.0.1", "bücher.test", "a/b", "a b", "[::1]", "0x7f.1", "日本.test", "a%b", "h.test.")
    )
    return "".join(
        f"%{byte:02x}" if random.random() < 0.4 else chr(byte) if byte < 0x80 else f"%{byte:02X}"
        for byte in name.encode()
    )


def _any_character(random: Random) -> str:
    """A character from anywhere, the planes in which nearly all names are written being likelier."""
    code = random.randrange(random.choice((0x250, 0x600, 0x3000, 0x11000, 0x20000, 0x110000)))
    return chr(code if not 0xD800 <= code < 0xE000 else code - 0x800)


def _any_name(random: Random) -> str:
    odd = "".join(_any_character(random) for _ in range(random.randint(1, 3)))
    return f"{odd}{random.choice(('', 'a', 'é', '1'))}.test"


def _host(random: Random) -> str:
    make = random.choice((_name, _name, _name, _ipv4, _odd_name, _odd_name, _escaped_name, _any_name, None))
    if make is not None:
        return make(random)
    address = random.choice(_IPV6)
    return random.choice(("[{}]", "[{}]", "[{}]", "[{}", "{}]", "[{}]a", "a[{}]", "[[{}]]")).format(address)


def _piece(random: Random) -> str:
    kind = random.random()
    if kind < 0.25:
        return random.choice(_DOTS)
    if kind < 0.4:
        return random.choice(_SPECIAL)
    if kind < 0.5:
        return random.choice(_ESCAPES)
    if kind < 0.6:
        return random.choice(_UNICODE)
    if kind < 0.63:
        return _any_character(random)
    return random.choice(
        ("a", "b.html", "C:", "c|", "index.php", "x;y=1", "1", "~u", "A%2f", ".well-known", "p:1", "@", "")
    )


def _path(random: Random) -> str:
    return "".join(f"{random.choice(_SEPARATORS)}{_piece(random)}" for _ in range(random.choice((0, 0, 1, 1, 2, 3, 5))))


def _query(random: Random) -> str:
    if random.random() < 0.6:
        return ""
    return random.choice("??#") + "".join(_piece(random) for _ in range(random.randint(0, 4)))


def _whole(random: Random) -> str:
    scheme = random.choice(_SCHEMES if random.random() < 0.3 else ("http:", "https:"))
    slashes = random.choice(_SLASHES)
    user = random.choice(_USERS)
    return (
        f"{scheme}{slashes}{user}{_host(random)}{random.choice(_PORTS)}{_path(random)}{_query(random)}{_query(random)}"
    )


def _relative(random: Random) -> str:
    start = random.choice(
        ("", "", "/", "//", "\\", "./", "../", "..", "?", "#", "http:", "https:", "HTTP:/", "h.test:", "%2e%2e/")
    )
    return f"{start}{_piece(random)}{_path(random)}{_query(random)}{_query(random)}"


def _mutated(random: Random) -> str:
    """A valid URL with one to four characters added, lost, doubled, exchanged or replaced."""
    text = list(random.choice(_VALID))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(text) + 1)
        other = random.choice(
            (random.choice(_SPECIAL), random.choice(_UNICODE), random.choice(_ESCAPES), random.choice(_DOTS))
        )
        action = random.randrange(5)
        if action == 0:
            text.insert(at, other)
        elif action == 1:
            del text[at : at + 1]
        elif action == 2:
            text[at:at] = text[at : at + 3]
        elif action == 3:
            text[at : at + 1] = [other]
        else:
            random.shuffle(text[at : at + 2])
            text[at : at + 2] = reversed(text[at : at + 2])
    return "".join(text)


def _soup(random: Random) -> str:
    alphabet = random.choice((_SPECIAL, [*_SPECIAL, *_ESCAPES], [*"/\\.:?#@%[]", "%2e", "h"], _UNICODE))
    return random.choice(("", "", "http:", "http://", "//", "http://h.test/", "/")) + "".join(
        random.choices(alphabet, k=random.randint(0, 8))
    )


def _long(random: Random) -> str:
    """Something that is fine once, very often."""
    part = random.choice(("a", "a.", "/..", "/a", "%2e/", "\\", "@", ":", "é", "%", "?", "\t", "[", "xn--", "0", "日."))
    start = random.choice(("http://", "http://h.test/", "//h.test?", "/", "", "http://h.test:", "http://u@"))
    end = random.choice(("", "/", ".test/", "@h.test/", "/../x"))
    return f"{start}{part * random.choice((100, 300, 1000, 3000))}{end}"


_KINDS: tuple[tuple[Callable[[Random], str], int], ...] = (
    (_whole, 50),
    (_relative, 20),
    (_mutated, 18),
    (_soup, 11),
    (_long, 1),
)


def generate_urls(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield *count* pairs: a base, which is normalised, and a reference of any kind, absolute or not."""
    random = Random(seed)
    makers, weights = [make for make, _ in _KINDS], [weight for _, weight in _KINDS]
    for _ in range(count):
        reference = random.choices(makers, weights)[0](random)
        if random.random() < 0.05:
            at = random.randint(0, len(reference))
            space = random.choice(("\t", "\n", "\r", " ", "\0", "\x0c", "\x1f", "\u00a0"))
            reference = random.choice(
                (f"{space}{reference}", f"{reference}{space}", f"{reference[:at]}{space}{reference[at:]}")
            )
        yield random.choice(BASES), reference


# What tinycrawl.urls promises, on what Chromium's parser gives: the standard's parts without user, password, fragment,
# empty query, a last empty parameter and the host's last dot. For links an <a> in a page of the encoding, for absolute
# URLs the URL class.
_SCRIPT = """
function finish(parts) {
    if (parts.protocol === ':') return 'malformed';
    if (parts.protocol !== 'http:' && parts.protocol !== 'https:') return null;
    const host = parts.hostname.replace(/\\.$/, '');
    if (host === '' || host.endsWith('.')) return 'malformed';
    const path = parts.pathname.replace(/(\\/[^\\/;]*);$/, '$1');
    return parts.protocol + '//' + host + (parts.port ? ':' + parts.port : '') + path + parts.search;
}
const base = document.head.appendChild(document.createElement('base')), link = document.createElement('a');
function answer([page, reference]) {
    base.href = page;
    link.href = reference;
    let whole;
    try { whole = finish(new URL(reference)); } catch (error) { whole = 'malformed'; }
    return [finish(link), whole];
}
"""
_CHROMIUM = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--dump-dom"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
MALFORMED = "malformed"

Answer = str | None  # a URL, None where it is not http(s), or MALFORMED


def run_in_chromium(script: str, questions: Sequence[object], scratch: Path, encoding: str = "utf-8") -> list[Any]:
    """The answers of *script*'s function ``answer`` to each of *questions*, in a page of *encoding*."""
    data = json.dumps(questions).replace("<", "\\u003c")
    page = scratch / "page.html"
    page.write_text(
        f'<!DOCTYPE html><meta charset="{encoding}"><body><script type="application/json">{data}</script>'
        f"<script>{script}"
        "const questions = JSON.parse(document.querySelector('script').textContent);"
        "document.body.textContent = JSON.stringify(questions.map(answer));</script>",
        encoding="ascii",
    )
    command = [*_CHROMIUM, f"--user-data-dir={scratch / 'profile'}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=300, check=True)
    body = done.stdout.decode().rpartition("<body>")[2].partition("</body>")[0]
    answers: list[Any] = json.loads(html.unescape(body))
    return answers


def ask_chromium(
    pairs: Sequence[tuple[str, str]], scratch: Path, encoding: str = "utf-8"
) -> list[tuple[Answer, Answer]]:
    """What each reference is as a link on its base, in a page of *encoding*, and what it is without a base."""
    return [(joined, whole) for joined, whole in run_in_chromium(_SCRIPT, pairs, scratch, encoding)]


def ask_tinycrawl(pairs: Sequence[tuple[str, str]], encoding: str = "utf-8") -> list[tuple[Answer, Answer]]:
    answers: list[tuple[Answer, Answer]] = []
    for base, reference in pairs:
        joined: Answer
        whole: Answer
        try:
            joined = join_url(base, reference, encoding)
        except ValueError:
            joined = MALFORMED
        try:
            whole = normalise_url(reference)
        except ValueError as error:
            whole = None if str(error) == "not an http(s) URL" else MALFORMED
        answers.append((joined, whole))
    return answers


def _is_url(answer: Answer) -> TypeGuard[str]:
    return answer not in (None, MALFORMED)


def _host_of(answer: Answer) -> str:
    return urlsplit(answer).netloc if _is_url(answer) else ""


def _name_of(one: Answer, other: Answer = None) -> str:
    """The host in Unicode, of whichever answer is a URL."""
    return ".".join(
        label[4:].encode().decode("punycode", "replace") if label.startswith("xn--") else label
        for label in (_host_of(one) or _host_of(other)).split(".")
    )


def _escapes_more(ours: str, theirs: str) -> bool:
    """Whether the only differences are bars in the path and asterisks in the host, which *theirs* escapes."""
    path, mark, query = ours.partition("?")
    rest = f"{path.replace('|', '%7C')}{mark}{query}".removeprefix(f"{urlsplit(ours).scheme}://{_host_of(ours)}")
    return theirs == f"{urlsplit(ours).scheme}://{_host_of(theirs)}{rest}" and (
        _host_of(ours).replace("*", "%2A") == _host_of(theirs) or _name_of(ours).replace("*", "%2A") == _name_of(theirs)
    )


def _has_right_to_left(name: str) -> bool:
    return any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in name)


def _depends_on_unicode(name: str) -> bool:
    """Whether it has a character newer than Unicode 14, which Python 3.11 knows, or a label that starts with a mark."""
    return any(unicodedata.category(char) == "Cn" for char in name) or any(
        unicodedata.category(label[0])[0] == "M" for label in name.split(".") if label
    )


class Kind(NamedTuple):
    """A kind of difference, why it may be, and whether one is of it: the reference, our answer and Chromium's."""

    name: str
    reason: str
    fits: Callable[[str, Answer, Answer], bool]


JUSTIFIED = (
    Kind(
        "never requested",
        "Another scheme than http(s), or malformed. One parser sees the scheme first, the other the fault, and Chromium"
        " takes or refuses other hosts in such schemes than the standard. Nothing is requested either way.",
        lambda reference, ours, theirs: not _is_url(ours) and not _is_url(theirs),
    ),
    Kind(
        "bar in a path, asterisk in a host",
        "| is not in the path percent-encode set (https://url.spec.whatwg.org/#path-percent-encode-set), * is no"
        " forbidden domain code point: both stay. Chromium escapes them.",
        lambda reference, ours, theirs: _is_url(ours) and _is_url(theirs) and _escapes_more(ours, theirs),
    ),
    Kind(
        "space in a host",
        "U+0020 is a forbidden host code point (https://url.spec.whatwg.org/#forbidden-host-code-point): malformed."
        " Chromium escapes it, as it always has; no such name can be looked up.",
        lambda reference, ours, theirs: not _is_url(ours) and "%20" in _host_of(theirs),
    ),
    Kind(
        "IPv6 address",
        "What is in brackets goes to the IPv6 parser as it is (https://url.spec.whatwg.org/#concept-host-parser), and a"
        " number of the IPv4 address in it has no leading zero (#concept-ipv6-parser): malformed. Chromium decodes"
        " escapes and maps characters first, and takes the zero.",
        lambda reference, ours, theirs: not _is_url(ours) and _host_of(theirs).startswith("["),
    ),
    Kind(
        "percent that IDNA makes",
        "A full-width percent sign becomes % after the one time that a host is decoded, and % is a forbidden domain"
        " code point: malformed. Chromium decodes again.",
        lambda reference, ours, theirs: (
            not _is_url(ours) and _is_url(theirs) and not {"％", "﹪"}.isdisjoint(reference)
        ),
    ),
    Kind(
        "long host",
        "The standard asks for ToASCII with VerifyDnsLength false, and Chromium's buffer for it has an end. No name in"
        " DNS has more than 253 characters.",
        lambda reference, ours, theirs: len(_host_of(ours)) > 253 and not _is_url(theirs),
    ),
    Kind(
        "right-to-left host",
        "ToASCII is asked for with CheckBidi true: where one label of a name is right-to-left, all must keep the rule."
        " ada checks each label alone, like Firefox. No registry gives out such names, so they lead nowhere.",
        lambda reference, ours, theirs: _is_url(ours) != _is_url(theirs) and _has_right_to_left(_name_of(ours, theirs)),
    ),
    Kind(
        "version of Unicode",
        "Which characters a name may have, and which are marks that may not begin one, differs by the version of"
        " Unicode, and the standard asks for none. ada has not all marks of Unicode 14 and later.",
        lambda reference, ours, theirs: (
            _is_url(ours) != _is_url(theirs) and _depends_on_unicode(_name_of(ours, theirs))
        ),
    ),
)


def kind_of_difference(reference: str, ours: Answer, theirs: Answer) -> str | None:
    """The name of the first justified kind that fits; None for a fault."""
    return next((kind.name for kind in JUSTIFIED if kind.fits(reference, ours, theirs)), None)
