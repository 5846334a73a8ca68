"""Blinding of readers: what is hidden from them, and until when.

Results of a slide (predictions, the reference label, other people's answers, reviews and annotations) are hidden from
the day on which a study names the reader until each of their readings of the slide is signed, in every session; from an
adjudicator until the slide is decided. During an assisted reading its reader sees the predictions (`check_shown_in`),
and nothing else of these.

Models as such (names, cards, metrics) are hidden until all of a person's readings are signed, and with them the
predictions of slides that the person has not read, in a study or not: they name the model, and teach how it marks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, exists, func, or_, select

from pipeline.errors import BadManifestError
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.tables import answer, reading, slide, study
from pipeline.study.reading.arms import ADJUDICATION, ASSISTED, may_show_predictions
from training.foundation.errors import UnreadableError

_UNSIGNED = reading.c.state.in_(("open", "started"))
_EARLIER = reading.alias("earlier")
_BEGUN = or_(
    reading.c.state == "started",
    exists().where(
        _EARLIER.c.reader == reading.c.reader,
        _EARLIER.c.slide_id == reading.c.slide_id,
        _EARLIER.c.state == "signed",
    ),
)
"""Its reader is reading the slide now, or has read it and will read it again."""


@dataclass(frozen=True)
class Blinded:
    """Reason why something is hidden.

    Attributes:
        study_id: the study that forbids it.
        why: as a clause.
        is_helped: predictions are shown all the same, in an assisted reading that has been started.
    """

    study_id: str
    why: str
    is_helped: bool = False


@dataclass(frozen=True)
class Blinding:
    """Studies that hide models as such from a person.

    Attributes:
        models: ids in their protocols, of models and encoders.
    """

    studies: tuple[Blinded, ...] = ()
    models: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Design:
    study_id: str
    readers: frozenset[str]
    adjudicators: frozenset[str]
    arms: frozenset[str]
    compared: frozenset[str]
    """Questions whose answers can differ: all but free text."""
    models: frozenset[str]


def blinding_of(ledger: Ledger, reader: str | None) -> Blinding:
    """Studies that hide models as such from a person.

    Args:
        reader: the person's pseudonym. None without sign-in: then the person may be any reader, and every slide
            counts that a reader has begun and not yet signed in every session.

    Raises:
        UnreadableError: a protocol cannot be read, so it is not known.
    """
    studies: list[Blinded] = []
    models: frozenset[str] = frozenset()
    with ledger.database.read() as connection:
        for design in _designs(connection):
            if blinded := _blinded(connection, design, reader):
                studies.append(blinded)
                models |= design.models
    return Blinding(tuple(studies), models)


def blinded_slides(ledger: Ledger, reader: str | None, slide_id: str | None = None) -> Mapping[str, Blinded]:
    """Slides whose results are hidden from a person, each with the reason.

    Args:
        reader: as for `blinding_of`.
        slide_id: only this slide.

    Raises: as `blinding_of`.
    """
    with ledger.database.read() as connection:
        unsigned = _unsigned(connection, reader, slide_id)
        helped = _helped(connection, unsigned)
        hidden: dict[str, Blinded] = {}
        for design in _designs(connection) if reader is not None else []:
            names = _slides_before(connection, design, reader or "", slide_id)
            hidden |= {name: _before(design, reader, is_helped=(reader, name) in helped) for name in names}
    reasons = [_reading_reason(row, is_helped=(row.reader, row.slide_id) in helped) for row in unsigned]
    # Without sign-in the person may be any of a slide's readers: one without help hides the predictions.
    last_first = sorted(zip(unsigned, reasons, strict=True), key=lambda pair: pair[1].is_helped)[::-1]
    return hidden | {row.slide_id: reason for row, reason in last_first}


def read_slides(ledger: Ledger, reader: str | None, slide_id: str | None = None) -> frozenset[str]:
    """Slides whose predictions a person may see although models are hidden from them: those with a signed reading by
    the person, or by another on whom they may have to decide, and those that they read now with the predictions.

    Some of them may have to be read again, and are in `blinded_slides`, too. Arguments and errors: as there.
    """
    with ledger.database.read() as connection:
        helped = _helped(connection, _unsigned(connection, reader, slide_id))
        chosen = select(reading.c.slide_id).where(reading.c.state == "signed").distinct()
        if slide_id is not None:
            chosen = chosen.where(reading.c.slide_id == slide_id)
        if reader is not None:
            decides = [design.study_id for design in _designs(connection) if reader in design.adjudicators]
            chosen = chosen.where(or_(reading.c.reader == reader, reading.c.study_id.in_(decides)))
        signed = connection.scalars(chosen).all()
    return frozenset(signed) | {name for _, name in helped}


def _helped(connection: Connection, unsigned: Sequence[Row[Any]]) -> set[tuple[str, str]]:
    """Reader and slide of each assisted reading that has been started."""
    return {
        (row.reader, row.slide_id)
        for row in unsigned
        if may_show_predictions(row) and row.state == "started" and not unaided_elsewhere(connection, row)
    }


def _unsigned(connection: Connection, reader: str | None, slide_id: str | None) -> Sequence[Row[Any]]:
    """Unsigned readings; without sign-in, only those of slides that their readers have begun."""
    chosen = select(reading).where(_UNSIGNED, reading.c.reader == reader if reader is not None else _BEGUN)
    if slide_id is not None:
        chosen = chosen.where(reading.c.slide_id == slide_id)
    return connection.execute(chosen.order_by(reading.c.study_id, reading.c.session)).all()


def _slides_before(connection: Connection, design: _Design, reader: str, slide_id: str | None) -> list[str]:
    """A study's slides that are hidden before the readings are laid out, or that may still need a decision."""
    if reader not in design.readers | design.adjudicators:
        return []
    chosen = select(slide.c.slide_id).where(slide.c.study_id == design.study_id)
    if slide_id is not None:
        chosen = chosen.where(slide.c.slide_id == slide_id)
    if _is_laid_out(connection, design.study_id):
        if reader not in design.adjudicators:
            return []
        chosen = chosen.where(slide.c.slide_id.in_(_unread(design)) | slide.c.slide_id.in_(_undecided(design)))
    return list(connection.scalars(chosen))


def _unread(design: _Design) -> Select[Any]:
    """Slides with an unsigned reading, including adjudicators'."""
    return select(reading.c.slide_id).where(reading.c.study_id == design.study_id, _UNSIGNED)


def _undecided(design: _Design) -> Select[Any]:
    """Slides on which signed readings differ, and which no adjudicator was given."""
    of_study = reading.c.study_id == design.study_id
    decided = select(reading.c.slide_id).where(of_study, reading.c.arm == ADJUDICATION)
    key = ("study_id", "reader", "session", "position")
    later = answer.alias("later")
    newest = (
        select(func.max(later.c.seq))
        .where(*(later.c[name] == answer.c[name] for name in (*key, "question")))
        .scalar_subquery()
    )
    return (
        select(reading.c.slide_id)
        .join(answer, and_(*(answer.c[name] == reading.c[name] for name in key)))
        .where(of_study, reading.c.state == "signed", answer.c.question.in_(design.compared), answer.c.seq == newest)
        .where(reading.c.slide_id.not_in(decided))
        .group_by(reading.c.slide_id, reading.c.arm, answer.c.question)
        .having(func.count(answer.c.value.distinct()) > 1)
    )


def _before(design: _Design, reader: str | None, *, is_helped: bool) -> Blinded:
    what = "may have to decide on it" if reader in design.adjudicators else "is to read it"
    return Blinded(design.study_id, f"{reader} {what} for study {design.study_id}", is_helped)


def _reading_reason(row: Row[Any], *, is_helped: bool) -> Blinded:
    why = f"{row.reader} reads it for study {row.study_id} in the arm “{row.arm}”, and has not signed that reading"
    return Blinded(row.study_id, why, is_helped)


def check_shown_in(connection: Connection, row: Row[Any]) -> None:
    """Check that predictions may be shown in a reading.

    Args:
        row: of the table `reading`; one that is about to be started counts as started.

    Raises:
        BadManifestError: not in this arm or state, or its reader has to read the slide without help for another study.
    """
    what = f"reading {row.reader}/{row.session}/{row.position} of study {row.study_id}"
    if not may_show_predictions(row) or row.state == "signed":
        raise BadManifestError(f"{what}: shows no predictions: it is {row.state}, in the arm “{row.arm}”.")
    if first := unaided_elsewhere(connection, row):
        raise BadManifestError(
            f"{what}: {row.reader} has to read slide {row.slide_id} without help for study {first}, and has not "
            "signed that. Sign it first; if that study waits for this one, its coordinator must decide."
        )


def unaided_elsewhere(connection: Connection, row: Row[Any]) -> str | None:
    """Another study in which the reader of an assisted reading still has to read the same slide without help."""
    others = select(reading.c.study_id).where(
        reading.c.reader == row.reader,
        reading.c.slide_id == row.slide_id,
        reading.c.study_id != row.study_id,
        reading.c.arm != ASSISTED,
        _UNSIGNED,
    )
    first = connection.scalar(others.order_by(reading.c.study_id).limit(1))
    if first is not None:
        return str(first)
    for design in _designs(connection):
        is_due = design.study_id != row.study_id and row.reader in design.readers and design.arms != {ASSISTED}
        if is_due and not _is_laid_out(connection, design.study_id) and _has_slide(connection, design, row.slide_id):
            return design.study_id
    return None


def _has_slide(connection: Connection, design: _Design, slide_id: str) -> bool:
    chosen = select(slide.c.slide_id).where(slide.c.study_id == design.study_id, slide.c.slide_id == slide_id)
    return connection.scalar(chosen) is not None


def _designs(connection: Connection) -> list[_Design]:
    """Reading designs of all studies that have readings."""
    rows = connection.execute(select(study.c.study_id, study.c.protocol).order_by(study.c.study_id))
    return [design for row in rows if (design := _design(row.study_id, row.protocol))]


@lru_cache(maxsize=256)
def _design(study_id: str, protocol: str) -> _Design | None:
    try:
        content = json.loads(protocol)
        design = content.get("reading")
        if design is None:
            return None
        return _Design(
            study_id,
            frozenset(design.get("readers", ())),
            frozenset(design.get("adjudicators", ())),
            frozenset(design.get("arms", ("unassisted",))),
            frozenset(entry["name"] for entry in design.get("questions", ()) if entry.get("kind") != "text"),
            frozenset(entry["id"] for kind in ("models", "encoders") for entry in content.get(kind, ())),
        )
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise UnreadableError(f"study {study_id}: its protocol in the ledger cannot be read.") from error


def _blinded(connection: Connection, design: _Design, reader: str | None) -> Blinded | None:
    study_id = design.study_id
    if _is_any_unsigned(connection, study_id, reader):
        who = f"{reader} reads" if reader else "a reader reads"
        return Blinded(study_id, f"{who} for study {study_id}, and has not signed all of those readings")
    if reader is None or not _slides_before(connection, design, reader, None):
        return None
    what = "may have to decide" if reader in design.adjudicators else "is to read"
    return Blinded(study_id, f"{reader} {what} for study {study_id}")


def _is_any_unsigned(connection: Connection, study_id: str, reader: str | None) -> bool:
    is_theirs = reading.c.reader == reader if reader is not None else _BEGUN
    chosen = select(reading.c.study_id).where(reading.c.study_id == study_id, _UNSIGNED, is_theirs)
    return connection.scalar(chosen.limit(1)) is not None


def _is_laid_out(connection: Connection, study_id: str) -> bool:
    return connection.scalar(select(reading.c.study_id).where(reading.c.study_id == study_id).limit(1)) is not None
