"""Who acts, and what they may do. Every page's action and every route asks here.

Where nobody signs in, whoever may come in is one person without a name who may do everything: the app then belongs to
who runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pipeline.errors import GemslideError
from pipeline.study import actor_here


class ForbiddenError(GemslideError):
    """The person may not do that."""

    code = "forbidden"


class Role(StrEnum):
    """What a person is here; several at once may be."""

    READER = "reader"
    REVIEWER = "reviewer"
    COORDINATOR = "coordinator"
    ADMIN = "admin"


class Action(StrEnum):
    """What is asked about; the words end the sentence "You may not …"."""

    LOOK = "look at slides"
    ANNOTATE = "annotate slides or judge hotspots"
    READ = "read slides for a study"
    ADJUDICATE = "decide where readers disagree"
    COORDINATE = "steer a study"
    RUN = "start or stop runs"
    EXPORT = "export results"
    ADMINISTER = "see who looked at what"


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
    """Who acts.

    Attributes:
        name: as they signed in; None where nobody signs in.
        reader: the pseudonym under which they read for studies; None where nobody said so.
        slides: patterns of slides' names, and studies (`study:sites`), that they may see; None: all (`seeing.py`).
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
        """Whom a log names: "ada (web app)"; the system's user where nobody signs in."""
        return f"{self.name or actor_here():.60} (web app)"


def require(person: Person, action: Action) -> None:
    """Raises ForbiddenError where a person may not do something."""
    if not person.may(action):
        roles = ", ".join(sorted(person.roles)) or "none"
        raise ForbiddenError(
            f"You may not {action}: {person.actor} has the roles {roles}. Ask who runs this app for the right one."
        )


NOBODY = Person(roles=frozenset())
"""Who has not signed in where people do."""
PERSON_KEY = "gemslide.person"
"""In a request's scope."""
VISITOR_HEADER = "x-gemslide-visitor"
"""In a page's WebSocket: put there by the guard, which takes out what a browser sends under this name."""


class SignedOutError(ForbiddenError):
    """Nobody is signed in, or not any more."""

    code = "signed_out"


def current_person() -> Person:
    """Who looks at the page that runs: asked anew each time, since accounts and sessions end.

    Raises:
        SignedOutError: nobody has signed in, and people do here. GemslideError: it cannot be known now.
    """
    import streamlit as st

    from pathology_app.access.sign_in import person_behind

    return person_behind(st.context.headers.get(VISITOR_HEADER))


def person_of(scope: Mapping[str, object]) -> Person:
    """Who sent a request, by its ASGI scope, or by Starlette's request."""
    found = scope.get(PERSON_KEY)
    return found if isinstance(found, Person) else Person()
