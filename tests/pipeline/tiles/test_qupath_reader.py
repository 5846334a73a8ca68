import json

import pytest

from pipeline.errors import BadAnnotationError
from pipeline.tiles.annotations.qupath import read_qupath

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [10, 0], [10, 5], [0, 5], [0, 0]]]}


def feature(classification, geometry=SQUARE):
    return {"type": "Feature", "geometry": geometry, "properties": {"classification": classification}}


def read(tmp_path, content):
    path = tmp_path / "a.geojson"
    path.write_text(json.dumps(content), encoding="utf-8")
    return read_qupath(path)


@pytest.mark.parametrize(
    "content",
    [
        {"type": "FeatureCollection", "features": [feature({"name": "Tumor", "color": [1, 2, 3]})]},
        [feature({"name": "Tumor"})],
        feature("Tumor"),
        {"type": "FeatureCollection", "features": [feature({"names": ["Tumor"]})]},
    ],
)
def test_every_spelling_of_qupath_gives_the_same_region(tmp_path, content):
    (region,) = read(tmp_path, content)

    assert (region.class_name, region.geometry.area) == ("Tumor", 50)


def test_points_lines_and_unclassified_areas_are_left_out(tmp_path):
    point = {"type": "Point", "coordinates": [1, 2]}

    assert read(tmp_path, [feature("Tumor", point), feature(None), feature({})]) == []


def test_holes_stay_holes(tmp_path):
    hole = [[2, 1], [4, 1], [4, 3], [2, 3], [2, 1]]
    with_hole = {"type": "Polygon", "coordinates": [*SQUARE["coordinates"], hole]}

    (region,) = read(tmp_path, [feature("Tumor", with_hole)])

    assert region.geometry.area == 46


@pytest.mark.parametrize(
    ("text", "says"), [("{", "is not GeoJSON"), ('{"type":"Topology"}', "'Topology'"), ("[1]", "feature 0")]
)
def test_what_is_not_geojson_is_refused_in_words(tmp_path, text, says):
    path = tmp_path / "a.geojson"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(BadAnnotationError, match=says):
        read_qupath(path)


def test_a_broken_ring_is_refused_with_its_feature(tmp_path):
    with pytest.raises(BadAnnotationError, match=r"feature 0.*cannot be built"):
        read(tmp_path, [feature("Tumor", {"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]})])


@pytest.mark.data
def test_real_exports_of_qupath_are_read(real_slides):
    cmu = read_qupath(real_slides / "TIO-IKIM+PathoPatcher/test_database/input/Annotations/CMU-1.json")
    dlup = read_qupath(real_slides / "NKI-AI+dlup/tests/files/qupath05.geojson")

    assert {"Tissue", "Tumor_vital"} <= {region.class_name for region in cmu}
    assert len(dlup) <= 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"type": "FeatureCollection", "features": null}', "`features` are NoneType"),
        ('{"type": "FeatureCollection", "features": [{"geometry": 5}]}', "feature 0"),
        ("[" * 100_000, "is not GeoJSON"),
    ],
)
def test_odd_json_is_one_message(tmp_path, text, says):
    path = tmp_path / "a.geojson"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(BadAnnotationError, match=says):
        read_qupath(path)


def test_odd_features_are_left_out_and_a_byte_order_mark_does_no_harm(tmp_path):
    features = [
        {"type": "Feature", "geometry": SQUARE, "properties": [1]},
        {"type": "Feature", "geometry": None, "properties": {"classification": "Tumor"}},
        feature({"names": 5}),
        feature("Tumor"),
    ]
    path = tmp_path / "a.geojson"
    path.write_text(json.dumps(features), encoding="utf-8-sig")

    assert len(read_qupath(path)) == 1
