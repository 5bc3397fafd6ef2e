"""Per-site files: the arguments, settings and schedule of one site, in a TOML file named by its host."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from tinycrawl.arguments import SITE_ARGUMENTS, one_line, show_value
from tinycrawl.exceptions import UsageError

SCHEDULE_KEYS = ("seed", "cron", "timezone", "keep", "diff", "fresh")

# The host comes from a URL and becomes a file name, so it must not be able to lead anywhere else.
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|[0-9a-f:.]*:[0-9a-f:.]*")
_LONGEST_NAME = 250  # characters; with `.toml`, what a file system takes
_AT_LINE = re.compile(r"\(at line ([0-9]+)")


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
    except ValueError as error:
        raise UsageError(f"{one_line(str(file))}: {error}") from None
    site, faults = parse_site(text, one_line(str(file)), known_settings)
    for fault in faults:
        # tomllib gives line and column in its message
        raise UsageError(str(Fault(fault.path, 0, fault.problem) if _AT_LINE.search(fault.problem) else fault))
    assert site is not None
    return site


def read_text(file: Traversable) -> str:
    """Read a site's file.

    :raises FileNotFoundError: there is none.
    :raises ValueError: it cannot be read; the text says why.
    """
    if isinstance(file, Path) and (file.is_symlink() or file.exists()) and not file.is_file():
        raise ValueError("cannot be read: not a file")  # a link to nothing, a pipe, a folder
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or 'not a file'}") from None
    except UnicodeDecodeError:
        raise ValueError("expected UTF-8") from None


def parse_site(text: str, path: str, known_settings: Collection[str]) -> tuple[Site | None, list[Fault]]:
    """Read what a site's file says, without what is unknown there, which are the faults. None: it is not TOML."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = one_line(str(error))
        at_line = _AT_LINE.search(problem)
        return None, [Fault(path, int(at_line[1]) if at_line else 0, problem)]
    except (ValueError, RecursionError):
        return None, [Fault(path, 0, "a number too long or nested too deep")]
    faults = [Fault(path, line_of(text, *keys), problem) for keys, problem in _find_unknown(tables, known_settings)]
    known = {name: table for name, table in tables.items() if name in _TABLES and isinstance(table, dict)}
    crawl = {key: value for key, value in known.get("crawl", {}).items() if key in SITE_ARGUMENTS}
    settings = {key: value for key, value in known.get("settings", {}).items() if _is_known(key, known_settings)}
    schedule = {key: value for key, value in known.get("schedule", {}).items() if key in SCHEDULE_KEYS}
    return Site(crawl, settings, path, schedule), faults


@lru_cache(maxsize=1)
def _lines(text: str) -> dict[tuple[str, ...], int]:
    from tinycrawl.tomllines import key_lines  # only what is wrong has to be found

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
        for name in table:
            if key == "settings" and not _is_known(name, known_settings):
                yield (key, name), f"{show_value(name)} in [settings]: not a setting of Scrapy or of tinycrawl"
            known = {"crawl": SITE_ARGUMENTS, "schedule": SCHEDULE_KEYS}.get(key)
            if known is not None and name not in known:
                yield (key, name), f"{show_value(name)} in [{key}]: unknown, expected one of {', '.join(known)}"
