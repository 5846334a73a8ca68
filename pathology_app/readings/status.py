"""State of each slide for a person: the worklist's column "State", its filter, and its button "Next unread".

`reading_states` returns what the worklist asks for; any object of the protocol `ReadingStates` would do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pathology_app.links.studies import StudyLink
from pathology_app.people.person import Person
from pathology_app.project.ledger import study_ledger_of
from pipeline.ledger.ledger import Ledger
from pipeline.project import Project
from pipeline.study.outcomes.search import slides_seen
from pipeline.study.reading.progress import readers_of_slides, readings_of_reader, studies_of_reader

STATUS_TEXT: Mapping[str, str] = {"open": "to read", "started": "started", "signed": "signed"}
"""Displayed text for the states of a reading."""
UNREAD, OPENED = "unread", "opened"


@dataclass(frozen=True)
class ReadingState:
    """State of one slide for a reader.

    Attributes:
        state: "to read", "started" or "signed": of the first reading that is not signed.
        study_id: of the study that the reading belongs to.
    """

    state: str
    study_id: str

    @property
    def text(self) -> str:
        """Text for a cell: "to read (S)"."""
        return f"{self.state} ({self.study_id})"


class ReadingStatuses(Protocol):
    """Statuses of a project's slides for one person."""

    @property
    def statuses(self) -> tuple[str, ...]:
        """All statuses, in the order of work; the first is that of slides missing from `states`. "Next unread" leads to
        slides with the first."""
        ...

    @property
    def states(self) -> Mapping[str, str]:
        """The other statuses, by slide."""
        ...

    def text(self, slide_id: str, word: str) -> str:
        """A slide's status as its row shows it."""
        ...

    def readers(self, slide_ids: Sequence[str]) -> Mapping[str, str]:
        """Readers by slide, for a person who may know them; other slides are left out."""
        ...


class LedgerStatuses:
    """States from a reader's studies; for other slides, whether the project's log links them to the person."""

    statuses = (UNREAD, STATUS_TEXT["open"], STATUS_TEXT["started"], OPENED, STATUS_TEXT["signed"])

    def __init__(
        self, ledger: Ledger | None, opened: set[str], studies: Mapping[str, ReadingState], *, is_reader: bool
    ):
        self._ledger, self._studies, self._is_reader = ledger, studies, is_reader
        self.states: Mapping[str, str] = dict.fromkeys(opened, OPENED) | {
            slide_id: reading.state for slide_id, reading in studies.items()
        }

    def text(self, slide_id: str, word: str) -> str:
        """A slide's status, with the study if there is a reading."""
        reading = self._studies.get(slide_id)
        return reading.text if reading else word

    def readers(self, slide_ids: Sequence[str]) -> Mapping[str, str]:
        """Readers by slide; none for a reader, who must not know of the others."""
        if self._ledger is None or self._is_reader:
            return {}
        texts: dict[str, list[str]] = {}
        for slide_id, reader, state in readers_of_slides(self._ledger, slide_ids):
            texts.setdefault(slide_id, []).append(f"{reader}: {STATUS_TEXT.get(state, state)}")
        return {slide_id: ", ".join(of_slide) for slide_id, of_slide in texts.items()}


def reading_state(project: Project, person: Person) -> Mapping[str, ReadingState]:
    """State of each of a reader's slides; other slides are left out, and all where nobody signs in.

    Raises:
        GemslideError: the ledger does not answer.
    """
    ledger = study_ledger_of(project).ledger() if person.reader is not None else None
    if ledger is None or person.reader is None:
        return {}
    states: dict[str, ReadingState] = {}
    for row in readings_of_reader(ledger, person.reader):
        before = states.get(row.slide_id)
        if row.state in STATUS_TEXT and (before is None or before.state == STATUS_TEXT["signed"]):
            states[row.slide_id] = ReadingState(STATUS_TEXT[row.state], row.study_id)
    return states


def reading_states(project: Project, person: Person) -> ReadingStatuses | None:
    """A person's statuses; None where nobody signs in: then everybody counts as one person.

    Raises:
        GemslideError, OSError: the ledger is unavailable.
    """
    if person.name is None and person.reader is None:
        return None
    ledger = study_ledger_of(project).ledger()
    opened = slides_seen(ledger, person.actor) if ledger else set()
    return LedgerStatuses(ledger, opened, reading_state(project, person), is_reader=person.reader is not None)


def next_unread(project: Project, person: Person) -> Mapping[str, str] | None:
    """The query of the page where a reader continues; None if there is nothing to read. Raises: as `reading_state`."""
    ledger = study_ledger_of(project).ledger() if person.reader is not None else None
    studies = studies_of_reader(ledger, person.reader) if ledger and person.reader else []
    return StudyLink(studies[0], "read").query() if studies else None
