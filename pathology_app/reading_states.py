"""How far a person is with each slide, for the worklist's column, its filter and its button "Next unread".

`reading_states` gives what the worklist asks: any object of the protocol `ReadingStates` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pathology_app.access.people import Person
from pathology_app.study_ledger import current_study_ledger
from pipeline.study.search import slides_seen


class ReadingStates(Protocol):
    """One person's words for the slides of a project.

    Attributes:
        words: all that there are, in the order in which work goes on; the first is that of a slide of which `states`
            says nothing. "Next unread" leads to slides with the first.
        states: by slide, the others.
        readers: who has read it, by slide, where this person may know that.
    """

    @property
    def words(self) -> tuple[str, ...]: ...

    @property
    def states(self) -> Mapping[str, str]: ...

    @property
    def readers(self) -> Mapping[str, str]: ...


class OpenedStates:
    """Read is what the project's log connects with the person."""

    words = ("unread", "opened")

    def __init__(self, opened: set[str]) -> None:
        self.states: Mapping[str, str] = dict.fromkeys(opened, self.words[1])
        self.readers: Mapping[str, str] = {}


def reading_states(person: Person) -> ReadingStates | None:
    """A person's states; None where nobody signs in: then all are one.

    Raises:
        GemslideError, OSError: the ledger is away.
    """
    if person.name is None:
        return None
    ledger = current_study_ledger().ledger()
    return OpenedStates(slides_seen(ledger, person.actor) if ledger else set())
