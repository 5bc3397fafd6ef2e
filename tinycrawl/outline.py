"""The outline of a page: the few tags that a crawler reads, found in time and memory that grow with its length only.

The tree of a page has no such bound, in any parser that follows the standard: 30 kB of ``<p><b x1><b x2>...<p>x<p>x``
become millions of elements, and a hundred thousand unclosed ``<div>`` take half a minute. Browsers cut such trees. A
page that might be one is read tag by tag instead.
"""

import re
from collections import Counter
from collections.abc import Iterator

# https://html.spec.whatwg.org/multipage/parsing.html#tokenization
_SPACE = r"[\t\n\f\r ]"
_NAME_END = r"(?=[\t\n\f\r />])"
_ATTRIBUTE = (
    rf"[^\t\n\f\r />][^\t\n\f\r />=]*+"
    rf"(?:{_SPACE}*+={_SPACE}*+(?:\"[^\"]*+\"|'[^']*+'|[^\t\n\f\r >\"'][^\t\n\f\r >]*+|(?=>)))?+"
)
_ATTRIBUTES = re.compile(_ATTRIBUTE)
_READ_ATTRIBUTES = frozenset({"charset", "content", "href", "http-equiv", "name", "rel", "src", "xlink:href"})
_TAG_REST = rf"(?:{_SPACE}|/|{_ATTRIBUTE})*+>"
_TEXT = frozenset({"iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"})  # content is text
_FOREIGN = frozenset({"math", "svg"})  # there CDATA is text, and a <style> is an element like any other
_FOREIGN_TAG = re.compile(r"<(?:svg|math)", re.IGNORECASE)
_INTEGRATION = frozenset({"annotation-xml", "desc", "foreignobject", "mi", "mn", "mo", "ms", "mtext", "title"})
_BREAKING_OUT = re.compile(
    "b|big|blockquote|body|br|center|code|dd|div|dl|dt|em|embed|h[1-6]|head|hr|i|img|li|listing|menu|meta|nobr|ol|p|pre"
    "|ruby|s|small|span|strong|strike|sub|sup|table|tt|u|ul|var"
)
_FONT = re.compile(r"[\t\n\f\r /](?:color|face|size)[\t\n\f\r /=>]", re.IGNORECASE)
_HTML_ENCODING = re.compile(
    r"[\t\n\f\r /]encoding[\t\n\f\r ]*=[\t\n\f\r ]*[\"']?(?:text/html|application/xhtml\+xml)[\"'\t\n\f\r />]",
    re.IGNORECASE,
)
_READ = frozenset({"a", "area", "base", "frame", "iframe", "meta"})
_NAMES = _READ | _TEXT | _FOREIGN | {"frameset", "plaintext", "template"}
# A tag, a comment, CDATA, what the standard calls a bogus comment; or a tag that the end of the page cuts off.
_TOKEN = re.compile(
    rf"<(?:(?P<end>/?+)(?P<name>[a-zA-Z][^\t\n\f\r />]*+)(?P<rest>{_TAG_REST})"
    r"|!--(?:-?>|(?s:.*?)(?:--!?>|\Z))|(?P<cdata>!\[CDATA\[)|(?:[!?]|/(?![a-zA-Z]))[^>]*+(?:>|\Z)|/?(?P<cut>[a-zA-Z]))"
)
_IN_SCRIPT = re.compile(rf"<!--(?:-?>)?|-->|</?script{_NAME_END}", re.IGNORECASE)

# What a tree of one million elements costs at most (300 MB, a second) is what any page may.
_SAFE_LENGTH = 1 << 20  # characters
_SAFE_TAG = 16_384  # characters; a longer one may have thousands of attributes, each of which is compared to all others
_SAFE_TAGS = 1_300
_SAFE_ELEMENTS = 1_000_000
# What is formatted so is opened again in each paragraph that follows: with attributes always, without three times.
# The letters ahead make the search nearly twice as fast.
_FORMATTING = re.compile(
    r"<(?=[bcefinstu])(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)[\t\n\f\r /]", re.IGNORECASE
)
_FORMATTING_NAMES = 14
_LONG_TAG = 1024  # characters


def is_costly(text: str) -> bool:
    """Might the tree of this page be out of proportion to its length? Most pages are told by the first line."""
    tags = text.count("<")
    if len(text) > _SAFE_LENGTH or tags > 20_000 or _has_long_tag(text):
        return True
    if tags <= _SAFE_TAGS:  # however many of them are formatting
        return False
    return tags * (len(_FORMATTING.findall(text)) + 3 * _FORMATTING_NAMES) > _SAFE_ELEMENTS


def _has_long_tag(text: str) -> bool:
    # In so long a stretch without a "<" lies a whole block of half its length: to look at blocks is faster.
    block = _SAFE_TAG // 2
    return any(text.find("<", start, start + block) < 0 for start in range(0, len(text) - block + 1, block))


def outline(text: str, *, with_titles: bool = False) -> Iterator[str]:
    """The start tags of links, bases and metas, as the page has them, each with its end tag; frames become iframes.

    *with_titles*: the titles too, each with its text.

    >>> list(outline("<div><A HREF=x>y</a><!-- <a href=z> --><textarea><a href=z></textarea>"))
    ['<A HREF=x></A>']
    """
    foreign = _Foreign(text)
    templates, has_frames = 0, False
    position: int | None = 0
    while position is not None:
        tokens, position = _TOKEN.finditer(text, position), None
        for token in tokens:
            if token["name"] is None:
                if token["cut"]:
                    return
                if token["cdata"]:
                    end = text.find("]]>" if foreign.now else ">", token.end())
                    position = end + 1 if end >= 0 else len(text)
                    break
                continue
            name = token["name"].lower()
            if name not in _NAMES and not foreign.is_there:
                continue
            if token["end"]:
                if name == "template" and not foreign.now:
                    templates = max(0, templates - 1)
                foreign.end(name)
                continue
            space = foreign.start(name, token["rest"])
            has_frames = has_frames or name == "frameset"
            if name == "template" and not space:
                templates += 1
            if name in _READ and not templates and (name != "frame" or has_frames) and (not space or name == "a"):
                shown = "iframe" if name == "frame" else token["name"]
                tag = f"<{shown}{_shorten(token['rest'])}</{shown}>"
                if space != "math":
                    yield f"<svg>{tag}</svg>" if space else tag
            if space:
                continue
            if name == "plaintext":
                return
            if name in _TEXT:
                position = _end_of_text(name, text, token.end())
                if with_titles and name == "title" and not templates:
                    yield f"<title>{text[token.end() : position]}</title>"
                break


class _Foreign:
    """Tells the namespace of each tag: *now* is that of the place, ``svg``, ``math`` or, for HTML, ``""``.

    By https://html.spec.whatwg.org/multipage/parsing.html#parsing-main-inforeign, without a tree: elements of HTML are
    counted only.
    """

    def __init__(self, text: str) -> None:
        self.is_there = _FOREIGN_TAG.search(text) is not None
        self.now = ""
        self._open: list[tuple[str, str]] = []  # from the outermost <svg> or <math>: names, and the namespace in them
        self._names: Counter[str] = Counter()  # of those
        self._html: Counter[str] = Counter()  # names of the elements that are open in HTML

    def start(self, name: str, rest: str) -> str:
        """A start tag, with what follows its name; return the namespace of the element."""
        if not self.is_there:
            return ""
        if self.now and (_BREAKING_OUT.fullmatch(name) or (name == "font" and _FONT.search(rest))):
            self._leave()
        space = self.now or (name if name in _FOREIGN else "")
        if not space:
            self._html[name] += 1
        elif not rest.endswith("/>"):
            within = "" if self._holds_html(name, space, rest) else space
            self._open.append((name, within))
            self._names[name] += 1
            self.now = within
        return space

    def end(self, name: str) -> None:
        """An end tag."""
        if not self._open:
            self._html[name] -= self._html[name] > 0
        elif not self.now and name not in _FOREIGN and name not in _INTEGRATION:
            return  # of an element of HTML within the foreign one
        elif self.now and name in ("br", "p"):
            self._leave()
        elif self._names[name]:
            while self._pop() != name:
                pass
        elif self.now and self._html[name]:
            self._leave()
            self._html[name] -= 1

    def _holds_html(self, name: str, space: str, rest: str) -> bool:
        if name == "annotation-xml":
            return space == "math" and _HTML_ENCODING.search(rest) is not None
        return name in _INTEGRATION and (name in ("desc", "foreignobject", "title")) == (space == "svg")

    def _leave(self) -> None:
        """Back to HTML, that outside or that within a foreign element."""
        while self.now:
            self._pop()

    def _pop(self) -> str:
        name, _ = self._open.pop()
        self._names[name] -= 1
        self.now = self._open[-1][1] if self._open else ""
        return name


def _end_of_text(name: str, text: str, position: int) -> int:
    """Where the end tag stands of an element whose content is text; the end of *text* if there is none."""
    if name != "script":
        match = re.compile(rf"</{name}{_NAME_END}", re.IGNORECASE).search(text, position)
        return len(text) if match is None else match.start()
    depth = 0  # 1: within a comment; 2: within a <script> in it, whose end tag is not that of the element
    for match in _IN_SCRIPT.finditer(text, position):
        token = match[0].lower()
        if token.startswith("</"):
            if depth < 2:
                return match.start()
            depth = 1
        elif token == "-->":
            depth = 0
        elif token.startswith("<!--"):
            depth = depth or int(token == "<!--")
        elif depth:
            depth = 2
    return len(text)


def _shorten(rest: str) -> str:
    """The attributes of a long tag that are looked at."""
    if len(rest) <= _LONG_TAG:
        return rest
    found: dict[str, str] = {}
    for match in _ATTRIBUTES.finditer(rest):
        name = match[0].partition("=")[0].rstrip("\t\n\f\r ").lower()
        if name in _READ_ATTRIBUTES:
            found.setdefault(name, match[0])
    return f" {' '.join(found.values())}>"
