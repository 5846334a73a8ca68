"""Sessions as this process knows them: a tile needs no database query, and a session that ended elsewhere ends here
within seconds."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.ledger import SEEN_AGAIN_S, Session, Sessions

REMEMBERED_S = 5.0
"""Seconds for which an answer of the database is valid."""
MAX_REMEMBERED = 10_000
"""Of a hundred bytes each; somebody who sends forged sessions fills no more."""


@dataclass
class _Known:
    session: Session | None
    until: float


class SessionCache:
    """Looks sessions up.

    Args:
        sessions: the project's, fetched when they are needed: a lookup creates no database.
        clock: seconds since 1970.
    """

    def __init__(self, sessions: Callable[[], Sessions | None], *, clock: Callable[[], float] = time.time) -> None:
        self._sessions, self._clock = sessions, clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def remembered(self, key: str, *, active: bool) -> _Known | None:
        """Session found recently; None where the database must be queried.

        Args:
            active: whether the person is doing something now, which must be noted once a minute.
        """
        now = self._clock()
        with self._lock:
            known = self._known.get(key)
        if known is None or now >= known.until:
            return None
        is_stale = active and known.session is not None and now - known.session.seen >= SEEN_AGAIN_S
        return None if is_stale else known

    def find(self, key: str, *, active: bool) -> Session | None:
        """A session, even one that has ended; None where there was none.

        Raises:
            GemslideError: the ledger is unavailable, or cannot be written.
        """
        known = self.remembered(key, active=active)
        if known is None:
            sessions = self._sessions()
            session = sessions.find(key) if sessions else None
            if sessions and session and active and session.left_s(self._clock()):
                session = sessions.see(session)
            known = _Known(session, self._clock() + REMEMBERED_S)
            with self._lock:
                self._known[key] = known
                self._known.move_to_end(key)
                while len(self._known) > MAX_REMEMBERED:
                    self._known.popitem(last=False)
        return known.session

    def forget(self, key: str) -> None:
        """Forget a session that this process has changed."""
        with self._lock:
            self._known.pop(key, None)
