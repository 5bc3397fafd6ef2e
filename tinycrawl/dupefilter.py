"""Duplicates: Scrapy's RFPDupeFilter over the canonical URL, remembering the rank of each URL."""

from collections.abc import Hashable, MutableMapping
from hashlib import blake2b

from scrapy import Request
from scrapy.dupefilters import RFPDupeFilter

from tinycrawl.urls import canonicalise_url


def key_of(url: str) -> str:
    """What makes two URLs the same: the canonical URL; *url* itself where it is that, so that it is in memory once."""
    canonical = canonicalise_url(url)
    return url if canonical == url else canonical


class CanonicalFingerprinter:
    """Fingerprints of requests (REQUEST_FINGERPRINTER_CLASS): the crawl only ever sends GET without a body."""

    def fingerprint(self, request: Request) -> bytes:
        return blake2b(key_of(request.url).encode(), digest_size=16).digest()


class RankDupeFilter(RFPDupeFilter):
    """Filters a link whose URL was found before, by any other rank.

    *ranks* is shared with the SerialCrawl, which claims a rank for a link before a request is made of it.
    """

    ranks: MutableMapping[Hashable, int] | None = None

    def request_seen(self, request: Request) -> bool:
        link = request.meta.get("link")
        if self.ranks is None or link is None:
            return super().request_seen(request)
        return bool(self.ranks.setdefault(key_of(link.url), link.rank) != link.rank)
