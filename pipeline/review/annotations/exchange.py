"""Annotations from files of other programs into the project's database, and from there to QuPath.

QuPath keeps an object's id and its metadata. So a file that was exported here and changed there comes back as changes
of the same annotations, and what was changed here meanwhile is kept beside it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from pipeline.review.annotations.annotation import KINDS, Annotation, Draft
from pipeline.review.annotations.entries import import_entry
from pipeline.review.annotations.reading import annotations_of, class_colours
from pipeline.review.annotations.saving import MAX_NOTE, rows_of, write_rows

REVISION = "gemslide_revision"
KIND = "gemslide_kind"
"""Keys of QuPath's metadata: the revision an object was exported at, and how it was drawn."""
_OF_NAMESPACE = uuid.UUID("5c0a2f83-6a0b-5c52-8a1e-0f6b7d2c9e41")


@dataclass(frozen=True)
class Imported:
    """Result of importing a file's objects.

    Attributes:
        saved: number of objects added, changed or restored.
        unchanged: number that the database had already.
        beside: number that had been changed here in the meantime, and were added beside the present version.
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
    """A file's objects as rows of the database, all checked; and what could not be taken over."""

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
) -> Imported:
    """Save every object of a file on a slide, all or none, with one entry in the project's log.

    Args:
        frame: the slide's, which says where the file's coordinates lie on it; None: they are its level-0 pixels.

    Raises:
        BadAnnotationError: the file's coordinates are not those of the slide (`on_slide`), or an object cannot be, or
            lies outside it.
        GemslideError: the ledger is away or locked.
    """
    with within(Limits.for_corners(file.num_corners), "the annotations"):
        rows = rows_of_file(slide_id, file, actor, size_wh_px0=size_wh_px0, frame=frame)
    return save_file_rows(ledger, slide_id, rows, actor)


def rows_of_file(
    slide_id: str,
    file: AnnotationFile,
    actor: str,
    *,
    size_wh_px0: tuple[int, int],
    frame: SlideFrame | None = None,
) -> FileRows:
    """The work of `import_file` that needs no database. Raises BadAnnotationError: as there."""
    placed = on_slide(file, frame or SlideFrame(None))
    dropped = [*file.dropped, *file.notes]
    drafts = list(_drafts(file.objects, placed.objects, slide_id, dropped))
    return FileRows(file.format, rows_of(drafts, slide_id, actor, size_wh_px0), tuple(dropped))


def save_file_rows(ledger: Ledger, slide_id: str, file: FileRows, actor: str) -> Imported:
    """The rest of `import_file`. Raises: as there."""
    with ledger.database.write() as connection:
        work = write_rows(connection, file.rows, slide_id, actor, keep_both=True)
        saved, beside = len(work.entries), len(work.conflicts)
        if saved:
            entry = import_entry(slide_id, work.change, work.entries, {"format": file.format, "beside": beside})
            append_to_project(connection, [*work.class_entries, entry])
    return Imported(saved, len(work.saved) - saved, beside, file.dropped, work.change)


def exported(ledger: Ledger, slide_id: str, *, origin_xy0: tuple[int, int] = (0, 0)) -> AnnotationFile:
    """All live annotations of a slide as a file that `write_annotations` writes.

    Args:
        origin_xy0: where the file's coordinates are to begin on the slide.
    """
    colours = {name: rgb_of(colour) for name, colour in class_colours(ledger).items()}
    objects = [_object_of(each, origin_xy0) for each in annotations_of(ledger, slide_id)]
    used = {each.class_name for each in objects}
    return AnnotationFile("qupath", tuple(objects), {name: rgb for name, rgb in colours.items() if name in used})


def features_of(file: AnnotationFile) -> Iterator[dict[str, Any]]:
    """The features of QuPath's GeoJSON, one by one."""
    features: Iterator[dict[str, Any]] = qupath_features(file)
    return features


def _drafts(
    objects: Sequence[AnnotationObject], placed: Sequence[AnnotationObject], slide_id: str, dropped: list[str]
) -> Iterator[Draft]:
    """A draft of each placed object; its id comes from what stands in the file, wherever that lies on the slide."""
    ids: set[str] = set()
    count = CrossingCount()
    for index, (each, on) in enumerate(zip(objects, placed, strict=True)):
        if each.is_area and repaired_area(each.geometry, each.where, count).area == 0:
            dropped.append(f"{each.where}: its outline encloses no area")
            continue
        own = _uuid(each.object_id)
        if own is None or own in ids:
            own = str(uuid.uuid5(_OF_NAMESPACE, f"{slide_id}/{index}/{each.class_name}/{each.geometry.wkt}"))
        ids.add(own)
        yield Draft(
            on.geometry,
            _kind(each),
            each.class_name,
            _note(each.name),
            own,
            _revision(each),
            object_type=each.object_type,
        )


def _uuid(text: str | None) -> str | None:
    try:
        return str(uuid.UUID(text or ""))
    except ValueError:
        return None


def _kind(each: AnnotationObject) -> str:
    said = each.metadata.get(KIND)
    if said in KINDS:
        return str(said)
    if not each.is_area:
        return "point" if "Point" in each.geometry.geom_type else "line"
    return each.tool if each.tool in ("rectangle", "ellipse") else "polygon"


def _note(name: str | None) -> str:
    text = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in name or "")
    return text[:MAX_NOTE]


def _revision(each: AnnotationObject) -> int:
    """The revision that was exported; the first, for an object that never was."""
    said = each.metadata.get(REVISION, "1")
    if not (said.isascii() and said.isdigit() and len(said) < 10):
        raise BadAnnotationError(f"{each.where}: its metadata says {REVISION} = {said!r:.40}, which is no revision.")
    return int(said)


_TOOLS: Mapping[str, Tool] = {"rectangle": "rectangle", "ellipse": "ellipse", "point": "points", "line": "line"}


def _object_of(each: Annotation, origin_xy0: tuple[int, int]) -> AnnotationObject:
    left, top = origin_xy0
    said = {"gemslide_author": each.author, "gemslide_changed_by": each.changed_by}
    return AnnotationObject(
        translate(each.shape, -left, -top) if any(origin_xy0) else each.shape,
        f"annotation {each.annotation_id}",
        each.class_name,
        name=each.note or None,
        object_type=each.object_type,
        tool=_TOOLS.get(each.kind, "freehand"),
        object_id=each.annotation_id,
        metadata={REVISION: str(each.revision), KIND: each.kind, **said, "gemslide_changed_utc": each.changed_utc},
    )
