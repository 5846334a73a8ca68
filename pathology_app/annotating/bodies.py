"""Drafts of annotations from requests of browsers: every field is checked, nothing taken for granted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from shapely.geometry.base import BaseGeometry

from pipeline.errors import BadAnnotationError
from pipeline.review import MAX_DRAFTS, Draft, shape_of
from training.foundation.reading import parse_json

MAX_CHANGES_BYTES = 1 << 20
MAX_IMPORT_BYTES = 16 << 20
"""Larger files are imported with `gemslide annotations import`, which does not keep other people's pages waiting."""
_KEYS = {"id", "revision", "deleted", "kind", "object_type", "geometry", "class", "note", "parent", "view"}


def drafts_of(body: bytes) -> list[Draft]:
    """The drafts of {"changes": [...]}.

    Raises:
        BadAnnotationError: not such JSON, too many, or an invalid field.
    """
    changes = _listed(_object(body), "changes")
    if len(changes) > MAX_DRAFTS:
        raise BadAnnotationError(f"{len(changes)} annotations at once; at most {MAX_DRAFTS} are allowed.")
    return [_draft(change, f"change {index}") for index, change in enumerate(changes)]


def areas_and_line(body: bytes) -> tuple[list[BaseGeometry], BaseGeometry | None]:
    """The shapes of {"areas": [...], "line": ...}. Raises: as `drafts_of`."""
    content = _object(body)
    areas = _listed(content, "areas")[: MAX_DRAFTS + 1]
    line = content.get("line")
    shapes = [shape_of(area, where=f"area {index}") for index, area in enumerate(areas)]
    return shapes, None if line is None else shape_of(line, where="the line")


def ids_of(body: bytes) -> list[str]:
    """The ids of {"ids": [...]}. Raises: as `drafts_of`."""
    ids = _listed(_object(body), "ids")
    if len(ids) > MAX_DRAFTS:
        raise BadAnnotationError(f"{len(ids)} annotations at once; at most {MAX_DRAFTS} are allowed.")
    return [str(_is_a(str, one, f"id {index}")) for index, one in enumerate(ids)]


def numbers_of(body: bytes, *names: str) -> tuple[float, ...]:
    """The finite numbers of an object with these keys. Raises: as `drafts_of`."""
    content = _object(body)
    numbers = []
    for name in names:
        value: Any = content.get(name)
        if type(value) not in (int, float) or not math.isfinite(value):
            raise BadAnnotationError(f"{name}: {value!r:.40}, expected a finite number.")
        numbers.append(float(value))
    return tuple(numbers)


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        content = parse_json(body)
    except (ValueError, RecursionError) as error:
        raise BadAnnotationError(f"The request body is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise BadAnnotationError(f"The request body is {type(content).__name__}, not an object.")
    return content


def _listed(content: Mapping[str, Any], key: str) -> list[Any]:
    items = content.get(key)
    if not isinstance(items, list):
        raise BadAnnotationError(f"{key!r} is {type(items).__name__}, not a list.")
    return items


def _draft(change: Any, where: str) -> Draft:
    if not isinstance(change, dict) or not change.keys() <= _KEYS:
        raise BadAnnotationError(f"{where}: expected an object with {', '.join(sorted(_KEYS))}.")
    texts = {key: _text_or_none(change.get(key), f"{where}, {key}") for key in ("class", "parent", "view")}
    return Draft(
        shape=shape_of(change.get("geometry"), where=where),
        kind=_is_a(str, change.get("kind"), f"{where}, kind"),
        class_name=texts["class"],
        parent_id=texts["parent"],
        view=texts["view"],
        note=_is_a(str, change.get("note", ""), f"{where}, note"),
        annotation_id=_is_a(str, change.get("id"), f"{where}, id"),
        revision=_is_a(int, change.get("revision"), f"{where}, revision"),
        is_deleted=_is_a(bool, change.get("deleted", False), f"{where}, deleted"),
        object_type=_is_a(str, change.get("object_type", "annotation"), f"{where}, object_type"),
    )


def _text_or_none(value: Any, what: str) -> str | None:
    return None if value is None else str(_is_a(str, value, what))


def _is_a(kind: type, value: Any, what: str) -> Any:
    if type(value) is not kind:  # True is an int, too
        raise BadAnnotationError(f"{what}: {type(value).__name__}, expected {kind.__name__}.")
    return value
