"""Per-site files: the arguments, settings and schedule of one site, in a TOML file named by its host."""

from __future__ import annotations

import re
import sys
import tomllib
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from tinycrawl.arguments import SITE_ARGUMENTS, one_line, parse_arguments, show_value
from tinycrawl.exceptions import UsageError
from tinycrawl.settingcheck import check_setting
from tinycrawl.tomllines import DEEPEST, deepest_line, is_too_deep, key_lines, long_number_line

SCHEDULE_KEYS = ("seed", "cron", "timezone", "keep", "diff", "fresh")

# The host comes from a URL and becomes a file name, so it must not be able to lead anywhere else.
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|[0-9a-f:.]*:[0-9a-f:.]*")
_LONGEST_NAME = 250  # characters; with `.toml`, what a file system takes
_AT_LINE = re.compile(r"\(at line ([0-9]+)")
# Scrapy reads these before a seed, and so a site, is known. The log is opened early too, see the command `crawl`.
TOO_LATE = frozenset(
    {
        "ASYNCIO_EVENT_LOOP",
        "COMMANDS_MODULE",
        "DNSCACHE_ENABLED",
        "DNSCACHE_SIZE",
        "DNS_RESOLVER",
        "DNS_TIMEOUT",
        "EDITOR",
        "FORCE_CRAWLER_PROCESS",
        "NEWSPIDER_MODULE",
        "REACTOR_THREADPOOL_MAXSIZE",
        "SPIDER_LOADER_CLASS",
        "SPIDER_LOADER_WARN_ONLY",
        "SPIDER_MODULES",
        "TEMPLATES_DIR",
        "TINYCRAWL_SITES_DIR",
        "TWISTED_DNS_RESOLVER",
        "TWISTED_REACTOR_ENABLED",
    }
)


@dataclass(frozen=True)
class Site:
    """What a site's file holds.

    :param crawl: arguments of the spider, as TOML values that nobody has checked yet.
    :param settings: settings, by name.
    :param path: of the file; empty if there is none.
    :param schedule: when it is crawled again, see `schedule`; values that nobody has checked yet.
    """

    crawl: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    path: str = ""
    schedule: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """What is wrong with a site's file, and where: *line* is 0 where the fault is in no line."""

    path: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}{f':{self.line}' if self.line else ''}: {self.problem}"


class UnreadableError(ValueError):
    """A site's file cannot be read; *line* is 0 where that has no line."""

    def __init__(self, problem: str, line: int = 0) -> None:
        super().__init__(problem)
        self.line = line


def site_folder(directory: Path | None) -> Traversable:
    """Return the folder of the sites' files: *directory*, or the one packaged with the project.

    :raises UsageError: it is no directory.
    """
    if directory is not None and not directory.is_dir():
        raise UsageError(f"setting `TINYCRAWL_SITES_DIR`: expected a directory, got {show_value(str(directory))}")
    return files("tinycrawl") / "sites" if directory is None else directory


def file_name(host: str) -> str | None:
    """Return the name of the file of *host*, normalised; None if it cannot name one.

    >>> file_name("www.example.org"), file_name("[::1]"), file_name("../x")
    ('www.example.org.toml', '::1.toml', None)
    """
    name = host.removeprefix("[").removesuffix("]")
    return f"{name}.toml" if _NAME.fullmatch(name) and len(name) <= _LONGEST_NAME else None


def load_site(host: str, directory: Path | None, *, known_settings: Collection[str]) -> Site:
    """Read ``<host>.toml``; a host without a file has an empty Site, and so has one that cannot name a file.

    :param host: normalised; an IPv6 address, with or without brackets, names its file without them.
    :param directory: TINYCRAWL_SITES_DIR; None is the folder packaged with the project.
    :param known_settings: the names accepted in [settings]: Scrapy's and the project's.
    :raises UsageError: the directory or the file cannot be read, or the file is not TOML or has an unknown table,
        argument or setting; one line, with the path.
    """
    folder = site_folder(directory)
    name = file_name(host)
    if name is None:
        return Site()
    file = folder / name
    try:
        text = read_text(file)
    except FileNotFoundError:
        return Site()
    except UnreadableError as error:
        raise UsageError(str(Fault(one_line(str(file)), error.line, str(error)))) from None
    site, faults = parse_site(text, one_line(str(file)), known_settings)
    for fault in faults:
        # tomllib gives line and column in its message
        raise UsageError(str(Fault(fault.path, 0, fault.problem) if _AT_LINE.search(fault.problem) else fault))
    assert site is not None
    for name, problem in find_argument_faults(site.crawl):
        raise UsageError(str(Fault(site.path, line_of(text, "crawl", name), problem)))
    return site


def read_text(file: Traversable) -> str:
    """Read a site's file.

    :raises FileNotFoundError: there is none.
    :raises UnreadableError: it cannot be read; the text says why.
    """
    if isinstance(file, Path) and (file.is_symlink() or file.exists()) and not file.is_file():
        raise UnreadableError("cannot be read: not a file")  # a link to nothing, a pipe, a folder
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or 'not a file'}") from None
    data = data.removeprefix(BOM_UTF8).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError("expected UTF-8", data.count(b"\n", 0, error.start) + 1) from None


def parse_site(text: str, path: str, known_settings: Collection[str]) -> tuple[Site | None, list[Fault]]:
    """Read what a site's file says, without what is unknown or of no use there: the faults. None: it is not TOML."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = one_line(str(error))
        at_line = _AT_LINE.search(problem)
        return None, [Fault(path, int(at_line[1]) if at_line else len(text.rstrip("\n").split("\n")), problem)]
    except ValueError:
        return None, [Fault(path, long_number_line(text), "expected a shorter number")]
    except RecursionError:
        tables = None
    if tables is None or is_too_deep(tables):
        return None, [Fault(path, deepest_line(text), f"expected at most {DEEPEST} tables and arrays in each other")]
    faults = [Fault(path, line_of(text, *keys), problem) for keys, problem in _find_unknown(tables, known_settings)]
    known = {name: table for name, table in tables.items() if name in _TABLES and isinstance(table, dict)}
    crawl = {key: value for key, value in known.get("crawl", {}).items() if key in SITE_ARGUMENTS}
    settings = {key: value for key, value in known.get("settings", {}).items() if _is_known(key, known_settings)}
    for name, value in list(settings.items()):
        try:
            check_setting(name, value)
        except UsageError as error:
            del settings[name]
            fault = Fault(path, line_of(text, "settings", name), str(error))
            faults += [fault] if all(fault.line != other.line for other in faults) else []
    schedule = {key: value for key, value in known.get("schedule", {}).items() if key in SCHEDULE_KEYS}
    return Site(crawl, settings, path, schedule), faults


def find_argument_faults(crawl: Mapping[str, object], *, max_depth: int = sys.maxsize) -> Iterator[tuple[str, str]]:
    """Which values of a table [crawl] are of no use, each by itself: its name and the problem."""
    for name, value in crawl.items():
        given = {"seed": "http://host.invalid/"} if name == "depth" else {"seed": "http://host.invalid/", "depth": "0"}
        try:
            parse_arguments(given, max_depth=max_depth, defaults={name: value}, source="[crawl]")
        except UsageError as error:
            yield name, str(error).removeprefix("[crawl]: ")


@lru_cache(maxsize=1)
def _lines(text: str) -> dict[tuple[str, ...], int]:
    return key_lines(text)


def line_of(text: str, *keys: str) -> int:
    """Return the line on which the key *keys* leads to is set, or the last of its tables; 0 if there is none."""
    lines = _lines(text)
    return next((lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in lines), 0)


_TABLES = ("crawl", "settings", "schedule")


def _is_known(key: str, known_settings: Collection[str]) -> bool:
    return key.isupper() and key in known_settings


def _find_unknown(tables: dict[str, Any], known_settings: Collection[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, table in tables.items():
        if key not in _TABLES or not isinstance(table, dict):
            yield (key,), f"{show_value(key)}: unknown, expected the tables [crawl], [settings] and [schedule]"
            continue
        for name, value in table.items():
            if key == "settings" and not _is_known(name, known_settings):
                yield (key, name), f"{show_value(name)} in [settings]: not a setting of Scrapy or of tinycrawl"
            elif key == "settings" and name in TOO_LATE:
                yield (key, name), f"`{name}` in [settings]: read before this file; give it by -s or in settings.py"
            elif key == "settings" and isinstance(value, str) and "\0" in value:
                yield (key, name), f"`{name}` in [settings]: expected text without NUL"
            known = {"crawl": SITE_ARGUMENTS, "schedule": SCHEDULE_KEYS}.get(key)
            if known is not None and name not in known:
                yield (key, name), f"{show_value(name)} in [{key}]: unknown, expected one of {', '.join(known)}"
