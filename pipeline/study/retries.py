"""Another chance for slides that ended without a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select, update

from pipeline.errors import BadManifestError
from pipeline.study.chain import Change, append
from pipeline.study.ledger import Ledger, found
from pipeline.study.rows import SLIDE, TASK, hash_row, slide_subject, task_subject
from pipeline.study.tables import slide, task

MAY_BE_RETRIED = ("no_tissue", "qc_failed", "refused", "unreadable", "failed")
_AT_ONCE = 500
"""Slides per transaction: workers wait meanwhile."""


def retry(
    ledger: Ledger, study_id: str, slide_ids: Sequence[str], state: str | None, *, actor: str, why: str
) -> list[str]:
    """Let slides go on from the stage that ended them, with all attempts. Returns their ids.

    Args:
        slide_ids: which; or
        state: all that ended in this state.

    Raises:
        BadManifestError: no such study, no such slide, or a slide that has not ended without a result.
    """
    chosen = _chosen(ledger, study_id, slide_ids, state)
    for start in range(0, len(chosen), _AT_ONCE):
        with ledger.database.write() as connection:
            for slide_id in chosen[start : start + _AT_ONCE]:
                append(connection, study_id, _changes(connection, study_id, slide_id, actor, why))
    return chosen


def _chosen(ledger: Ledger, study_id: str, slide_ids: Sequence[str], state: str | None) -> list[str]:
    if bool(slide_ids) == (state is not None):
        raise BadManifestError("name slides, or a --state whose slides are meant: one of the two.")
    if state is not None and state not in MAY_BE_RETRIED:
        raise BadManifestError(f"--state {state!r}: slides are retried that ended as {', '.join(MAY_BE_RETRIED)}.")
    of_study = select(slide.c.slide_id, slide.c.state).where(slide.c.study_id == study_id).order_by(slide.c.ordinal)
    with ledger.database.read() as connection:
        found(connection, study_id)
        states = {row.slide_id: row.state for row in connection.execute(of_study)}
    if state is not None:
        return [slide_id for slide_id, ended in states.items() if ended == state]
    for slide_id in slide_ids:
        if states.get(slide_id) not in MAY_BE_RETRIED:
            raise BadManifestError(f"slide {slide_id}: {_why_not(states.get(slide_id))}, so it cannot be retried.")
    return list(dict.fromkeys(slide_ids))


def _why_not(state: str | None) -> str:
    return {None: "is not in the study", "pending": "has not ended", "excluded": "is excluded"}.get(
        state, f"is {state}"
    )


def _changes(connection: Connection, study_id: str, slide_id: str, actor: str, why: str) -> list[Change]:
    rows = connection.execute(
        select(task).where(task.c.study_id == study_id, task.c.slide_id == slide_id).order_by(task.c.position)
    ).all()
    waiting = [row for row in rows if row.state == "ended"]
    changes = [_change_task(connection, row, actor, why, is_first=row is waiting[0]) for row in waiting]
    return [*changes, _change_slide(connection, study_id, slide_id, actor, why)]


def _change_task(connection: Connection, row: Row[Any], actor: str, why: str, *, is_first: bool) -> Change:
    values = {"state": "ready" if is_first else "blocked", "attempts": 0, "not_before": None, "code": None}
    values |= {"message": None, "output_sha256": None, "measures": None}
    is_task = (task.c.study_id == row.study_id, task.c.slide_id == row.slide_id, task.c.position == row.position)
    connection.execute(update(task).where(*is_task).values(values))
    before = dict(row._mapping)
    hashes = hash_row(before, TASK), hash_row(before | values, TASK)
    return Change(actor, "task retried", task_subject(row.slide_id, row.stage), why, *hashes)


def _change_slide(connection: Connection, study_id: str, slide_id: str, actor: str, why: str) -> Change:
    is_slide = (slide.c.study_id == study_id, slide.c.slide_id == slide_id)
    before = dict(connection.execute(select(slide).where(*is_slide).with_for_update()).one()._mapping)
    values = {"state": "pending", "code": None, "message": None, "ended_utc": None}
    connection.execute(update(slide).where(*is_slide).values(values))
    hashes = hash_row(before, SLIDE), hash_row(before | values, SLIDE)
    return Change(actor, "slide retried", slide_subject(slide_id), why, *hashes)
