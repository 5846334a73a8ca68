"""Work of one person at sign-out: what was signed since they signed in, and which readings are still open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row

from pathology_app.links.studies import StudyLink
from pathology_app.people.person import Person
from pathology_app.project.ledger import study_ledger_of
from pipeline.ledger import Ledger
from pipeline.project import Project
from pipeline.review import reviewed_since
from pipeline.study import Readings, readings_of, readings_of_reader
from training.foundation.words.counts import counted


@dataclass(frozen=True)
class WorkItem:
    """One reading or review.

    Attributes:
        query: of the page where it is found.
    """

    text: str
    query: dict[str, str]


@dataclass(frozen=True)
class WorkDone:
    """Signed in this session, and started but not signed. Both contain only the person's own work."""

    signed: Sequence[WorkItem] = ()
    open: Sequence[WorkItem] = ()


def work_done(project: Project, person: Person, since_s: float) -> WorkDone:
    """Find a person's work.

    Args:
        since_s: seconds since 1970.

    Raises:
        GemslideError: the ledger does not answer. OSError: its folder cannot be read.
    """
    ledger = study_ledger_of(project).ledger()
    if ledger is None:
        return WorkDone()
    since_utc = datetime.fromtimestamp(since_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    rows = readings_of_reader(ledger, person.reader) if person.reader is not None else ()
    signed = [
        WorkItem(_reading_text(row), StudyLink(row.study_id, slide=row.slide_id).query())
        for row in rows
        if row.state == "signed" and row.signed_utc >= since_utc
    ]
    signed += [
        WorkItem(f"Review of slide {slide_id}", {"slide": slide_id})
        for slide_id in reviewed_since(ledger, person.actor, since_utc)
    ]
    open_ = [
        WorkItem(f"{_reading_text(row)}: {_answers_text(ledger, row)}", StudyLink(row.study_id, "read").query())
        for row in rows
        if row.state == "started"
    ]
    return WorkDone(signed, open_)


def _reading_text(row: Row[Any]) -> str:
    return f"Study {row.study_id}, session {row.session}, slide {row.position} ({row.slide_id})"


def _answers_text(ledger: Ledger, row: Row[Any]) -> str:
    readings = readings_of(ledger, row.study_id)
    assert isinstance(readings, Readings)
    given = readings.answers(row.reader, row.session, row.position)
    return f"{counted(len(given), 'answer')} of {len(readings.config.questions)} kept, not signed"
