"""A slide's annotations as a table: filtered, sorted, with sizes in mm² and µm, and what lies inside each area."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import shapely
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, func, select

from pipeline.ledger import Ledger
from pipeline.review.annotations.kinds import KIND_RULES
from pipeline.review.annotations.reading import has_words
from pipeline.review.rows.tables import annotation

LISTED_KINDS = tuple(kind for kind, rule in KIND_RULES.items() if not rule.parents)
SortKey = Literal["class", "kind", "area", "length", "inside", "author", "time"]
SORT_KEYS: tuple[SortKey, ...] = ("class", "kind", "area", "length", "inside", "author", "time")
MAX_SORTED = 20_000
"""Most annotations that are measured for one table; of more, the latest changed."""
LISTING_COLUMNS = (
    "slide_id", "annotation_id", "class", "kind", "area_mm2", "length_um", "points_inside", "replies", "x_px0", "y_px0",
    "note", "author", "made_utc", "changed_by", "changed_utc",
)  # fmt: skip


@dataclass(frozen=True)
class ListingQuery:
    """Filter and order of a table.

    Attributes:
        words: all of them occur in class, note or author.
        kind, class_name: only these; "" for no filter. A class of None means those without one.
    """

    words: tuple[str, ...] = ()
    kind: str = ""
    class_name: str | None = ""
    sort: SortKey = "time"
    is_descending: bool = True
    offset: int = 0
    most: int = 100


@dataclass(frozen=True)
class ListedAnnotation:
    """One annotation with its sizes.

    Attributes:
        length_um: of a line, or of an area's outline; None for points.
        inside: points and marks in an area; None for others.
        replies: answers under it.
    """

    row: Mapping[str, Any]
    area_mm2: float | None
    length_um: float | None
    inside: int | None
    replies: int


@dataclass(frozen=True)
class ClassTotal:
    """All listed annotations of one class; `area_mm2` is the sum of the areas among them."""

    class_name: str | None
    number: int
    area_mm2: float


@dataclass(frozen=True)
class Listing:
    """A page of the table.

    Attributes:
        total: number of annotations that pass the filter, on all pages.
        measured: number of them that were sorted, at most `MAX_SORTED`.
    """

    rows: tuple[ListedAnnotation, ...]
    total: int
    measured: int
    totals: tuple[ClassTotal, ...]


def list_annotations(ledger: Ledger, slide_id: str, mpp0: float, query: ListingQuery) -> Listing:
    """One page of a slide's annotations. Raises GemslideError: the ledger is unavailable."""
    with ledger.database.read() as connection:
        rows = _filtered(slide_id, query)
        totals = _totals(connection, rows, mpp0)
        newest_first = rows.order_by(annotation.c.change.desc(), annotation.c.annotation_id).limit(MAX_SORTED)
        stored = [dict(row) for row in connection.execute(newest_first).mappings()]
        page = tuple(_page(stored, _Sizes(stored, connection, slide_id, mpp0), query))
    total = sum(entry.number for entry in totals)
    return Listing(page, total, len(stored), tuple(totals))


def listing_rows(ledger: Ledger, slide_id: str, mpp0: float, query: ListingQuery) -> Iterator[dict[str, str]]:
    """All annotations that pass the filter, as rows for a CSV file with the columns `LISTING_COLUMNS`."""
    listing = list_annotations(ledger, slide_id, mpp0, replace(query, offset=0, most=MAX_SORTED))
    for listed in listing.rows:
        row = listed.row
        middle = (row["left_px0"] + row["right_px0"]) / 2, (row["top_px0"] + row["bottom_px0"]) / 2
        yield {
            "slide_id": slide_id,
            "annotation_id": row["annotation_id"],
            "class": row["class_name"] or "",
            "kind": row["kind"],
            "area_mm2": _decimal(listed.area_mm2),
            "length_um": _decimal(listed.length_um),
            "points_inside": "" if listed.inside is None else str(listed.inside),
            "replies": str(listed.replies),
            "x_px0": f"{middle[0]:.1f}",
            "y_px0": f"{middle[1]:.1f}",
            "note": row["note"],
            "author": row["author"],
            "made_utc": row["made_utc"],
            "changed_by": row["changed_by"],
            "changed_utc": row["changed_utc"],
        }


def _filtered(slide_id: str, query: ListingQuery) -> Select[Any]:
    rows = select(annotation).where(
        annotation.c.slide_id == slide_id, annotation.c.state == "live", annotation.c.kind.in_(LISTED_KINDS)
    )
    if query.kind:
        rows = rows.where(annotation.c.kind == query.kind)
    if query.class_name is None:
        rows = rows.where(annotation.c.class_name.is_(None))
    elif query.class_name:
        rows = rows.where(annotation.c.class_name == query.class_name)
    return rows.where(*has_words(query.words))


def _totals(connection: Connection, rows: Select[Any], mpp0: float) -> list[ClassTotal]:
    of_rows = rows.subquery()
    by_class = select(of_rows.c.class_name, func.count(), func.sum(of_rows.c.area_px0)).group_by(of_rows.c.class_name)
    mm2 = (mpp0 / 1000) ** 2
    totals = [ClassTotal(name, number, area * mm2) for name, number, area in connection.execute(by_class)]
    return sorted(totals, key=lambda total: (-total.number, total.class_name or ""))


class _Sizes:
    """Sizes of stored rows, one value per row."""

    def __init__(self, stored: Sequence[Mapping[str, Any]], connection: Connection, slide_id: str, mpp0: float) -> None:
        self._stored, self._connection, self._slide_id = stored, connection, slide_id
        self.shapes: NDArray[np.object_] = shapely.from_geojson(np.array([row["geometry"] for row in stored], object))
        dimensions = shapely.get_dimensions(self.shapes)
        self.is_area = dimensions == 2
        self.area_mm2 = np.where(self.is_area, shapely.area(self.shapes) * (mpp0 / 1000) ** 2, np.nan)
        self.length_um = np.where(dimensions > 0, shapely.length(self.shapes) * mpp0, np.nan)

    def inside(self, indices: NDArray[np.intp]) -> NDArray[np.intp]:
        """Points and marks in the areas at `indices`; -1 for what is not an area."""
        of_kind = annotation.c.kind.in_(("point", "mark"))
        rows = select(annotation.c.geometry).where(
            annotation.c.slide_id == self._slide_id, annotation.c.state == "live", of_kind
        )
        texts = self._connection.execute(rows).scalars().all()
        tree = shapely.STRtree(shapely.get_parts(shapely.from_geojson(np.array(texts, object))))
        numbers = np.full(len(indices), -1)
        areas = np.flatnonzero(self.is_area[indices])
        found, _ = tree.query(self.shapes[indices[areas]], predicate="intersects")
        numbers[areas] = np.bincount(found, minlength=len(areas))
        return numbers

    def replies(self, indices: NDArray[np.intp]) -> list[int]:
        """Answers under the annotations at `indices`."""
        rows = (
            select(annotation.c.parent_id, func.count())
            .where(annotation.c.slide_id == self._slide_id, annotation.c.state == "live", annotation.c.kind == "reply")
            .group_by(annotation.c.parent_id)
        )
        number_of: dict[str, int] = {row[0]: row[1] for row in self._connection.execute(rows)}
        return [number_of.get(self._stored[index]["annotation_id"], 0) for index in indices]


def _page(stored: Sequence[Mapping[str, Any]], sizes: _Sizes, query: ListingQuery) -> Iterator[ListedAnnotation]:
    every = np.arange(len(stored))
    numbers = {"area": sizes.area_mm2, "length": sizes.length_um}
    if query.sort == "inside":
        numbers["inside"] = sizes.inside(every).astype(float)
    order = _ordered(stored, numbers.get(query.sort), query)[query.offset : query.offset + query.most]
    inside, replies = sizes.inside(order), sizes.replies(order)
    for at, index in enumerate(order):
        yield ListedAnnotation(
            stored[index],
            _known(sizes.area_mm2[index]),
            _known(sizes.length_um[index]),
            int(inside[at]) if inside[at] >= 0 else None,
            replies[at],
        )


_TEXT_OF = {"class": "class_name", "kind": "kind", "author": "author", "time": "changed_utc"}


def _ordered(
    stored: Sequence[Mapping[str, Any]], values: NDArray[np.float64] | None, query: ListingQuery
) -> NDArray[np.intp]:
    """Indices in the wanted order; what has no value comes last."""
    indices = list(range(len(stored)))
    if values is None:
        column = _TEXT_OF[query.sort]
        texts = [str(row[column] or "") for row in stored]
        indices.sort(key=lambda index: texts[index].casefold(), reverse=query.is_descending)
        indices.sort(key=lambda index: not texts[index])
    else:
        lacks = np.isnan(values) | (values < 0)
        known = np.where(lacks, 0.0, values)  # NaN compares with nothing
        indices.sort(key=lambda index: float(known[index]), reverse=query.is_descending)
        indices.sort(key=lambda index: bool(lacks[index]))
    return np.array(indices, np.intp)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _decimal(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
