"""The project's log as a file: /log.csv, newest first, with the filters of its page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from pathology_app.access.sign_in_routes import SIGN_IN_KEY
from pathology_app.access.visibility import entries_for
from pathology_app.app_pages.log.rows import CSV_COLUMNS, csv_lines
from pathology_app.html.text import READ_ERRORS
from pathology_app.links.log import LogLink
from pathology_app.people.acts import RIGHTS, Act, check_act
from pathology_app.people.person import ForbiddenError, Person, person_of
from pathology_app.project.ledger import current_study_ledger
from pathology_app.project.served import served_project
from pathology_app.readings.blinding import Shows
from pathology_app.routes.declared import declared
from pathology_app.routes.errors import json_error
from pipeline.ledger import Ledger, LogFilter, project_history
from pipeline.spreadsheets import csv_line

_AT_ONCE = 1000


def log_routes() -> list[BaseRoute]:
    """The route of the log."""
    return [declared(served_project(), "/log.csv", _log_csv, Shows.MODEL, methods=["GET"])]


async def _log_csv(request: Request) -> Response:
    person = person_of(request.scope)
    try:
        check_act(person, Act.SEE_LOG)
        ledger = await anyio.to_thread.run_sync(current_study_ledger().ledger)
    except ForbiddenError as error:
        if sign_in := request.scope.get(SIGN_IN_KEY):
            sign_in.refusals.note(person.actor, "forbidden", about=str(RIGHTS[Act.SEE_LOG]))
        return json_error(error, served_project().root, 403)
    except READ_ERRORS as error:
        return json_error(error, served_project().root, 503)
    wanted = LogLink.of(dict(request.query_params)).filter
    headers = {"Cache-Control": "no-store", "Content-Disposition": 'attachment; filename="log.csv"'}
    return StreamingResponse(_lines(ledger, wanted, person), media_type="text/csv; charset=utf-8", headers=headers)


async def _lines(ledger: Ledger | None, wanted: LogFilter, person: Person) -> AsyncIterator[str]:
    yield csv_line(CSV_COLUMNS)
    while ledger is not None:
        read = partial(project_history, ledger, wanted, newest=_AT_ONCE)
        entries = await anyio.to_thread.run_sync(read)
        yield "".join(csv_lines(await anyio.to_thread.run_sync(entries_for, person, entries)))
        if len(entries) < _AT_ONCE:
            return
        wanted = replace(wanted, before=entries[-1].seq)
