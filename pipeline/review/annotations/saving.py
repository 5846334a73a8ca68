"""Saving of annotations in one transaction with their log entries, and never over another person's change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import shapely
from sqlalchemy import Connection, bindparam, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from pipeline.annotations import CrossingCount
from pipeline.errors import BadAnnotationError
from pipeline.ledger import Change, Ledger, append_to_project, utc_now
from pipeline.project import check_name
from pipeline.review.annotations.annotation import CONTENT, Annotation, Draft, annotation_of, new_id
from pipeline.review.annotations.entries import class_entry, entry_of
from pipeline.review.annotations.kinds import KIND_RULES, KINDS
from pipeline.review.annotations.shapes import stored_shape
from pipeline.review.annotations.stored_rows import check_parents, rows_belonging_to, stored_rows
from pipeline.review.rows.tables import annotated_slide, annotation, annotation_class, annotation_revision
from training.foundation.words.class_names import check_class_name, check_printable
from training.foundation.words.counts import counted
from training.foundation.words.names import comparable

MAX_DRAFTS = 500
"""Of one `save`; file imports may have more."""
MAX_LIVE, MAX_VERTICES_OF_SLIDE = 500_000, 10_000_000
"""Limits for one slide: anyone who views it holds all of its annotations in memory."""
MAX_NOTE, MAX_ACTOR, MAX_VIEW = 2_000, 200, 1_000
OBJECT_TYPES = ("annotation", "detection", "cell", "tile", "tmaCore", "root")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_AT_ONCE = 500
_KEPT = (*CONTENT, "revision", "changed_by", "changed_utc")
_MEASURES = ("left_px0", "top_px0", "right_px0", "bottom_px0", "area_px0", "vertices")


@dataclass(frozen=True)
class Saved:
    """Result of saving drafts.

    Attributes:
        saved: annotations as they are now, in the order of the drafts, including drafts that changed nothing.
        conflicts: the database's annotations, not changed, for drafts that were made from another revision.
        change: the slide's counter.
    """

    saved: tuple[Annotation, ...]
    conflicts: tuple[Annotation, ...]
    change: int


@dataclass
class _Work:
    """Rows and log entries for one transaction to write."""

    slide_id: str
    actor: str
    now: str
    change: int
    saved: list[Annotation] = field(default_factory=list)
    conflicts: list[Annotation] = field(default_factory=list)
    made: list[dict[str, Any]] = field(default_factory=list)
    updated: list[dict[str, Any]] = field(default_factory=list)
    earlier: list[dict[str, Any]] = field(default_factory=list)
    entries: list[Change] = field(default_factory=list)
    """One for each annotation that is written."""
    class_entries: list[Change] = field(default_factory=list)
    """One for each class that is new to the project."""
    only_own: bool = False
    now_deleted: list[Mapping[str, Any]] = field(default_factory=list)
    now_restored: list[Mapping[str, Any]] = field(default_factory=list)
    """Rows as they were before this transaction deleted or restored them."""
    live: int = 0
    vertices: int = 0


def save(
    ledger: Ledger,
    slide_id: str,
    drafts: Sequence[Draft],
    actor: str,
    *,
    size_wh_px0: tuple[int, int] | None = None,
    only_own: bool = False,
) -> Saved:
    """Save drafts on a slide, each with an entry in the project's log. Sending the same drafts again changes nothing.

    Args:
        actor: who saves them, as the log should name them.
        size_wh_px0: the slide's; if given, shapes that extend beyond it are refused.
        only_own: whether annotations of others may not be changed (`permission.py`).

    Raises:
        BadAnnotationError: an invalid draft, more than `MAX_DRAFTS`, or another person's annotation under `only_own`;
            nothing was saved.
        GemslideError: the ledger is unavailable or locked; nothing was saved.
    """
    if len(drafts) > MAX_DRAFTS:
        raise BadAnnotationError(f"{len(drafts)} annotations at once; at most {MAX_DRAFTS} are allowed. Import a file.")
    return save_rows(ledger, slide_id, rows_of(drafts, slide_id, actor, size_wh_px0), actor, only_own=only_own)


def save_rows(
    ledger: Ledger, slide_id: str, rows: Sequence[Mapping[str, Any]], actor: str, *, only_own: bool = False
) -> Saved:
    """`save` for drafts that `rows_of` has checked."""
    with ledger.database.write() as connection:
        work = write_rows(connection, rows, slide_id, actor, only_own=only_own)
        append_to_project(connection, [*work.class_entries, *work.entries])
    return Saved(tuple(work.saved), tuple(work.conflicts), work.change)


def rows_of(
    drafts: Sequence[Draft], slide_id: str, actor: str, size_wh_px0: tuple[int, int] | None
) -> list[dict[str, Any]]:
    """The drafts as rows, all checked; `revision` is the one a draft is based on.

    Raises:
        BadAnnotationError: an invalid draft, or an id twice. BadManifestError: not a slide name.
    """
    check_name(slide_id, what="slide")
    _printable(actor, MAX_ACTOR, "the author")
    ids = [draft.annotation_id for draft in drafts]
    if len(set(ids)) != len(ids):
        raise BadAnnotationError("The same annotation is to be saved twice. Send only its latest state.")
    count = CrossingCount()  # over everything saved at once
    return [_row_of(draft, size_wh_px0, count) for draft in drafts]


def write_rows(
    connection: Connection,
    rows: Sequence[Mapping[str, Any]],
    slide_id: str,
    actor: str,
    *,
    keep_both: bool = False,
    only_own: bool = False,
) -> _Work:
    """Write rows; the log is left to the caller. What belongs to an annotation is deleted and restored with it.

    Args:
        keep_both: save a conflicting row beside the stored one, as a new annotation.
        only_own: refuse changes to annotations of others.
    """
    counter = _locked(connection, slide_id)
    work = _Work(slide_id, actor, utc_now(), counter["change"] + 1, only_own=only_own)
    present = stored_rows(connection, slide_id, [row["annotation_id"] for row in rows])
    check_parents(connection, slide_id, rows, present)
    for row in rows:
        _decide(row, present.get(row["annotation_id"]), work, keep_both=keep_both)
    _follow_parents(connection, work)
    if not work.entries:
        work.change -= 1
        if not work.change:  # the row was created only to be locked
            connection.execute(delete(annotated_slide).where(annotated_slide.c.slide_id == slide_id))
        return work
    _check_limits(counter, work)
    _execute(connection, work)
    values = {"change": work.change, "live": counter["live"] + work.live}
    connection.execute(
        update(annotated_slide)
        .where(annotated_slide.c.slide_id == slide_id)
        .values(**values, vertices=counter["vertices"] + work.vertices)
    )
    return work


def _row_of(draft: Draft, size_wh_px0: tuple[int, int] | None, count: CrossingCount) -> dict[str, Any]:
    where = f"annotation {draft.annotation_id!r:.60}"
    _check_words(draft, where)
    shape = stored_shape(draft.shape, draft.kind, size_wh_px0=size_wh_px0, where=where, count=count)
    left, top, right, bottom = shape.bounds
    return {
        "annotation_id": draft.annotation_id,
        "revision": draft.revision,
        "state": "deleted" if draft.is_deleted else "live",
        "kind": draft.kind,
        "object_type": draft.object_type,
        "geometry": shapely.to_geojson(shape),
        "class_name": None if draft.class_name is None else comparable(draft.class_name),
        "note": draft.note,
        "parent_id": draft.parent_id,
        "view": draft.view,
        "left_px0": left,
        "top_px0": top,
        "right_px0": right,
        "bottom_px0": bottom,
        "area_px0": shape.area,
        "vertices": int(shapely.get_num_coordinates(shape)),
    }


def _check_words(draft: Draft, where: str) -> None:
    if not _UUID.fullmatch(draft.annotation_id):
        raise BadAnnotationError(f"{where}: its id is not a lower-case UUID.")
    if draft.kind not in KINDS or draft.object_type not in OBJECT_TYPES:
        raise BadAnnotationError(
            f"{where}: kind {draft.kind!r:.40}, type {draft.object_type!r:.40}; expected one of {', '.join(KINDS)} and "
            f"one of {', '.join(OBJECT_TYPES)}."
        )
    if not 0 <= draft.revision < 1_000_000_000:
        raise BadAnnotationError(f"{where}: revision {draft.revision} is out of range.")
    try:
        if draft.class_name is not None:
            check_class_name(draft.class_name)
    except ValueError as error:
        raise BadAnnotationError(f"{where}: {error}.") from error
    _printable(draft.note.replace("\n", " "), MAX_NOTE, f"{where}: its note")
    _check_needs(draft, where)


def _check_needs(draft: Draft, where: str) -> None:
    """Check for what the kind of annotation must have, and what it cannot have."""
    rule = KIND_RULES[draft.kind]
    if (draft.parent_id is not None) != bool(rule.parents):
        needs = (
            "needs the id of the annotation that it belongs to" if rule.parents else "belongs to no other annotation"
        )
        raise BadAnnotationError(f"{where}: a {draft.kind} {needs}.")
    if draft.parent_id is not None and not _UUID.fullmatch(draft.parent_id):
        raise BadAnnotationError(f"{where}: the id that it belongs to is not a lower-case UUID.")
    if (draft.view is not None) != rule.has_view:
        raise BadAnnotationError(f"{where}: a {draft.kind} {'needs' if rule.has_view else 'cannot have'} a saved view.")
    if draft.view is not None:
        _printable(draft.view, MAX_VIEW, f"{where}: its view")
    if rule.has_class and draft.class_name is None:
        raise BadAnnotationError(f"{where}: a {draft.kind} needs a class.")
    if rule.has_note and not draft.note.strip():
        raise BadAnnotationError(f"{where}: a {draft.kind} needs a text.")


def _printable(text: str, longest: int, what: str) -> None:
    if len(text) > longest:
        raise BadAnnotationError(f"{what}: {counted(len(text), 'character')}; at most {longest} are allowed.")
    try:
        check_printable(text)
    except ValueError as error:
        raise BadAnnotationError(f"{what}: {error}.") from error


def _locked(connection: Connection, slide_id: str) -> Mapping[str, int]:
    """The slide's counters, locked: its other writers wait until the transaction ends."""
    upsert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    row = {"slide_id": slide_id, "change": 0, "live": 0, "vertices": 0}
    connection.execute(upsert(annotated_slide).values(row).on_conflict_do_nothing())
    mine = select(annotated_slide).where(annotated_slide.c.slide_id == slide_id).with_for_update()
    return dict(connection.execute(mine).mappings().one())


def _follow_parents(connection: Connection, work: _Work) -> None:
    """Delete what belongs to annotations deleted in this transaction; restore what was deleted with restored ones."""
    deleted = {row["annotation_id"] for row in work.now_deleted}
    restored = {row["annotation_id"]: row["change"] for row in work.now_restored}
    done = {entry.details["annotation"] for entry in work.entries}
    for row in rows_belonging_to(connection, work.slide_id, [*deleted, *restored]):
        is_deleted_now = row["parent_id"] in deleted and row["state"] == "live"
        was_deleted_with_it = row["state"] == "deleted" and row["change"] == restored.get(row["parent_id"])
        if row["annotation_id"] in done or not (is_deleted_now or was_deleted_with_it):
            continue
        if is_deleted_now and work.only_own and row["kind"] == "mark" and row["author"] != work.actor:
            raise BadAnnotationError(
                f"annotation {row['parent_id']!r:.60}: {row['author']} has counted in it. On this slide, people may "
                "delete only their own annotations."
            )
        _put({**row, "state": "deleted" if is_deleted_now else "live"}, row, work)


def _decide(row: Mapping[str, Any], stored: Mapping[str, Any] | None, work: _Work, *, keep_both: bool) -> None:
    if stored is None:
        if row["state"] == "live":  # one that was never stored need not be deleted
            _add(row, work)
    elif all(row[name] == stored[name] for name in CONTENT):
        work.saved.append(annotation_of(stored))
    elif row["revision"] == stored["revision"]:
        _change(row, stored, work)
    elif keep_both:
        _add({**row, "annotation_id": new_id()}, work)
        work.conflicts.append(annotation_of(stored))
    else:
        work.conflicts.append(annotation_of(stored))


def _add(row: Mapping[str, Any], work: _Work) -> None:
    by_whom = {"author": work.actor, "made_utc": work.now, "changed_by": work.actor, "changed_utc": work.now}
    new = {**row, "slide_id": work.slide_id, "revision": 1, "change": work.change, **by_whom}
    work.made.append(new)
    work.live += 1
    work.vertices += new["vertices"]
    work.saved.append(annotation_of(new))
    work.entries.append(entry_of("annotation drawn", None, new))


def _change(row: Mapping[str, Any], stored: Mapping[str, Any], work: _Work) -> None:
    if work.only_own and stored["author"] != work.actor:
        raise BadAnnotationError(
            f"annotation {stored['annotation_id']!r:.60}: was drawn by {stored['author']}. On this slide, people may "
            "change only their own annotations; an answer under it is allowed."
        )
    was_live, is_live = stored["state"] == "live", row["state"] == "live"
    if was_live and not is_live:
        work.now_deleted.append(stored)
    elif is_live and not was_live:
        work.now_restored.append(stored)
    work.saved.append(annotation_of(_put(row, stored, work)))


def _put(row: Mapping[str, Any], stored: Mapping[str, Any], work: _Work) -> dict[str, Any]:
    """Add the next revision of a stored row, and its log entry; returns the new row."""
    by_whom = {"changed_by": work.actor, "changed_utc": work.now}
    new = {**stored, **row, "revision": stored["revision"] + 1, "change": work.change, **by_whom}
    work.earlier.append(dict(stored))
    work.updated.append({f"new_{name}": new[name] for name in _UPDATED} | {"of_annotation": new["annotation_id"]})
    was_live, is_live = stored["state"] == "live", new["state"] == "live"
    work.live += is_live - was_live
    work.vertices += is_live * new["vertices"] - was_live * stored["vertices"]
    action = "changed" if was_live and is_live else "deleted" if was_live else "restored"
    work.entries.append(entry_of(f"annotation {action}", stored, new))
    return new


def _check_limits(counter: Mapping[str, int], work: _Work) -> None:
    live, vertices = counter["live"] + work.live, counter["vertices"] + work.vertices
    if (live > MAX_LIVE and work.live > 0) or (vertices > MAX_VERTICES_OF_SLIDE and work.vertices > 0):
        raise BadAnnotationError(
            f"slide {work.slide_id}: would have {counted(live, 'annotation')} with {counted(vertices, 'corner')} "
            f"in total; at most {MAX_LIVE} and {MAX_VERTICES_OF_SLIDE} are allowed. Nothing was saved. Import fewer or "
            "simpler ones."
        )


_UPDATED = ("change", *_KEPT, *_MEASURES)
_UPDATE = (
    update(annotation)
    .where(annotation.c.slide_id == bindparam("of_slide"), annotation.c.annotation_id == bindparam("of_annotation"))
    .values({name: bindparam(f"new_{name}") for name in _UPDATED})
)


def _execute(connection: Connection, work: _Work) -> None:
    work.class_entries += _register_classes(
        connection, {saved.class_name for saved in work.saved if saved.class_name}, work.actor
    )
    for start in range(0, len(work.made), _AT_ONCE * 10):
        connection.execute(insert(annotation), work.made[start : start + _AT_ONCE * 10])
    if work.updated:
        connection.execute(_UPDATE, [{**values, "of_slide": work.slide_id} for values in work.updated])
        connection.execute(insert(annotation_revision), work.earlier)


def _register_classes(connection: Connection, names: Iterable[str], actor: str) -> list[Change]:
    """Append classes that are new to the project to its order. Returns the entries to log."""
    known = set(connection.execute(select(annotation_class.c.class_name)).scalars())
    new = sorted(set(names) - known)
    if not new:
        return []
    first = connection.execute(select(func.count()).select_from(annotation_class)).scalar_one()
    upsert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    rows = [{"class_name": name, "ordinal": first + index} for index, name in enumerate(new)]
    # Someone may be adding it on another slide at this moment.
    added = upsert(annotation_class).values(rows).on_conflict_do_nothing().returning(annotation_class)
    return [class_entry({**row}, actor) for row in connection.execute(added).mappings()]
