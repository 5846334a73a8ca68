"""Route that opens a slide without drawing its page again: /opened/{slide_id}.json?model=…

It logs the view before it sends anything, and sends what the viewer needs to show the slide itself. The page follows,
with the predictions and everything else.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from pathology_app.access.sign_in_routes import SESSION_KEY, SIGN_IN_KEY
from pathology_app.access.views import log_opening
from pathology_app.links.link import Query
from pathology_app.people.person import Person, person_of
from pathology_app.people.sign_in import OPEN, SignIn
from pathology_app.readings.blinding import Shows, visibility_of
from pathology_app.routes.declared import declared
from pathology_app.slides import presenters
from pathology_app.slides.cache import SlideCache
from pathology_app.tiles.links import match_link


def opening_routes(cache: SlideCache) -> list[BaseRoute]:
    """The route of one project."""

    async def opened(request: Request) -> Response:
        (slide_id,) = match_link(request, r"([^/]+)\.json", "{slide_id}.json")
        sign_in: SignIn | None = request.scope.get(SIGN_IN_KEY)
        key: str = request.scope.get(SESSION_KEY) or OPEN
        model_id = Query(dict(request.query_params)).text("model") or None
        person = person_of(request.scope)
        content = await anyio.to_thread.run_sync(partial(_open, cache, sign_in, key, person, slide_id, model_id))
        return JSONResponse(content, headers={"Cache-Control": "no-store"})

    return [declared(cache.project, "/opened/{rest:path}", opened, Shows.NEITHER)]


def _open(
    cache: SlideCache, sign_in: SignIn | None, key: str, person: Person, slide_id: str, model_id: str | None
) -> dict[str, Any]:
    """Log the view, then describe the slide (frontend/src/types.ts, ViewerData) without any result.

    Raises:
        HiddenSlideError: the person may not see it. GemslideError, OSError: it cannot be read, or the view not logged.
    """
    slide = cache.slide(slide_id)
    model_ids, blinded = visibility_of(cache.project, person).models_of(cache, slide_id)
    log_opening(sign_in, key, person, slide_id, model_id or next(iter(model_ids), None))
    return {
        "slide": presenters.slide_data(slide),
        "thumbnail_url": f"/thumbnails/{slide_id}.jpg?v={slide.version}",
        "exports": None,
        "layers": [],
        "hotspots": [],
        "hotspots_note": None if blinded else "",
        "hotspots_url": None,
        "coverage_url": f"/coverage/{slide_id}.json",
        "tray_url": f"/tray/{slide_id}.json",
        "goto": None,
        "probe": None,
        "facts": presenters.facts_rows(slide.reader),
        "notes": presenters.slide_notes(slide.reader),
        "is_partial": True,
    }
