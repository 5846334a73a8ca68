"""Operations on shapes that browsers send, for `pipeline.bounded.child`: request bodies in, parts for JSON out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from shapely.geometry import mapping

from pathology_app.annotating.bodies import areas_and_line, drafts_of
from pipeline.annotations import SlideFrame, parse_annotations
from pipeline.errors import BadAnnotationError
from pipeline.review import (
    merge_annotations,
    rows_of,
    rows_of_file,
    split_annotation,
    stored_shape,
    subtract_annotation,
)

MAX_MEASURED = 20
_PART_LETTERS = 1 << 18
"""Characters of geometry in one part, which is parsed in a few milliseconds."""

Rows = Sequence[Mapping[str, Any]]


def join(body: bytes) -> list[Any]:
    """The area that several are merged into. Raises BadAnnotationError: as `merge_annotations`."""
    return [mapping(merge_annotations(areas_and_line(body)[0]))]


def split(body: bytes) -> list[Any]:
    """The areas on both sides of a line. Raises BadAnnotationError: as `split_annotation`."""
    areas, line = areas_and_line(body)
    if len(areas) != 1 or line is None:
        raise BadAnnotationError("One area and one line are needed to split.")
    return [mapping(side) for side in split_annotation(areas[0], line)]


def erase(body: bytes) -> list[Any]:
    """The first area without the second. Raises BadAnnotationError: as `subtract_annotation`."""
    areas, _ = areas_and_line(body)
    if len(areas) != 2:
        raise BadAnnotationError("Two areas are needed: one, and the part to erase from it.")
    return [mapping(subtract_annotation(*areas))]


def repaired_areas(body: bytes) -> list[Any]:
    """Areas as they would be saved. Raises BadAnnotationError: as `drafts_of` and `stored_shape`."""
    areas, _ = areas_and_line(body)
    if len(areas) > MAX_MEASURED:
        raise BadAnnotationError(f"{len(areas)} areas at once; at most {MAX_MEASURED} are measured.")
    named = [(area, f"area {index}") for index, area in enumerate(areas)]
    return [mapping(stored_shape(area, "area", size_wh_px0=None, where=where)) for area, where in named]


def rows_of_changes(body: bytes, *, slide_id: str, actor: str, size_wh_px0: tuple[int, int]) -> list[Rows]:
    """Checked rows of {"changes": [...]}. Raises BadAnnotationError: as `drafts_of` and `rows_of`."""
    return list(_in_parts(rows_of(drafts_of(body), slide_id, actor, size_wh_px0)))


def rows_of_upload(
    body: bytes, *, slide_id: str, actor: str, size_wh_px0: tuple[int, int], frame: Mapping[str, Any]
) -> list[Any]:
    """Format and dropped objects of a file, then its checked rows.

    Args:
        frame: the slide's `SlideFrame`, as a dictionary.

    Raises:
        BadAnnotationError: as `import_file`.
    """
    file = parse_annotations(body, Path("the file"))
    on_slide = TypeAdapter(SlideFrame).validate_python(frame)
    upload = rows_of_file(slide_id, file, actor, size_wh_px0=size_wh_px0, frame=on_slide)
    return [{"format": upload.format, "dropped": upload.dropped}, *_in_parts(upload.rows)]


def _in_parts(rows: Rows) -> Iterator[Rows]:
    part: list[Mapping[str, Any]] = []
    letters = 0
    for row in rows:
        part.append(row)
        letters += len(row["geometry"])
        if letters > _PART_LETTERS:
            yield part
            part, letters = [], 0
    yield part
