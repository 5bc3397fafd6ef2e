"""Names for tests: no look-up leaves the machine for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.resolver import CachingThreadedResolver
from twisted.internet import defer
from twisted.internet.error import DNSLookupError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twisted.internet.defer import Deferred


class TestResolver(CachingThreadedResolver):
    """``*.test`` is 127.0.0.1, ``*.invalid`` fails at once; everything else is Scrapy's affair."""

    __test__ = False  # not a test class, whatever its name

    def getHostByName(self, name: str, timeout: Sequence[int] = ()) -> Deferred[str]:
        plain = name.lower().rstrip(".")
        if plain.endswith(".test"):
            return defer.succeed("127.0.0.1")
        if plain.endswith(".invalid"):
            return defer.fail(DNSLookupError(f"no such host: {name}"))
        return super().getHostByName(name, timeout)
