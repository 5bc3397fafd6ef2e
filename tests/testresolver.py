"""Names for tests: no look-up leaves the machine for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.resolver import CachingThreadedResolver
from twisted.internet import defer
from twisted.internet.error import DNSLookupError
from twisted.internet.task import deferLater

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twisted.internet.defer import Deferred


class TestResolver(CachingThreadedResolver):
    """``*.test`` is 127.0.0.1, ``*.invalid`` fails at once; everything else is Scrapy's affair.

    Names that begin with ``late`` take 0.3 seconds.
    """

    __test__ = False  # not a test class, whatever its name

    def getHostByName(self, name: str, timeout: Sequence[int] = ()) -> Deferred[str]:
        plain = name.lower().rstrip(".")
        if plain.startswith("late"):
            from twisted.internet import reactor  # not before Scrapy has chosen one

            return deferLater(reactor, 0.3, lambda: "127.0.0.1")
        if plain.endswith(".test"):
            return defer.succeed("127.0.0.1")
        if plain.endswith(".invalid"):
            return defer.fail(DNSLookupError(f"no such host: {name}"))
        return super().getHostByName(name, timeout)
