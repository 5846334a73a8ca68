"""HTTP routes of registrations. They write to the project's ledger, so they run in the app itself.

    GET  /registrations/{slide_id}.json?to=B,C      those of this slide to others that are named
    POST /registrations/{slide_id}/{other_id}/points     {"points": …}: from clicked places, saved
    POST /registrations/{slide_id}/{other_id}/tissue     {}: from the tissue, saved
    POST /registrations/{slide_id}/{other_id}/remove     {}

Everybody who may look at both slides sees them; those who may annotate make them. Where other people's assessments of
a slide are hidden, so is who registered it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from pathology_app.access.visibility import check_may_see, may_see
from pathology_app.html.text import READ_ERRORS
from pathology_app.people.acts import RIGHTS, Act, check_act
from pathology_app.people.person import Person, person_of
from pathology_app.project.ledger import StudyLedger
from pathology_app.readings.blinding import Shows, visibility_of
from pathology_app.registering.bodies import MAX_BYTES, check_empty, points_of
from pathology_app.registering.tissue import TissueWork
from pathology_app.routes.bodies import body_of
from pathology_app.routes.declared import declared
from pathology_app.routes.errors import json_error, status_of
from pathology_app.routes.paths import AcceptedBody
from pathology_app.slides.cache import BadLinkError, SlideCache
from pipeline.errors import BadAnnotationError, MissingMppError, NoTissueError, NotRegisteredError
from pipeline.review import (
    Registration,
    SlidePixels,
    describe_error,
    describe_transform,
    register_points,
    registrations_of,
    remove_registration,
    save_registration,
)
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import LockedError
from training.foundation.words.names import is_name

MAX_OTHERS = 8
_NEVER_KEPT = {"Cache-Control": "no-store"}
_THREADS = 4
_UNSUITABLE = (BadAnnotationError, MissingMppError, NoTissueError, NotRegisteredError)

Answer = TypeVar("Answer")
Pair = tuple[StoreReader, StoreReader]


class RegistrationServer:
    """Handlers for one project. Everything that reads a file or the ledger runs in threads."""

    def __init__(self, cache: SlideCache, ledger: StudyLedger) -> None:
        self._cache, self._ledger = cache, ledger
        self._tissue = TissueWork()
        self._limiter = anyio.CapacityLimiter(_THREADS)

    async def listed(self, request: Request) -> Response:
        person, slide_id = person_of(request.scope), request.path_params["slide_id"]
        others = request.query_params.get("to", "")[:1000].split(",")
        if not (1 <= len(others) <= MAX_OTHERS and all(is_name(other) for other in others)):
            raise BadLinkError(f"to={','.join(others)!r:.100}: expected 1 to {MAX_OTHERS} names of slides")
        return JSONResponse(
            {"registrations": await self._in_thread(lambda: self._saved(person, slide_id, others))},
            headers=_NEVER_KEPT,
        )

    async def points(self, request: Request) -> Response:
        points = points_of(await body_of(request, MAX_BYTES)).points
        person, pair = await self._pair(request)

        def save() -> dict[str, Any]:
            given = register_points(SlidePixels.of(pair[0]), SlidePixels.of(pair[1]), points)
            return self._shown(person, save_registration(self._ledger.made(), given, person.actor), pair)

        return JSONResponse(await self._in_thread(save), headers=_NEVER_KEPT)

    async def tissue(self, request: Request) -> Response:
        check_empty(await body_of(request, MAX_BYTES))
        person, pair = await self._pair(request)
        given = await self._tissue.run(person, *pair)

        def save() -> dict[str, Any]:
            return self._shown(person, save_registration(self._ledger.made(), given, person.actor), pair)

        return JSONResponse(await self._in_thread(save), headers=_NEVER_KEPT)

    async def remove(self, request: Request) -> Response:
        check_empty(await body_of(request, MAX_BYTES))
        person, pair = await self._pair(request)
        one, other = (reader.slide_id for reader in pair)
        await self._in_thread(lambda: remove_registration(self._ledger.made(), one, other, person.actor))
        return JSONResponse({"removed": True}, headers=_NEVER_KEPT)

    async def _pair(self, request: Request) -> tuple[Person, Pair]:
        """The sender, who may see both slides, and the slides.

        Raises:
            HiddenSlideError, UnknownNameError: they may not, or there is no such slide.
        """
        person = person_of(request.scope)
        ids = request.path_params["slide_id"], request.path_params["other_id"]

        def read() -> Pair:
            for slide_id in ids:
                check_may_see(person, slide_id)
            one, other = (self._cache.slide(slide_id).reader for slide_id in ids)
            return one, other

        if ids[0] == ids[1]:
            raise BadAnnotationError(f"slide {ids[0]:.64}: a slide is not registered to itself. Choose two slides.")
        return person, await self._in_thread(read)

    def _saved(self, person: Person, slide_id: str, others: list[str]) -> list[dict[str, Any]]:
        check_may_see(person, slide_id)
        one, ledger = self._cache.slide(slide_id).reader, self._ledger.ledger()
        if ledger is None:
            return []
        shown = []
        for given in registrations_of(ledger, {slide_id, *others}):
            way = given if given.moving_id == slide_id else given.inverse()
            if way.moving_id == slide_id and may_see(person, way.fixed_id):
                shown.append(self._shown(person, way, (one, self._cache.slide(way.fixed_id).reader)))
        return shown

    def _shown(self, person: Person, given: Registration, pair: Pair) -> dict[str, Any]:
        """A registration in the format of frontend/src/compare/saved_alignment.ts."""
        moving, fixed = pair
        in_um = given.in_um(moving.mpp0, fixed.mpp0)
        visibility = visibility_of(self._cache.project, person)
        is_hidden = any(visibility.hides_assessments(reader.slide_id) for reader in pair)
        return {
            "to": given.fixed_id,
            "matrix_um": list(in_um.numbers),
            "method": given.method,
            "error_um": given.error_um,
            "transform": describe_transform(in_um),
            "error": describe_error(given),
            "by": None if is_hidden else given.person,
            "utc": given.utc,
            "is_outdated": given.is_outdated(SlidePixels.of(moving), SlidePixels.of(fixed)),
        }

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)


def registration_routes(cache: SlideCache, ledger: StudyLedger) -> list[BaseRoute]:
    """All routes, each of which reports errors as JSON."""
    server = RegistrationServer(cache, ledger)
    made = AcceptedBody(MAX_BYTES, RIGHTS[Act.REGISTER])
    handlers = {"points": server.points, "tissue": server.tissue, "remove": server.remove}
    # Where tissue lies says nothing about a model, or about anybody's assessment of it.
    shown = declared(cache.project, "/registrations/{slide_id}.json", server.listed, Shows.NEITHER)
    path = "/registrations/{slide_id}/{other_id}/"
    return [
        shown,
        *(
            declared(cache.project, path + name, _guarded(cache, handler), Shows.NEITHER, methods=["POST"], takes=made)
            for name, handler in handlers.items()
        ),
        declared(cache.project, "/registrations/{rest:path}", _bad_link, Shows.NEITHER, methods=["GET"]),
    ]


def _guarded(
    cache: SlideCache, handler: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """The handler for people who may register slides; slides and points that cannot be are the caller's errors."""

    async def guarded(request: Request) -> Response:
        try:
            check_act(person_of(request.scope), Act.REGISTER)
            return await handler(request)
        except READ_ERRORS as error:
            status = 422 if isinstance(error, _UNSUITABLE) else 503 if isinstance(error, LockedError) else None
            return json_error(error, cache.project.root, status or status_of(error))

    return guarded


async def _bad_link(request: Request) -> Response:
    raise BadLinkError(f"{request.url.path!r:.200}: not a link to registrations")
