"""URLs as strings: the form we request and store, the form we compare, and the parts that scope looks at.

Parsing follows the `WHATWG URL standard <https://url.spec.whatwg.org/>`__, so links mean what they mean in browsers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import ada_url
from w3lib.url import canonicalize_url

from tinycrawl.charsets import encode, encoder_name

if TYPE_CHECKING:
    from tldextract import TLDExtract

_HTTP = ("http://", "https://")

# Scheme, user and password, host, its trailing dot, port: the start of a serialised http(s) URL.
_AUTHORITY = re.compile(r"(https?://)(?:[^/@]*@)?([^/]*?)\.?(:[0-9]+)?/")

# What w3lib's canonicalize_url leaves alone, given a normalised URL: no escape, query, parameter or IPv6 address.
_CANONICAL = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]+)?/[A-Za-z0-9/\-._~!$&'()*+,=:@|]*")

# A last segment's empty parameter.
_EMPTY_PARAMETER = re.compile(r"(https?://[^?]*/[^/;?]*);(?=\?|$)")

# What a path begins with, or a scheme.
_PATH_STARTS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._~-")
_LONGEST_LOCATION = 65_536  # bytes
_CONTROLS_AND_SPACE = "".join(map(chr, range(0x21)))
_WITHOUT_NEWLINES = dict.fromkeys(map(ord, "\t\n\r"))

# https://url.spec.whatwg.org/#special-query-percent-encode-set
_QUERY_BYTES = [f"%{byte:02X}" if byte < 0x21 or byte > 0x7E or byte in b"\"#<>'" else chr(byte) for byte in range(256)]

# A path, perhaps a query and a fragment, in which the parser would change nothing: no escape, dot segment, empty
# segment or parameter. Nearly all links are like this, some with "../" before it; the parser takes ten times as long.
_PLAIN = re.compile(
    r"(?:[A-Za-z0-9_~-][A-Za-z0-9_~.-]*+/)*+(?:[A-Za-z0-9_~-][A-Za-z0-9_~.-]*+)?+"
    r"(?:\?[A-Za-z0-9_~./=&+%,:@$-]++)?+(?=#|\Z)"
)
_NO_PATH = frozenset(("", "?", "#"))  # what a reference to the page itself begins with
_UP = "../"
_LONGEST_FOLDER = 4_096  # characters


def normalise_url(url: str) -> str:
    r"""Return an absolute http(s) URL in the form that is requested and stored.

    - trimmed; tabs and newlines removed; scheme and host in lower case, the host in punycode
    - no fragment, user, password or default port, and no trailing dot of the host
    - dot segments resolved, a backslash before the query is a slash
    - no empty query, no empty parameter at the end of the path: Twisted sends ``/a?`` and ``/a;`` as ``/a``
    - escapes and the order of the query as published

    >>> normalise_url(" HTTP://user:secret@H.Test.:80/a/../Up#top\n")
    'http://h.test/Up'
    >>> normalise_url("https://bücher.test")
    'https://xn--bcher-kva.test/'
    >>> normalise_url("http://h.test/x%3d%2F%5C?")
    'http://h.test/x%3d%2F%5C'
    >>> normalise_url("http:\\\\h.test\\x\\y")
    'http://h.test/x/y'

    :raises ValueError: with a short reason; the URL itself is not in it, since it may hold a password.

    >>> normalise_url("ftp://h.test/")
    Traceback (most recent call last):
    ...
    ValueError: not an http(s) URL
    """
    try:
        href = ada_url.normalize_url(url)
    except ValueError:
        raise ValueError(_explain(url)) from None
    if not href.startswith(_HTTP):
        raise ValueError("not an http(s) URL")
    return _finish(href)


def join_url(base: str, reference: str, encoding: str = "utf-8") -> str | None:
    r"""Resolve *reference*, a link on the page *base*, as browsers do; None if it leads to no http(s) URL.

    >>> join_url("http://h.test/dir/p", " ..\\x\n.html#top ")
    'http://h.test/x.html'
    >>> join_url("http://h.test/", "JavaScript:;") is None
    True

    Non-ASCII characters of the query are escaped in *encoding*, the page's; all others in UTF-8. What *encoding*
    lacks becomes a character reference. UTF-16 and encodings that Python does not know count as UTF-8.

    >>> join_url("http://h.test/", "é?é=Ж", "iso-8859-1")
    'http://h.test/%C3%A9?%E9=%26%231046%3B'

    :param base: an absolute http(s) URL.
    :raises ValueError: the reference is malformed, like ``http://[bad``.
    """
    return make_joiner(base, encoding)(reference)


def make_joiner(base: str, encoding: str = "utf-8") -> Callable[[str], str | None]:
    """Return `join_url` for the links of one page."""
    # What a path leads to depends on the folder of the base alone: pages of one folder share most of their links.
    folder = base
    folders: list[str] = []  # that of the base, the one above it, and so on
    if base.startswith(_HTTP):
        end = base.find("?")
        folder = base[: base.rindex("/", 8, end if end >= 0 else len(base)) + 1]
        folders = _plain_folders(folder)
    root = folders[-1] if folders else ""

    def join(reference: str) -> str | None:
        if root:
            start = 1 if reference[:1] == "/" else len(root) if reference.startswith(root) else 0
            if start:
                if match := _PLAIN.match(reference, start):
                    return f"{root}{reference[start : match.end()]}"
            else:
                while reference.startswith(_UP, start):
                    start += 3
                match = _PLAIN.match(reference, start)
                if match is not None and reference[start : start + 1] not in _NO_PATH:
                    return f"{folders[min(start // 3, len(folders) - 1)]}{match[0]}"
        if reference[:1] == "#":
            reference = "#"  # all are the page itself
        if not reference.isascii() and "?" in reference:
            reference = _encode_query(reference, encoding)
        # `http:` alone is the base itself, for one.
        is_path = reference[:1] in _PATH_STARTS and (":" not in reference or reference.startswith(_HTTP))
        return _join(folder if is_path else base, reference)

    return join


def _plain_folders(folder: str) -> list[str]:
    """The normalised *folder* of a page, and all those above it; none if it is malformed or absurdly long."""
    try:
        if len(folder) > _LONGEST_FOLDER or ada_url.normalize_url(folder) != folder:
            return []
        folders = [_finish(folder)]
    except ValueError:
        return []
    while (end := folders[-1].rindex("/", 0, -1)) > 7:
        folders.append(folders[-1][: end + 1])
    return folders


@lru_cache(maxsize=4_096)
def _join(base: str, reference: str) -> str | None:
    href = ada_url.join_url(base, reference)
    return _finish(href) if href.startswith(_HTTP) else None


def join_base(url: str, reference: str) -> str:
    """Resolve the address of a ``<base>`` as browsers do: one that is malformed, data or a script does not count.

    What it leads to may have another scheme, or take no relative links at all.

    >>> join_base("http://h.test/a", "b/"), join_base("http://h.test/a", "http://[bad")
    ('http://h.test/b/', 'http://h.test/a')
    """
    try:
        base = ada_url.join_url(url, reference)
    except ValueError:
        return url
    return url if base.startswith(("data:", "javascript:")) else base


def join_location(base: str, location: bytes) -> str:
    """Resolve a ``Location`` header against *base*, the URL that was requested.

    Bytes that are not ASCII are escaped as sent, whatever their encoding.

    >>> join_location("http://h.test/a/b", b"caf\\xe9?q=\\xc3\\xa9")
    'http://h.test/a/caf%E9?q=%C3%A9'

    :raises ValueError: with the reason why it cannot be followed.

    >>> join_location("http://h.test/", b"file:///etc/hostname")
    Traceback (most recent call last):
    ...
    ValueError: redirect to a file: URL
    """
    if len(location) > _LONGEST_LOCATION:
        raise ValueError("URL too long")
    reference = "".join([chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in location])
    if not reference.strip():
        raise ValueError("empty redirect")
    try:
        href = ada_url.join_url(base, reference)
        if href.startswith(_HTTP):
            return _finish(href)
    except ValueError:
        raise ValueError("malformed redirect") from None
    raise ValueError(f"redirect to a {href.partition(':')[0][:40]}: URL")


def canonicalise_url(url: str) -> str:
    """Return the key under which a normalised *url* is compared; never request it.

    These are w3lib's rules: the query is sorted and loses its empty form, escapes are written in one way.

    >>> canonicalise_url("http://h.test/a?")
    'http://h.test/a'
    >>> canonicalise_url("http://h.test/?y=2&x=1") == canonicalise_url("http://h.test/?x=1&y=2")
    True
    >>> canonicalise_url("http://h.test/x%3d")
    'http://h.test/x='

    What a server can tell apart stays apart: ``%2F`` and ``/``, ``%25`` and a stray ``%``, http and https.

    >>> canonicalise_url("http://h.test/a%2fb")
    'http://h.test/a%2Fb'
    """
    return url if _CANONICAL.fullmatch(url) else canonicalize_url(url)


class ParameterFilter:
    """Removes parameters that make no difference, like session ids, from normalised URLs.

    :param names: of parameters, in any case; ``*`` stands for any characters and ``?`` for one.

    >>> drop = ParameterFilter(["utm_*", "sid"])
    >>> drop("http://h.test/a;SID=1/b?utm_source=x&q=1&sid"), drop("http://h.test/?sid=2"), drop("http://h.test/sid?aside=1")
    ('http://h.test/a/b?q=1', 'http://h.test/', 'http://h.test/sid?aside=1')
    """

    def __init__(self, names: Sequence[str]) -> None:
        any_name = "|".join(re.escape(name).replace(r"\*", "[^=&;/?]*").replace(r"\?", "[^=&;/?]") for name in names)
        self._has_names = bool(names)
        self._path = re.compile(rf";(?:{any_name})(?:=[^;/?]*)?(?=[;/?]|$)", re.IGNORECASE)
        self._query = re.compile(rf"(?:{any_name})(?:=.*)?", re.IGNORECASE)

    def __bool__(self) -> bool:
        return self._has_names

    def __call__(self, url: str) -> str:
        if not self._has_names or (";" not in url and "?" not in url):
            return url
        start = url.index("/", 8)
        path, mark, query = url[start:].partition("?")
        kept = [part for part in query.split("&") if not self._query.fullmatch(part)]
        return f"{url[:start]}{self._path.sub('', path)}{mark if kept != [''] and kept else ''}{'&'.join(kept)}"


def site_of(url: str) -> str:
    """Return host and port of a normalised *url*; http on 80 and https on 443 are one site, without a port.

    >>> site_of("http://h.test/a") == site_of("https://h.test/b") == "h.test"
    True
    >>> site_of("http://h.test:8080/")
    'h.test:8080'
    """
    return url[8 if url[4] == "s" else 7 : url.index("/", 8)]


def host_of(url: str) -> str:
    """Return the host of a normalised *url*, an IPv6 address in brackets.

    >>> host_of("http://h.test:8080/"), host_of("http://[::1]/")
    ('h.test', '[::1]')
    """
    site = site_of(url)
    if site[0] == "[":
        return site[: site.index("]") + 1]
    return site.partition(":")[0]


@lru_cache(maxsize=1)
def _suffix_list() -> TLDExtract:
    """The public suffix list. Few crawls ask for it, and to load it takes long.

    None is downloaded and none is cached on disk, so a crawl depends on the pinned package alone.
    """
    from tldextract import TLDExtract

    return TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)


@lru_cache(maxsize=10_000)
def registrable_domain(host: str) -> str:
    """Return the part of *host* that one owner registered, by the public suffix list in tldextract.

    Hosting services' suffixes count; a suffix that is not listed has one label, as the list's default rule says.

    >>> registrable_domain("www.example.co.uk"), registrable_domain("me.github.io"), registrable_domain("www.h.test")
    ('example.co.uk', 'me.github.io', 'h.test')

    What has no such part is returned whole: an IP address, a single label, a bare suffix.

    >>> registrable_domain("127.0.0.1"), registrable_domain("localhost"), registrable_domain("co.uk")
    ('127.0.0.1', 'localhost', 'co.uk')
    """
    parts = _suffix_list().extract_str(host)
    if parts.suffix:
        return parts.top_domain_under_public_suffix or host
    labels = host.split(".")
    # In a normalised host only an IPv4 address ends in a number.
    return host if host[0] == "[" or labels[-1].isdigit() else ".".join(labels[-2:])


def is_public_suffix(host: str) -> bool:
    """Whether *host* is a suffix under which anybody may register a name, so that nobody may set cookies for it.

    >>> is_public_suffix("co.uk"), is_public_suffix("example.co.uk"), is_public_suffix("localhost")
    (True, False, False)
    """
    return not _suffix_list().extract_str(host).domain


def _finish(href: str) -> str:
    """Remove from a serialised http(s) URL what the standard keeps: fragment, empty query, user, password, last dot."""
    if "#" in href:
        href = href[: href.index("#")]
    if href[-1] == "?" and href.index("?") == len(href) - 1:
        href = href[:-1]
    if ";" in href and (match := _EMPTY_PARAMETER.match(href)):
        href = match[1] + href[match.end() :]
    if "@" in href or "./" in href or ".:" in href:
        match = _AUTHORITY.match(href)
        if match is None or not match[2] or match[2][-1] == ".":
            raise ValueError("malformed host")  # empty but for its dots
        href = f"{match[1]}{match[2]}{match[3] or ''}{href[match.end() - 1 :]}"
    return href


def _explain(url: str) -> str:
    """Say why the parser refused *url*."""
    scheme = re.match(r"[\x00-\x20]*([A-Za-z][A-Za-z0-9+.-]*):", url)
    if scheme is None:
        return "no scheme, like https://" if url.strip() else "empty"
    if scheme[1].lower() not in ("http", "https"):
        return "not an http(s) URL"
    return "malformed" if url[scheme.end() :].strip("/\\ \t\r\n") else "no host"


def _encode_query(reference: str, encoding: str) -> str:
    encoder = encoder_name(encoding)
    if encoder == "utf-8":
        return reference  # the parser's own
    # As the parser does first, lest what it removes stands between two characters of a stateful encoding.
    url, hash_, fragment = reference.strip(_CONTROLS_AND_SPACE).translate(_WITHOUT_NEWLINES).partition("#")
    path, mark, query = url.partition("?")
    if not query.isascii():
        query = "".join([_QUERY_BYTES[byte] for byte in encode(query, encoder)])
    return f"{path}{mark}{query}{hash_}{fragment}"
