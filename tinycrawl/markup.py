"""What an HTML page says: its text, its links, and what it asks of robots."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode
from w3lib.encoding import (
    html_body_declared_encoding,
    http_content_type_encoding,
    read_bom,
    resolve_encoding,
    to_unicode,
)

from tinycrawl.charsets import decode
from tinycrawl.content import HTML_TYPES, XHTML_TYPE
from tinycrawl.outline import is_costly, outline

# Python codecs that are no charsets of the web: like UTF-7, which w3lib refuses, they can spell "<" in other bytes.
_NOT_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
_PROBE = b"<a>"
_GB18030 = re.compile(rb"(?i:charset|encoding)\s*=\s*[\"']?\s*(?i:gb18030)")

# One query, since its matches come in document order.
_QUERY = "a[href], area[href], frame[src], iframe[src], base[href], meta[content]"

# https://html.spec.whatwg.org/multipage/semantics.html#shared-declarative-refresh-steps
_REFRESH = re.compile(
    r"[\t\n\f\r ]*[0-9.]+(?=[\t\n\f\r ;,])[\t\n\f\r ]*[;,]?[\t\n\f\r ]*"
    r"(?:[Uu][Rr][Ll][\t\n\f\r ]*=[\t\n\f\r ]*)?(?P<quote>[\"']?)"
)
_MOST_SEARCHED = 1 << 20  # bytes; browsers give up sooner
_DECLARATIONS = "meta[charset], meta[content]"  # of an encoding
# https://html.spec.whatwg.org/multipage/parsing.html#html-integration-point
_HTML_WITHIN = {
    "svg": frozenset({"foreignobject", "foreignObject", "desc", "title"}),
    "math": frozenset({"mi", "mn", "mo", "ms", "mtext"}),
}
_FOREIGN = re.compile(r"<(?:svg|math)", re.IGNORECASE)
_MATH = re.compile(r"<math", re.IGNORECASE)
_XML_EMPTY = re.compile(
    r"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)"
    r"|<(script|style|title|textarea|iframe|noscript|noembed|noframes|xmp|a|template)\b"
    r"((?:[^<>\"'/]++|/(?!>)|\"[^\"]*+\"|'[^']*+')*+)/>",  # possessive: else each character is remembered
    re.DOTALL,
)
_SEPARATORS = re.compile(r"[\s,]+")
_TITLE = re.compile(r"<title[\t\n\f\r />]", re.IGNORECASE)
_SIMPLE_TITLE = re.compile(r"<title(?:[\t\n\f\r ][^<>\"']*)?>[^<]*(?=</title[\t\n\f\r />])", re.IGNORECASE)
_ASCII_SPACE = re.compile(r"[\t\n\f\r ]+")
_OUTLINE_BATCH = 5_000  # tags of an outline that are parsed at a time
# A robot's name before a colon; not the rest of a date that has a comma: `unavailable_after: Friday, 25-Jun-10 15:00`.
_ROBOTS_SCOPE = re.compile(r"\s*(?P<name>[A-Za-z_*][^\s:]*)\s*:(?P<rest>.*)", re.DOTALL)
_ROBOTS_PARAMETERS = frozenset({"max-image-preview", "max-snippet", "max-video-preview", "unavailable_after"})


class Link(NamedTuple):
    """The *href* of a link as the page gives it (character references decoded), and whether it is ``rel=nofollow``."""

    href: str
    nofollow: bool


@dataclass(frozen=True, slots=True)
class Markup:
    """What `read_markup` found.

    *base* is None where no ``<base>`` has an address; *surplus* counts the links beyond the limit, which are left out.
    *refreshes*: the first link is the target of a meta refresh.
    """

    base: str | None
    links: list[Link]
    noindex: bool
    nofollow: bool
    surplus: int = 0
    refreshes: bool = False


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
    encoding, declared = http_content_type_encoding(content_type), (content_type or "").encode()
    if encoding is None or not _is_charset(encoding):
        encoding, declared = html_body_declared_encoding(body), body
        if encoding is None or not _is_charset(encoding) or not is_ascii_superset(encoding):
            try:
                return body.decode(), "utf-8"
            except UnicodeDecodeError:
                encoding = _late_encoding(body) or "cp1252"
    elif encoding in {"utf-16", "utf-32"}:  # markup starts with ASCII: the place of its zero bytes tells the order
        encoding += "-be" if body.startswith(b"\0") else "-le"
    text = decode(body, encoding)
    # One decoder, two encoders for the queries of links.
    return text, "gbk" if encoding == "gb18030" and not _GB18030.search(declared) else encoding


def _late_encoding(body: bytes) -> str | None:
    """The encoding that a page declares further down than w3lib looks, or after a label that is none."""
    metas = (tag for tag in outline(body[:_MOST_SEARCHED].decode("latin-1")) if tag[:5].lower() == "<meta")
    for node in (node for batch in _batches(metas) for node in LexborHTMLParser("".join(batch)).css(_DECLARATIONS)):
        label = node.attributes.get("charset")
        if label is None and (node.attributes.get("http-equiv") or "").lower() == "content-type":
            encoding = http_content_type_encoding(node.attributes.get("content"))
        else:
            encoding = resolve_encoding(label or "")
        if encoding is not None and _is_charset(encoding) and is_ascii_superset(encoding):
            return encoding
    return None


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


def read_markup(text: str, robots_name: str = "tinycrawl", max_links: int = 0) -> Markup:
    """Read an HTML page as a browser without scripts does; any text will do.

    - links: of ``<a>``, ``<area>``, ``<frame>`` and ``<iframe>``, in document order, duplicates kept; the first
      *max_links* of them (0 is no limit). The target of the first meta refresh that has one comes before them all.
    - base: of the first ``<base href>``, wherever it stands.
    - noindex, nofollow: all metas named ``robots`` or *robots_name* together.

    Time and memory are bounded by the length of *text*: a page whose tree might be out of proportion is read by its
    outline.
    """
    reader = _Reader(robots_name, max_links)
    if is_costly(text):
        for tags in _batches(outline(text)):
            reader.read("".join(tags))
    else:
        reader.read(text)
    return reader.result()


class _Reader:
    """Gathers what `read_markup` returns from a page, or from the parts of its outline."""

    def __init__(self, robots_name: str, max_links: int) -> None:
        self._robots = {"robots", robots_name.lower()}
        self._max_links = max_links or sys.maxsize
        self._base: str | None = None
        self._refresh = ""
        self._links: list[Link] = []
        self._directives: set[str] = set()
        self._surplus = 0

    def read(self, text: str) -> None:
        links = self._links
        foreign = _FOREIGN.search(text) is not None
        may_be_foreign = {"base", "area", "frame", "iframe"} if foreign else set()
        if foreign and _MATH.search(text):
            may_be_foreign.add("a")  # one of SVG is a link, too
        spaces = _Namespaces()
        tree = LexborHTMLParser(text)
        for node in tree.css(_QUERY):
            attributes = node.attributes
            tag = node.tag
            if tag == "meta":
                self._read_meta(attributes)
                continue
            if tag in may_be_foreign and spaces.of(node) not in ("", "svg" if tag == "a" else ""):
                continue
            name = "src" if tag in {"frame", "iframe"} else "href"
            if name in attributes:
                value = attributes.get(name) or ""  # None: the attribute has no value
            elif tag == "a" and spaces.of(node) == "svg":
                value = attributes.get("xlink:href") or ""
            else:  # the query takes it for an href everywhere
                continue
            if tag == "base":
                self._base = value if self._base is None else self._base
            elif value or name == "href":  # an empty href leads to the page's base, an empty src to about:blank
                if len(links) >= self._max_links:
                    self._surplus += 1
                    continue
                rel = attributes.get("rel") if name == "href" else None
                links.append(Link(value, rel is not None and "nofollow" in rel.lower().split()))

    def result(self) -> Markup:
        if self._refresh:
            self._links.insert(0, Link(self._refresh, False))
            if len(self._links) > self._max_links:
                self._surplus += 1
                del self._links[-1]
        return Markup(self._base, self._links, *_read_directives(self._directives), self._surplus, bool(self._refresh))

    def _read_meta(self, attributes: Mapping[str, str | None]) -> None:
        content = attributes.get("content") or ""
        if (attributes.get("http-equiv") or "").lower() == "refresh":
            self._refresh = self._refresh or refresh_target(content)
        if (attributes.get("name") or "").strip().lower() in self._robots:
            self._directives.update(_SEPARATORS.split(content.lower()))


class _Namespaces:
    """Tells of the elements of one tree which are of SVG or MathML: they may have the names of those of HTML."""

    def __init__(self) -> None:
        self._within: dict[int, str] = {}  # by element: the namespace of what is in it

    def of(self, node: LexborNode) -> str:
        """``svg`` or ``math``; ``""`` is HTML."""
        chain = []
        parent = node.parent
        while parent is not None and parent.mem_id not in self._within:
            chain.append(parent)
            parent = parent.parent
        within = "" if parent is None else self._within[parent.mem_id]
        for element in reversed(chain):
            own = within or (element.tag if element.tag in _HTML_WITHIN else "")
            within = "" if not own or _holds_html(element, own) else own
            self._within[element.mem_id] = within
        return within


def _holds_html(node: LexborNode, foreign: str) -> bool:
    """Does HTML begin again in this element of a *foreign* namespace?"""
    if node.tag == "annotation-xml":
        return foreign == "math" and (node.attributes.get("encoding") or "").lower() in HTML_TYPES
    return node.tag in _HTML_WITHIN[foreign]


def as_html(xhtml: str) -> str:
    """Write the empty elements of XML so that HTML's parser reads them as such: there ``<script/>`` has no end.

    >>> as_html("<script src='x'/><br/>")
    "<script src='x'></script><br/>"
    """
    return _XML_EMPTY.sub(lambda match: f"<{match[1]}{match[2]}></{match[1]}>" if match[1] else match[0], xhtml)


def page_text(body: bytes, charset: str, content_type: str) -> str:
    """The text of a page as stored, for `read_markup` and `read_title`; *charset* is that of *body*."""
    text = decode_body(body, f"text/html; charset={charset}")[0]
    return as_html(text) if content_type == XHTML_TYPE else text


def read_title(text: str) -> str:
    """The title of an HTML page, as browsers give ``document.title``; empty if it has none.

    >>> read_title("<svg><title>no</title></svg><title> Tom &amp;\\n Jerry </title><title>no</title>")
    'Tom & Jerry'
    """
    first = _TITLE.search(text)
    if first is None:
        return ""
    simple = _SIMPLE_TITLE.match(text, first.start())
    start = "" if simple is None else f"{text[: simple.end()]}</title>"
    # What is in the head is the first, whatever follows.
    title = None if not start or is_costly(start) else LexborHTMLParser(start).css_first("head > title")
    if title is None:
        if is_costly(text):
            tags = outline(text, with_titles=True)
            text = next((tag for tag in tags if tag.startswith("<title>")), "")
        titles = LexborHTMLParser(text).css("title")
        spaces = _Namespaces()
        title = next((node for node in titles if not spaces.of(node)), None)
    return "" if title is None else _ASCII_SPACE.sub(" ", title.text()).strip(" ")


def _batches(tags: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(tags, _OUTLINE_BATCH)):
        yield batch


def refresh_target(content: str) -> str:
    """The address in the *content* of a meta refresh, or in a Refresh header; empty if there is none.

    >>> refresh_target("5; url='/x y'"), refresh_target("5")
    ('/x y', '')
    """
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
