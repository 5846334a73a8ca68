"""Logging in with a one-time link, where there are no accounts: for people whom the operator gives it to."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pipeline.ledger import Sessions, key_of

LINK_S = 7 * 24 * 3600.0
"""Seconds for which an unused link is valid."""


class Links:
    """The link shown on this process's terminal; any process accepts it.

    Args:
        sessions: where links are kept.
        announce: shows a token to the operator, and nobody else; None: this process issues none.
    """

    def __init__(self, sessions: Callable[[], Sessions], announce: Callable[[str], None] | None) -> None:
        self._sessions, self._announce = sessions, announce
        self._lock = threading.Lock()
        self._key: str | None = None

    def offer(self) -> None:
        """Show the operator a token, unless one that is still valid was shown.

        Raises:
            GemslideError: the ledger is unavailable, or cannot be created.
        """
        if self._announce is None:
            return
        with self._lock:
            sessions = self._sessions()
            shown = sessions.find(self._key) if self._key else None
            if shown is None or not shown.left_s(sessions.now()):
                token = sessions.make("link", LINK_S)
                self._key = key_of(token)
                self._announce(token)
