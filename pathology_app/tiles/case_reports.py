"""HTTP routes of a slide's report: /reports/{slide_id}.html and .pdf, made when they are requested."""

from __future__ import annotations

import re

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from pathology_app.people.acts import Act, check_act
from pathology_app.people.person import Person, person_of
from pathology_app.project.ledger import study_ledger_of
from pathology_app.readings.blinding import Shows, visibility_of
from pathology_app.routes.declared import declared
from pathology_app.slides.cache import BadLinkError, SlideCache
from pathology_app.tiles.links import bad_link
from pipeline.case_report import case_report, page_of
from pipeline.pdf import as_pdf

_LIMITER = anyio.CapacityLimiter(1)
"""A PDF takes a processor for seconds."""


def case_report_routes(cache: SlideCache) -> list[BaseRoute]:
    """The routes of one project."""

    async def report(request: Request) -> Response:
        match = re.fullmatch(r"report\.(html|pdf)", request.path_params["rest"], re.ASCII)
        if not match:
            raise BadLinkError(f"{request.path_params['rest']!r:.60}: expected report.html or report.pdf")
        person, slide_id = person_of(request.scope), request.path_params["slide_id"]
        check_act(person, Act.EXPORT_ANNOTATIONS)
        page = await anyio.to_thread.run_sync(lambda: _page(cache, person, slide_id), limiter=_LIMITER)
        headers = {"Cache-Control": "no-store"}
        if match[1] == "html":
            return Response(page, media_type="text/html; charset=utf-8", headers=headers)
        pdf = await anyio.to_thread.run_sync(lambda: as_pdf(page), limiter=_LIMITER)
        headers["Content-Disposition"] = f'inline; filename="{slide_id}.pdf"'
        return Response(pdf, media_type="application/pdf", headers=headers)

    return [
        declared(cache.project, "/reports/{slide_id}/{rest:path}", report, Shows.RESULT),
        declared(cache.project, "/reports/{rest:path}", bad_link, Shows.NEITHER),
    ]


def _page(cache: SlideCache, person: Person, slide_id: str) -> str:
    reader = cache.slide(slide_id).reader
    models, _ = visibility_of(cache.project, person).models_of(cache, slide_id)
    ledger = study_ledger_of(cache.project).ledger()
    return page_of(case_report(cache.project, reader, ledger, person.actor, models))
