"""The project's log as a file: /log.csv, newest first, with the filters of its page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from pathology_app.access.people import Action, ForbiddenError, person_of, require
from pathology_app.access.sign_in_routes import SIGN_IN_KEY
from pathology_app.log_link import LogLink
from pathology_app.log_rows import CSV_COLUMNS, csv_line, csv_lines
from pathology_app.study_ledger import current_study_ledger
from pathology_app.text import READ_ERRORS
from pathology_app.tiles.cache import current_cache
from pathology_app.tiles.links import json_error
from pipeline.study import Ledger, LogFilter, project_history

_AT_ONCE = 1000


def log_routes() -> list[BaseRoute]:
    """The one route."""
    return [Route("/log.csv", _log_csv, methods=["GET"])]


async def _log_csv(request: Request) -> Response:
    person = person_of(request.scope)
    try:
        require(person, Action.ADMINISTER)
        ledger = await anyio.to_thread.run_sync(current_study_ledger().ledger)
    except ForbiddenError as error:
        if sign_in := request.scope.get(SIGN_IN_KEY):
            sign_in.refusals.note(person.actor, "forbidden", about=str(Action.ADMINISTER))
        return json_error(error, current_cache().project.root, 403)
    except READ_ERRORS as error:
        return json_error(error, current_cache().project.root, 503)
    wanted = LogLink.of(dict(request.query_params)).filter
    headers = {"Cache-Control": "no-store", "Content-Disposition": 'attachment; filename="log.csv"'}
    return StreamingResponse(_lines(ledger, wanted), media_type="text/csv; charset=utf-8", headers=headers)


async def _lines(ledger: Ledger | None, wanted: LogFilter) -> AsyncIterator[str]:
    yield csv_line(CSV_COLUMNS)
    while ledger is not None:
        read = partial(project_history, ledger, wanted, newest=_AT_ONCE)
        entries = await anyio.to_thread.run_sync(read)
        yield "".join(csv_lines(entries))
        if len(entries) < _AT_ONCE:
            return
        wanted = replace(wanted, before=entries[-1].seq)
