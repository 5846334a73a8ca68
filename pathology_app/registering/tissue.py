"""Registrations by tissue that people wait for: one at a time, in a process with limits on time and memory."""

from __future__ import annotations

import atexit
from typing import Any

import anyio

from pathology_app.people.person import Person
from pipeline.bounded import BoundedProcesses, Limits
from pipeline.registration import Affine
from pipeline.review import Registration, SlidePixels
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import LockedError

LIMITS = Limits(
    seconds=120.0, mib=2048, subject="their tissue takes",
    remedy="Register by points, or with `gemslide register` in a shell.",
)  # fmt: skip
"""Twelve times what two large slides take on an idle computer; a busy one needs longer."""
MAX_WAITING = 4
_WORK = "pathology_app.registering.work:register_stores"


class TissueWork:
    """Everybody's registrations; each person has one at a time."""

    def __init__(self, processes: BoundedProcesses | None = None) -> None:
        self._processes = processes or BoundedProcesses(LIMITS, most=1)
        self._limiter = anyio.CapacityLimiter(1)
        self._people: set[str] = set()
        atexit.register(self._processes.close)

    async def run(self, person: Person, moving: StoreReader, fixed: StoreReader) -> Registration:
        """Register one slide to another.

        Raises:
            LockedError: the person's last one has not ended, or too many people wait. Otherwise: as `register_slides`.
        """
        if person.actor in self._people:
            raise LockedError("Your last registration by tissue is still in progress. Wait until it has ended.")
        if len(self._people) >= MAX_WAITING:
            raise LockedError(f"{len(self._people)} registrations are in progress. Try again in a minute.")
        self._people.add(person.actor)
        try:
            [found] = await anyio.to_thread.run_sync(lambda: self._ask(moving, fixed), limiter=self._limiter)
        finally:
            self._people.discard(person.actor)
        return Registration(
            moving.slide_id, fixed.slide_id, Affine(**found["transform"]), "features", found["error_um"],
            found["tested"], SlidePixels.of(moving).sha256, SlidePixels.of(fixed).sha256,
            found["matches"], found["share_near"], found["dice"],
        )  # fmt: skip

    def _ask(self, moving: StoreReader, fixed: StoreReader) -> list[Any]:
        what = f"slides {moving.slide_id} and {fixed.slide_id}"
        return self._processes.run(_WORK, b"", what, moving=str(moving.path), fixed=str(fixed.path))
