"""Gate in front of every route with a slide in its path: find the slide that a request is for, and check once whether
its sender may see it."""

from __future__ import annotations

import re

import anyio
from starlette.types import Scope

from pathology_app.access.error_response import RefusedError
from pathology_app.access.views import check_attended, check_slide, check_view, is_viewed
from pathology_app.access.visibility import HiddenSlideError
from pathology_app.people.person import Person
from pathology_app.people.sign_in import SignIn
from pathology_app.slides.cache import current_cache
from pathology_app.slides.overlays import ATTENTION
from training.foundation.errors import GemslideError
from training.foundation.words.names import is_name

_LOOKS = "tiles colour overlays layers damaged annotations coverage hotspots exports reports registrations"
"""Folders whose requests count as viewing a slide, and must be logged."""
_OF_PAIRS = "registrations"
"""The folder whose paths may name a second slide."""
_OF_PATIENTS = re.compile(rf"/overlays/[^/]*/([^/]*)/{ATTENTION.pattern}", re.ASCII)
"""Paths whose content may rest on further slides of a patient."""
_IN_LISTS = "thumbnails heatmaps crops tray ahead"
"""Small images, which lists show for many slides, and what is loaded before a slide is opened."""
_OPENINGS = "opened"
"""Folder whose route logs the view itself."""
SLIDE_FOLDERS = f"{_LOOKS} {_IN_LISTS} {_OPENINGS}"
_PATH = re.compile(rf"/({SLIDE_FOLDERS.replace(' ', '|')})/([^/]*)(/.*)?", re.ASCII | re.DOTALL)
_ENDINGS = (".jpg", ".png", ".json")


async def check_slide_of(scope: Scope, sign_in: SignIn, person: Person, key: str | None) -> None:
    """Refuse other people's slides; where people sign in, a view is logged before the slide is shown.

    Args:
        key: of the request's session; None where nobody signs in.

    Raises:
        RefusedError: 404 for other people's slides, as for one that does not exist; 503: rights cannot be checked, or
            the view not logged.
    """
    match = _PATH.fullmatch(scope["path"])
    if scope["type"] != "http" or match is None or key is None:
        return
    folder, slide_id = match[1], _slide_id(match[2], has_more=bool(match[3]))
    if not is_name(slide_id):
        sign_in.refusals.note(person.actor, "bad_link", about=scope["path"])
        return  # the route reports what is wrong with it
    is_look = folder in _LOOKS.split()
    if person.slides is None and (not is_look or is_viewed(key, slide_id)):
        return  # tile requests are frequent

    attended = _OF_PATIENTS.fullmatch(scope["path"])
    second_id = match[3].split("/")[1] if folder == _OF_PAIRS and match[3] else None

    def check() -> None:
        check_slide(sign_in, person, slide_id)
        if second_id is not None and is_name(second_id):  # otherwise the route reports what is wrong with it
            check_slide(sign_in, person, second_id)
        if attended is not None and person.slides is not None:
            check_attended(current_cache(), sign_in, person, slide_id, attended[1])
        if is_look:
            check_view(sign_in, key, person, slide_id)

    try:
        await anyio.to_thread.run_sync(check)
    except HiddenSlideError as error:
        raise RefusedError(404, error.code, str(error)) from error
    except (GemslideError, OSError) as error:
        raise RefusedError(503, "cannot_know", "This cannot be shown right now. Try again soon.") from error


def _slide_id(part: str, *, has_more: bool) -> str:
    """The slide's name from a path's second part, which may be a file name."""
    ending = next((suffix for suffix in _ENDINGS if part.endswith(suffix)), "")
    return part if has_more else part.removesuffix(ending)
