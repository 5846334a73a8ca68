"""Registrations in the project's ledger: each save adds a revision, with an entry in the project's log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, and_, delete, func, insert, or_, select

from pipeline.errors import BadAnnotationError
from pipeline.ledger import PROJECT_LOG, Change, Ledger, append_to_project, slide_subject, utc_now
from pipeline.ledger.tables import audit, study
from pipeline.registration import IDENTITY, Affine
from pipeline.review.registrations.registration import Registration
from pipeline.review.rows.tables import registration
from pipeline.review.rows.view_context import details_of, key_sha256
from training.foundation.errors import UnreadableError
from training.foundation.reading import parse_json

REGISTERED, UNREGISTERED = "slides registered", "registration removed"
_NUMBERS = ("m11", "m12", "m13", "m21", "m22", "m23")
_FACTS = ("method", "error_um", "places", "matches", "share_near", "dice", "person", "utc", "revision")
MAX_SLIDES = 500
"""Slides asked about at once; a statement has a limited number of parameters."""


def save_registration(ledger: Ledger, given: Registration, actor: str) -> Registration:
    """Save a registration; it replaces the pair's earlier one, whichever way that was. Returns it as saved.

    Raises:
        BadAnnotationError: a slide with itself.
    """
    ordered = _ordered(given)
    with ledger.database.write() as connection:
        row = {
            **_key(ordered.moving_id, ordered.fixed_id),
            "revision": _last_revision(connection, ordered.moving_id, ordered.fixed_id) + 1,
            "state": "saved",
            **dict(zip(_NUMBERS, ordered.transform.numbers, strict=True)),
            **{name: getattr(ordered, name) for name in ("method", "error_um", "places", "matches")},
            **{name: getattr(ordered, name) for name in ("share_near", "dice", "moving_pixels", "fixed_pixels")},
            "person": actor,
            "utc": utc_now(),
        }
        _add(connection, row, REGISTERED, given.moving_id)
    saved = _registration(row)
    return saved if saved.moving_id == given.moving_id else saved.inverse()


def remove_registration(ledger: Ledger, one: str, other: str, actor: str) -> None:
    """Mark a pair's registration as removed, by a further revision.

    Raises:
        UnreadableError: the pair has none.
    """
    low, high = sorted((one, other))
    with ledger.database.write() as connection:
        last = _last_revision(connection, low, high)
        chosen = select(registration).where(*_is_pair(low, high), registration.c.revision == last)
        before = connection.execute(chosen).mappings().one_or_none()
        if before is None or before["state"] == "removed":
            raise UnreadableError(
                f"slides {one:.64} and {other:.64}: no registration is saved. `gemslide register --list` shows those "
                "that are."
            )
        empty = dict(zip(_NUMBERS, IDENTITY.numbers, strict=True)) | dict.fromkeys(("error_um", "share_near", "dice"))
        row = {**before, **empty, "revision": last + 1, "state": "removed", "places": 0, "matches": 0}
        row |= {"person": actor, "utc": utc_now()}
        _add(connection, row, UNREGISTERED, one)


def registrations_of(ledger: Ledger, slide_ids: Collection[str] | None = None) -> list[Registration]:
    """Saved registrations, by slides: those whose two slides are both among these; None: all."""
    newest = (
        select(registration.c.moving_id, registration.c.fixed_id, func.max(registration.c.revision).label("revision"))
        .group_by(registration.c.moving_id, registration.c.fixed_id)
        .subquery()
    )
    is_newest = and_(*(registration.c[name] == newest.c[name] for name in ("moving_id", "fixed_id", "revision")))
    chosen = select(registration).join(newest, is_newest).where(registration.c.state == "saved")
    if slide_ids is not None:
        if len(slide_ids) > MAX_SLIDES:
            raise UnreadableError(f"{len(slide_ids)} slides at once; at most {MAX_SLIDES} are looked up.")
        chosen = chosen.where(registration.c.moving_id.in_(slide_ids), registration.c.fixed_id.in_(slide_ids))
    with ledger.database.read() as connection:
        rows = connection.execute(chosen.order_by(registration.c.moving_id, registration.c.fixed_id)).mappings().all()
    return [_registration(dict(row)) for row in rows]


def erase_registrations(connection: Connection, slide_id: str) -> list[int]:
    """Delete all revisions that name a slide. Returns the numbers of their entries in the project's log, which may be
    about the other slide of a pair: the caller empties them."""
    names = or_(registration.c.moving_id == slide_id, registration.c.fixed_id == slide_id)
    rows = connection.execute(select(registration).where(names)).mappings().all()
    keys = {key_sha256(registration, dict(row)) for row in rows}
    connection.execute(delete(registration).where(names))
    if not keys:
        return []
    of_pairs = select(audit.c.seq, audit.c.details).where(
        audit.c.study_id == PROJECT_LOG, audit.c.action.in_((REGISTERED, UNREGISTERED))
    )
    return [seq for seq, details in connection.execute(of_pairs) if _key_in(details) in keys]


def _key_in(details: str | None) -> str | None:
    """Hash of the key that an entry names; None for an entry that was emptied or changed."""
    try:
        return str(parse_json(details or "")["key_sha256"])
    except (ValueError, KeyError, TypeError):
        return None


def _add(connection: Connection, row: Mapping[str, Any], action: str, asked: str) -> None:
    """Add a revision, and its entry about the slide that was named first. It does not name the other one: whoever may
    see only one slide learns nothing of others from the log."""
    connection.execute(insert(registration).values(row))
    details: dict[str, Any] = {**details_of(registration, row), "method": row["method"], "error_um": row["error_um"]}
    append_to_project(connection, [Change(row["person"], action, slide_subject(asked), details=details)])


def _last_revision(connection: Connection, low: str, high: str) -> int:
    """The pair's last revision, 0 without any. Other writers of the log wait from here on."""
    connection.execute(select(study.c.study_id).where(study.c.study_id == PROJECT_LOG).with_for_update())
    return connection.scalar(select(func.max(registration.c.revision)).where(*_is_pair(low, high))) or 0


def _key(low: str, high: str) -> dict[str, str]:
    return {"moving_id": low, "fixed_id": high}


def _is_pair(low: str, high: str) -> tuple[Any, Any]:
    return registration.c.moving_id == low, registration.c.fixed_id == high


def _ordered(given: Registration) -> Registration:
    if given.moving_id == given.fixed_id:
        raise BadAnnotationError(f"slide {given.moving_id}: a slide is not registered to itself. Name two slides.")
    return given if given.moving_id < given.fixed_id else given.inverse()


def _registration(row: Mapping[str, Any]) -> Registration:
    return Registration(
        moving_id=row["moving_id"],
        fixed_id=row["fixed_id"],
        transform=Affine(*(float(row[name]) for name in _NUMBERS)),
        moving_pixels=row["moving_pixels"],
        fixed_pixels=row["fixed_pixels"],
        **{name: row[name] for name in _FACTS},
    )
