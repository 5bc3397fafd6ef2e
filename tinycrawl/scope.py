"""Scope: which URLs belong to a crawl, and the reason when one does not. URLs here are normalised."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from tinycrawl.urls import host_of, normalise_url, registrable_domain, site_of

KINDS = ("host", "domain", "prefix", "all")

# Why a URL does not belong to a crawl, in the order in which it is checked.
OUT_OF_SCOPE = "out of scope"
URL_TOO_LONG = "URL too long"
NOT_INCLUDED = "not included"
EXCLUDED = "excluded"
REPEATED_SEGMENT = "repeated path segment"
TOO_MANY_PARAMETERS = "too many parameters"
REPEATED_PARAMETER = "repeated parameter"

_DOMAIN = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:]+\]")
# What no domain holds: parts of a URL, white space, or a port, even the default one, which normalising would hide.
_NO_DOMAIN = re.compile(r"[/\\?#@%\s]|:(?!.*\])")


@dataclass(frozen=True)
class Scope:
    """The rule for what belongs to a crawl.

    The seed, and what joined by its redirect, always belong: neither the patterns nor the limits apply to them.

    :param kind: ``host``: the seed's host and port, http:80 and https:443 being one; ``domain``: its registrable
        domain with every subdomain and port; ``prefix``: what lies below the seed's directory; ``all``: everything.
    :param domains: further domains, with their subdomains, on every port; see :func:`parse_domains`.
    :param include: searched in path and query; what does not match is refused. None includes all.
    :param exclude: searched in path and query; what matches is refused.
    :param max_url_length: in characters; 0 is no limit.
    :param max_segment_repeats: how often one segment may occur in a path, or one ``name=value`` in a query; 0 is no
        limit.
    :param max_parameters: in a query; 0 is no limit.
    :param joined: URLs that count like the seed; see :meth:`joined_by`.
    :raises ValueError: *kind* is not one of ``KINDS``.

    >>> scope = Scope("http://h.test/", exclude=re.compile("^/blog/"))
    >>> scope.refusal("https://h.test/a") is None
    True
    >>> scope.refusal("http://h.test:8080/a"), scope.refusal("http://h.test/blog/1")
    ('out of scope', 'excluded')
    """

    seed: str
    kind: str = "host"
    domains: tuple[str, ...] = ()
    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None
    max_url_length: int = 2083
    max_segment_repeats: int = 4
    max_parameters: int = 32
    joined: tuple[str, ...] = ()

    # Worked out once, since every new link is checked.
    _seeds: frozenset[str] = field(init=False, repr=False, compare=False)
    _prefixes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _registrable: frozenset[str] = field(init=False, repr=False, compare=False)
    _suffixes: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"expected one of {', '.join(KINDS)}, got {self.kind!r}")
        seeds = (self.seed, *self.joined)
        prefixes: tuple[str, ...] = ()
        if self.kind == "all":
            prefixes = ("http://", "https://")
        elif self.kind != "domain":
            prefixes = tuple(
                f"{scheme}://{site_of(url)}{_directory(url) if self.kind == 'prefix' else '/'}"
                for url in seeds
                for scheme in ("http", "https")
            )
        registrable = frozenset(registrable_domain(host_of(url)) for url in seeds if self.kind == "domain")
        object.__setattr__(self, "_seeds", frozenset(seeds))
        object.__setattr__(self, "_prefixes", prefixes)
        object.__setattr__(self, "_registrable", registrable)
        object.__setattr__(self, "_suffixes", tuple(f".{domain}" for domain in self.domains))

    def refusal(self, url: str) -> str | None:
        """Return why *url* does not belong to the crawl, one of the constants above; None if it does."""
        if url in self._seeds:
            return None
        if not self.in_place(url):
            return OUT_OF_SCOPE
        if 0 < self.max_url_length < len(url):
            return URL_TOO_LONG
        if self.include or self.exclude:
            target = url[url.index("/", 8) :]
            if self.include and not self.include.search(target):
                return NOT_INCLUDED
            if self.exclude and self.exclude.search(target):
                return EXCLUDED
        if self.max_segment_repeats and _repeats_segment(url, self.max_segment_repeats):
            return REPEATED_SEGMENT
        if "&" in url:
            return self._query_refusal(url.partition("?")[2].split("&"))
        return None

    def _query_refusal(self, parameters: list[str]) -> str | None:
        if 0 < self.max_parameters < len(parameters):
            return TOO_MANY_PARAMETERS
        if self.max_segment_repeats and _repeats(parameters, self.max_segment_repeats):
            return REPEATED_PARAMETER
        return None

    def in_place(self, url: str) -> bool:
        """Whether *url* lies where the crawl does, whatever the patterns and limits say."""
        if url.startswith(self._prefixes):
            return True
        if self._registrable and registrable_domain(host_of(url)) in self._registrable:
            return True
        return bool(self._suffixes) and f".{host_of(url)}".endswith(self._suffixes)

    def may_join(self, url: str) -> bool:
        """Whether the place the seed redirects to may join: the seed's host, any port, or its registrable domain."""
        return registrable_domain(host_of(url)) == registrable_domain(host_of(self.seed))

    def joined_by(self, url: str) -> Scope:
        """Return the scope in which *url* counts like a second seed of the same kind.

        >>> Scope("http://h.test/").joined_by("https://www.h.test/").refusal("https://www.h.test/a") is None
        True
        """
        return self if url in self._seeds else replace(self, joined=(*self.joined, url))


def parse_domains(text: str) -> tuple[str, ...]:
    """Return the domains in *text*, separated by commas, in lower case and punycode, each once.

    >>> parse_domains("Bücher.test, cdn.h.test")
    ('xn--bcher-kva.test', 'cdn.h.test')

    :raises ValueError: an entry is empty or more than a domain, like a URL or a host with a port; names the entry.
    """
    domains = []
    for entry in text.split(","):
        name = entry.strip()
        try:
            domain = "" if not name or _NO_DOMAIN.search(name) else host_of(normalise_url(f"http://{name}/"))
        except ValueError:
            domain = ""
        if not _DOMAIN.fullmatch(domain):
            raise ValueError(f"not a domain: {name!r}")
        domains.append(domain)
    return tuple(dict.fromkeys(domains))


def _path_of(url: str) -> str:
    return url[url.index("/", 8) :].partition("?")[0]


def _directory(url: str) -> str:
    """Return the path of *url* up to its last slash."""
    path = _path_of(url)
    return path[: path.rindex("/") + 1]


def _repeats_segment(url: str, limit: int) -> bool:
    """Whether the path of *url* has one segment more than *limit* times.

    Empty segments count, since links that add slashes make endless paths too; the end of a directory's path is none.
    """
    if url.count("/") < limit + 3:  # two before the host, one before each segment
        return False
    return _repeats(_path_of(url)[1:].removesuffix("/").split("/"), limit)


def _repeats(parts: list[str], limit: int) -> bool:
    # Each repetition makes the set smaller by one: this alone answers for nearly every URL.
    return len(parts) - len(set(parts)) >= limit and max(Counter(parts).values()) > limit
