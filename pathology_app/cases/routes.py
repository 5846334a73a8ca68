"""Routes of the slides beside the one shown. They read the index and the ledger, so they run in the app itself.

GET /tray/{slide_id}.json?sort=…&model=…     slides of its case, else its neighbours in the worklist of the query
GET /find/slides.json?words=…&beside=…       slides by words, those of another slide's case first
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from pathology_app.access.visibility import check_may_see
from pathology_app.cases.listing import (
    Neighbour,
    Viewpoint,
    find_slides,
    neighbours_in_list,
    neighbours_in_study,
    query_to,
    slides_of_case,
    viewpoint_of,
)
from pathology_app.html.text import as_text
from pathology_app.links.link import MAX_FIND, Query
from pathology_app.links.worklist import ROWS_PER_PAGE, WorklistLink
from pathology_app.people.person import Person, person_of
from pathology_app.readings.blinding import Shows
from pathology_app.routes.declared import declared
from pathology_app.routes.errors import Handler
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.index.table import Listed
from pathology_app.tiles.links import bad_link, match_link
from pipeline.project import Project
from training.foundation.words.names import is_name

OF_SLIDE = ("slide", "model", "class", "at", "overlay", "layers", "image")
"""Parameters of a slide's link; the last four are the browser's own (frontend/src/view/link_state.ts)."""
_AT_ONCE = anyio.CapacityLimiter(2)
"""Sorting a list of a hundred thousand slides takes a tenth of a second."""
Answer = Callable[[Project, Person, Request], dict[str, Any]]


def case_routes(cache: SlideCache) -> list[BaseRoute]:
    """The routes of one project. They name no model, and leave out what the person may not see."""
    project = cache.project
    return [
        declared(project, "/tray/{rest:path}", _handler(project, _tray), Shows.NEITHER),
        declared(project, "/find/slides.json", _handler(project, _found), Shows.NEITHER),
        declared(project, "/find/{rest:path}", bad_link, Shows.NEITHER),
    ]


def _handler(project: Project, answer: Answer) -> Handler:
    async def handle(request: Request) -> Response:
        work = partial(answer, project, person_of(request.scope), request)
        content = await anyio.to_thread.run_sync(work, limiter=_AT_ONCE)
        return JSONResponse(content, headers={"Cache-Control": "no-store"})

    return handle


def _tray(project: Project, person: Person, request: Request) -> dict[str, Any]:
    (slide_id,) = match_link(request, r"([^/]+)\.json", "{slide_id}.json")
    check_may_see(person, slide_id)
    view, query = viewpoint_of(project, person), dict(request.query_params)
    case = slides_of_case(view, slide_id)
    neighbours = [Neighbour(slide) for slide in case]
    is_case = len(case) > 1
    title = f"Case {case[0].cohort.case_id}" if is_case else "Worklist"
    study_id = Query(query).text("study")
    if not is_case and study_id:
        title, neighbours = f"Study {study_id}", neighbours_in_study(view, slide_id, study_id)
    elif not is_case:
        neighbours = neighbours_in_list(view, slide_id, WorklistLink.of(query), ROWS_PER_PAGE)
    kept = {name: value for name, value in query.items() if name not in OF_SLIDE}
    values = Query(query)
    model_id = values.text("model")
    model_id = model_id if is_name(model_id) and view.visibility.first is None else ""
    class_name = values.text("class") or None
    return {
        "title": as_text(title),
        "is_case": is_case,
        "slides": [
            {**_entry(view, each.listed), "query": query_to(kept, each, model_id or None, class_name)}
            for each in neighbours
        ],
    }


def _found(project: Project, person: Person, request: Request) -> dict[str, Any]:
    query = Query(dict(request.query_params))
    beside = query.text("beside")
    view = viewpoint_of(project, person)
    found = find_slides(view, query.text("words", MAX_FIND), beside if is_name(beside) else None)
    return {"slides": [{**_entry(view, slide), "relation": relation} for slide, relation in found]}


def _entry(view: Viewpoint, slide: Listed) -> dict[str, Any]:
    """A slide as the tray and the picker show it (frontend/src/tray/types.ts)."""
    facts = view.index.facts(slide)
    url = f"/thumbnails/{quote(slide.slide_id)}.jpg?v={facts.version}" if facts.version else None
    cohort: Mapping[str, str | None] = {"block": slide.cohort.block, "stain": slide.cohort.stain}
    return {
        "slide_id": as_text(slide.slide_id),
        "thumbnail_url": url,
        **{name: as_text(value) if value else "" for name, value in cohort.items()},
    }
