"""Settings: what is accepted, and the one line that refuses anything else.

The rule is that of Scrapy's own defaults, and ours: a value is of the kind of the default, and what it names exists.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

from scrapy.settings import BaseSettings, default_settings
from scrapy.utils.misc import load_object

import tinycrawl.settings as project
from tinycrawl.arguments import one_line, show_value
from tinycrawl.exceptions import UsageError

# What may hold a secret beside our own settings: keys of clouds, passwords of mail and FTP, headers, URLs of feeds.
_SECRET_NAME = re.compile(
    r"PASS(?!IVE)|SECRET|TOKEN|_KEY(_ID)?$|_HEADERS$|^HTTPAUTH_(USER|PASS)$|^(FTP|MAIL)_USER$|^GCS_PROJECT_ID$"
    r"|^FEEDS$|^FEED_URI$|^TINYCRAWL_(PROXY|COOKIES)$"
)
_LONGEST_SHOWN = 100  # characters of an exception's text in a message
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DIGITS = re.compile(r"[0-9]{1,18}")
_CLASS_PATH = re.compile(r"(scrapy|twisted)(\.\w+)*\.[A-Z]\w*")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_TLS_VERSIONS = ("TLSv1.0", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_ANY_SIGN = re.compile(r"PRIORITY|INDENT")  # numbers that may be negative
_FRACTION = re.compile(r"^DOWNLOAD_(DELAY|TIMEOUT)|^DNS_TIMEOUT$")  # though the default is written as a whole number
_FLAG = re.compile(r"_(ENABLED|USE_SSL|VERIFY)$")
_AT_LEAST_1 = ("REACTOR_THREADPOOL_MAXSIZE", "SCRAPER_SLOT_MAX_ACTIVE_SIZE", "DNS_TIMEOUT", "DNSCACHE_SIZE")
# What these must be is said by `check_settings`; a name alone (REFERRER_POLICY) is no class.
_NOT_LOADED = ("SCHEDULER", "DUPEFILTER_CLASS", "TWISTED_REACTOR", "REFERRER_POLICY", "DNS_RESOLVER")
_CLASSES_WITHOUT_DEFAULT = ("ASYNCIO_EVENT_LOOP", "FEED_URI_PARAMS", "DOWNLOADER_CLIENTCONTEXTFACTORY")


def is_secret(name: str) -> bool:
    """May the value of this setting be shown to nobody?

    >>> [is_secret(name) for name in ("FTP_PASSWORD", "FTP_PASSIVE_MODE", "AWS_ACCESS_KEY_ID", "TINYCRAWL_HTTP_USER")]
    [True, False, True, False]
    """
    return bool(_SECRET_NAME.search(name))


def show_setting(name: str, value: object) -> str:
    """The same as `show_value`, for a setting that may be a secret."""
    return "what is not shown" if is_secret(name) else show_value(value)


def check_values(settings: BaseSettings) -> None:
    """Refuse the first setting that was given, by whom ever, and is of no use.

    :raises UsageError: in one line, with the setting, its value and what is accepted.
    """
    for name in settings:
        value = settings[name]
        if isinstance(value, BaseSettings):
            value = value.copy_to_dict()
        defaults = (getattr(module, name, None) for module in (project, default_settings))
        if not any(value is default or value == default for default in defaults):
            check_setting(name, value)


def check_setting(name: str, value: object) -> None:
    """A setting must be of the kind of its default, and what it names must exist.

    :raises UsageError: it is not.
    """
    if name.startswith("TINYCRAWL_"):
        default = getattr(project, name, None)
        if default is None or isinstance(default, list):  # see `check_settings`
            return
    elif hasattr(default_settings, name):
        default = getattr(default_settings, name)
    else:
        return
    try:
        _read_setting(name, value, default)
    except (ValueError, OverflowError, TypeError) as error:
        raise UsageError(f"setting `{name}`: expected {error}, got {show_setting(name, value)}") from None


def check_settings(settings: BaseSettings) -> None:
    """What a crawl by `site` stands on must stay as it is.

    :raises UsageError: it does not, in one line.
    """
    for name in settings:
        if name.startswith("TINYCRAWL_") and not hasattr(project, name):
            raise UsageError(f"setting {show_value(name)}: unknown")
    for name in ("SCHEDULER", "DUPEFILTER_CLASS", "TWISTED_REACTOR"):
        if settings[name] != getattr(project, name):
            raise UsageError(f"setting `{name}`: expected {getattr(project, name)}, got {show_value(settings[name])}")
    if settings.getint("CONCURRENT_ITEMS") != 1 or settings.getbool("HTTPCACHE_ENABLED"):
        raise UsageError("settings `CONCURRENT_ITEMS` and `HTTPCACHE_ENABLED`: expected 1 and 0, for the exact order")
    for name in ("TINYCRAWL_AHEAD", "CONCURRENT_REQUESTS_PER_DOMAIN"):  # with none, nothing would ever be sent
        if settings.getint(name) < 1:
            raise UsageError(f"setting `{name}`: expected 1 or more, got {settings[name]!r}")
    for name in ("DOWNLOADER_MIDDLEWARES", "ITEM_PIPELINES"):  # what is given replaces the project's own
        if "SCRAPY_CHECK" in os.environ:  # `scrapy check` has no pipelines
            break
        given = settings.getdict(name)
        missing = [path for path, order in getattr(project, name).items() if order and given.get(path) is None]
        if missing:
            raise UsageError(
                f"setting `{name}`: expected the entries of tinycrawl/settings.py too, {missing[0]} is missing"
            )
    _check_parameters(settings)
    if settings["TINYCRAWL_ADDRESS_GUARD"] not in (None, "", "0", "1", 0, 1, "True", "False", "true", "false"):
        value = settings["TINYCRAWL_ADDRESS_GUARD"]
        raise UsageError(f"setting `TINYCRAWL_ADDRESS_GUARD`: expected 0, 1 or nothing, got {show_value(value)}")
    encoding = settings["TINYCRAWL_ENCODING"] or None
    if encoding not in (None, "utf-8"):
        raise UsageError(f"setting `TINYCRAWL_ENCODING`: expected utf-8 or nothing, got {show_value(encoding)}")


def _check_parameters(settings: BaseSettings) -> None:
    """TINYCRAWL_DROP_PARAMETERS becomes a list, from JSON or names with commas between them."""
    given = settings["TINYCRAWL_DROP_PARAMETERS"]
    names = given
    if isinstance(given, str):
        try:
            names = json.loads(given) if given.lstrip().startswith("[") else [part for part in given.split(",") if part]
        except ValueError:
            names = None
    if not isinstance(names, (list, tuple)) or not all(
        isinstance(name, str) and re.fullmatch(r"[^\s=&;/#]+", name) for name in names
    ):
        raise UsageError(
            "setting `TINYCRAWL_DROP_PARAMETERS`: expected names of parameters, like utm_*,sid,"
            f" got {show_value(given)}"
        )
    priority = settings.getpriority("TINYCRAWL_DROP_PARAMETERS") or 0
    settings.set("TINYCRAWL_DROP_PARAMETERS", list(names), priority=priority)


def check_file(where: str, path: str | os.PathLike[str], *, makes_parents: bool = False) -> None:
    """Can a file be written at *path*? Nothing is created.

    :raises UsageError: it cannot.
    """
    file = Path(path)
    try:
        folder = next(parent for parent in file.absolute().parents if parent.exists() or not makes_parents)
        if not file.is_dir() and folder.is_dir() and os.access(file if file.exists() else folder, os.W_OK):
            return
    except (OSError, ValueError):  # a name too long, a NUL, a folder that may not be looked into
        pass
    raise UsageError(f"{where}: expected a file that can be written, got {show_value(str(path))}")


def load_class(path: object) -> Any:
    """Import what a setting names.

    :raises ValueError: it cannot be imported; the text says what is expected, and why.
    """
    try:
        return load_object(path)  # type: ignore[arg-type]  # anything else is an error of its own
    except Exception as error:  # noqa: BLE001  # whatever the module does at its import
        raise ValueError(_not_imported("the import path of a class or function", error)) from None


def _not_imported(expected: str, error: Exception) -> str:
    return f"{expected} ({one_line(f'{type(error).__name__}: {error}')[:_LONGEST_SHOWN]})"


def _read_setting(name: str, value: Any, default: object) -> None:
    """:raises ValueError: the text is what was expected."""
    if name == "TWISTED_REACTOR_ENABLED":
        if str(value) not in ("1", "True", "true"):
            raise ValueError("1")
    elif name in _CLASSES_WITHOUT_DEFAULT or (isinstance(default, str) and _CLASS_PATH.fullmatch(default)):
        if name not in _NOT_LOADED and value not in (None, "", default):
            load_class(value)
        elif value is not None and not isinstance(value, str) and not callable(value):
            raise ValueError("text")
    elif isinstance(default, bool) or _FLAG.search(name):
        _read_bool(value, is_optional=default is None)
    elif isinstance(default, int | float):
        is_whole = isinstance(getattr(project, name, default), int) and not _FRACTION.search(name)
        _read_number(name, value, is_whole=is_whole)
    elif isinstance(default, dict):
        _read_table(name, value)
    elif isinstance(default, list | tuple):
        _read_list(name, value, default)
    elif default is None and value is None:
        return
    elif name == "FEED_EXPORT_FIELDS":
        BaseSettings({name: value}).getdictorlist(name) if isinstance(value, str) else _read_names(value)
    elif name.startswith("PERIODIC_LOG_") or name == "AWS_MAX_POOL_CONNECTIONS":
        return
    elif name == "DOWNLOAD_BIND_ADDRESS" and isinstance(value, list | tuple) and value:
        _read_address(value[0])
    else:
        _read_text(name, value)


def _read_text(name: str, value: Any) -> None:
    if name == "LOG_LEVEL" or name.endswith("_LOG_LEVEL"):
        if value not in _LEVELS and (not isinstance(value, int) or isinstance(value, bool)):
            raise ValueError(f"one of {', '.join(_LEVELS)}")
        return
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("text")
    if name.endswith("_ENCODING"):
        try:
            "".encode(value)
        except LookupError:
            raise ValueError("an encoding, like utf-8") from None
    elif name == "LOG_FORMAT":
        try:
            logging.Formatter(value).format(logging.makeLogRecord({}))
        except (ValueError, KeyError, TypeError):
            raise ValueError("a format of Python's logging, like %(levelname)s: %(message)s") from None
    elif name in ("USER_AGENT", "ROBOTSTXT_USER_AGENT") and _CONTROL.search(value):
        raise ValueError("text without control characters")
    elif name == "FEED_TEMPDIR" and value:
        if not os.access(value, os.W_OK) or not Path(value).is_dir():
            raise ValueError("a folder that can be written")
    elif name == "TINYCRAWL_OUTPUT_DIR" and {"{", "}"} & {*value}:  # {host} is for `pagedir`
        raise ValueError("a path without braces")
    elif name == "LOG_FILE" and value:
        check_file(f"setting `{name}`", value)
    elif name in ("DOWNLOAD_TLS_MIN_VERSION", "DOWNLOAD_TLS_MAX_VERSION"):
        if value and value not in _TLS_VERSIONS:
            raise ValueError(f"one of {', '.join(_TLS_VERSIONS)}")
    elif name == "DOWNLOADER_CLIENT_TLS_METHOD":
        if value not in ("TLS", *_TLS_VERSIONS[:3]):
            raise ValueError(f"one of TLS, {', '.join(_TLS_VERSIONS[:3])}")
    elif name == "DOWNLOAD_BIND_ADDRESS" and value:
        _read_address(value)


def _read_address(value: object) -> None:
    try:
        ipaddress.ip_address(value)  # type: ignore[arg-type]  # anything else is an error of its own
    except ValueError:
        raise ValueError("an IP address") from None


def _read_bool(value: object, *, is_optional: bool) -> None:
    if value is None and is_optional:
        return
    try:
        BaseSettings({"flag": value}).getbool("flag")
    except (ValueError, TypeError, OverflowError):
        raise ValueError("0 or 1") from None


def _read_number(name: str, value: object, *, is_whole: bool) -> None:
    least = 1 if name in _AT_LEAST_1 else 0
    expected = f"{'a whole number' if is_whole else 'a number'}, {least} or more"
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        number = float(value)
        is_right = isfinite(number) and (number >= least or bool(_ANY_SIGN.search(name)))
        if is_whole:
            int(value)
            is_right = is_right and number.is_integer()
    except (ValueError, OverflowError):
        is_right = False
    if not is_right:
        raise ValueError(expected if not _ANY_SIGN.search(name) else "a whole number")


def _read_table(name: str, value: object) -> None:
    """What is in a table is said by the annotation of Scrapy's default: classes with priorities, or names with classes.

    :raises ValueError: the text is what was expected.
    """
    table = value
    if isinstance(value, str):
        try:
            table = json.loads(value)
        except (ValueError, RecursionError):
            table = None
    if not isinstance(table, Mapping):
        raise ValueError("a JSON object")
    kind = str(default_settings.__annotations__.get(name, default_settings.__annotations__.get(f"{name}_BASE", "")))
    if "int]" in kind:
        for path, priority in table.items():
            if priority is None:
                continue
            load_class(path)
            if isinstance(priority, bool) or not isinstance(priority, int | float) or not isfinite(priority):
                raise ValueError(f"a number or null for each class, not so {show_value(path)}")
    elif kind == str(dict[str, str]):
        for path in table.values():
            if path is not None:
                load_class(path)
    elif name in ("FEEDS", "DOWNLOAD_SLOTS"):
        for key, entry in table.items():
            if not isinstance(entry, Mapping):
                raise ValueError(f"a JSON object for each entry, not so {show_value(str(key))}")
            if name == "DOWNLOAD_SLOTS":
                _read_slot(entry)
    elif name == "DEFAULT_REQUEST_HEADERS":
        for key, entry in table.items():
            for text in entry if isinstance(entry, list | tuple) else [entry]:
                is_text = text is None or isinstance(text, str | bytes | int)
                if not is_text or _CONTROL.search(f"{key}{text!s}"):
                    raise ValueError(f"text without control characters for each header, not so {show_value(key)}")


def _read_slot(entry: Mapping[str, object]) -> None:
    for key, value in entry.items():
        try:
            if key == "randomize_delay":
                _read_bool(value, is_optional=False)
            elif key in ("delay", "jitter", "concurrency"):
                _read_number(key, value, is_whole=key == "concurrency")
        except ValueError as error:
            raise ValueError(f"{error}, for {key!r}") from None


def _read_list(name: str, value: object, default: Iterable[object]) -> None:
    entries = value.split(",") if isinstance(value, str) and value else value or ()
    if not isinstance(entries, list | tuple | set | frozenset):
        raise ValueError("names or numbers separated by commas")
    kind = next(iter(default), "")
    if isinstance(kind, int) or "int]" in str(default_settings.__annotations__.get(name)):
        for entry in entries:
            if isinstance(entry, bool) or not _DIGITS.fullmatch(str(entry).strip()):
                raise ValueError("whole numbers separated by commas")
    elif name == "SPIDER_MODULES":
        for entry in entries:
            try:
                import_module(entry)
            except Exception as error:  # noqa: BLE001  # the same
                raise ValueError(_not_imported("the names of modules", error)) from None
    elif isinstance(kind, str) and _CLASS_PATH.fullmatch(kind):
        for entry in entries:
            load_class(entry)
    else:
        _read_names(entries)


def _read_names(value: object) -> None:
    names: Iterator[object] = iter(value) if isinstance(value, list | tuple | set | Mapping) else iter([None])
    if not all(isinstance(name, str) for name in names):
        raise ValueError("names separated by commas")
