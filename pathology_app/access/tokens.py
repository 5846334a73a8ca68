"""Logging in with a link that is good once, as Jupyter does: no accounts, no passwords, nothing stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

SESSION_S = 12 * 3600
"""A working day; then a fresh link is needed."""


class Login:
    """One token at a time, and the sessions that came of spent ones. Lives in the server's event loop."""

    def __init__(self, announce: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        """Args: announce: shows the operator a token, and nobody else."""
        self._announce, self._clock = announce, clock
        self._token, self._is_shown = secrets.token_urlsafe(32), False
        self._ends: dict[bytes, float] = {}

    def offer(self) -> None:
        """Show the operator the token that is good now, unless that was done."""
        if not self._is_shown:
            self._is_shown = True
            self._announce(self._token)

    def spend(self, token: str) -> str | None:
        """A session for a token, which is worthless from then on; None for any other text."""
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return None
        self._token, self._is_shown = secrets.token_urlsafe(32), False
        self.offer()
        session, now = secrets.token_urlsafe(32), self._clock()
        self._ends = {key: end for key, end in self._ends.items() if end > now}
        self._ends[_key(session)] = now + SESSION_S
        return session

    def left_s(self, session: str | None) -> float:
        """Seconds until a session ends; 0 where it has ended or is none of ours."""
        return max(0.0, self._ends.get(_key(session or ""), 0.0) - self._clock())


def _key(session: str) -> bytes:
    # Sessions are looked up by digest, so that the time a look-up takes says nothing about them.
    return hashlib.sha256(session.encode(errors="replace")).digest()
