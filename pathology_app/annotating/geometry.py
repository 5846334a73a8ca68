"""Work on shapes for people who wait for it: in processes of its own, a few at a time, and one for each person."""

from __future__ import annotations

import atexit
from collections import Counter
from typing import Any

import anyio

from pipeline.bounded import BoundedProcesses, Limits
from training.foundation.errors import GemslideError

MAX_AT_ONCE = 2
MAX_WAITING = 8
"""Requests of one person; a browser sends them one after the other."""
LIMITS = Limits(seconds=10.0, mib=768)
"""Of one request. The largest that people send take a tenth of both."""

_WORK = "pathology_app.annotating.work"


class BusyError(GemslideError):
    """One person asks for more at once than is taken."""

    code = "busy"


class GeometryWork:
    """Pieces of work of all people: one person's many do not keep the others waiting for more than one of them."""

    def __init__(self, processes: BoundedProcesses | None = None) -> None:
        self._processes = processes or BoundedProcesses(LIMITS, most=MAX_AT_ONCE)
        self._limiter = anyio.CapacityLimiter(MAX_AT_ONCE)
        self._asked: Counter[str] = Counter()
        self._turns: dict[str, anyio.Lock] = {}
        atexit.register(self._processes.close)

    async def run(self, by: str, work: str, body: bytes, what: str, /, **options: Any) -> list[Any]:
        """Run a function of `pathology_app.annotating.work` and return its result.

        Raises:
            BusyError: the person waits for `MAX_WAITING` others. Else: as `BoundedProcesses.run`.
        """
        if self._asked[by] >= MAX_WAITING:
            raise BusyError(f"{by}: {MAX_WAITING} requests are being worked on. Wait until they are done.")
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
        """End the processes that wait for work."""
        atexit.unregister(self._processes.close)
        self._processes.close()
