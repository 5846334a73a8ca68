"""Operations on shapes that people wait for: in separate processes, a few at a time, and one for each person."""

from __future__ import annotations

import atexit
from collections import Counter
from typing import Any

import anyio

from pipeline.bounded import BoundedProcesses, Limits
from training.foundation.errors import GemslideError

MAX_AT_ONCE = 2
MAX_WAITING = 8
"""Requests of one person; a browser sends them one after another."""
LIMITS = Limits(seconds=10.0, mib=768)
"""Per request. The largest that people send take a tenth of each."""

_WORK = "pathology_app.annotating.work"


class BusyError(GemslideError):
    """One person has sent too many requests at once."""

    code = "busy"


class GeometryWork:
    """Everybody's operations: however many one person sends, the others wait for at most one of them."""

    def __init__(self, processes: BoundedProcesses | None = None) -> None:
        self._processes = processes or BoundedProcesses(LIMITS, most=MAX_AT_ONCE)
        self._limiter = anyio.CapacityLimiter(MAX_AT_ONCE)
        self._asked: Counter[str] = Counter()
        self._turns: dict[str, anyio.Lock] = {}
        atexit.register(self._processes.close)

    async def run(self, by: str, work: str, body: bytes, what: str, /, **options: Any) -> list[Any]:
        """Run a function of `pathology_app.annotating.work` and return its result.

        Raises:
            BusyError: the person is waiting for `MAX_WAITING` others. Otherwise: as `BoundedProcesses.run`.
        """
        if self._asked[by] >= MAX_WAITING:
            raise BusyError(f"{by}: {MAX_WAITING} requests are in progress already. Wait until they are done.")
        self._asked[by] += 1
        try:
            async with self._turns.setdefault(by, anyio.Lock()):
                return await anyio.to_thread.run_sync(
                    lambda: self._processes.run(f"{_WORK}:{work}", body, what, **options), limiter=self._limiter
                )
        finally:
            self._asked[by] -= 1
            if not self._asked[by]:
                del self._asked[by], self._turns[by]

    def close(self) -> None:
        """End the processes."""
        atexit.unregister(self._processes.close)
        self._processes.close()
