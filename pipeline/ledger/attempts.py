"""Limits on attempts to sign in, counted by name and by address, for all processes of the web app together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from sqlalchemy import Connection, case, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from pipeline.ledger.database import Database
from pipeline.ledger.tables import attempt

WINDOW_S = 15 * 60.0
"""After this long since its first attempt, a subject begins anew."""


class Attempts:
    """Attempts in one database.

    Args:
        clock: seconds since 1970.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    def take(self, limits: Mapping[str, int]) -> float:
        """Count one attempt, before it is made, so that many at once count as many.

        Args:
            limits: how many each subject may make in a window.

        Returns:
            Seconds to wait; 0: it may be made.
        """
        now = self._clock()
        with self._database.read() as connection:
            wait_s = self._wait_s(connection, limits, now, counted=0)
        if wait_s:
            return wait_s  # without a write: a flood costs one look each
        with self._database.write() as connection:
            connection.execute(delete(attempt).where(attempt.c.since <= now - WINDOW_S))
            for subject in sorted(limits):
                insert = sqlite.insert if self._database.is_sqlite else postgresql.insert
                counted = insert(attempt).values(subject=subject, number=1, since=now)
                again = {"number": attempt.c.number + 1}
                connection.execute(counted.on_conflict_do_update(index_elements=["subject"], set_=again))
            return self._wait_s(connection, limits, now, counted=1)

    def forgive(self, *, forgotten: str, one_less: str) -> None:
        """After a success: forget one subject's attempts, and take the last one from another's."""
        fewer = case((attempt.c.number > 0, attempt.c.number - 1), else_=0)
        with self._database.write() as connection:
            connection.execute(delete(attempt).where(attempt.c.subject == forgotten))
            connection.execute(update(attempt).where(attempt.c.subject == one_less).values(number=fewer))

    @staticmethod
    def _wait_s(connection: Connection, limits: Mapping[str, int], now: float, *, counted: int) -> float:
        rows = connection.execute(select(attempt).where(attempt.c.subject.in_(list(limits))))
        waits: list[float] = [row.since + WINDOW_S - now for row in rows if row.number - counted >= limits[row.subject]]
        return max([0.0, *waits])
