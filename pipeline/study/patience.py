"""Waiting for a ledger whose database is away for a while: what was worked on is not lost by that."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from pipeline.errors import LockedError
from pipeline.study.database import LedgerAwayError

Answer = TypeVar("Answer")

AWAY_S = 600.0
"""How long a worker waits for a database that does not answer."""
_REST_S = 1.0


def patiently(
    ask: Callable[[], Answer],
    *,
    said: Callable[[str], None] = lambda why: None,
    rest: Callable[[float], None] = time.sleep,
) -> Answer:
    """What the ledger answers, as soon as its database does.

    Args:
        said: called once with what is waited for, and for how long; not at all where the ledger answers.
        rest: called with the seconds to wait before the next attempt.

    Raises:
        LedgerAwayError, LockedError: the database did not answer for `AWAY_S`.
    """
    give_up = time.monotonic() + AWAY_S
    has_said = False
    while True:
        try:
            return ask()
        except (LedgerAwayError, LockedError) as error:
            if time.monotonic() > give_up:
                raise
            if not has_said:
                said(f"{error} Waiting for it, {AWAY_S / 60:.0f} minutes at most.")
                has_said = True
            rest(_REST_S)
