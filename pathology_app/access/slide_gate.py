"""Gate before every route that has slides in its path: find the slide that a request is for, and check once whether its
sender may see it."""

from __future__ import annotations

import re

import anyio
from starlette.types import Scope

from pathology_app.access.error_response import RefusedError
from pathology_app.access.views import check_slide, check_view, is_viewed
from pathology_app.access.visibility import HiddenSlideError
from pathology_app.people.person import Person
from pathology_app.people.sign_in import SignIn
from training.foundation.errors import GemslideError
from training.foundation.words.names import is_name

_LOOKS = "tiles colour overlays layers damaged annotations coverage hotspots exports"
"""Folders whose requests count as looking at a slide, and must be in the log."""
_IN_LISTS = "thumbnails heatmaps crops"
"""Small pictures, which lists show of many slides."""
SLIDE_FOLDERS = f"{_LOOKS} {_IN_LISTS}"
_PATH = re.compile(rf"/({SLIDE_FOLDERS.replace(' ', '|')})/([^/]*)(/.*)?", re.ASCII | re.DOTALL)
_ENDINGS = (".jpg", ".png", ".json")


async def check_slide_of(scope: Scope, sign_in: SignIn, person: Person, key: str | None) -> None:
    """Refuse other people's slides; where people sign in, a slide must be in the log as looked at before it is seen.

    Args:
        key: of the session that asks; None where nobody signs in.

    Raises:
        RefusedError: 404 for other people's slides, as for one that is not there; 503: it cannot be known or logged.
    """
    found = _PATH.fullmatch(scope["path"])
    if scope["type"] != "http" or found is None or key is None:
        return
    folder, slide_id = found[1], _slide_id(found[2], has_more=bool(found[3]))
    if not is_name(slide_id):
        sign_in.refusals.note(person.actor, "bad_link", about=scope["path"])
        return  # the route says what is wrong with it
    is_look = folder in _LOOKS.split()
    if person.slides is None and (not is_look or is_viewed(key, slide_id)):
        return  # of tiles there are many

    def check() -> None:
        check_slide(sign_in, person, slide_id)
        if is_look:
            check_view(sign_in, key, person, slide_id)

    try:
        await anyio.to_thread.run_sync(check)
    except HiddenSlideError as error:
        raise RefusedError(404, error.code, str(error)) from error
    except (GemslideError, OSError) as error:
        raise RefusedError(503, "cannot_know", "This cannot be shown now. Try again soon.") from error


def _slide_id(part: str, *, has_more: bool) -> str:
    """The slide's name in a path's second part, which may be a file's name."""
    ending = next((each for each in _ENDINGS if part.endswith(each)), "")
    return part if has_more else part.removesuffix(ending)
