"""Actors in the web app, and their reasons, as a study's log records them.

The app lets in anyone who has its link and knows no names. So people type theirs, and the log says that the web app
took it, and as which system user the app runs: nobody has checked the name.
"""

from __future__ import annotations

from pathology_app.people.person import Person
from pipeline.ledger.opening import actor_here
from training.foundation.errors import GemslideError
from training.foundation.words.names import comparable

MAX_NAME, MAX_REASON = 80, 1000


class IncompleteError(GemslideError):
    """A form was sent without a required entry."""

    code = "incomplete"


def actor_text(name: str) -> str:
    """Actor as the log names them: "Ada Lovelace (web app, pathology)".

    Raises:
        IncompleteError: no name, or one that cannot be printed.
    """
    return f"{_checked(name, MAX_NAME, 'Type your name: the log records who did it.')} (web app, {actor_here():.60})"


def reader_actor(person: Person, reader: str) -> str:
    """Actor in a study's log for a reader's acts: the pseudonym, and whether anybody has checked who it is."""
    if person.name is not None:
        return f"{reader} (web app)"
    return f"{reader} (web app, {actor_here():.60}, reader chosen without sign-in)"


def reason_text(why: str) -> str:
    """The reason as the log takes it.

    Raises:
        IncompleteError: none, or one that cannot be printed.
    """
    return _checked(why, MAX_REASON, "Give the reason: the log records why it was done.")


def _checked(text: str, longest: int, missing: str) -> str:
    text = " ".join(text.split())
    if not text:
        raise IncompleteError(missing)
    if len(text) > longest or not text.isprintable():
        raise IncompleteError(f"At most {longest} characters, all of them printable: {text:.80}")
    return comparable(text)
