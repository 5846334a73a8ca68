"""Handlers of requests about the annotations of one slide: rights are checked, reads and writes run in threads."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from starlette.requests import Request
from starlette.responses import Response

from pathology_app.annotating.geometry import BusyError, GeometryWork
from pathology_app.html.text import READ_ERRORS
from pathology_app.people.person import Action, ForbiddenError, Person, person_of, require
from pathology_app.project.ledger import StudyLedger
from pathology_app.routes.bodies import LateBodyError, TooLargeError
from pathology_app.routes.errors import json_error
from pathology_app.slides.cache import BadLinkError, OpenSlide, SlideCache, UnknownNameError
from pipeline.errors import BadAnnotationError
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import LockedError, UnreadableError

MAX_AT_ONCE = 6
"""Requests that read or write at once; Streamlit's own threads are left alone."""
NEVER_KEPT = {"Cache-Control": "no-store"}

Answer = TypeVar("Answer")
Handler = Callable[[Request, StoreReader, Person], Awaitable[Response]]


class SlideHandling:
    """What all handlers of one project share."""

    def __init__(self, cache: SlideCache, ledger: StudyLedger) -> None:
        self.cache, self.ledger = cache, ledger
        self.geometry = GeometryWork()
        self._limiter = anyio.CapacityLimiter(MAX_AT_ONCE)

    def guarded(self, action: Action, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """A handler that runs only for people with the right, and reports errors as JSON."""

        async def guarded(request: Request) -> Response:
            try:
                person = person_of(request.scope)
                require(person, action)
                slide_id = request.path_params["slide_id"]
                slide: OpenSlide = await self.in_thread(lambda: self.cache.slide(slide_id))
                return await handler(request, slide.reader, person)
            except READ_ERRORS as error:
                return json_error(error, self.cache.project.root, _status(error))

        return guarded

    async def in_thread(self, work: Callable[[], Answer]) -> Answer:
        """The result of a function that reads or writes files or the ledger."""
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)


def matched(request: Request, pattern: str) -> tuple[str, ...]:
    """The groups of a pattern that the rest of the path must match. Raises BadLinkError: it does not."""
    rest: str = request.path_params["rest"]
    match = re.fullmatch(pattern, rest, re.ASCII)
    if not match:
        raise BadLinkError(f"{rest!r:.200}: not a link to annotations")
    return match.groups()


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (ForbiddenError, 403),
    (UnknownNameError, 404),
    (LateBodyError, 408),
    (TooLargeError, 413),
    (BadLinkError, 400),
    (BadAnnotationError, 400),
    (BusyError, 503),
    (LockedError, 503),
    (UnreadableError, 503),
)


def _status(error: Exception) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
