"""Annotations as stored, and drafts of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import shapely
from shapely.geometry.base import BaseGeometry
from sqlalchemy import RowMapping

from pipeline.annotations import ObjectType

CONTENT = ("state", "kind", "object_type", "geometry", "class_name", "note", "parent_id", "view")
"""Columns that a person draws or types."""


def new_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True)
class Annotation:
    """One annotation as stored in the database.

    Attributes:
        revision: counts its changes, from 1.
        change: the slide's counter when it last changed.
        geometry: GeoJSON text, level-0 pixels, from the slide's top left corner.
        object_type: QuPath's kind of object; only an "annotation" was drawn by a person.
        author, changed_by: who created it, and who last changed it, as the log names them.
        parent_id: the annotation that it belongs to (`kinds.py`).
        view: a bookmark's, as parameters of a link to the slide's page.
    """

    annotation_id: str
    slide_id: str
    revision: int
    change: int
    is_deleted: bool
    kind: str
    object_type: ObjectType
    geometry: str
    class_name: str | None
    note: str
    author: str
    made_utc: str
    changed_by: str
    changed_utc: str
    parent_id: str | None = None
    view: str | None = None

    @property
    def shape(self) -> BaseGeometry:
        """The geometry, level-0 pixels."""
        return shapely.from_geojson(self.geometry)

    def as_dict(self) -> dict[str, Any]:
        """In the form that the browser expects (frontend/src/annotations/types.ts, Annotation)."""
        return {
            "id": self.annotation_id,
            "revision": self.revision,
            "change": self.change,
            "deleted": self.is_deleted,
            "kind": self.kind,
            "object_type": self.object_type,
            "geometry": json.loads(self.geometry),
            "class": self.class_name,
            "note": self.note,
            "author": self.author,
            "made_utc": self.made_utc,
            "changed_by": self.changed_by,
            "changed_utc": self.changed_utc,
            "parent": self.parent_id,
            "view": self.view,
        }

    def draft(self, **changed: Any) -> Draft:
        """A draft of the next revision, the same except for `changed`."""
        present: dict[str, Any] = {
            "shape": self.shape,
            "kind": self.kind,
            "class_name": self.class_name,
            "note": self.note,
            "annotation_id": self.annotation_id,
            "revision": self.revision,
            "is_deleted": self.is_deleted,
            "object_type": self.object_type,
            "parent_id": self.parent_id,
            "view": self.view,
        }
        return Draft(**(present | changed))


@dataclass(frozen=True)
class Draft:
    """An annotation to be saved: a new one, or a change to an earlier revision.

    Attributes:
        shape: level-0 pixels. An area that crosses itself is repaired when it is saved.
        revision: the one it is based on; 0 for a new annotation. If the database has another by now, nothing is
            overwritten (`Saved.conflicts`).
        is_deleted: true deletes, false restores.
    """

    shape: BaseGeometry
    kind: str = "polygon"
    class_name: str | None = None
    note: str = ""
    annotation_id: str = field(default_factory=new_id)
    revision: int = 0
    is_deleted: bool = False
    object_type: ObjectType = "annotation"
    parent_id: str | None = None
    view: str | None = None


def annotation_of(row: Mapping[str, Any] | RowMapping) -> Annotation:
    """The annotation in a row of the table `annotation`."""
    return Annotation(
        annotation_id=row["annotation_id"],
        slide_id=row["slide_id"],
        revision=row["revision"],
        change=row["change"],
        is_deleted=row["state"] == "deleted",
        kind=row["kind"],
        object_type=row["object_type"],
        geometry=row["geometry"],
        class_name=row["class_name"],
        note=row["note"],
        author=row["author"],
        made_utc=row["made_utc"],
        changed_by=row["changed_by"],
        changed_utc=row["changed_utc"],
        parent_id=row["parent_id"],
        view=row["view"],
    )
