"""People who act, and what they may do. Every page's action and every route checks here.

Where nobody signs in, everybody who is let in counts as one person without a name who may do everything: the app then
belongs to the person who runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pipeline.ledger import actor_here
from training.foundation.errors import GemslideError


class ForbiddenError(GemslideError):
    """The person may not do that."""

    code = "forbidden"


class Role(StrEnum):
    """Role of a person; one may have several."""

    READER = "reader"
    REVIEWER = "reviewer"
    COORDINATOR = "coordinator"
    ADMIN = "admin"


class Action(StrEnum):
    """Action that needs a right; the values end the sentence "You may not …"."""

    LOOK = "view slides"
    ANNOTATE = "annotate slides or judge hotspots"
    READ = "read slides for a study"
    ADJUDICATE = "decide where readers disagree"
    COORDINATE = "manage a study"
    RUN = "start or stop runs"
    EXPORT = "export results"
    ADMINISTER = "see who viewed which slides"


_READER = frozenset({Action.LOOK, Action.ANNOTATE, Action.READ})
_REVIEWER = _READER | {Action.ADJUDICATE, Action.EXPORT}
_COORDINATOR = frozenset({Action.LOOK, Action.COORDINATE, Action.RUN, Action.EXPORT})
MAY: Mapping[Role, frozenset[Action]] = {
    Role.READER: _READER,
    Role.REVIEWER: _REVIEWER,
    Role.COORDINATOR: _COORDINATOR,
    Role.ADMIN: frozenset(Action),
}


@dataclass(frozen=True)
class Person:
    """A person who acts.

    Attributes:
        name: as they signed in; None where nobody signs in.
        reader: the pseudonym under which they read for studies; None where none was given.
        slides: patterns of slides' names, and studies (`study:sites`), that they may see; None: all (`visibility.py`).
    """

    name: str | None = None
    roles: frozenset[Role] = frozenset(Role)
    reader: str | None = None
    slides: tuple[str, ...] | None = None

    def may(self, action: Action) -> bool:
        """Whether one of their roles allows it."""
        return any(action in MAY[role] for role in self.roles)

    @property
    def actor(self) -> str:
        """Name in a log: "ada (web app)"; the system's user where nobody signs in."""
        return f"{self.name or actor_here():.60} (web app)"


def require(person: Person, action: Action) -> None:
    """Raises ForbiddenError if a person may not do something."""
    if not person.may(action):
        roles = ", ".join(sorted(person.roles)) or "none"
        raise ForbiddenError(
            f"You may not {action}: {person.actor} has the roles {roles}. Ask the app's operator for the right one."
        )


NOBODY = Person(roles=frozenset())
"""Person who has not signed in, where people do."""
PERSON_KEY = "gemslide.person"
"""In a request's scope."""
VISITOR_HEADER = "x-gemslide-visitor"
"""In a page's WebSocket: set by the guard, which removes any header of this name that a browser sends."""


class SignedOutError(ForbiddenError):
    """Nobody is signed in, or no longer."""

    code = "signed_out"


def person_of(scope: Mapping[str, object]) -> Person:
    """Sender of a request, from its ASGI scope or Starlette's request."""
    person = scope.get(PERSON_KEY)
    return person if isinstance(person, Person) else Person()
