"""Feeds are looked at before the first request: their formats, and whether each can be written and is one's own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from os.path import realpath
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scrapy.extensions.feedexport import apply_uri_params
from scrapy.settings import BaseSettings
from w3lib.url import file_uri_to_path

from tinycrawl.arguments import show_value
from tinycrawl.exceptions import UsageError
from tinycrawl.settingcheck import check_file, check_setting, load_class

_URI_PARAMETERS = ("time", "batch_time", "batch_id", "name")
_PLACEHOLDER = re.compile(r"%\((\w+)\)")
_PACKAGES = {"s3": "boto3", "gs": "google.cloud.storage"}  # what Scrapy needs for a feed there
_STDOUT = "-"


def check_outputs(outputs: Sequence[str], settings: BaseSettings) -> None:
    """Look at what `-o` or `-O` was given; Scrapy would take the last of several formats for a file.

    :raises UsageError: a format is unknown, or a file is there twice.
    """
    formats = _names(settings, "FEED_EXPORTERS")
    files: set[str] = set()
    for output in outputs:
        file, _, format_ = output.rpartition(":")
        if format_ not in formats:
            file, format_ = output, Path(output).suffix.removeprefix(".")
        if format_ not in formats:
            raise UsageError(
                f"feed {show_value(output)}: expected FILE or FILE:FORMAT, with a format of {', '.join(formats)}"
            )
        if file in files:
            raise UsageError(f"feed {show_value(output)}: expected a file of its own, another feed has it too")
        files.add(file)


def check_feeds(settings: BaseSettings, *, directory: Path, events: str | None = None, is_fresh: bool = False) -> None:
    """Look at FEEDS before a crawl into *directory*: formats, and whether each file can be written and is one's own.

    :param events: the argument; the event log and the log are files too that nobody else may write.
    :param is_fresh: what the directory holds is discarded, and so not in the feeds again.
    :raises UsageError: in one line. Nothing was created.
    """
    cookies, log = settings["TINYCRAWL_COOKIES_FILE"], settings["LOG_FILE"]
    owners: dict[str, str] = {}
    _claim(owners, "setting `TINYCRAWL_COOKIES_FILE`", Path(cookies).expanduser() if cookies else None)
    _claim(owners, "setting `LOG_FILE`", log or None)
    if log and Path(realpath(log)).is_relative_to(realpath(directory)):
        raise UsageError(
            f"setting `LOG_FILE`: expected a file outside the page directory {directory}, got {show_value(str(log))}"
        )
    _claim(owners, "spider argument `events`", Path(events).expanduser() if events and events != _STDOUT else events)
    feeds = settings.getdict("FEEDS")
    if settings["FEED_URI"]:
        feeds.setdefault(settings["FEED_URI"], {"format": settings["FEED_FORMAT"]})
    formats, schemes = _names(settings, "FEED_EXPORTERS"), _names(settings, "FEED_STORAGES")
    has_pages = (directory / "1").exists() and not is_fresh
    for uri, options in feeds.items():
        where = f"feed {show_value(str(uri))}"
        try:
            path = _read_feed(str(uri), options, settings, formats, schemes)
        except ValueError as error:
            raise UsageError(f"{where}: expected {error}") from None
        if path not in (None, _STDOUT):
            check_file(where, path, makes_parents=True)
        _claim(owners, where, path)
        if path in (None, _STDOUT):
            continue
        if Path(realpath(path)).is_relative_to(realpath(directory)):
            raise UsageError(f"{where}: expected a file outside the page directory {directory}")
        is_kept = not options.get("overwrite") and Path(path).is_file() and Path(path).stat().st_size > 0
        if has_pages and is_kept:
            raise UsageError(
                f"{where}: holds something already, and gets the pages of earlier runs again; expected -O in place of"
                " -o, which replaces it"
            )


def _claim(owners: dict[str, str], where: str, path: Path | str | None) -> None:
    """Two must not write one file, by whatever links; a terminal or /dev/null may be shared."""
    if path is None or (path != _STDOUT and Path(path).exists() and not Path(path).is_file()):
        return
    other = owners.setdefault(_STDOUT if path == _STDOUT else realpath(path), where)
    if other is not where:
        raise UsageError(f"{where}: expected a file of its own, {other} has it too")


def _names(settings: BaseSettings, setting: str) -> list[str]:
    return [name for name, path in settings.getwithbase(setting).items() if path is not None]


def _read_feed(
    uri: str, options: Mapping[str, Any], settings: BaseSettings, formats: Sequence[str], schemes: Sequence[str]
) -> str | None:
    """Return the path of a feed that is a local file, ``-`` for stdout; None: it is elsewhere.

    :raises ValueError: the text is what was expected.
    """
    format_ = options.get("format", Path(uri).suffix.removeprefix("."))
    if format_ not in formats:
        raise ValueError(f"a format of {', '.join(formats)}, got {show_value(format_)}")
    _read_options(options)
    keywords = options.get("item_export_kwargs")
    if keywords:
        try:
            load_class(settings.getwithbase("FEED_EXPORTERS")[format_])(BytesIO(), **keywords)
        except TypeError:
            raise ValueError(f"item_export_kwargs that the format {format_} takes") from None
    in_batches = options.get("batch_item_count", settings.getint("FEED_EXPORT_BATCH_ITEM_COUNT"))
    if in_batches and not {"batch_time", "batch_id"} & {*_PLACEHOLDER.findall(uri)}:
        raise ValueError("%(batch_time)s or %(batch_id)d in its name, with batch_item_count")
    if not options.get("uri_params", settings["FEED_URI_PARAMS"]):
        parameters = {**dict.fromkeys(_URI_PARAMETERS, "x"), "batch_id": 1}
        try:
            uri = apply_uri_params(uri, parameters)
        except (KeyError, ValueError, TypeError):
            names = ", ".join(f"%({name})s" for name in _URI_PARAMETERS)
            raise ValueError(f"no placeholders in its name but {names}") from None
    scheme = urlsplit(uri).scheme
    if scheme not in schemes:
        raise ValueError(f"a path, or a URL of {', '.join(filter(None, schemes))}")
    package = _PACKAGES.get(scheme)
    if package and find_spec(package.partition(".")[0]) is None:
        raise ValueError(f"the package {package}, which {scheme}: needs, to be installed")
    if scheme == "stdout":
        return _STDOUT
    if scheme not in ("", "file"):
        return None
    return file_uri_to_path(uri) if scheme else uri


def _read_options(options: Mapping[str, Any]) -> None:
    """Each is of the kind of the setting that it replaces for one feed."""
    for option, setting in (
        ("fields", "FEED_EXPORT_FIELDS"),
        ("encoding", "FEED_EXPORT_ENCODING"),
        ("batch_item_count", "FEED_EXPORT_BATCH_ITEM_COUNT"),
        ("store_empty", "FEED_STORE_EMPTY"),
        ("indent", "FEED_EXPORT_INDENT"),
    ):
        value = options.get(option)
        if value is not None:
            try:
                check_setting(setting, value)
            except UsageError as error:
                raise ValueError(f"{str(error).partition('expected ')[2]}, for {option}") from None
    if not isinstance(options.get("item_export_kwargs", {}), Mapping):
        raise ValueError("a JSON object for item_export_kwargs")
    for option in ("item_filter", "uri_params", "item_classes", "postprocessing"):
        paths = options.get(option) or ()
        for path in paths if isinstance(paths, list | tuple) else [paths]:
            try:
                load_class(path)
            except ValueError as error:
                raise ValueError(f"{error}, for {option}, got {show_value(path)}") from None
