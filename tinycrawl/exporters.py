"""Feeds: the pages in docID order, in formats that are safe to open.

Titles and bodies are the site's. What would command a terminal (ESC, the control characters of C1) or turn lines around
(the bidirectional controls) is escaped: in JSON and XML in their own ways, so that who reads them has it as it was; in
CSV, which has no way, as in our tables.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from io import BytesIO
from typing import Any
from xml.sax.saxutils import XMLGenerator, escape

from itemadapter import ItemAdapter
from scrapy.exporters import (
    BaseItemExporter,
    CsvItemExporter,
    JsonItemExporter,
    JsonLinesItemExporter,
    XmlItemExporter,
)
from scrapy.settings import BaseSettings

from tinycrawl.arguments import one_line
from tinycrawl.items import Page

# https://owasp.org/www-community/attacks/CSV_Injection
_FORMULA_START = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff0b", "\uff0d", "\uff1d", "\uff20")
# Where a spreadsheet takes semicolons or tabs for the ends of cells.
_CELL_START = re.compile("([;\t] *)(?=[=+@\uff0b\uff0d\uff1d\uff20-])")
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, 2.2
_COMMANDS = "\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_NOT_IN_JSON = re.compile(f"[{_COMMANDS}]")
# A parser takes a CR that is written as such for a line feed.
_AS_REFERENCE = re.compile(f"[\r{_COMMANDS}]")
_NOT_IN_CSV = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f{_COMMANDS}\ud800-\udfff]|\r(?!\n)")


def wants_title(settings: BaseSettings) -> bool:
    """Is there a feed that shows titles? To read them takes time."""
    default = settings.getdictorlist("FEED_EXPORT_FIELDS")
    fields = [
        feed.get("fields", default) for feed in settings.getdict("FEEDS").values() if feed.get("format") != "urls"
    ]
    return any(not names or "title" in names for names in fields)


class UrlExporter(BaseItemExporter):
    """The URL of each page on a line of its own, and nothing else."""

    def __init__(self, file: BytesIO, **kwargs: Any) -> None:
        super().__init__(dont_fail=True, **kwargs)
        self.file = file

    def export_item(self, item: Any) -> None:
        self.file.write(f"{ItemAdapter(item)['url']}\n".encode())


class TextExporter(BaseItemExporter):
    """A format without bytes: the body of a page is its text."""

    def export_item(self, item: Any) -> None:
        if isinstance(item, Page) and (not self.fields_to_export or "body" in self.fields_to_export):
            text: Any = item.text
            item = replace(item, body=text)
        super().export_item(item)  # type: ignore[safe-super]  # that of the format, which comes after this class


class _JsonEncoder:
    """As another encoder, in escapes that every parser undoes."""

    def __init__(self, encode: Callable[[Any], str]) -> None:
        self._encode = encode

    def encode(self, value: Any) -> str:
        return _NOT_IN_JSON.sub(lambda char: f"\\u{ord(char[0]):04x}", self._encode(value))


class JsonExporter(TextExporter, JsonItemExporter):
    def __init__(self, file: BytesIO, **kwargs: Any) -> None:
        super().__init__(file, **kwargs)
        self.encoder = _JsonEncoder(self.encoder.encode)  # type: ignore[assignment]  # no more is used of one


class JsonLinesExporter(TextExporter, JsonLinesItemExporter):
    def __init__(self, file: BytesIO, **kwargs: Any) -> None:
        super().__init__(file, **kwargs)
        self.encoder = _JsonEncoder(self.encoder.encode)  # type: ignore[assignment]  # no more is used of one


class _XmlGenerator(XMLGenerator):
    def characters(self, content: str) -> None:
        references = {char: f"&#{ord(char)};" for char in _AS_REFERENCE.findall(content)}
        if references:
            self.ignorableWhitespace(escape(content, references))  # written as it is
        else:
            super().characters(content)


class XmlExporter(TextExporter, XmlItemExporter):
    """What no XML may contain becomes U+FFFD."""

    def __init__(self, file: BytesIO, **kwargs: Any) -> None:
        super().__init__(file, **kwargs)
        self.xg = _XmlGenerator(self.stream, encoding=self.stream.encoding)

    def get_serialized_fields(
        self, item: Any, default_value: Any = None, include_empty: bool | None = None
    ) -> Iterable[tuple[str, Any]]:
        for name, value in super().get_serialized_fields(item, default_value, include_empty):
            yield name, _NOT_XML.sub("\ufffd", value) if isinstance(value, str) else value


class SafeCsvExporter(TextExporter, CsvItemExporter):
    """Control characters are escaped as in our tables, but not tabs and line ends, which cells may have.

    An apostrophe comes before each text that a spreadsheet would take for a formula.
    """

    def serialize_field(self, field: Any, name: str, value: Any) -> Any:
        serialized = super().serialize_field(field, name, value)
        text = serialized.decode("utf-8", "replace") if isinstance(serialized, bytes) else serialized
        if not isinstance(text, str):
            return serialized
        safe = _NOT_IN_CSV.sub(lambda char: one_line(char[0]), _CELL_START.sub(r"\1'", text))
        if text.startswith(_FORMULA_START):
            return f"'{safe}"
        return safe if safe != text else serialized
