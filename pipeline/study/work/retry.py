"""Waiting for a ledger whose database is away for a while: what was worked on is not lost by that."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from pipeline.ledger.database import LedgerUnavailableError
from training.foundation.errors import LockedError
from training.foundation.words.counts import counted

Answer = TypeVar("Answer")

AWAY_S = 600.0
"""Longest wait of a worker for a database that does not answer."""
_REST_S = 1.0


def wait_for_ledger(
    ask: Callable[[], Answer],
    *,
    warn: Callable[[str], None] = lambda why: None,
    rest: Callable[[float], None] = time.sleep,
) -> Answer:
    """Ask the ledger until its database answers, and return the answer.

    Args:
        warn: called once with the reason for the wait, and its limit; not at all if the ledger answers at once.
        rest: called with the seconds to wait before the next attempt.

    Raises:
        LedgerUnavailableError, LockedError: the database did not answer for `AWAY_S`.
    """
    give_up = time.monotonic() + AWAY_S
    has_warned = False
    while True:
        try:
            return ask()
        except (LedgerUnavailableError, LockedError) as error:
            if time.monotonic() > give_up:
                raise
            if not has_warned:
                warn(f"{error} Waiting for it, {counted(round(AWAY_S / 60), 'minute')} at most.")
                has_warned = True
            rest(_REST_S)
