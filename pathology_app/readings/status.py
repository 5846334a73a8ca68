"""State of each slide for a person: the worklist's column "State", its filter, and its button "Next unread".

`reading_states` returns what the worklist asks for; any object of the protocol `ReadingStates` would do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pathology_app.links.studies import StudyLink
from pathology_app.people.person import Person
from pathology_app.project.ledger import study_ledger_of
from pipeline.ledger.ledger import Ledger
from pipeline.project import Project
from pipeline.study.outcomes.search import slides_seen
from pipeline.study.reading.progress import dues_of_reader, readers_of_slides, readings_of_reader

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


@dataclass(frozen=True)
class NextUnread:
    """A reader's unsigned readings in all studies.

    Attributes:
        query: of the page where the reader continues; None if nothing can be read now.
        num_now, num_later: readings that can be read now, and those that are not due yet.
        next_at: when the next of those is due; None if that depends on signatures.
    """

    query: Mapping[str, str] | None
    num_now: int
    num_later: int
    next_at: datetime | None

    @property
    def later_text(self) -> str:
        """What is not due yet: "3 not due yet; the next on 2026-12-10 14:00 UTC"; empty if there is nothing."""
        if not self.num_later:
            return ""
        when = f"; the next on {self.next_at:%Y-%m-%d %H:%M} UTC" if self.next_at else ""
        return f"{self.num_later:,} not due yet{when}"


def next_unread(project: Project, person: Person) -> NextUnread | None:
    """Where a reader continues: in the study with a reading that is started, else in the first where one is due.

    Returns None if everything is signed, or the person reads for no study. Raises: as `reading_state`.
    """
    ledger = study_ledger_of(project).ledger() if person.reader is not None else None
    dues = dues_of_reader(ledger, person.reader) if ledger and person.reader else {}
    if not dues:
        return None
    due_now = sorted((due.now[0].state != "started", study_id) for study_id, due in dues.items() if due.now)
    times = [due.next_at for due in dues.values() if due.next_at]
    return NextUnread(
        StudyLink(due_now[0][1], "read").query() if due_now else None,
        sum(len(due.now) for due in dues.values()),
        sum(len(due.later) for due in dues.values()),
        min(times, default=None),
    )
