"""Slides that ended without a result, grouped by state and code: their number, the reason of one, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from pipeline.ledger.ledger import Ledger, found
from pipeline.ledger.tables import slide
from pipeline.study.outcomes.remedies import remedies_of as remedies_of
from pipeline.study.outcomes.remedies import remedy_of as remedy_of
from pipeline.study.outcomes.retries import MAY_BE_RETRIED


@dataclass(frozen=True)
class Failures:
    """Slides that ended in the same state with the same code.

    Attributes:
        code: "" if none was given.
        example, message: the first of them in manifest order, and its reason.
    """

    state: str
    code: str
    slides: int
    example: str
    message: str

    @property
    def remedy(self) -> str:
        return remedy_of(self.code)


def failures_of(ledger: Ledger, study_id: str) -> list[Failures]:
    """The groups, largest first. Raises BadManifestError if there is no such study."""
    number, first = func.count(), func.min(slide.c.ordinal)
    groups = (
        select(slide.c.state, slide.c.code, number, first)
        .where(slide.c.study_id == study_id, slide.c.state.in_(MAY_BE_RETRIED))
        .group_by(slide.c.state, slide.c.code)
    )
    with ledger.database.read() as connection:
        found(connection, study_id)
        counted = connection.execute(groups).all()
        of_groups = slide.c.ordinal.in_([row[3] for row in counted])
        examples = {
            row.ordinal: row for row in connection.execute(select(slide).where(slide.c.study_id == study_id, of_groups))
        }
    failures = [
        Failures(state, code or "", slides, examples[ordinal].slide_id, examples[ordinal].message or "")
        for state, code, slides, ordinal in counted
    ]
    return sorted(failures, key=lambda group: (-group.slides, group.state, group.code))
