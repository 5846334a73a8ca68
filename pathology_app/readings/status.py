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
"""For the states of a reading."""
UNREAD, OPENED = "unread", "opened"


@dataclass(frozen=True)
class ReadingState:
    """State of one slide for a reader.

    Attributes:
        state: "to read", "started" or "signed": the reading that comes first of those that are not signed.
        study_id: of the study that the reading belongs to.
    """

    state: str
    study_id: str

    @property
    def text(self) -> str:
        """For a cell: "to read (S)"."""
        return f"{self.state} ({self.study_id})"


class ReadingStatuses(Protocol):
    """One person's words for the slides of a project."""

    @property
    def statuses(self) -> tuple[str, ...]:
        """All that there are, in the order of work; the first is that of a slide of which `states` says nothing. "Next
        unread" leads to slides with the first."""
        ...

    @property
    def states(self) -> Mapping[str, str]:
        """By slide, the others."""
        ...

    def text(self, slide_id: str, word: str) -> str:
        """A slide's word as its row says it."""
        ...

    def readers(self, slide_ids: Sequence[str]) -> Mapping[str, str]:
        """Readers by slide, for a person who may know them; other slides are left out."""
        ...


class LedgerStatuses:
    """States from a reader's studies; of other slides, whether the project's log connects them with the person."""

    statuses = (UNREAD, STATUS_TEXT["open"], STATUS_TEXT["started"], OPENED, STATUS_TEXT["signed"])

    def __init__(
        self, ledger: Ledger | None, opened: set[str], studies: Mapping[str, ReadingState], *, is_reader: bool
    ):
        self._ledger, self._studies, self._is_reader = ledger, studies, is_reader
        self.states: Mapping[str, str] = dict.fromkeys(opened, OPENED) | {
            slide_id: found.state for slide_id, found in studies.items()
        }

    def text(self, slide_id: str, word: str) -> str:
        """With the study, where one asks for the reading."""
        found = self._studies.get(slide_id)
        return found.text if found else word

    def readers(self, slide_ids: Sequence[str]) -> Mapping[str, str]:
        """A reader is not told of others."""
        if self._ledger is None or self._is_reader:
            return {}
        said: dict[str, list[str]] = {}
        for slide_id, reader, state in readers_of_slides(self._ledger, slide_ids):
            said.setdefault(slide_id, []).append(f"{reader}: {STATUS_TEXT.get(state, state)}")
        return {slide_id: ", ".join(of_slide) for slide_id, of_slide in said.items()}


def reading_state(project: Project, person: Person) -> Mapping[str, ReadingState]:
    """State of each of a reader's slides; other slides are left out, and all where nobody signs in.

    Raises:
        GemslideError: the ledger does not answer.
    """
    ledger = study_ledger_of(project).ledger() if person.reader is not None else None
    if ledger is None or person.reader is None:
        return {}
    found: dict[str, ReadingState] = {}
    for row in readings_of_reader(ledger, person.reader):
        before = found.get(row.slide_id)
        if row.state in STATUS_TEXT and (before is None or before.state == STATUS_TEXT["signed"]):
            found[row.slide_id] = ReadingState(STATUS_TEXT[row.state], row.study_id)
    return found


def reading_states(project: Project, person: Person) -> ReadingStatuses | None:
    """A person's states; None where nobody signs in: then all are one.

    Raises:
        GemslideError, OSError: the ledger is away.
    """
    if person.name is None and person.reader is None:
        return None
    ledger = study_ledger_of(project).ledger()
    opened = slides_seen(ledger, person.actor) if ledger else set()
    return LedgerStatuses(ledger, opened, reading_state(project, person), is_reader=person.reader is not None)


def next_unread(project: Project, person: Person) -> Mapping[str, str] | None:
    """The query of the page where a reader goes on; None where there is nothing to read. Raises: as `reading_state`."""
    ledger = study_ledger_of(project).ledger() if person.reader is not None else None
    studies = studies_of_reader(ledger, person.reader) if ledger and person.reader else []
    return StudyLink(studies[0], "read").query() if studies else None
