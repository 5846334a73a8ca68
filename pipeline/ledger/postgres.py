"""Connection to a ledger's PostgreSQL server: encrypted as its URL specifies, and never held up by a dead client."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from sqlalchemy import URL

from training.foundation.errors import BadRecipeError

IDLE_S = 60
"""Longest time that a write may stay idle. A machine that lost its network in the middle of one holds rows that all
workers need, and by default the server would wait for hours."""
_MODES = {"disable": False, "prefer": None, "require": True}
"""pg8000's values for libpq's modes; its True and None encrypt without checking the server's identity."""
_FILES = ("sslrootcert", "sslcert", "sslkey")


def connect_args(url: URL) -> dict[str, Any]:
    """The driver's arguments for a URL's query, which uses libpq's parameters.

    Raises:
        BadRecipeError: an unknown parameter, or certificates that cannot be read.
    """
    asked = {name: value for name, value in url.query.items() if isinstance(value, str)}
    unknown = sorted(set(url.query) - {"host", "sslmode", *_FILES})
    if unknown or len(asked) != len(url.query):
        raise BadRecipeError(
            f"ledger: unknown in a PostgreSQL URL: {', '.join(unknown)}. Allowed, once each: host, sslmode, "
            f"{', '.join(_FILES)}."
        )
    if "host" in asked:
        return {"unix_sock": _socket(asked, url.port or 5432)}
    mode = asked.pop("sslmode", "verify-full" if asked else "prefer")
    if mode == "verify-full":
        return {"ssl_context": _context(asked)}
    if mode not in _MODES or asked:
        raise BadRecipeError(
            f"ledger: sslmode={mode}{' with a certificate' if asked else ''}: use "
            f"{', '.join(_MODES)}, or verify-full, which takes {', '.join(_FILES)}."
        )
    return {"ssl_context": _MODES[mode]}


def _socket(parameters: Mapping[str, str], port: int) -> str:
    """The server's socket in a folder of this machine, so that nothing crosses a network."""
    if list(parameters) != ["host"] or not parameters["host"].startswith("/"):
        raise BadRecipeError(
            "ledger: after the ? of a PostgreSQL URL, host names the folder of a socket, as in "
            "postgresql://user@/database?host=/var/run/postgresql, and is the only parameter."
        )
    return f"{parameters['host']}/.s.PGSQL.{port}"


def _context(files: Mapping[str, str]) -> ssl.SSLContext:
    """A context that checks the server's certificate and name, and presents the client's own if there is one."""
    try:
        context = ssl.create_default_context(cafile=files.get("sslrootcert"))
        if "sslcert" in files:
            context.load_cert_chain(files["sslcert"], files.get("sslkey"))
    except OSError as error:  # ssl.SSLError is one
        named = ", ".join(f"{name}={path}" for name, path in files.items())
        raise BadRecipeError(f"ledger: {named}: cannot be used: {error.strerror or error}.") from error
    return context


def set_up(connection: Any, _: object) -> None:
    """Tell the server once per connection how long to wait within a transaction."""
    cursor = connection.cursor()
    cursor.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_S}s'")
    connection.commit()
    cursor.close()
