"""The names by which the app may be called: exactly the values allowed in Host, and so in Origin.

A stranger's page can reach this server through its own host name that resolves here (DNS rebinding);
its Host is that name, so an exact list keeps it out.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from training.foundation.errors import BadRecipeError

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")

_NAME = re.compile(r"(?P<name>[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(:(?P<port>\d{1,5}))?")


def is_loopback(address: str | None) -> bool:
    """Whether an IP address is this computer's own loopback; False for None and for anything but an IP address."""
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def bracketed(address: str) -> str:
    """An IP address as links write it."""
    return f"[{address}]" if ":" in address else address


def parse_names(given: Iterable[str]) -> tuple[str, ...]:
    """Names as they will appear in Host: lower case, with or without a port.

    Raises:
        BadRecipeError: not a host name, or an address with a path or a scheme.
    """
    names = tuple(name.strip().lower() for name in given)
    for name in names:
        if not _NAME.fullmatch(name):
            raise BadRecipeError(
                f"name {name!r}: expected the part of the browser's address between // and the next /, "
                "as in slides.example.org or localhost:9000."
            )
    return names


@dataclass(frozen=True)
class Names:
    """The app's own names.

    Attributes:
        given: by the operator, as from `parse_names`. One without a port is valid with the port that the app listens
            on, and with none (behind a reverse proxy).
    """

    given: tuple[str, ...] = ()

    @property
    def are_public(self) -> bool:
        """Whether any of them is for computers other than this one."""
        return any(name.rsplit(":", 1)[0] not in LOOPBACK_NAMES and name not in LOOPBACK_NAMES for name in self.given)

    def include(self, host: str, server: tuple[str, int | None] | None) -> bool:
        """Whether `host` is one of them.

        Args:
            host: the request's Host.
            server: address and port of this end of the connection, as in the ASGI scope.
        """
        return host.lower() in set(self._allowed(server))

    def _allowed(self, server: tuple[str, int | None] | None) -> Iterator[str]:
        address, port = server or ("", None)
        own = LOOPBACK_NAMES if is_loopback(address) else (bracketed(address),)
        for name in (*own, *self.given):
            yield f"{name}:{port}"
        if port in (80, 443):
            yield from own
        yield from self.given
