"""Limits on sign-in attempts, counted by name and by address across all processes of the web app."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from sqlalchemy import Connection, case, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from pipeline.ledger.database import Database
from pipeline.ledger.tables import attempt

WINDOW_S = 15 * 60.0
"""Time after a subject's first attempt at which its count starts again."""


class Attempts:
    """Attempts in one database.

    Args:
        clock: seconds since 1970.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    def take(self, limits: Mapping[str, int]) -> float:
        """Count one attempt before it is made, so that simultaneous attempts all count.

        Args:
            limits: attempts allowed per window, by subject.

        Returns:
            Seconds to wait; 0 if the attempt may be made.
        """
        now = self._clock()
        with self._database.read() as connection:
            wait_s = self._wait_s(connection, limits, now, counted=0)
        if wait_s:
            return wait_s  # without a write: a flood costs one read per attempt
        with self._database.write() as connection:
            connection.execute(delete(attempt).where(attempt.c.since <= now - WINDOW_S))
            for subject in sorted(limits):
                insert = sqlite.insert if self._database.is_sqlite else postgresql.insert
                counted = insert(attempt).values(subject=subject, number=1, since=now)
                again = {"number": attempt.c.number + 1}
                connection.execute(counted.on_conflict_do_update(index_elements=["subject"], set_=again))
            return self._wait_s(connection, limits, now, counted=1)

    def forgive(self, *, forgotten: str, one_less: str) -> None:
        """After a success, forget one subject's attempts and take one off another's."""
        fewer = case((attempt.c.number > 0, attempt.c.number - 1), else_=0)
        with self._database.write() as connection:
            connection.execute(delete(attempt).where(attempt.c.subject == forgotten))
            connection.execute(update(attempt).where(attempt.c.subject == one_less).values(number=fewer))

    @staticmethod
    def _wait_s(connection: Connection, limits: Mapping[str, int], now: float, *, counted: int) -> float:
        rows = connection.execute(select(attempt).where(attempt.c.subject.in_(list(limits))))
        waits: list[float] = [row.since + WINDOW_S - now for row in rows if row.number - counted >= limits[row.subject]]
        return max([0.0, *waits])
