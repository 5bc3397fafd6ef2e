"""Feeds: the pages in docID order, in formats that are safe to open."""

import re
from collections.abc import Iterable
from dataclasses import replace
from io import BytesIO
from typing import Any

from itemadapter import ItemAdapter
from scrapy.exporters import (
    BaseItemExporter,
    CsvItemExporter,
    JsonItemExporter,
    JsonLinesItemExporter,
    XmlItemExporter,
)
from scrapy.settings import BaseSettings

from tinycrawl.items import Page

# https://owasp.org/www-community/attacks/CSV_Injection
_FORMULA_START = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff0b", "\uff0d", "\uff1d", "\uff20")
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, 2.2


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


class JsonExporter(TextExporter, JsonItemExporter):
    pass


class JsonLinesExporter(TextExporter, JsonLinesItemExporter):
    pass


class XmlExporter(TextExporter, XmlItemExporter):
    """What no XML may contain becomes U+FFFD."""

    def get_serialized_fields(
        self, item: Any, default_value: Any = None, include_empty: bool | None = None
    ) -> Iterable[tuple[str, Any]]:
        for name, value in super().get_serialized_fields(item, default_value, include_empty):
            yield name, _NOT_XML.sub("\ufffd", value) if isinstance(value, str) else value


class SafeCsvExporter(TextExporter, CsvItemExporter):
    """With an apostrophe before each text that a spreadsheet would take for a formula."""

    def serialize_field(self, field: Any, name: str, value: Any) -> Any:
        serialized = super().serialize_field(field, name, value)
        text = serialized.decode("utf-8", "replace") if isinstance(serialized, bytes) else serialized
        return f"'{text}" if isinstance(text, str) and text.startswith(_FORMULA_START) else serialized
