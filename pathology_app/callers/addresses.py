"""Address that a request comes from: the connection's other end, or the one that the installation's proxies give."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import Scope

from pipeline.settings.site import Network

ADDRESS_KEY = "gemslide.address"
"""In a request's scope."""
UNKNOWN = "unknown"
_IPV6_PREFIX = 64
"""Prefix length of the IPv6 network of one household or one computer."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def client_address(scope: Scope, proxies: Sequence[Network]) -> str:
    """The address of whoever asks.

    X-Forwarded-For is believed from a proxy of the installation only, and read from its end: each proxy adds whom it
    was asked by, so that the first address which is no proxy's is the caller's. What stands before it, the caller may
    have written.
    """
    peer = _parsed(str((scope.get("client") or (UNKNOWN,))[0]))
    if peer is None or not _is_proxy(peer, proxies):
        return str(peer) if peer else UNKNOWN
    hops = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
    caller = peer
    for hop in reversed(hops):
        address = _parsed(hop)
        if address is None:  # nobody knows who wrote that
            break
        caller = address
        if not _is_proxy(address, proxies):
            break
    return str(caller)


def address_of(scope: Scope) -> str:
    """The address that the guard found."""
    found = scope.get(ADDRESS_KEY)
    return found if isinstance(found, str) else client_address(scope, ())


def neighbourhood(address: str) -> str:
    """Network that a quota counts as one: the address, or for IPv6 the network of one household."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
    return address


def _parsed(text: str) -> Address | None:
    """An address as it stands in a header: in brackets, with a port or a zone, or bare."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _is_proxy(address: Address, proxies: Sequence[Network]) -> bool:
    return any(address in network for network in proxies if network.version == address.version)
