"""Where the links of a page lead: the same for the crawl and for whoever reads its directory."""

from collections import Counter
from collections.abc import Iterable

from tinycrawl.markup import Link
from tinycrawl.urls import ParameterFilter, join_base, make_joiner


class LinkRules:
    """Turns links as a page has them into normalised URLs.

    :param drop: removes parameters that make no difference.
    :param follow_nofollow: whether links that say ``rel=nofollow`` count.
    """

    def __init__(self, drop: ParameterFilter, *, follow_nofollow: bool) -> None:
        self._drop = drop
        self._follow_nofollow = follow_nofollow

    def resolve(
        self, links: Iterable[Link], url: str, base: str | None, charset: str, skipped: Counter[str]
    ) -> list[str]:
        """The URLs of *links* in their order, duplicates kept; what leads to no http(s) URL is counted in *skipped*.

        *url* is that of the page, *base* what its ``<base>`` says, *charset* the one it was served in.
        """
        join, drop = make_joiner(url if base is None else join_base(url, base), charset), self._drop
        urls = []
        for href, is_nofollow in links:
            if is_nofollow and not self._follow_nofollow:
                skipped["rel=nofollow"] += 1
                continue
            try:
                joined = join(href)
            except ValueError:
                skipped["malformed"] += 1
            else:
                if joined is None:
                    skipped["not http"] += 1
                else:
                    urls.append(drop(joined) if drop else joined)
        return urls
