"""Files of other programs are imported into the project's database, and round-trip through QuPath unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shapely.geometry import LineString, MultiPoint, Point, Polygon, box

from pipeline.annotations import SlideFrame, read_annotations, write_annotations
from pipeline.box import Box
from pipeline.errors import BadAnnotationError
from pipeline.ledger import PROJECT_LOG, Ledger
from pipeline.review import Draft, annotations_of, exported, import_file, save
from pipeline.study import verify_log

SIZE = (2000, 1000)
DRAWN = [
    Draft(box(10, 10, 50, 60), "rectangle", "tumour", "look here"),
    Draft(Point(100, 100).buffer(20, quad_segs=16), "ellipse", "stroma"),
    Draft(Polygon([(0, 0), (90, 0), (90, 90), (0, 90)], [[(10, 70), (20, 70), (20, 80)]]), "freehand"),
    Draft(MultiPoint([(5, 5), (7, 9)]), "point", "mitosis"),
    Draft(LineString([(5, 5), (700, 9)]), "line"),
]


COUNT = Draft(box(200, 200, 400, 400), "count")
MEASURED = [
    COUNT,
    Draft(Point(250, 250), "mark", "positive", parent_id=COUNT.annotation_id),
    Draft(Point(260, 250), "mark", "positive", parent_id=COUNT.annotation_id),
    Draft(Point(500, 250), "mark", "positive", parent_id=COUNT.annotation_id),
    Draft(Point(300, 300), "reply", note="agreed", parent_id=COUNT.annotation_id),
    Draft(LineString([(0, 0), (30, 40)]), "ruler"),
    Draft(LineString([(0, 0), (30, 40)]), "arrow", note="here"),
    Draft(box(0, 0, 20, 10), "area"),
    Draft(Point(1, 1), "text", note="a word"),
    Draft(Point(9, 9), "bookmark", view="at=1,2,0.5"),
]


def contents_of(ledger: Ledger, slide_id: str = "S-1") -> list[tuple[str, ...]]:
    return [(a.kind, a.class_name or "", a.note, a.geometry) for a in annotations_of(ledger, slide_id)]


def test_an_export_comes_back_as_the_same_annotations(ledger: Ledger, tmp_path: Path) -> None:
    save(ledger, "S-1", DRAWN, "ada")
    write_annotations(tmp_path / "a.geojson", exported(ledger, "S-1"), "qupath")

    again = import_file(ledger, "S-1", read_annotations(tmp_path / "a.geojson"), "bob", size_wh_px0=SIZE)
    other = import_file(ledger, "S-2", read_annotations(tmp_path / "a.geojson"), "bob", size_wh_px0=SIZE)

    assert (again.saved, again.unchanged, again.beside) == (0, 5, 0)
    assert other.saved == 5
    assert sorted(contents_of(ledger, "S-2")) == sorted(contents_of(ledger))
    features = json.loads((tmp_path / "a.geojson").read_text())["features"]
    first = next(feature for feature in features if feature["properties"].get("name") == "look here")
    assert first["properties"]["classification"] == {"name": "tumour", "color": [0, 158, 115]}
    assert first["properties"]["metadata"]["gemslide_author"] == "ada"


def test_measurements_counts_and_answers_come_back_with_what_they_belong_to(ledger: Ledger, tmp_path: Path) -> None:
    save(ledger, "S-1", MEASURED, "ada")
    write_annotations(tmp_path / "a.geojson", exported(ledger, "S-1", mpp0=0.5), "qupath")
    file = read_annotations(tmp_path / "a.geojson")

    assert import_file(ledger, "S-1", file, "bob", size_wh_px0=SIZE).unchanged == len(MEASURED)
    assert import_file(ledger, "S-2", file, "bob", size_wh_px0=SIZE).saved == len(MEASURED)
    there, here = annotations_of(ledger, "S-2"), annotations_of(ledger, "S-1")
    assert sorted((one.kind, one.parent_id or "", one.view or "") for one in there) == sorted(
        (one.kind, one.parent_id or "", one.view or "") for one in here
    )
    features = json.loads((tmp_path / "a.geojson").read_text())["features"]
    properties = [feature["properties"] for feature in features]
    measured = {one["metadata"]["gemslide_kind"]: one.get("measurements") for one in properties}
    assert measured["ruler"] == {"Length µm": 25.0}
    assert measured["area"] == {"Area µm^2": 50.0, "Perimeter µm": 30.0}
    assert measured["count"]["Num positive"] == 2


def test_a_mark_that_lost_its_class_elsewhere_is_an_ordinary_point(ledger: Ledger, tmp_path: Path) -> None:
    save(ledger, "S-1", MEASURED[:2], "ada")
    write_annotations(tmp_path / "a.geojson", exported(ledger, "S-1"), "qupath")
    content = json.loads((tmp_path / "a.geojson").read_text())
    for feature in content["features"]:
        feature["properties"].pop("classification", None)
    (tmp_path / "b.geojson").write_text(json.dumps(content))
    import_file(ledger, "S-2", read_annotations(tmp_path / "b.geojson"), "bob", size_wh_px0=SIZE)
    assert sorted(one.kind for one in annotations_of(ledger, "S-2")) == ["count", "point"]


def test_what_was_changed_in_qupath_changes_here_and_what_changed_here_meanwhile_is_kept(
    ledger: Ledger, tmp_path: Path
) -> None:
    one, two = save(ledger, "S-1", DRAWN[:2], "ada").saved
    write_annotations(tmp_path / "a.geojson", exported(ledger, "S-1"), "qupath")
    save(ledger, "S-1", [two.draft(note="changed in the browser")], "ada")
    text = (tmp_path / "a.geojson").read_text().replace('"tumour"', '"necrosis"').replace('"stroma"', '"fat"')
    (tmp_path / "a.geojson").write_text(text)

    result = import_file(ledger, "S-1", read_annotations(tmp_path / "a.geojson"), "bob", size_wh_px0=SIZE)

    assert (result.saved, result.beside) == (2, 1)
    now = {annotation.annotation_id: annotation for annotation in annotations_of(ledger, "S-1")}
    assert (now.pop(one.annotation_id).class_name, now.pop(two.annotation_id).note) == (
        "necrosis", "changed in the browser",
    )  # fmt: skip
    assert [annotation.class_name for annotation in now.values()] == ["fat"]


def test_many_are_one_entry_of_the_log(ledger: Ledger, tmp_path: Path) -> None:
    features = [
        {"type": "Feature", "properties": {"objectType": "detection", "classification": {"name": "cell"}},
         "geometry": {"type": "Polygon", "coordinates": [[[x, 5], [x + 4, 5], [x + 4, 9], [x, 5]]]}}
        for x in range(1500)
    ]  # fmt: skip
    (tmp_path / "a.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))

    result = import_file(ledger, "S-1", read_annotations(tmp_path / "a.geojson"), "ada", size_wh_px0=SIZE)

    assert result.saved == 1500
    assert {annotation.object_type for annotation in annotations_of(ledger, "S-1")} == {"detection"}
    (entry,) = ledger.history(PROJECT_LOG, "slide S-1")
    assert (entry.action, json.loads(entry.details)["annotations"]) == ("annotations imported", 1500)
    assert not verify_log(ledger.database, PROJECT_LOG).findings


def test_coordinates_that_begin_at_the_scanned_box_are_moved_there_and_back(ledger: Ledger, tmp_path: Path) -> None:
    save(ledger, "S-1", DRAWN[:1], "ada")
    write_annotations(tmp_path / "a.geojson", exported(ledger, "S-1", origin_xy0=(5, 7)), "qupath")
    file = read_annotations(tmp_path / "a.geojson")
    assert file.objects[0].geometry.bounds == (5, 3, 45, 53)
    frame = SlideFrame(0.5, Box(5, 7, 60, 60))
    assert import_file(ledger, "S-1", file, "ada", size_wh_px0=SIZE, frame=frame).unchanged == 1


def test_a_file_of_another_slide_is_refused_whole(ledger: Ledger, tmp_path: Path) -> None:
    save(ledger, "S-1", DRAWN, "ada")
    write_annotations(tmp_path / "a.geojson", exported(ledger, "S-1"), "qupath")
    with pytest.raises(BadAnnotationError, match="another slide"):
        import_file(ledger, "S-2", read_annotations(tmp_path / "a.geojson"), "ada", size_wh_px0=(80, 80))
    assert annotations_of(ledger, "S-2") == []


def test_a_revision_that_is_none_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    save(ledger, "S-1", DRAWN[:1], "ada")
    write_annotations(tmp_path / "a.geojson", exported(ledger, "S-1"), "qupath")
    text = (tmp_path / "a.geojson").read_text().replace('"gemslide_revision": "1"', '"gemslide_revision": "-1"')
    (tmp_path / "a.geojson").write_text(text)
    with pytest.raises(BadAnnotationError, match="not a revision"):
        import_file(ledger, "S-1", read_annotations(tmp_path / "a.geojson"), "ada", size_wh_px0=SIZE)
