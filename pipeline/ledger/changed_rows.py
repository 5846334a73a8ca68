"""A changed row of a slide or a task, and the entry that says so; workers have their own prepared statements."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, update

from pipeline.ledger.chain import Change
from pipeline.ledger.rows import row_sha256, slide_subject, task_subject
from pipeline.ledger.tables import slide, task


def change_task(
    connection: Connection, row: Row[Any], values: dict[str, Any], *, actor: str, action: str, why: str = ""
) -> Change:
    """Set columns of a task in this transaction, and return the change to log.

    Args:
        row: all of the task's columns, as they are now.
    """
    is_task = (task.c.study_id == row.study_id, task.c.slide_id == row.slide_id, task.c.position == row.position)
    connection.execute(update(task).where(*is_task).values(values))
    before = dict(row._mapping)
    hashes = row_sha256(task, before), row_sha256(task, before | values)
    return Change(actor, action, task_subject(row.slide_id, row.stage), why, *hashes)


def change_slide(
    connection: Connection, row: Row[Any], values: dict[str, Any], *, actor: str, action: str, why: str = ""
) -> Change:
    """As `change_task`, of a slide."""
    is_slide = (slide.c.study_id == row.study_id, slide.c.slide_id == row.slide_id)
    connection.execute(update(slide).where(*is_slide).values(values))
    before = dict(row._mapping)
    hashes = row_sha256(slide, before), row_sha256(slide, before | values)
    return Change(actor, action, slide_subject(row.slide_id), why, *hashes)
