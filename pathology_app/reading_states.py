"""How far a person is with each slide: the worklist's column "State", its filter, and its button "Next unread".

`reading_states` gives what the worklist asks; any object of the protocol `ReadingStates` would do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pathology_app.access.people import Person
from pathology_app.reading_state import WORDS, ReadingState, reading_state
from pathology_app.study_ledger import study_ledger_of
from pipeline.project import Project
from pipeline.study.ledger import Ledger
from pipeline.study.reading_progress import readers_of_slides
from pipeline.study.search import slides_seen

UNREAD, OPENED = "unread", "opened"


class ReadingStates(Protocol):
    """One person's words for the slides of a project."""

    @property
    def words(self) -> tuple[str, ...]:
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
        """Who reads slides, for a person who may know that; others are left out."""
        ...


class LedgerStates:
    """What a reader's studies say; of other slides, whether the project's log connects them with the person."""

    words = (UNREAD, WORDS["open"], WORDS["started"], OPENED, WORDS["signed"])

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
            said.setdefault(slide_id, []).append(f"{reader}: {WORDS.get(state, state)}")
        return {slide_id: ", ".join(of_slide) for slide_id, of_slide in said.items()}


def reading_states(project: Project, person: Person) -> ReadingStates | None:
    """A person's states; None where nobody signs in: then all are one.

    Raises:
        GemslideError, OSError: the ledger is away.
    """
    if person.name is None and person.reader is None:
        return None
    ledger = study_ledger_of(project).ledger()
    opened = slides_seen(ledger, person.actor) if ledger else set()
    return LedgerStates(ledger, opened, reading_state(project, person), is_reader=person.reader is not None)
