"""Routes that declare what they show and what they accept: no other route can be registered, none serves what is hidden
from the person who requests it, and none receives more than it accepts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from pathology_app.people.person import person_of
from pathology_app.readings.blinding import Shows, check_shown
from pathology_app.routes.errors import Handler, with_json_errors
from pathology_app.routes.paths import READING, AcceptedBody, WritableRoute, WritableRoutes
from pipeline.project import Project

REVALIDATED = "private, no-cache"
"""For results: a browser that has cached one must revalidate it before each use."""
_ASKED_AT_ONCE = anyio.CapacityLimiter(8)


class DeclaredRoute(Route):
    """A route with its declaration.

    Attributes:
        shows: of the slide that its path names (`slide_id`); of any, where it names none.
        takes: the body that it accepts; None: its requests have none.
    """

    def __init__(self, path: str, handler: Handler, shows: Shows, takes: AcceptedBody | None, **options: Any) -> None:
        super().__init__(path, handler, **options)
        self.shows, self.takes = shows, takes

    @property
    def sending(self) -> tuple[str, ...]:
        """Its methods that have a body."""
        return tuple(sorted((self.methods or set()) - set(READING)))


def declared(
    project: Project,
    path: str,
    handler: Handler,
    shows: Shows,
    *,
    methods: list[str] | None = None,
    takes: AcceptedBody | None = None,
    middleware: Sequence[Middleware] = (),
) -> DeclaredRoute:
    """A route that reports errors as JSON, and refuses to show hidden content before its handler runs."""

    async def guarded(request: Request) -> Response:
        ask = partial(check_shown, project, person_of(request.scope), shows, request.path_params.get("slide_id"))
        await anyio.to_thread.run_sync(ask, limiter=_ASKED_AT_ONCE)
        return await handler(request)

    chosen = handler if shows is Shows.NEITHER else guarded
    return DeclaredRoute(
        path, with_json_errors(chosen, project.root), shows, takes, methods=methods, middleware=list(middleware)
    )


def plain(
    path: str, handler: Handler, *, methods: list[str] | None = None, takes: AcceptedBody | None = None
) -> DeclaredRoute:
    """A route that shows nothing of any slide or model, and reports its errors itself."""
    return DeclaredRoute(path, handler, Shows.NEITHER, takes, methods=methods)


def only_declared(routes: Sequence[BaseRoute]) -> list[DeclaredRoute]:
    """The routes, ready to be registered.

    Raises:
        TypeError: one of them does not declare what it shows, or what it accepts.
    """
    checked = []
    for route in routes:
        if not isinstance(route, DeclaredRoute):
            raise TypeError(f"{getattr(route, 'path', route)!r}: does not declare what it shows (routes/declared.py)")
        if bool(route.sending) != (route.takes is not None):
            raise TypeError(f"{route.path!r}: answers {', '.join(route.sending)} and takes {route.takes}")
        checked.append(route)
    return checked


def openings_of(routes: Sequence[DeclaredRoute]) -> WritableRoutes:
    """Those of the routes that accept a body."""
    return WritableRoutes(
        [WritableRoute(route.path_regex, route.sending, route.takes) for route in routes if route.takes]
    )
