"""Annotations as napari's shapes and back: nothing is lost, and untouched annotations are unchanged."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import shapely
from shapely.geometry import LineString, MultiPoint, MultiPolygon, Point, Polygon, box
from shapely.geometry.base import BaseGeometry

from pathology_app.desktop.outlines import Outline, drafts_of, outlines_of, with_ids
from pipeline.review import Annotation

HOLED = Polygon([(0, 0), (100, 4), (90, 80), (3, 70)], [[(20, 20), (40, 20), (40, 40)], [(50, 50), (60, 50), (60, 60)]])
TURN = np.linspace(0, 2 * np.pi, 64, endpoint=False)
ELLIPSE = Polygon(np.column_stack([300 + 100 * np.cos(TURN), 200 + 60 * np.sin(TURN)]))


def annotation(shape: BaseGeometry, kind: str = "polygon", annotation_id: str = "a") -> Annotation:
    geometry = json.dumps(json.loads(shapely.to_geojson(shape)))
    metadata = ("tumour", "a note", "ada", "2026-01-01T00:00:00Z", "ada", "2026-01-01T00:00:00Z")
    return Annotation(annotation_id, "S-1", 3, 7, False, kind, "annotation", geometry, *metadata)


@pytest.mark.parametrize(
    ("shape", "kind", "tools"),
    [
        (Point(3, 4), "point", ["point"]),
        (MultiPoint([(3, 4), (5, 6)]), "point", ["point"] * 2),
        (LineString([(0, 0), (9, 5), (20, 1)]), "line", ["path"]),
        (box(10, 20, 50, 40), "rectangle", ["rectangle"]),
        (ELLIPSE, "ellipse", ["ellipse"]),
        (Polygon([(0, 0), (9, 0), (3, 30)]), "freehand", ["polygon"]),
        (HOLED, "polygon", ["polygon"] * 3),
        (MultiPolygon([HOLED, box(200, 200, 210, 210)]), "polygon", ["polygon"] * 4),
    ],
)
def test_what_was_only_looked_at_is_not_saved(shape: BaseGeometry, kind: str, tools: list[str]) -> None:
    original = annotation(shape, kind)
    drawn = outlines_of(original)

    assert [outline.tool for outline in drawn] == tools
    assert drafts_of(drawn, [original]) == []
    moved = [replace(outline, corners_yx=outline.corners_yx + np.array([5, 7])) for outline in drawn]
    (draft,) = drafts_of(moved, [original])
    assert (draft.kind, draft.revision, draft.annotation_id) == (kind, 3, "a")
    expected = shapely.transform(shape, lambda corners: corners + np.array([7, 5]))
    if kind == "ellipse":
        assert draft.shape.symmetric_difference(expected).area < 0.001 * shape.area
    else:
        assert draft.shape.equals(expected)


def test_a_word_that_changed_leaves_the_stored_geometry_alone() -> None:
    original = annotation(ELLIPSE, "ellipse")

    (draft,) = drafts_of([replace(outline, class_name="stroma") for outline in outlines_of(original)], [original])

    assert (draft.class_name, draft.note) == ("stroma", "a note")
    assert draft.shape.equals(ELLIPSE)


def test_a_hole_that_is_removed_is_filled_and_an_outer_ring_takes_its_holes_along() -> None:
    original = annotation(MultiPolygon([HOLED, box(200, 200, 210, 210)]))
    drawn = outlines_of(original)

    (filled,) = drafts_of([outline for outline in drawn if outline.part != "0.2"], [original])
    (without,) = drafts_of([outline for outline in drawn if outline.part != "0.0"], [original])
    (gone,) = drafts_of([outline for outline in drawn if outline.is_hole], [original])

    assert [len(part.interiors) for part in filled.shape.geoms] == [1, 0]
    assert without.shape.equals(box(200, 200, 210, 210))
    assert gone.is_deleted
    assert not filled.is_deleted


def test_what_was_drawn_or_pasted_is_a_new_annotation() -> None:
    original = annotation(box(10, 20, 50, 40), "rectangle")
    (first,) = outlines_of(original)
    pasted = replace(first, corners_yx=first.corners_yx + 10)
    drawn = Outline("polygon", np.array([[0, 0], [0, 9], [9, 9.0]]), class_name="stroma")
    ids = iter(("b", "c"))

    new = drafts_of(with_ids([first, pasted, drawn], lambda: next(ids)), [original])

    assert [(draft.annotation_id, draft.revision, draft.kind, draft.class_name) for draft in new] == [
        ("b", 0, "rectangle", "tumour"),
        ("c", 0, "polygon", "stroma"),
    ]
    assert drafts_of([], [original])[0].is_deleted


def test_an_area_is_pasted_with_its_holes_and_a_hole_alone_as_an_area() -> None:
    original = annotation(HOLED)
    drawn = outlines_of(original)

    (whole,) = drafts_of(with_ids([*drawn, *drawn], lambda: "b"), [original])
    (hole,) = drafts_of(with_ids([*drawn, drawn[1]], lambda: "c"), [original])

    assert whole.shape.equals(HOLED)
    assert hole.shape.equals(Polygon(HOLED.interiors[0]))
