"""Priorities of a study's slides."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, update

from pipeline.errors import BadManifestError
from pipeline.ledger.chain import Change, append
from pipeline.ledger.ledger import Ledger, found
from pipeline.ledger.reasons import check_reason
from pipeline.ledger.rows import row_sha256, slide_subject, task_subject
from pipeline.ledger.tables import slide, task


def prioritize(ledger: Ledger, study_id: str, slide_ids: Sequence[str], priority: int, *, actor: str, why: str) -> None:
    """Set the priority of some slides: workers take tasks of a higher priority first.

    Raises:
        BadManifestError: no reason, no such study, or no such slide.
    """
    check_reason(why, "a change of priority")
    changes: list[Change] = []
    with ledger.database.write() as connection:
        found(connection, study_id)
        for slide_id in dict.fromkeys(slide_ids):
            of_slide = (task.c.study_id == study_id, task.c.slide_id == slide_id)
            tasks = connection.execute(select(task).where(*of_slide).order_by(task.c.position).with_for_update()).all()
            is_slide = (slide.c.study_id == study_id, slide.c.slide_id == slide_id)
            row = connection.execute(select(slide).where(*is_slide).with_for_update()).one_or_none()
            if row is None:
                raise BadManifestError(f"slide {slide_id:.100}: is not in study {study_id}.")
            connection.execute(update(slide).where(*is_slide).values(priority=priority))
            connection.execute(update(task).where(*of_slide).values(priority=priority))
            subjects = [(slide, slide_subject(slide_id), "slide prioritized", row)]
            subjects += [
                (task, task_subject(slide_id, stage_task.stage), "task prioritized", stage_task) for stage_task in tasks
            ]
            for table, subject, action, old in subjects:
                before = dict(old._mapping)
                hashes = row_sha256(table, before), row_sha256(table, before | {"priority": priority})
                changes.append(Change(actor, action, subject, why, *hashes, {"priority": priority}))
        append(connection, study_id, changes)
