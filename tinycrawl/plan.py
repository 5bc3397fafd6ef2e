"""Plan: one crawl, checked before anything is created: arguments, the site's file, scope, page directory, identity."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings, Settings

import tinycrawl.settings as project
from tinycrawl.arguments import Arguments, parse_arguments, parse_seed, show_value
from tinycrawl.credentials import Credentials, read_credentials
from tinycrawl.exceptions import DirectoryError, UsageError
from tinycrawl.feedcheck import check_feeds
from tinycrawl.guard import is_private_host
from tinycrawl.runs import DATE, Run, Series, choose_run, exceeded_limit, fill_host, read_flag, read_keep
from tinycrawl.scope import Scope
from tinycrawl.settingcheck import check_settings, check_values, show_setting
from tinycrawl.sites import load_site
from tinycrawl.urls import host_of, site_of

# The settings that decide what is saved: a directory holds pages by one set of these.
POLICIES = (
    "ROBOTSTXT_OBEY",
    "TINYCRAWL_META_ROBOTS",
    "TINYCRAWL_FOLLOW_NOFOLLOW",
    "TINYCRAWL_ENCODING",
    "TINYCRAWL_MAX_LINKS",
    "TINYCRAWL_MAX_SEGMENT_REPEATS",
    "TINYCRAWL_MAX_PARAMETERS",
    "TINYCRAWL_DROP_PARAMETERS",
    "DOWNLOAD_MAXSIZE",
    "REDIRECT_MAX_TIMES",
    "URLLENGTH_LIMIT",
)


@dataclass(frozen=True)
class Plan:
    """What one crawl will do. *directory* is absolute; *identity* is the first line of its manifest.

    *drop_parameters*: names, see `ParameterFilter`. *is_guarded*: only public addresses may be connected to. *run*: of
    a recurring crawl, whose directory is named by a date.
    """

    arguments: Arguments
    scope: Scope
    directory: Path
    identity: Mapping[str, Any]
    credentials: Credentials
    drop_parameters: tuple[str, ...] = ()
    is_guarded: bool = False
    run: Run | None = None

    @property
    def limits(self) -> dict[str, int | None]:
        """What may differ when a directory is continued, if it is larger."""
        return {"depth": self.arguments.depth, "max_pages": self.arguments.max_pages}

    def check_limits(self, end: Mapping[str, Any]) -> None:
        """May a directory whose crawl ended with *end* be continued with these limits?

        :raises DirectoryError: it has gone further than they allow.
        """
        name = exceeded_limit(self.limits, end)
        if name is not None:
            raise DirectoryError(
                f"page directory {self.directory} holds a crawl with {name}={end.get(name)}, which cannot be continued"
                f" with {name}={self.limits[name]}; fresh=1 discards it"
            )


def make_plan(settings: BaseSettings, given: Mapping[str, object]) -> Plan:
    """Check *given*, the spider's arguments, and *settings*; apply the site's file and the depth to *settings*.

    The site's file wins over settings.py; what the command line set wins over both.

    :raises UsageError: anything is wrong. Nothing was created.
    """
    seed = parse_seed(given.get("seed"))
    sites = settings["TINYCRAWL_SITES_DIR"]
    site = load_site(
        host_of(seed),
        _expand("setting `TINYCRAWL_SITES_DIR`", sites) if sites else None,
        known_settings=known_settings(),
    )
    for name, value in site.settings.items():
        try:
            set_for_site(settings, name, value, site.path)
        except UsageError as error:
            raise UsageError(f"{site.path}: {error}") from None
    check_values(settings)
    check_settings(settings)
    arguments = parse_arguments(
        given, max_depth=settings.getint("TINYCRAWL_MAX_DEPTH"), defaults=site.crawl, source=site.path
    )
    credentials = read_credentials(settings, arguments)
    _set_depth(settings, arguments.depth)
    directory = _directory(settings, arguments)
    _check_events(arguments.events, directory)
    if settings["JOBDIR"]:
        settings.set("JOBDIR", None, priority="cmdline")
    policies = {name: _plain(settings, name) for name in POLICIES}
    scope = Scope(
        arguments.seed,
        arguments.scope,
        domains=arguments.domains,
        include=re.compile(arguments.include) if arguments.include else None,
        exclude=re.compile(arguments.exclude) if arguments.exclude else None,
        max_url_length=settings.getint("URLLENGTH_LIMIT"),
        max_segment_repeats=settings.getint("TINYCRAWL_MAX_SEGMENT_REPEATS"),
        max_parameters=settings.getint("TINYCRAWL_MAX_PARAMETERS"),
    )
    identity = {
        "seed": arguments.seed,
        "scope": arguments.scope,
        "domains": list(arguments.domains),
        "include": arguments.include,
        "exclude": arguments.exclude,
        "order": arguments.order,
        "duplicates": arguments.duplicates,
        # Pages are not numbered level by level there, so another depth would be another directory.
        **({"depth": arguments.depth} if arguments.order == "depth-first" else {}),
        "policies": policies,
    }
    run = None
    if DATE in directory.name:
        run = _choose_run(directory, site.schedule, site.path, identity, arguments)
        directory = run.directory
    check_feeds(settings, directory=directory, events=arguments.events, is_fresh=arguments.fresh)
    drop_parameters = tuple(settings.getlist("TINYCRAWL_DROP_PARAMETERS"))
    is_guarded = _is_guarded(settings, arguments)
    return Plan(arguments, scope, directory, identity, credentials, drop_parameters, is_guarded, run)


def known_settings() -> list[str]:
    """The names of Scrapy's settings and of ours."""
    return [name for name in (*Settings(), *vars(project)) if name.isupper()]


def set_for_site(settings: BaseSettings, name: str, value: Any, path: str) -> None:
    """Set what the site's file at *path* says; what the command line set stays.

    :raises UsageError: the value is of no use.
    """
    if name == "TINYCRAWL_COOKIES_FILE" and isinstance(value, str) and value and value[0] != "~":
        value = str(Path(path).parent / value)
    try:
        settings.set(name, value, priority="spider")
    except (TypeError, ValueError):
        raise UsageError(f"setting `{name}`: got {show_setting(name, value)}") from None


def _choose_run(
    pattern: Path, schedule: Mapping[str, Any], path: str, identity: Mapping[str, Any], arguments: Arguments
) -> Run:
    """Where a run of a recurring crawl works; *schedule* is of the site's file at *path*."""
    keep = None
    is_compared = False
    for name in ("keep", "diff"):
        try:
            if name == "keep" and name in schedule:
                keep = read_keep(schedule[name])
            elif name in schedule:
                is_compared = read_flag(schedule[name])
        except ValueError as error:
            value = show_value(schedule[name])
            raise UsageError(f"{path}: `{name}` in [schedule]: expected {error}, got {value}") from None
    limits = {"depth": arguments.depth, "max_pages": arguments.max_pages}
    series = Series(pattern, identity, limits, keep, is_compared)
    try:
        return choose_run(series, datetime.now(UTC), fresh=arguments.fresh, recheck=bool(arguments.recheck))
    except OSError as error:
        raise UsageError(f"spider argument `pagedir`: {pattern} cannot be read: {error.strerror}") from None


def _is_guarded(settings: BaseSettings, arguments: Arguments) -> bool:
    if settings["TINYCRAWL_ADDRESS_GUARD"] in (None, ""):
        return arguments.job is not None and not is_private_host(host_of(arguments.seed))
    return settings.getbool("TINYCRAWL_ADDRESS_GUARD")


def _directory(settings: BaseSettings, arguments: Arguments) -> Path:
    if arguments.pagedir:
        where = "spider argument `pagedir`"
        return _expand(where, fill_host(arguments.pagedir, host_of(arguments.seed), where))
    name = f"{re.sub(r'[^A-Za-z0-9.-]', '_', site_of(arguments.seed))}-{arguments.depth}"
    if arguments.job:
        name += f"-{quote(arguments.job, safe='')}"  # two jobs never share a directory
    return _expand("setting `TINYCRAWL_OUTPUT_DIR`", settings["TINYCRAWL_OUTPUT_DIR"]) / name


def _expand(where: str, path: str) -> Path:
    """Make *path* absolute, without links."""
    try:
        absolute = Path(path).expanduser().resolve()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            absolute.stat()
    except (OSError, RuntimeError, TypeError):  # a loop of links, a home that nobody has, a name that is too long
        raise UsageError(f"{where}: expected a path, got {show_value(path)}") from None
    return absolute


def _set_depth(settings: BaseSettings, depth: int) -> None:
    asked = settings["DEPTH_LIMIT"]
    if (settings.getpriority("DEPTH_LIMIT") or 0) > SETTINGS_PRIORITIES["default"] and str(asked) != str(depth):
        raise UsageError(f"setting `DEPTH_LIMIT`: expected the same as the argument depth={depth}, got {asked!r}")
    settings.set("DEPTH_LIMIT", depth, priority="spider")


def _check_events(path: str | None, directory: Path) -> None:
    """The event log must be a file that can be made, and not within the page directory, which holds pages only."""
    if path is None or path == "-":
        return
    log = _expand("spider argument `events`", path)
    if log.is_dir() or not log.parent.is_dir() or log.is_relative_to(directory.resolve()):
        raise UsageError(
            "spider argument `events`: expected a file in a directory that exists, not the page directory, or -,"
            f" got {show_value(path)}"
        )


def _plain(settings: BaseSettings, name: str) -> Any:
    """The value of a setting as the manifest keeps it, whether it came as text or not."""
    default = getattr(project, name)
    if isinstance(default, bool):
        return settings.getbool(name)
    if isinstance(default, list):
        return settings.getlist(name)
    return settings.getint(name) if isinstance(default, int) else settings[name] or None
