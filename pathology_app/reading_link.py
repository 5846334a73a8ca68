"""Which reading a link of the review routes is about, and whether whoever asks may take part in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from pathology_app.access.people import Action, ForbiddenError, Person, require
from pathology_app.study_actors import reader_actor
from pipeline.errors import BadManifestError
from pipeline.review import Looking
from pipeline.study import ADJUDICATION, Ledger, readings_of


class LockedReadingError(BadManifestError):
    """The reading is signed: nothing is added to it any more."""


_NAMES = ("study", "reader", "session", "position")
_MAX_LENGTH = 100


@dataclass(frozen=True)
class ReadingLink:
    """One reading of a study."""

    study_id: str
    reader: str
    session: int
    position: int

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ReadingLink | None:
        """The reading that a query names; None where it names none.

        Raises:
            BadManifestError: it names a part of one.
        """
        said = [query.get(name, "")[:_MAX_LENGTH] for name in _NAMES]
        if not any(said):
            return None
        numbers = [int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0 for text in said[2:]]
        if not all(said[:2]) or not all(numbers) or "\0" in said[0] + said[1]:
            raise BadManifestError(f"a reading is named by {', '.join(_NAMES)}.")
        return cls(said[0], said[1], *numbers)

    def query(self) -> str:
        return urlencode(dict(zip(_NAMES, (self.study_id, self.reader, self.session, self.position), strict=True)))

    @property
    def key(self) -> str:
        return f"{self.reader}/{self.session}/{self.position}"


def looking_at(
    ledger: Ledger | None, person: Person, slide_id: str, link: ReadingLink | None, *, to_write: bool
) -> Looking:
    """Who looks at a slide, for what reading.

    Args:
        to_write: only a reading that is started takes more.

    Raises:
        ForbiddenError: not a reading of theirs. BadManifestError: no such reading of this slide, or it is not started.
        LockedReadingError: it is signed.
    """
    if link is None:
        return Looking(slide_id, person.actor, person.actor)
    if ledger is None:
        raise BadManifestError(f"study {link.study_id}: this project has no studies.")
    if person.name is not None and person.reader != link.reader:
        raise ForbiddenError(f"You may not take part in a reading of {link.reader}: you read as {person.reader}.")
    readings = readings_of(ledger, link.study_id)
    if readings is None:
        raise BadManifestError(f"study {link.study_id}: has no readings.")
    row = readings.row(link.reader, link.session, link.position)
    require(person, Action.ADJUDICATE if row.arm == ADJUDICATION else Action.READ)
    if row.slide_id != slide_id:
        raise BadManifestError(f"reading {link.key}: is not of slide {slide_id}.")
    if to_write and row.state == "signed":
        raise LockedReadingError(f"reading {link.key}: is signed, so nothing is added to it.")
    if to_write and row.state != "started":
        raise BadManifestError(f"reading {link.key}: is {row.state}; only one that is started takes more.")
    return Looking(slide_id, link.reader, reader_actor(person, link.reader), link.study_id, link.key)
