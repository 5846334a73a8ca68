"""Retries of slides that ended without a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from pipeline.errors import BadManifestError
from pipeline.ledger.chain import Change, append
from pipeline.ledger.ledger import Ledger, found
from pipeline.ledger.reasons import check_reason
from pipeline.ledger.rows import change_slide, change_task
from pipeline.ledger.tables import slide, task
from pipeline.study.outcomes.search import SlideSearch
from pipeline.study.stages.registry import due_state

MAY_BE_RETRIED = ("no_tissue", "qc_failed", "refused", "unreadable", "failed")
_AT_ONCE = 500
"""Slides per transaction: workers wait meanwhile."""


def retry(
    ledger: Ledger,
    study_id: str,
    slide_ids: Sequence[str],
    state: str | None,
    *,
    actor: str,
    why: str,
    code: str | None = None,
) -> list[str]:
    """Resume slides from the stage that ended them, with all attempts. Returns the ids of the resumed slides.

    A slide that somebody else retries at the same time is retried once.

    Args:
        slide_ids: these slides; or
        state: all that ended in this state; with `code`, only those with this code (`search.NO_CODE`: without one).

    Raises:
        BadManifestError: no reason, no such study, no such slide, or a slide that has not ended without a result.
    """
    check_reason(why, "a retry")
    chosen = _chosen(ledger, study_id, slide_ids, state, code)
    retried = []
    for start in range(0, len(chosen), _AT_ONCE):
        changes: list[Change] = []
        with ledger.database.write() as connection:
            for slide_id in chosen[start : start + _AT_ONCE]:
                if of_slide := _changes(connection, study_id, slide_id, actor, why):
                    changes += of_slide
                    retried.append(slide_id)
            append(connection, study_id, changes)
    return retried


def _chosen(ledger: Ledger, study_id: str, slide_ids: Sequence[str], state: str | None, code: str | None) -> list[str]:
    if bool(slide_ids) == (state is not None):
        raise BadManifestError("name slides, or a --state: one of the two.")
    if state is not None and state not in MAY_BE_RETRIED:
        raise BadManifestError(f"--state {state!r}: retry slides that ended as {', '.join(MAY_BE_RETRIED)}.")
    columns = select(slide.c.slide_id, slide.c.state).order_by(slide.c.ordinal)
    with ledger.database.read() as connection:
        found(connection, study_id)
        if state is not None:
            ended = columns.where(*SlideSearch(state, code).conditions(study_id))
            return list(connection.scalars(ended))
        states = {row.slide_id: row.state for row in connection.execute(columns.where(slide.c.study_id == study_id))}
    for slide_id in slide_ids:
        if states.get(slide_id) not in MAY_BE_RETRIED:
            raise BadManifestError(f"slide {slide_id}: {_why_not(states.get(slide_id))}, so it cannot be retried.")
    return list(dict.fromkeys(slide_ids))


def _why_not(state: str | None) -> str:
    return {None: "is not in the study", "pending": "has not ended", "excluded": "is excluded"}.get(
        state, f"is {state}"
    )


def _changes(connection: Connection, study_id: str, slide_id: str, actor: str, why: str) -> list[Change]:
    """Resume a slide, and return the log entries for that; none if it was resumed since it was chosen."""
    is_slide = (slide.c.study_id == study_id, slide.c.slide_id == slide_id)
    row = connection.execute(select(slide).where(*is_slide).with_for_update()).one()
    if row.state not in MAY_BE_RETRIED:
        return []
    rows = connection.execute(
        select(task).where(task.c.study_id == study_id, task.c.slide_id == slide_id).order_by(task.c.position)
    ).all()
    waiting = [stage_task for stage_task in rows if stage_task.state == "ended"]
    changes = [
        _change_task(connection, stage_task, actor, why, is_first=stage_task is waiting[0]) for stage_task in waiting
    ]
    return [*changes, _change_slide(connection, row, actor, why)]


def _change_task(connection: Connection, row: Row[Any], actor: str, why: str, *, is_first: bool) -> Change:
    values = {"state": due_state(row.stage) if is_first else "blocked", "attempts": 0, "not_before": None, "code": None}
    values |= {"message": None, "output_sha256": None, "measures": None}
    return change_task(connection, row, values, actor=actor, action="task retried", why=why)


def _change_slide(connection: Connection, row: Row[Any], actor: str, why: str) -> Change:
    values = {"state": "pending", "code": None, "message": None, "ended_utc": None}
    return change_slide(connection, row, values, actor=actor, action="slide retried", why=why)
