"""What a reader still has to read, for lists of slides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pathology_app.access.people import Person
from pathology_app.study_ledger import study_ledger_of
from pathology_app.study_link import StudyLink
from pipeline.project import Project
from pipeline.study import readings_of_reader, studies_of_reader

WORDS: Mapping[str, str] = {"open": "to read", "started": "started", "signed": "signed"}
"""For the states of a reading."""


@dataclass(frozen=True)
class ReadingState:
    """How a reader stands to one slide.

    Attributes:
        state: "to read", "started" or "signed": the reading that comes first of those that are not signed.
        study_id: whose reading it is.
    """

    state: str
    study_id: str

    @property
    def text(self) -> str:
        """For a cell: "to read (S)"."""
        return f"{self.state} ({self.study_id})"


def reading_state(project: Project, person: Person) -> Mapping[str, ReadingState]:
    """How a reader stands to slides; those that are none of theirs are left out, and all where nobody signs in.

    Raises:
        GemslideError: the ledger does not answer.
    """
    ledger = study_ledger_of(project).ledger() if person.reader is not None else None
    if ledger is None or person.reader is None:
        return {}
    found: dict[str, ReadingState] = {}
    for row in readings_of_reader(ledger, person.reader):
        before = found.get(row.slide_id)
        if row.state in WORDS and (before is None or before.state == WORDS["signed"]):
            found[row.slide_id] = ReadingState(WORDS[row.state], row.study_id)
    return found


def next_unread(project: Project, person: Person) -> Mapping[str, str] | None:
    """The query of the page where a reader goes on; None where there is nothing to read. Raises: as `reading_state`."""
    ledger = study_ledger_of(project).ledger() if person.reader is not None else None
    studies = studies_of_reader(ledger, person.reader) if ledger and person.reader else []
    return StudyLink(studies[0], "read").query() if studies else None
