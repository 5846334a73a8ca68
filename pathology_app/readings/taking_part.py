"""Check that a person may take part in the reading that a link names."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

from pathology_app.links.reading import ReadingLink
from pathology_app.people.actors import reader_actor
from pathology_app.people.acts import Act, check_act
from pathology_app.people.person import ForbiddenError, Person
from pipeline.errors import BadManifestError
from pipeline.ledger import Ledger
from pipeline.review import ViewContext
from pipeline.study import ADJUDICATION, Readings, readings_of


class LockedReadingError(BadManifestError):
    """The reading is signed: nothing more may be added to it."""


_OF_DECISIONS = {Act.START_READING: Act.START_DECIDING, Act.ANSWER: Act.DECIDE, Act.SIGN: Act.SIGN_DECISION}


def check_reading(person: Person, readings: Readings, link: ReadingLink, act: Act = Act.START_READING) -> Row[Any]:
    """The reading that a person is about to do something in.

    Args:
        act: of a reader; for an adjudicator's reading, the adjudicator's equivalent is checked.

    Raises:
        ForbiddenError: not their reading, or they lack the right. BadManifestError: no such reading, or the protocol
            does not name them for it.
    """
    if person.name is not None and person.reader != link.reader:
        raise ForbiddenError(f"You may not take part in a reading of {link.reader}: you read as {person.reader}.")
    if link.study_id != readings.study_id:
        raise BadManifestError(f"reading {link.key}: belongs to study {link.study_id}, not {readings.study_id}.")
    row: Row[Any] = readings.row(link.reader, link.session, link.position)
    check_act(person, _OF_DECISIONS[act] if row.arm == ADJUDICATION else act)
    readings.check_named(link.reader, row.arm)
    return row


def row_of(ledger: Ledger | None, person: Person, link: ReadingLink) -> Row[Any]:
    """A reading that a person takes part in. Raises: as `check_reading`; BadManifestError: no such study."""
    readings = readings_of(ledger, link.study_id) if ledger else None
    if readings is None:
        raise BadManifestError(f"study {link.study_id}: has no readings here.")
    return check_reading(person, readings, link)


def view_context(
    ledger: Ledger | None, person: Person, slide_id: str, link: ReadingLink | None, *, to_write: bool
) -> ViewContext:
    """Find who is viewing a slide, and for what reading.

    Args:
        to_write: whether something is to be added, which only a started reading allows.

    Raises:
        ForbiddenError: not a reading of theirs. BadManifestError: no such reading of this slide, or it is not started.
        LockedReadingError: it is signed.
    """
    if link is None:
        return ViewContext(slide_id, person.actor, person.actor)
    row = row_of(ledger, person, link)
    if row.slide_id != slide_id:
        raise BadManifestError(f"reading {link.key}: does not belong to slide {slide_id}.")
    if to_write and row.state == "signed":
        raise LockedReadingError(f"reading {link.key}: is signed, so nothing can be added to it.")
    if to_write and row.state != "started":
        raise BadManifestError(f"reading {link.key}: is {row.state}; only a started one can be added to.")
    return ViewContext(slide_id, link.reader, reader_actor(person, link.reader), link.study_id, link.key)
