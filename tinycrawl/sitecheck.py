"""What sites' files say, looked at before a crawl does: all faults of a file, and where each value of a crawl is from.

The rules themselves are those that a crawl goes by: `sites`, `arguments`, `plan`, `schedule`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any
from urllib.request import getproxies

from scrapy.settings import BaseSettings, Settings, default_settings

import tinycrawl.settings as project
from tinycrawl.arguments import SITE_ARGUMENTS, one_line, parse_arguments, parse_seed
from tinycrawl.exceptions import TinycrawlError, UsageError
from tinycrawl.plan import SECRETS, check_settings, known_settings, make_plan, set_for_site
from tinycrawl.runs import HOST
from tinycrawl.schedule import Schedule, find_schedule_faults, read_schedule
from tinycrawl.sites import Fault, Site, file_name, line_of, load_site, parse_site, read_text, site_folder
from tinycrawl.urls import host_of

_SUFFIX = ".toml"
_NOWHERE = "http://host.invalid/"  # stands for the seed where the file's name is no host
_HIDDEN_VALUE = "(set)"
# What may hold a secret beside our own settings: keys of clouds, passwords of mail and FTP, headers.
_SECRET_NAME = re.compile(r"PASS|SECRET|TOKEN|_KEY$|_HEADERS$|^HTTPAUTH_|^FEEDS$")


@dataclass(frozen=True)
class CheckedFile:
    """A site's file with everything that is wrong with it; *schedule* is None without one, and where it is wrong."""

    path: str
    host: str
    faults: list[Fault]
    schedule: Schedule | None = None
    pagedir: str = ""


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
    except ValueError as error:
        return CheckedFile(path, name, [*faults, Fault(path, 0, str(error))])
    site, unknown = parse_site(text, path, known_settings())
    faults += unknown
    if site is None:
        return CheckedFile(path, name, faults)
    seed = _NOWHERE if faults and faults[0].problem.startswith("its name") else _seed_at(name)
    faults += _check_values(site, settings, text, seed)
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
    pagedir = str(site.crawl.get("pagedir", "")).replace(HOST, name)
    return CheckedFile(path, name, [], schedule, str(Path(pagedir).expanduser()))


def check_files(files: list[Traversable], settings: BaseSettings) -> list[CheckedFile]:
    """The same for several files, no two of whose schedules may share a directory."""
    checked = [check_file(file, settings) for file in files]
    owners: dict[str, CheckedFile] = {}
    for file in checked:
        if file.schedule is None:
            continue
        other = owners.setdefault(file.pagedir, file)
        if other is not file:
            line = line_of(read_text(Path(file.path)), "crawl", "pagedir")
            file.faults.append(Fault(file.path, line, f"`pagedir`: expected one of its own, {other.path} has it too"))
    return [replace(file, schedule=None) if file.faults else file for file in checked]


def _check_name(name: str, path: str) -> Iterator[Fault]:
    host = name[: -len(_SUFFIX)]
    try:
        expected = file_name(host_of(parse_seed(_seed_at(host))))
    except UsageError:
        expected = None
    if expected is None:
        yield Fault(path, 0, "its name is no host; expected one like www.example.org.toml")
    elif expected != name:
        yield Fault(path, 0, f"its name is not as URLs have the host; expected {expected}")


def _seed_at(host: str) -> str:
    return f"http://[{host}]/" if ":" in host else f"http://{host}/"


def _check_values(site: Site, settings: BaseSettings, text: str, seed: str) -> Iterator[Fault]:
    """Look at each value by itself, so that one fault does not hide another."""
    trial = settings.copy()
    for name, value in site.settings.items():
        line = line_of(text, "settings", name)
        before = settings[name]
        try:
            set_for_site(trial, name, value, site.path)
            _check_kind(name, value)
            check_settings(trial)
        except UsageError as error:
            yield Fault(site.path, line, str(error))
            trial.set(name, before, priority="spider")
    for name, value in site.crawl.items():
        given = {"seed": seed} if name == "depth" else {"seed": seed, "depth": "0"}
        try:
            parse_arguments(
                given, max_depth=trial.getint("TINYCRAWL_MAX_DEPTH"), defaults={name: value}, source="[crawl]"
            )
        except UsageError as error:
            yield Fault(site.path, line_of(text, "crawl", name), str(error).removeprefix("[crawl]: "))


def _check_kind(name: str, value: object) -> None:
    """A setting of Scrapy's that is text, a number or a flag must be one; the rest is `check_settings`' matter."""
    default = getattr(default_settings, name, None)
    if isinstance(default, str) and not isinstance(value, str) and name != "LOG_LEVEL":
        shown = "what is not shown" if _is_secret(name) else repr(value)
        raise UsageError(f"setting `{name}`: expected text, got {one_line(shown)}")
    if name in vars(project) or not isinstance(default, bool | int | float):
        return
    try:
        trial = BaseSettings({name: value})
        trial.getbool(name) if isinstance(default, bool) else trial.getfloat(name)
    except (TypeError, ValueError):
        kind = "0 or 1" if isinstance(default, bool) else "a number"
        shown = "what is not shown" if _is_secret(name) else repr(value)
        raise UsageError(f"setting `{name}`: expected {kind}, got {one_line(shown)}") from None


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


def explain(host: str, settings: BaseSettings) -> tuple[list[Value], Schedule | None]:
    """Everything that a crawl of *host* (or of a seed there) would use, and the schedule of its file, if it has one.

    :raises UsageError: a crawl would be refused too.
    """
    directory = sites_directory(settings)
    seed = parse_seed(host if "://" in host else _seed_at(host.strip("[]")))
    host = host_of(seed)
    site = load_site(host, directory, known_settings=known_settings())
    text = Path(site.path).read_text(encoding="utf-8") if site.path else ""
    checked = check_file(Path(site.path), settings) if site.path else None
    if checked is not None and checked.faults:
        raise UsageError(str(checked.faults[0]))
    schedule = checked.schedule if checked is not None else None
    if schedule is not None and "://" not in host:
        seed = schedule.seed

    def from_file(table: str, name: str) -> str:
        return f"{site.path}:{line_of(text, table, name)}"

    trial = settings.copy()
    has_depth = "depth" in site.crawl
    plan = make_plan(trial, {"seed": seed} if has_depth else {"seed": seed, "depth": "0"})
    values = [Value("argument", "seed", seed, from_file("schedule", "seed") if schedule else "-a seed=")]
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
    if _is_secret(name) and value not in (None, "", {}, Settings()[name]):
        return _HIDDEN_VALUE
    return value


def _is_secret(name: str) -> bool:
    return name in SECRETS or bool(_SECRET_NAME.search(name))


def _with_environment(value: Value) -> Value:
    if value.name == "TINYCRAWL_PROXY" and not value.value:
        proxies = getproxies()
        names = [f"{scheme}_proxy" for scheme in ("http", "https") if scheme in proxies]
        if names:
            return Value(value.kind, value.name, _HIDDEN_VALUE, f"environment: {', '.join(names)}")
    return value
