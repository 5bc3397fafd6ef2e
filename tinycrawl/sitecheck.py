"""What sites' files say, looked at before a crawl does: all faults of a file, and where each value of a crawl is from.

The rules themselves are those that a crawl goes by: `sites`, `arguments`, `plan`, `schedule`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.resources.abc import Traversable
from ipaddress import IPv6Address
from os.path import realpath
from pathlib import Path
from typing import Any
from urllib.request import getproxies

from scrapy.settings import BaseSettings, Settings

import tinycrawl.settings as project
from tinycrawl.arguments import SITE_ARGUMENTS, one_line, parse_seed, show_value
from tinycrawl.exceptions import TinycrawlError, UsageError
from tinycrawl.plan import known_settings, make_plan, set_for_site
from tinycrawl.runs import fill_host
from tinycrawl.schedule import Schedule, find_schedule_faults, read_schedule
from tinycrawl.settingcheck import check_settings, is_secret
from tinycrawl.sites import (
    Fault,
    Site,
    UnreadableError,
    file_name,
    find_argument_faults,
    line_of,
    load_site,
    parse_site,
    read_text,
    site_folder,
)
from tinycrawl.urls import host_of

_SUFFIX = ".toml"
_NOWHERE = "http://host.invalid/"  # stands for the seed where the file's name is no host
_HIDDEN_VALUE = "(set)"
# A port after a colon; or, as people write it where a file's name has none, after what no host's name has: an
# underscore in the last of its labels.
_WITH_PORT = re.compile(r"(.*)(?<!:):\d+|(localhost|.*\..*|\[.*\])_\d+")


@dataclass(frozen=True)
class CheckedFile:
    """A site's file with everything that is wrong with it; *schedule* is None without one, and where it is wrong.

    *pagedir* is without links, and set on *line*; None: the file says none, or is wrong.
    """

    path: str
    host: str
    faults: list[Fault]
    schedule: Schedule | None = None
    pagedir: Path | None = None
    line: int = 0


def sites_directory(settings: BaseSettings) -> Path | None:
    """The folder of the sites' files; None is the packaged one."""
    folder = settings["TINYCRAWL_SITES_DIR"]
    try:
        return Path(folder).expanduser().absolute() if folder else None
    except (RuntimeError, TypeError):
        raise UsageError(f"setting `TINYCRAWL_SITES_DIR`: expected a path, got {folder!r}") from None


def find_files(place: Path | None) -> list[Traversable]:
    """The sites' files of a folder, or the file that *place* is; None is the packaged folder.

    :raises UsageError: there is no such file or folder.
    """
    if place is not None and place.is_file():
        return [place]
    if place is not None and not place.exists():
        raise UsageError(f"{one_line(str(place))}: no such file or folder")
    try:
        files = [file for file in site_folder(place).iterdir() if file.name.lower().endswith(_SUFFIX)]
    except OSError as error:
        raise UsageError(f"{one_line(str(place))}: cannot be read: {error.strerror}") from None
    return sorted(files, key=lambda file: file.name)


def check_file(file: Traversable, settings: BaseSettings) -> CheckedFile:
    """Find all faults of a site's file; *settings* are those of the project and of the command line."""
    path = one_line(str(file))
    name = file.name.removesuffix(_SUFFIX)
    faults = list(_check_name(file.name, path))
    try:
        text = read_text(file)
    except UnreadableError as error:
        return CheckedFile(path, name, [*faults, Fault(path, error.line, str(error))])
    site, unknown = parse_site(text, path, known_settings())
    faults += unknown
    if site is None:
        return CheckedFile(path, name, faults)
    seed = _NOWHERE if faults and faults[0].problem.startswith("its name") else _seed_at(name)
    faults += _check_values(site, settings, text)
    schedule = None
    if line_of(text, "schedule"):
        for key, problem in find_schedule_faults(name, site.schedule, site.crawl):
            faults.append(Fault(path, line_of(text, "schedule", *([key] if key else [])), problem))
        if not faults:
            schedule = read_schedule(name, site.schedule)
    if not faults:
        faults += _check_whole(site, settings, text, schedule.seed if schedule else seed, Path(path).parent)
    if faults:
        return CheckedFile(path, name, sorted(faults, key=lambda fault: fault.line))
    if not site.crawl.get("pagedir"):
        return CheckedFile(path, name, [], schedule)
    pagedir = Path(fill_host(site.crawl["pagedir"], host_of(seed), "`pagedir`")).expanduser()
    return CheckedFile(path, name, [], schedule, Path(realpath(pagedir)), line_of(text, "crawl", "pagedir"))


def check_files(files: list[Traversable], settings: BaseSettings) -> list[CheckedFile]:
    """The same for several files, no two of which may share a directory, or have one within the other's."""
    checked = [check_file(file, settings) for file in files]
    owners: dict[Path, CheckedFile] = {}
    for file in checked:
        if file.pagedir is None:
            continue
        other = owners.setdefault(file.pagedir, file)
        if other.host != file.host:  # the same one may be given twice
            problem = f"`pagedir`: expected one of its own, {other.path} has it too"
            file.faults.append(Fault(file.path, file.line, problem))
    for file in checked:
        for folder in file.pagedir.parents if file.pagedir is not None else ():
            if folder in owners and owners[folder].host != file.host:
                problem = f"`pagedir`: expected one that is not within that of {owners[folder].path}, {folder}"
                file.faults.append(Fault(file.path, file.line, problem))
    return [replace(file, schedule=None) if file.faults else file for file in checked]


def _check_name(name: str, path: str) -> Iterator[Fault]:
    host = name[: -len(_SUFFIX)]
    expected = _file_of(host)
    with_port = _WITH_PORT.fullmatch(host)
    at_port = _file_of(with_port[1] or with_port[2]) if with_port and not _is_ipv6(host) else None
    if at_port is not None:
        yield Fault(path, 0, f"its name has a port, and a file is for all ports of its host; expected {at_port}")
    elif expected is None:
        yield Fault(path, 0, "its name is no host; expected one like www.example.org.toml")
    elif expected != name:
        yield Fault(path, 0, f"its name is not as URLs have the host; expected {expected}")


def _file_of(host: str) -> str | None:
    """The name of the file for *host*, however that is written; None if it is no host."""
    try:
        return file_name(host_of(parse_seed(_seed_at(host))))
    except UsageError:
        return None


def _is_ipv6(host: str) -> bool:
    try:
        return bool(IPv6Address(host))
    except ValueError:
        return False


def _seed_at(host: str) -> str:
    host = host.removeprefix("[").removesuffix("]")
    return f"http://[{host}]/" if ":" in host else f"http://{host}/"


def _check_values(site: Site, settings: BaseSettings, text: str) -> Iterator[Fault]:
    """Look at each value by itself, so that one fault does not hide another."""
    trial = settings.copy()
    for name, value in site.settings.items():
        line = line_of(text, "settings", name)
        before = settings[name]
        try:
            set_for_site(trial, name, value, site.path)
            check_settings(trial)
        except UsageError as error:
            yield Fault(site.path, line, str(error))
            trial.set(name, before, priority="spider")
    for name, problem in find_argument_faults(site.crawl, max_depth=trial.getint("TINYCRAWL_MAX_DEPTH")):
        yield Fault(site.path, line_of(text, "crawl", name), problem)


def _check_whole(site: Site, settings: BaseSettings, text: str, seed: str, folder: Path) -> Iterator[Fault]:
    """Values that are right one by one need not be together: a password wants a user, a cookies file must exist."""
    trial = settings.copy()
    trial.set("TINYCRAWL_SITES_DIR", str(folder), priority="cmdline")
    given = {"seed": seed}
    if "depth" not in site.crawl:
        given["depth"] = str(site.settings.get("DEPTH_LIMIT", 0))
    try:
        make_plan(trial, given)
    except TinycrawlError as error:
        problem = str(error).removeprefix(f"{site.path}: ")
        named = re.findall(r"`(\w+)`", problem)
        if problem.startswith("cookies file "):
            named.insert(0, "TINYCRAWL_COOKIES_FILE")
        lines = [
            line_of(text, table, name)
            for name in named
            for table in ("settings", "crawl", "schedule")
            if name in getattr(site, table)
        ]
        yield Fault(site.path, lines[0] if lines else 0, problem)


# Where values come from


@dataclass(frozen=True)
class Value:
    """What a crawl of a host would use: *kind* is argument or setting."""

    kind: str
    name: str
    value: Any
    source: str


@dataclass(frozen=True)
class Found:
    """The *file* for *host*; without one, where it was looked for, and the files of hosts *near* to it."""

    host: str
    file: str
    folder: str
    near: tuple[str, ...] = ()

    def __str__(self) -> str:
        near = f"; near to it: {', '.join(map(one_line, self.near))}" if self.near else ""
        return self.file or f"no file for {self.host} in {self.folder}, what follows is without one{near}"


def find_site_file(host: str, settings: BaseSettings) -> Found:
    """:raises UsageError: *host* is neither a host nor a seed, or there is no such folder."""
    directory = sites_directory(settings)
    host = host_of(_parse_place(host))
    folder = "tinycrawl/sites (TINYCRAWL_SITES_DIR is not set)" if directory is None else one_line(str(directory))
    names = {file.name.removesuffix(_SUFFIX): file for file in find_files(directory)}
    bare, expected = host.strip("[]"), file_name(host)
    if bare in names and expected is not None:
        return Found(host, one_line(str(names[bare])), folder)
    spelled_otherwise = [name for name in names if expected is not None and _file_of(name) == expected]
    www = [name for name in names if f"www.{name}" == bare or name == f"www.{bare}"]
    near = [*spelled_otherwise, *www, *get_close_matches(bare, names, n=3, cutoff=0.8)]
    return Found(host, "", folder, tuple(names[name].name for name in dict.fromkeys(near)))


def _parse_place(place: str) -> str:
    """The seed that *place* is, or the one at a host, with or without a port."""
    try:
        if "://" in place:
            return parse_seed(place)
        return parse_seed(_seed_at(place) if _is_ipv6(place) else f"http://{place}/")
    except UsageError:
        raise UsageError(f"host: expected one like www.example.org, or a seed, got {show_value(place)}") from None


def explain(place: str, settings: BaseSettings) -> tuple[list[Value], Schedule | None]:
    """Everything that a crawl of a host, or of a seed, would use, and the schedule of its file, if it has one.

    :raises UsageError: a crawl would be refused too.
    """
    directory = sites_directory(settings)
    seed = _parse_place(place)
    site = load_site(host_of(seed), directory, known_settings=known_settings())
    text = read_text(Path(site.path)) if site.path else ""
    checked = check_file(Path(site.path), settings) if site.path else None
    if checked is not None and checked.faults:
        raise UsageError(str(checked.faults[0]))
    schedule = checked.schedule if checked is not None else None
    is_scheduled = schedule is not None and "://" not in place
    if schedule is not None and is_scheduled:
        seed = schedule.seed

    def from_file(table: str, name: str) -> str:
        return f"{site.path}:{line_of(text, table, name)}"

    trial = settings.copy()
    has_depth = "depth" in site.crawl
    plan = make_plan(trial, {"seed": seed} if has_depth else {"seed": seed, "depth": "0"})
    values = [Value("argument", "seed", seed, from_file("schedule", "seed") if is_scheduled else "-a seed=")]
    for name in SITE_ARGUMENTS:
        source = from_file("crawl", name) if name in site.crawl else "default"
        value = getattr(plan.arguments, name)
        if name == "depth" and not has_depth:
            value, source = None, "required: -a depth="
        if name == "pagedir":
            value = str(plan.directory) if has_depth or value else None
        values.append(Value("argument", name, value, source))
    values += [
        Value("setting", name, _shown(name, trial[name]), _source(name, trial, settings, from_file))
        for name in sorted({*_plain_names(), *site.settings, *_given(settings)})
    ]
    return [_with_environment(value) for value in values], schedule


def _plain_names() -> Iterator[str]:
    """The project's settings but those that put it together."""
    for name, value in vars(project).items():
        if name.isupper() and "tinycrawl." not in repr(value) and "scrapy." not in repr(value):
            yield name


def _given(settings: BaseSettings) -> list[str]:
    return [name for name in settings if settings.getpriority(name) == 40 and name in known_settings()]


def _source(name: str, trial: BaseSettings, given: BaseSettings, from_file: Any) -> str:
    priority = trial.getpriority(name) or 0
    if priority >= 40:
        return "command line"
    if priority > 20 and (given.getpriority(name) or 0) != priority:
        return str(from_file("settings", name))
    return "tinycrawl/settings.py" if name in vars(project) and priority >= 20 else "Scrapy"


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, BaseSettings):
        value = value.copy_to_dict()
    if is_secret(name) and value not in (None, "", {}, Settings()[name]):
        return _HIDDEN_VALUE
    return value


def _with_environment(value: Value) -> Value:
    if value.name == "TINYCRAWL_PROXY" and not value.value:
        proxies = getproxies()
        names = [f"{scheme}_proxy" for scheme in ("http", "https") if scheme in proxies]
        if names:
            return Value(value.kind, value.name, _HIDDEN_VALUE, f"environment: {', '.join(names)}")
    return value
