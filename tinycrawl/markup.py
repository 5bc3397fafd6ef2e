"""What an HTML page says: its text, its links, and what it asks of robots."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser
from w3lib.encoding import html_body_declared_encoding, http_content_type_encoding, read_bom, to_unicode

# Python codecs that are no charsets of the web: like UTF-7, which w3lib refuses, they can spell "<" in other bytes.
_NOT_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
_PROBE = b"<a>"

# One query, since its matches come in document order.
_QUERY = "a[href], area[href], frame[src], iframe[src], base[href], meta[content]"

# https://html.spec.whatwg.org/multipage/semantics.html#shared-declarative-refresh-steps
_REFRESH = re.compile(
    r"[\t\n\f\r ]*[0-9.]+(?=[\t\n\f\r ;,])[\t\n\f\r ]*[;,]?[\t\n\f\r ]*"
    r"(?:[Uu][Rr][Ll][\t\n\f\r ]*=[\t\n\f\r ]*)?(?P<quote>[\"']?)"
)
_SEPARATORS = re.compile(r"[\s,]+")
# A robot's name before a colon; not the rest of a date that has a comma: `unavailable_after: Friday, 25-Jun-10 15:00`.
_ROBOTS_SCOPE = re.compile(r"\s*(?P<name>[A-Za-z_*][^\s:]*)\s*:(?P<rest>.*)", re.DOTALL)
_ROBOTS_PARAMETERS = frozenset({"max-image-preview", "max-snippet", "max-video-preview", "unavailable_after"})


class Link(NamedTuple):
    """The *href* of a link as the page gives it (character references decoded), and whether it is ``rel=nofollow``."""

    href: str
    nofollow: bool


@dataclass(frozen=True, slots=True)
class Markup:
    """What `read_markup` found; *base* is None where no ``<base>`` has an address."""

    base: str | None
    links: list[Link]
    noindex: bool
    nofollow: bool


def decode_body(body: bytes, content_type: str | None) -> tuple[str, str]:
    """Return the text of *body* and the Python name of its encoding.

    The byte order mark decides (it is not part of the text), then the charset of the Content-Type header, then the
    first declaration in the page, else UTF-8 if *body* is valid UTF-8, else cp1252. As in browsers, ISO-8859-1 and
    US-ASCII mean cp1252; labels that name no charset, and a UTF-16 that the page declares in ASCII, count as absent.
    What cannot be decoded becomes U+FFFD.
    """
    encoding, bom = read_bom(body)
    if encoding is not None and bom is not None:
        return to_unicode(body[len(bom) :], encoding), encoding
    encoding = http_content_type_encoding(content_type)
    if encoding is None or not _is_charset(encoding):
        encoding = html_body_declared_encoding(body)
        if encoding is None or not _is_charset(encoding) or not is_ascii_superset(encoding):
            try:
                return body.decode(), "utf-8"
            except UnicodeDecodeError:
                encoding = "cp1252"
    elif encoding in {"utf-16", "utf-32"}:  # markup starts with ASCII: the place of its zero bytes tells the order
        encoding += "-be" if body.startswith(b"\0") else "-le"
    return to_unicode(body, encoding), encoding


@lru_cache(maxsize=256)
def _is_charset(encoding: str) -> bool:
    try:
        _PROBE.decode(encoding, "replace")
    except (LookupError, UnicodeError):  # base64 and the like
        return False
    return encoding not in _NOT_CHARSETS


@lru_cache(maxsize=256)
def is_ascii_superset(encoding: str) -> bool:
    """Whether ASCII bytes are markup in *encoding*: not so in UTF-16, UTF-32 and EBCDIC."""
    return _PROBE.decode(encoding, "replace") == _PROBE.decode("ascii")


def read_markup(text: str, robots_name: str = "tinycrawl") -> Markup:
    """Read an HTML page as a browser without scripts does; any text will do.

    - links: of ``<a>``, ``<area>``, ``<frame>`` and ``<iframe>``, in document order, duplicates kept. The target of
      the first meta refresh that has one comes before them all.
    - base: of the first ``<base href>``, wherever it stands.
    - noindex, nofollow: all metas named ``robots`` or *robots_name* together.
    """
    base: str | None = None
    refresh = ""
    links: list[Link] = []
    directives: set[str] = set()
    for node in LexborHTMLParser(text).css(_QUERY):
        attributes = node.attributes
        tag = node.tag
        if tag == "meta":
            content = attributes.get("content") or ""
            if (attributes.get("http-equiv") or "").lower() == "refresh":
                refresh = refresh or _refresh_target(content)
            if (attributes.get("name") or "").strip().lower() in {"robots", robots_name.lower()}:
                directives.update(_SEPARATORS.split(content.lower()))
            continue
        name = "src" if tag in {"frame", "iframe"} else "href"
        if name not in attributes:  # an SVG link's xlink:href matches the query too
            continue
        value = attributes.get(name) or ""  # None: the attribute has no value
        if tag == "base":
            base = value if base is None else base
        elif value or name == "href":  # an empty href leads to the page's base, an empty src to about:blank
            rel = attributes.get("rel") if name == "href" else None
            links.append(Link(value, rel is not None and "nofollow" in rel.lower().split()))
    if refresh:
        links.insert(0, Link(refresh, False))
    return Markup(base, links, *_read_directives(directives))


def _refresh_target(content: str) -> str:
    match = _REFRESH.match(content)
    if match is None:
        return ""
    target = content[match.end() :]
    quote = match["quote"]
    return (target.partition(quote)[0] if quote else target).strip()


def _read_directives(directives: set[str]) -> tuple[bool, bool]:
    is_none = "none" in directives
    return is_none or "noindex" in directives, is_none or "nofollow" in directives


def robots_header(values: Iterable[str], robots_name: str = "tinycrawl") -> tuple[bool, bool]:
    """Return (noindex, nofollow) of the X-Robots-Tag header *values*.

    ``tinycrawl: noindex`` is for the robot named only, and so are the directives that follow it in the same value.

    >>> robots_header(["googlebot: noindex, nofollow", "nofollow"])
    (False, True)
    """
    ours = {"*", "robots", robots_name.lower()}
    directives: set[str] = set()
    for value in values:
        is_ours = True
        for part in value.lower().split(","):
            match = _ROBOTS_SCOPE.match(part)
            if match is not None and match["name"] not in _ROBOTS_PARAMETERS:
                is_ours = match["name"] in ours
                part = match["rest"]
            if is_ours:
                directives.update(part.split())
    return _read_directives(directives)
