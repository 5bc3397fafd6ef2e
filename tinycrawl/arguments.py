"""The arguments of the spider `site`: what is accepted, and the one line that refuses anything else."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import unquote_to_bytes

import ada_url

from tinycrawl.exceptions import UsageError
from tinycrawl.runs import read_pagedir
from tinycrawl.scope import KINDS, parse_domains
from tinycrawl.urls import normalise_url

T = TypeVar("T")
D = TypeVar("D")

ORDERS = ("breadth-first", "depth-first")

# In a site's file; the others belong to a single run of the command.
SITE_ARGUMENTS = (
    "depth",
    "pagedir",
    "scope",
    "domains",
    "include",
    "exclude",
    "max_pages",
    "order",
    "duplicates",
    "strict",
)
ARGUMENTS = ("seed", *SITE_ARGUMENTS, "events", "recheck", "fresh")

# What scrapyd adds to the arguments of a job; `_version` only where the job was scheduled with one.
SCRAPYD_ARGUMENTS = ("_job", "_version")

_LONGEST_SHOWN = 100  # characters of a refused value in a message
_SEED_START = re.compile(r"https?:[/\\]{2}", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Up to 18 digits, which is more than any crawl needs and far from where int() gives up.
_DIGITS = re.compile(r"[0-9]{1,18}")
# User and password; greedy, since the values in which we look for them are malformed.
_CREDENTIALS = re.compile(r"^(\s*[a-zA-Z][a-zA-Z0-9+.-]*:[/\\]+)?.*@", re.DOTALL)
USER_INFO = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://)([^/\s@'\"<>?#]*)@")  # of a URL, within any text


@dataclass(frozen=True)
class Arguments:
    """What one crawl was asked for, checked; the README's table says what each one means.

    :param seed: normalised, so without user, password and fragment.
    :param pagedir: None is the default, which depends on host, depth and job.
    :param include: the text of a pattern that compiles, like *exclude*; None is no pattern.
    :param max_pages: None is no limit.
    :param events: a path, or ``-`` for stdout; None is no event log.
    :param job: the id that scrapyd gave the job; None outside scrapyd.
    :param credentials: user and password in the seed, decoded; None is a seed without. Nothing may show them.
    """

    seed: str
    depth: int
    pagedir: str | None = None
    scope: str = "host"
    domains: tuple[str, ...] = ()
    include: str | None = None
    exclude: str | None = None
    max_pages: int | None = None
    order: str = "breadth-first"
    events: str | None = None
    duplicates: str = "keep"
    strict: bool = False
    fresh: bool = False
    recheck: str | None = None
    job: str | None = None
    credentials: tuple[str, str] | None = field(default=None, repr=False)


def parse_seed(value: object) -> str:
    """Return the argument `seed` as a normalised URL.

    The site's file is found by the seed's host, so the seed has to be read before the other arguments.

    >>> parse_seed(" https://user:secret@Example.org")
    'https://example.org/'

    :raises UsageError: *value* is no absolute http(s) URL, or None, which stands for an argument that was not given.
    """
    return _parse("spider argument `seed`", _read_seed, value)


def parse_credentials(seed: str) -> tuple[str, str] | None:
    """Return user and password of *seed*, which :func:`parse_seed` has accepted; None without both.

    Bytes that are not UTF-8 are kept as surrogates.

    >>> parse_credentials("https://me%40work:p%C3%A4ss:word@h.test/")
    ('me@work', 'päss:word')

    :raises UsageError: the user is one that Basic authentication cannot send (RFC 7617, 2).
    """
    url = ada_url.URL(seed.strip())
    user, password = (unquote_to_bytes(part).decode(errors="surrogateescape") for part in (url.username, url.password))
    if ":" in user or _CONTROL.search(user + password):
        raise UsageError("spider argument `seed`: expected a user without a colon, and no control characters")
    return (user, password) if user or password else None


def parse_arguments(
    given: Mapping[str, object],
    *,
    max_depth: int,
    defaults: Mapping[str, object] = MappingProxyType({}),
    source: str = "site file",
) -> Arguments:
    """Check the arguments of a crawl.

    Values are strings on the command line; a script and a site's file may use integers, booleans and, for `domains`,
    a list. An optional argument that is empty counts as not given.

    >>> parse_arguments({"seed": "http://h.test", "depth": "2"}, max_depth=10).scope
    'host'

    :param given: what the command line, a script or scrapyd gave; wins over *defaults*.
    :param max_depth: the greatest depth accepted, TINYCRAWL_MAX_DEPTH.
    :param defaults: the table [crawl] of the site's file.
    :param source: the path of that file, for messages.
    :raises UsageError: in one line, with the argument, its value and what is accepted. No password is in it.
    """
    _refuse_unknown(given, (*ARGUMENTS, *SCRAPYD_ARGUMENTS), "spider argument")
    _refuse_unknown(defaults, SITE_ARGUMENTS, f"{source}: key")

    def read(name: str, reader: Callable[[object], T], default: D) -> T | D:
        for values, where in ((given, f"spider argument `{name}`"), (defaults, f"{source}: `{name}`")):
            value = values.get(name)
            if value is not None and value != "":
                return _parse(where, reader, value)
        return default

    seed = parse_seed(given.get("seed"))
    # Required, so an empty one is refused even where the site's file has another.
    depth = None if given.get("depth") == "" else read("depth", _integer(0, max_depth), None)
    if depth is None:
        depth = _parse("spider argument `depth`", _integer(0, max_depth), given.get("depth"))
    return Arguments(
        seed=seed,
        depth=depth,
        pagedir=read("pagedir", read_pagedir, None),
        scope=read("scope", _choice(*KINDS), "host"),
        domains=read("domains", _read_domains, ()),
        include=read("include", _read_pattern, None),
        exclude=read("exclude", _read_pattern, None),
        max_pages=read("max_pages", _integer(1, None), None),
        order=read("order", _choice(*ORDERS), "breadth-first"),
        events=read("events", _read_path, None),
        duplicates=read("duplicates", _choice("keep", "fold"), "keep"),
        strict=read("strict", _read_flag, False),
        fresh=read("fresh", _read_flag, False),
        recheck=read("recheck", _read_recheck, None),
        job=read("_job", str, None),
        credentials=parse_credentials(str(given["seed"])),
    )


def show_value(value: object) -> str:
    """Return *value* for a message: quoted, on one line, not too long, and without user and password.

    >>> show_value("ftp://user:secret@h.test/")
    "'ftp://***@h.test/'"
    """
    if value is None:
        return "nothing"
    if isinstance(value, list | tuple):
        return ", ".join(show_value(entry) for entry in value)[:_LONGEST_SHOWN] or "an empty list"
    if isinstance(value, str):
        value = _CREDENTIALS.sub(r"\1***@", value)
    shown = value if isinstance(value, str) else USER_INFO.sub(r"\1***@", repr(value))
    if len(shown) > _LONGEST_SHOWN:
        shown = f"{shown[:_LONGEST_SHOWN]}..."
    return repr(shown) if isinstance(value, str) else one_line(shown)


def one_line(text: str) -> str:
    """Return *text* with every character that is not printable, line ends above all, escaped."""
    return "".join([char if char.isprintable() else repr(char)[1:-1] for char in text])


def _refuse_unknown(values: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for name in values:
        if name not in known:
            accepted = ", ".join(name for name in known if name not in SCRAPYD_ARGUMENTS)
            raise UsageError(f"{where} {show_value(name)}: unknown, expected one of {accepted}")


def _parse(where: str, reader: Callable[[object], T], value: object) -> T:
    """Read *value*; the ValueError of a reader holds what is accepted."""
    try:
        return reader(value)
    except ValueError as error:
        raise UsageError(f"{where}: expected {error}, got {show_value(value)}") from None


def _read_seed(value: object) -> str:
    expected = "one absolute http(s) URL"
    text = value.strip() if isinstance(value, str) else ""
    try:
        seed = normalise_url(text)
    except ValueError as error:
        cause = f" ({one_line(str(error))})" if text else ""
        raise ValueError(f"{expected}{cause}") from None
    # The parser forgives more than a person who names one place can mean: `http:x`, and line ends inside.
    if not _SEED_START.match(text) or _CONTROL.search(text):
        raise ValueError(expected)
    return seed


def _integer(least: int, most: int | None) -> Callable[[object], int]:
    """Make a reader of integers from *least* to *most*; None is no upper bound."""
    expected = f"an integer from {least} to {most}" if most is not None else f"an integer of {least} or more"

    def read(value: object) -> int:
        if isinstance(value, str) and _DIGITS.fullmatch(value):
            value = int(value)
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or value < least
            or (most is not None and value > most)
        ):
            raise ValueError(expected)
        return value

    return read


def _choice(*choices: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"{', '.join(choices[:-1])} or {choices[-1]}")
        return value

    return read


def _read_flag(value: object) -> bool:
    if isinstance(value, str | int) and value in ("0", "1", 0, 1):  # 0 and 1 are also False and True
        return bool(int(value))
    raise ValueError("0 or 1")


def _read_path(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("a path")
    return value


def _read_domains(value: object) -> tuple[str, ...]:
    expected = "domains separated by commas, like example.org,example.net"
    if isinstance(value, list | tuple):
        if not value:
            return ()
        if not all(isinstance(entry, str) for entry in value):
            raise ValueError(expected)
        value = ",".join(value)
    try:
        return parse_domains(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError(expected) from None


def _read_pattern(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a regular expression")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a pattern of doubtful style works, and its warning would be a second line
            re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"a regular expression ({one_line(str(error))[:_LONGEST_SHOWN]})") from None
    return value


def _read_recheck(value: object) -> str:
    if value != "failed":
        raise ValueError("failed")
    return "failed"
