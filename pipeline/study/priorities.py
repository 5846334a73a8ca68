"""Which slides come first."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, update

from pipeline.errors import BadManifestError
from pipeline.study.chain import Change, append
from pipeline.study.ledger import Ledger, found
from pipeline.study.rows import SLIDE, hash_row, slide_subject
from pipeline.study.tables import slide, task


def prioritize(ledger: Ledger, study_id: str, slide_ids: Sequence[str], priority: int, *, actor: str, why: str) -> None:
    """Let workers take the tasks of some slides before (or, below 0, after) all others of a lower priority.

    Raises:
        BadManifestError: no such study or slide.
    """
    with ledger.database.write() as connection:
        found(connection, study_id)
        for slide_id in dict.fromkeys(slide_ids):
            is_slide = (slide.c.study_id == study_id, slide.c.slide_id == slide_id)
            row = connection.execute(select(slide).where(*is_slide).with_for_update()).one_or_none()
            if row is None:
                raise BadManifestError(f"slide {slide_id:.100}: is not in study {study_id}.")
            connection.execute(update(slide).where(*is_slide).values(priority=priority))
            of_slide = (task.c.study_id == study_id, task.c.slide_id == slide_id)
            connection.execute(update(task).where(*of_slide).values(priority=priority))
            before = dict(row._mapping)
            hashes = hash_row(before, SLIDE), hash_row(before | {"priority": priority}, SLIDE)
            details = {"priority": priority}
            change = Change(actor, "slide prioritized", slide_subject(slide_id), why, *hashes, details)
            append(connection, study_id, [change])
