"""Address that a request comes from: the connection's other end, or the one that the installation's proxies report."""

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
    """The address of the caller.

    X-Forwarded-For is trusted only from a proxy of the installation, and read from its end: each proxy appends the
    address that called it, so the first one that is not a proxy's is the caller's. The caller may have written anything
    before it.
    """
    peer = _parsed(str((scope.get("client") or (UNKNOWN,))[0]))
    if peer is None or not _is_proxy(peer, proxies):
        return str(peer) if peer else UNKNOWN
    hops = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
    caller = peer
    for hop in reversed(hops):
        address = _parsed(hop)
        if address is None:  # of unknown origin
            break
        caller = address
        if not _is_proxy(address, proxies):
            break
    return str(caller)


def address_of(scope: Scope) -> str:
    """The address that the guard determined."""
    address = scope.get(ADDRESS_KEY)
    return address if isinstance(address, str) else client_address(scope, ())


def neighbourhood(address: str) -> str:
    """Network that a quota counts as one: the address, or for IPv6 the network of one household."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
    return address


def _parsed(text: str) -> Address | None:
    """An address as headers write it: in brackets, with a port or a zone, or bare."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_proxy(address: Address, proxies: Sequence[Network]) -> bool:
    return any(address in network for network in proxies if network.version == address.version)
