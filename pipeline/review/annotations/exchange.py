"""Import of annotations from other programs' files into the project's database, and export to QuPath.

QuPath keeps an object's id and its metadata, so a file exported here and edited there comes back as changes to the same
annotations; changes made here in the meantime are kept beside them.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import shapely
from shapely.affinity import translate

from pipeline.annotations import (
    AnnotationFile,
    AnnotationObject,
    CrossingCount,
    SlideFrame,
    Tool,
    on_slide,
    qupath_features,
    repaired_area,
)
from pipeline.bounded import Limits, within
from pipeline.errors import BadAnnotationError
from pipeline.ledger import Ledger, append_to_project
from pipeline.palettes import rgb_of
from pipeline.review.annotations.annotation import Annotation, Draft
from pipeline.review.annotations.entries import import_entry
from pipeline.review.annotations.kinds import KIND_RULES, KindRule
from pipeline.review.annotations.reading import annotations_of, class_colours
from pipeline.review.annotations.saving import MAX_NOTE, rows_of, write_rows

REVISION = "gemslide_revision"
KIND, PARENT, VIEW = "gemslide_kind", "gemslide_parent", "gemslide_view"
"""Keys of QuPath's metadata: the revision an object was exported at, how it was drawn, what it belongs to, and a
bookmark's view."""
_ID_NAMESPACE = uuid.UUID("5c0a2f83-6a0b-5c52-8a1e-0f6b7d2c9e41")


@dataclass(frozen=True)
class Imported:
    """Result of importing a file's objects.

    Attributes:
        saved: number of objects added, changed or restored.
        unchanged: number that the database already had.
        beside: number that had been changed here in the meantime, and were added beside the current version.
        dropped: parts that could not be imported, one sentence each.
        change: the slide's counter.
    """

    saved: int
    unchanged: int
    beside: int
    dropped: tuple[str, ...]
    change: int


@dataclass(frozen=True)
class FileRows:
    """A file's objects as checked rows of the database, and what could not be imported."""

    format: str
    rows: Sequence[Mapping[str, Any]]
    dropped: tuple[str, ...]


def import_file(
    ledger: Ledger,
    slide_id: str,
    file: AnnotationFile,
    actor: str,
    *,
    size_wh_px0: tuple[int, int],
    frame: SlideFrame | None = None,
    only_own: bool = False,
) -> Imported:
    """Save every object of a file on a slide, all or none, with one entry in the project's log.

    Args:
        frame: the slide's, which places the file's coordinates on it; None: they are its level-0 pixels.
        only_own: refuse changes to annotations of others (`permission.py`).

    Raises:
        BadAnnotationError: the file's coordinates are not the slide's (`on_slide`), or an object is invalid
            or outside it.
        GemslideError: the ledger is unavailable or locked.
    """
    with within(Limits.for_corners(file.num_corners), "the annotations"):
        rows = rows_of_file(slide_id, file, actor, size_wh_px0=size_wh_px0, frame=frame)
    return save_file_rows(ledger, slide_id, rows, actor, only_own=only_own)


def rows_of_file(
    slide_id: str,
    file: AnnotationFile,
    actor: str,
    *,
    size_wh_px0: tuple[int, int],
    frame: SlideFrame | None = None,
) -> FileRows:
    """The part of `import_file` that needs no database. Raises BadAnnotationError, as it does."""
    placed = on_slide(file, frame or SlideFrame(None))
    dropped = [*file.dropped, *file.notes]
    drafts = list(_drafts(file.objects, placed.objects, slide_id, dropped))
    return FileRows(file.format, rows_of(drafts, slide_id, actor, size_wh_px0), tuple(dropped))


def save_file_rows(ledger: Ledger, slide_id: str, file: FileRows, actor: str, *, only_own: bool = False) -> Imported:
    """The rest of `import_file`; raises the same errors."""
    with ledger.database.write() as connection:
        work = write_rows(connection, file.rows, slide_id, actor, keep_both=True, only_own=only_own)
        saved, beside = len(work.entries), len(work.conflicts)
        if saved:
            entry = import_entry(slide_id, work.change, work.entries, {"format": file.format, "beside": beside})
            append_to_project(connection, [*work.class_entries, entry])
    return Imported(saved, len(work.saved) - saved, beside, file.dropped, work.change)


def exported(
    ledger: Ledger, slide_id: str, *, origin_xy0: tuple[int, int] = (0, 0), mpp0: float | None = None
) -> AnnotationFile:
    """All live annotations of a slide as a file that `write_annotations` writes.

    Args:
        origin_xy0: the origin of the file's coordinates on the slide.
        mpp0: µm per level-0 pixel; if given, objects state their sizes, and counts the number of each class.
    """
    colours = {name: rgb_of(colour) for name, colour in class_colours(ledger).items()}
    annotations = annotations_of(ledger, slide_id)
    marks_of: dict[str | None, list[Annotation]] = defaultdict(list)
    for stored in annotations:
        if stored.kind == "mark":
            marks_of[stored.parent_id].append(stored)
    objects = [
        _to_object(stored, origin_xy0, {} if mpp0 is None else _measurements(stored, marks_of, mpp0))
        for stored in annotations
    ]
    used = {exported_object.class_name for exported_object in objects}
    return AnnotationFile("qupath", tuple(objects), {name: rgb for name, rgb in colours.items() if name in used})


def features_of(file: AnnotationFile) -> Iterator[dict[str, Any]]:
    """The features of QuPath's GeoJSON, one by one."""
    features: Iterator[dict[str, Any]] = qupath_features(file)
    return features


def _drafts(
    objects: Sequence[AnnotationObject], placed: Sequence[AnnotationObject], slide_id: str, dropped: list[str]
) -> Iterator[Draft]:
    """A draft of each placed object; its id derives from the object as it is in the file, not from its placement."""
    ids: set[str] = set()
    count = CrossingCount()
    for index, (source, on_slide_object) in enumerate(zip(objects, placed, strict=True)):
        if source.is_area and repaired_area(source.geometry, source.where, count).area == 0:
            dropped.append(f"{source.where}: its outline encloses no area")
            continue
        annotation_id = _uuid(source.object_id)
        if annotation_id is None or annotation_id in ids:
            annotation_id = str(
                uuid.uuid5(_ID_NAMESPACE, f"{slide_id}/{index}/{source.class_name}/{source.geometry.wkt}")
            )
        ids.add(annotation_id)
        kind = _kind(source)
        rule = KIND_RULES[kind]
        yield Draft(
            on_slide_object.geometry,
            kind,
            source.class_name,
            _note(source.name),
            annotation_id,
            _revision(source),
            object_type=source.object_type,
            parent_id=_uuid(source.metadata.get(PARENT)) if rule.parents else None,
            view=source.metadata.get(VIEW) if rule.has_view else None,
        )


def _uuid(text: str | None) -> str | None:
    try:
        return str(uuid.UUID(text or ""))
    except ValueError:
        return None


def _kind(source: AnnotationObject) -> str:
    stored_kind = source.metadata.get(KIND, "")
    rule = KIND_RULES.get(stored_kind)
    if rule is not None and _is_complete(source, rule):
        return stored_kind
    if not source.is_area:
        return "point" if "Point" in source.geometry.geom_type else "line"
    return source.tool if source.tool in ("rectangle", "ellipse") else "polygon"


def _is_complete(source: AnnotationObject, rule: KindRule) -> bool:
    """Whether an object edited elsewhere still has what its kind needs; otherwise it is an ordinary drawing."""
    return (
        shapely.get_dimensions(source.geometry) == rule.dimension
        and (not rule.parents or _uuid(source.metadata.get(PARENT)) is not None)
        and not (rule.has_class and source.class_name is None)
        and not (rule.has_note and not (source.name or "").strip())
        and not (rule.has_view and not source.metadata.get(VIEW))
        and rule.max_points in (None, int(shapely.get_num_coordinates(source.geometry)))
    )


def _note(name: str | None) -> str:
    text = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in name or "")
    return text[:MAX_NOTE]


def _revision(source: AnnotationObject) -> int:
    """The revision that was exported; the first for an object that never was."""
    revision = source.metadata.get(REVISION, "1")
    if not (revision.isascii() and revision.isdigit() and len(revision) < 10):
        raise BadAnnotationError(
            f"{source.where}: its metadata says {REVISION} = {revision!r:.40}, which is not a revision."
        )
    return int(revision)


_TOOLS: Mapping[str, Tool] = {"rectangle": "rectangle", "ellipse": "ellipse", "point": "points", "line": "line"}


def _measurements(
    stored: Annotation, marks_of: Mapping[str | None, Sequence[Annotation]], mpp0: float
) -> dict[str, float]:
    """Sizes by QuPath's names for them; for a count, also the number of marks of each class in its area."""
    shape = stored.shape
    measured: dict[str, float] = {}
    if shape.area > 0:
        measured |= {"Area µm^2": shape.area * mpp0**2, "Perimeter µm": shape.length * mpp0}
    elif shape.length > 0:
        measured["Length µm"] = shape.length * mpp0
    if stored.kind == "count":
        inside = [mark for mark in marks_of.get(stored.annotation_id, ()) if shape.intersects(mark.shape)]
        measured |= {
            f"Num {name}": float(number) for name, number in Counter(mark.class_name for mark in inside).items()
        }
    return measured


def _to_object(stored: Annotation, origin_xy0: tuple[int, int], measurements: dict[str, float]) -> AnnotationObject:
    left, top = origin_xy0
    more = {PARENT: stored.parent_id, VIEW: stored.view}
    people = {"gemslide_author": stored.author, "gemslide_changed_by": stored.changed_by}
    return AnnotationObject(
        translate(stored.shape, -left, -top) if any(origin_xy0) else stored.shape,
        f"annotation {stored.annotation_id}",
        stored.class_name,
        name=stored.note or None,
        object_type=stored.object_type,
        tool=_TOOLS.get(stored.kind, "freehand"),
        object_id=stored.annotation_id,
        measurements=measurements,
        metadata={
            REVISION: str(stored.revision),
            KIND: stored.kind,
            **people,
            "gemslide_changed_utc": stored.changed_utc,
            **{key: value for key, value in more.items() if value is not None},
        },
    )
