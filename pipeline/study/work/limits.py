"""Limits on a study's tasks: how long a silent worker keeps one, how often and when it is retried."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_BACKOFF_S = 3600.0
MOST_DOUBLINGS = 30
"""Enough to reach an hour from a millisecond."""


@dataclass(frozen=True)
class Limits:
    """Limits on a study's tasks."""

    lease_s: float = 30.0
    max_attempts: int = 3
    backoff_s: float = 5.0
    """Before the second attempt; doubled before each further one, up to an hour."""

    def wait_s(self, attempts: int) -> float:
        """Seconds before the next attempt, after this many."""
        doublings = min(max(attempts - 1, 0), MOST_DOUBLINGS)
        return min(self.backoff_s * 2.0**doublings, max(self.backoff_s, LONGEST_BACKOFF_S))
