"""The link graph of a page directory as a file, for spreadsheets and programs."""

from collections.abc import Callable
from pathlib import Path

from scrapy.exporters import BaseItemExporter, JsonLinesItemExporter

from tinycrawl.analysis import edges
from tinycrawl.arguments import show_value
from tinycrawl.exceptions import TinycrawlError, UsageError
from tinycrawl.exporters import SafeCsvExporter
from tinycrawl.pagedir import PageDirectory, is_in_page_directory

COLUMNS = ("source", "target", "kind", "status")
_FORMATS: dict[str, Callable[..., BaseItemExporter]] = {".csv": SafeCsvExporter, ".jsonl": JsonLinesItemExporter}


def write_links(directory: PageDirectory, path: Path) -> None:
    """Write each edge to *path*, as CSV or JSON lines by its extension.

    :raises UsageError: another extension, or a place in a page directory, where only a crawl writes.
    :raises TinycrawlError: it cannot be written.
    """
    exporter_class = _FORMATS.get(path.suffix.lower())
    if exporter_class is None:
        raise UsageError(f"option `--output`: expected a file named .csv or .jsonl, got {show_value(str(path))}")
    if path.resolve().is_relative_to(directory.path.resolve()) or is_in_page_directory(path):
        raise UsageError(f"option `--output`: expected a file outside any page directory, got {show_value(str(path))}")
    try:
        with path.open("wb") as file:
            exporter = exporter_class(file, fields_to_export=COLUMNS)
            exporter.start_exporting()
            for edge in edges(directory):
                exporter.export_item(edge)
            exporter.finish_exporting()
    except OSError as error:
        raise TinycrawlError(f"{path} cannot be written: {error.strerror}") from error
