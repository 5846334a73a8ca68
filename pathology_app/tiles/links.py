"""Links below the viewer's routes: what they say, and errors as JSON."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pathology_app.access.people import ForbiddenError
from pathology_app.blinding import BlindedError
from pathology_app.text import READ_ERRORS, message_of
from pathology_app.tiles.cache import BadLinkError, UnknownNameError
from pipeline.errors import BadManifestError, BadRecipeError, ChangedSourceError, GemslideError, UnreadableError

Handler = Callable[[Request], Awaitable[Response]]


class NoSuchTileError(GemslideError):
    """The link points outside the slide's pyramid."""

    code = "no_such_tile"


async def bad_link(request: Request) -> Response:
    """For links below ours that name nothing: else Streamlit would answer with its page."""
    raise BadLinkError(f"{request.url.path!r}: not a link of the viewer")


def with_json_errors(handler: Handler, root: Path) -> Handler:
    """The handler, answering what reading may raise as JSON."""

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except READ_ERRORS as error:
            return json_error(error, root, _status(error))

    return guarded


def json_error(error: GemslideError | OSError, root: Path, status: int) -> Response:
    """What went wrong, for a program and for a person; nothing of it is kept."""
    code = error.code if isinstance(error, GemslideError) else UnreadableError.code
    content = {"code": code, "message": message_of(error, root)}
    return JSONResponse(content, status_code=status, headers={"Cache-Control": "no-store"})


def _status(error: GemslideError | OSError) -> int:
    if isinstance(error, (BadLinkError, BadManifestError, BadRecipeError, ChangedSourceError)):
        return 400
    if isinstance(error, (ForbiddenError, BlindedError)):
        return 403
    return 404 if isinstance(error, (NoSuchTileError, UnknownNameError)) else 500


def match_link(request: Request, pattern: str, form: str) -> tuple[str, ...]:
    """The groups of a pattern that the last part of a link matches as a whole.

    Raises:
        BadLinkError: it does not; `form` says what is expected.
    """
    rest: str = request.path_params["rest"]
    match = re.fullmatch(pattern, rest, re.ASCII)
    if not match:
        raise BadLinkError(f"{rest!r}: expected {form}")
    return match.groups()


def numbers_of(request: Request, pattern: str, form: str) -> tuple[int, ...]:
    """The groups, all of which are numbers. Raises BadLinkError as `match_link`."""
    return tuple(int(text) for text in match_link(request, pattern, form))
