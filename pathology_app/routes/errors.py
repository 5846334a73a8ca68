"""Error responses of routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pathology_app.html.text import READ_ERRORS, message_of
from pathology_app.people.person import ForbiddenError
from pathology_app.readings.blinding import BlindedError
from pathology_app.routes.bodies import LateBodyError, TooLargeError
from pathology_app.slides.cache import BadLinkError, NoSuchTileError, UnknownNameError
from pipeline.errors import BadManifestError, ChangedSourceError
from training.foundation.errors import BadRecipeError, GemslideError, UnreadableError

Handler = Callable[[Request], Awaitable[Response]]


def json_error(error: GemslideError | OSError, root: Path, status: int) -> Response:
    """Response with an error, for programs and people; browsers do not cache it."""
    code = error.code if isinstance(error, GemslideError) else UnreadableError.code
    content = {"code": code, "message": message_of(error, root)}
    return JSONResponse(content, status_code=status, headers={"Cache-Control": "no-store"})


def with_json_errors(handler: Handler, root: Path) -> Handler:
    """The handler, with errors raised by reading reported as JSON."""

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except READ_ERRORS as error:
            return json_error(error, root, status_of(error))

    return guarded


def status_of(error: GemslideError | OSError) -> int:
    """Status of the response with an error."""
    if isinstance(error, (BadLinkError, BadManifestError, BadRecipeError, ChangedSourceError)):
        return 400
    if isinstance(error, (ForbiddenError, BlindedError)):
        return 403
    if isinstance(error, (LateBodyError, TooLargeError)):
        return 408 if isinstance(error, LateBodyError) else 413
    return 404 if isinstance(error, (NoSuchTileError, UnknownNameError)) else 500
