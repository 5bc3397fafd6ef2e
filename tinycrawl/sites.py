"""Per-site files: the arguments and settings of one site, in a TOML file named by its host."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from tinycrawl.arguments import SITE_ARGUMENTS, one_line, show_value
from tinycrawl.exceptions import UsageError

# The host comes from a URL and becomes a file name, so it must not be able to lead anywhere else.
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|[0-9a-f:.]*:[0-9a-f:.]*")
_LONGEST_NAME = 250  # characters; with `.toml`, what a file system takes


@dataclass(frozen=True)
class Site:
    """What a site's file holds.

    :param crawl: arguments of the spider, as TOML values that nobody has checked yet.
    :param settings: settings, by name.
    :param path: of the file; empty if there is none.
    """

    crawl: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    path: str = ""


def load_site(host: str, directory: Path | None, *, known_settings: Collection[str]) -> Site:
    """Read ``<host>.toml``; a host without a file has an empty Site, and so has one that cannot name a file.

    :param host: normalised; an IPv6 address, with or without brackets, names its file without them.
    :param directory: TINYCRAWL_SITES_DIR; None is the folder packaged with the project.
    :param known_settings: the names accepted in [settings]: Scrapy's and the project's.
    :raises UsageError: the directory or the file cannot be read, or the file is not TOML or has an unknown table,
        argument or setting; one line, with the path.
    """
    if directory is not None and not directory.is_dir():
        raise UsageError(f"setting `TINYCRAWL_SITES_DIR`: expected a directory, got {show_value(str(directory))}")
    name = host.removeprefix("[").removesuffix("]")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        return Site()
    folder: Traversable = files("tinycrawl") / "sites" if directory is None else directory
    file = folder / f"{name}.toml"
    path = one_line(str(file))
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Site()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or 'not a file'}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: expected UTF-8") from None
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {one_line(str(error))}") from None  # tomllib gives line and column
    except (ValueError, RecursionError):
        raise UsageError(f"{path}: a number too long or nested too deep") from None

    def refuse(key: str, problem: str) -> UsageError:
        return UsageError(f"{path}{_line_of(key, text)}: {problem}")

    for key, table in tables.items():
        if key not in ("crawl", "settings") or not isinstance(table, dict):
            raise refuse(key, f"{show_value(key)}: unknown, expected the tables [crawl] and [settings]")
    crawl, settings = tables.get("crawl", {}), tables.get("settings", {})
    for key in crawl:
        if key not in SITE_ARGUMENTS:
            raise refuse(key, f"{show_value(key)} in [crawl]: unknown, expected one of {', '.join(SITE_ARGUMENTS)}")
    for key in settings:
        if not key.isupper() or key not in known_settings:
            raise refuse(key, f"{show_value(key)} in [settings]: not a setting of Scrapy or of tinycrawl")
    return Site(crawl, settings, path)


def _line_of(key: str, text: str) -> str:
    """Return ``:line`` of the one line on which *key* is set; empty if there is not exactly one."""
    pattern = re.compile(rf"""\s*(?:\[\s*)?["']?{re.escape(key)}["']?\s*[=.\]]""")
    numbers = [number for number, line in enumerate(text.split("\n"), 1) if pattern.match(line)]
    return f":{numbers[0]}" if len(numbers) == 1 else ""
