"""Feeds that are safe to open: a cell that a site wrote must not be run as a formula."""

from typing import Any

from scrapy.exporters import CsvItemExporter

# https://owasp.org/www-community/attacks/CSV_Injection
_FORMULA_START = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff0b", "\uff0d", "\uff1d", "\uff20")


class SafeCsvExporter(CsvItemExporter):
    """Scrapy's, with an apostrophe before each text that a spreadsheet would take for a formula."""

    def serialize_field(self, field: Any, name: str, value: Any) -> Any:
        serialized = super().serialize_field(field, name, value)
        text = serialized.decode("utf-8", "replace") if isinstance(serialized, bytes) else serialized
        return f"'{text}" if isinstance(text, str) and text.startswith(_FORMULA_START) else serialized
