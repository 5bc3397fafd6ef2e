"""The address guard: which addresses a crawl may connect to, decided on the very address of each connection.

A name may resolve to anything, and to something else the next time. So names are not looked at, but for those that
need no resolver.
"""

import ipaddress
from typing import Any

from scrapy.exceptions import IgnoreRequest
from zope.interface import directlyProvides, providedBy  # type: ignore[import-untyped]  # it has no type hints

PRIVATE_ADDRESS = "private address"

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# What `is_global` lets through, in some versions of Python.
_MORE = (
    ipaddress.IPv4Network("168.63.129.16/32"),  # Azure's metadata service; those of others are link-local or private
    ipaddress.IPv4Network("192.0.0.0/24"),  # special purposes, and Oracle's metadata service: RFC 6890
    ipaddress.IPv6Network("64:ff9b:1::/48"),  # local translation: RFC 8215
    ipaddress.IPv6Network("3fff::/20"),  # documentation: RFC 9637
    ipaddress.IPv6Network("5f00::/16"),  # segment routing: RFC 9602
    ipaddress.IPv6Network("fec0::/10"),  # site-local: RFC 3879
)
# All that is given to anybody: the rest of IPv6 is reserved, and what is routed there is local.
_UNICAST = (ipaddress.IPv6Network("2000::/3"), ipaddress.IPv6Network("64:ff9b::/96"))
# What holds an IPv4 address in its last bits: IPv4-compatible (RFC 4291), translated (RFC 6052).
_EMBEDDING = tuple(ipaddress.IPv6Network(net) for net in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96"))


class PrivateAddress(IgnoreRequest):
    """Raised where a connection would go to an address that is not public."""

    def __init__(self) -> None:
        super().__init__(PRIVATE_ADDRESS)


def is_public(address: str) -> bool:
    """Whether *address*, an IP address as text, is one of the Internet at large.

    >>> [is_public(a) for a in ("93.184.216.34", "127.0.0.1", "169.254.169.254", "10.0.0.1", "100.100.100.200")]
    [True, False, False, False, False]
    >>> [is_public(a) for a in ("2606:2800:220:1::1", "::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "fe80::1%eth0")]
    [True, False, False, False, False]

    :raises ValueError: it is none.
    """
    return all(
        one.is_global
        and not one.is_multicast
        and not any(one in net for net in _MORE)
        and (one.version == 4 or any(one in net for net in _UNICAST))
        for one in _all(address)
    )


def _all(address: str) -> list[_Address]:
    """The address, and the IPv4 addresses that packets to it may end at."""
    one = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(one, ipaddress.IPv4Address):
        return [one]
    found: list[_Address] = [one]
    if one.ipv4_mapped is not None:
        return [one.ipv4_mapped]
    if one.sixtofour is not None:
        found.append(one.sixtofour)
    if one.teredo is not None:
        found += one.teredo
    if any(one in network for network in _EMBEDDING):
        embedded = ipaddress.IPv4Address(int(one) & 0xFFFFFFFF)
        return [embedded] if one in _EMBEDDING[2] else [one, embedded]
    return found


def is_private_host(host: str) -> bool:
    """Whether *host*, of a normalised URL, is a private address by its spelling.

    >>> [is_private_host(host) for host in ("127.0.0.1", "[::1]", "localhost", "www.localhost", "h.test", "8.8.8.8")]
    [True, True, True, True, False, False]
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return not is_public(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False


class GuardedReactor:
    """A reactor that makes no connection to an address that is not public; all else is the reactor's."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        directlyProvides(self, providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def connectTCP(self, host: str, *args: Any, **kwargs: Any) -> Any:
        if not is_public(host):
            raise PrivateAddress
        return self._reactor.connectTCP(host, *args, **kwargs)
