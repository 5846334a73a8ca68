"""Verification of a study's log for its pages: in a separate thread, since a large study takes half a minute, and again
now and then as long as somebody is viewing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from training.foundation.errors import GemslideError

AT_ONCE_S = 1.0
"""A page waits this long for a first answer."""
AGAIN_S, _REST = 60.0, 20
"""Least time between checks, in seconds and as a multiple of a check's duration."""


class Verification:
    """The number of findings in the last check of one study.

    Args:
        count: checks the whole log and returns the number of findings.
    """

    def __init__(self, count: Callable[[], int], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._count, self._clock = count, clock
        self._lock = threading.Lock()
        self._looking: threading.Thread | None = None
        self._findings: int | None = None
        self._due = float("-inf")

    def findings(self) -> int | None:
        """Number of findings in the last check; None before the first has ended, or while the ledger is unavailable."""
        with self._lock:
            if self._looking is None and self._clock() >= self._due:
                self._looking = threading.Thread(target=self._look, name="verify a study's log", daemon=True)
                self._looking.start()
            looking, is_first = self._looking, self._findings is None
        if looking is not None and is_first:
            looking.join(AT_ONCE_S)
        return self._findings

    def _look(self) -> None:
        start = self._clock()
        try:
            findings: int | None = self._count()
        except GemslideError:  # the pages report what is wrong with the ledger
            findings = None
        took = self._clock() - start
        with self._lock:
            self._findings, self._looking = findings, None
            self._due = self._clock() + max(AGAIN_S, _REST * took)
