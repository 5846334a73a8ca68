"""QuPath GeoJSON in every spelling QuPath has used."""

import copy
import json

import pytest

from pipeline.annotations.files import read_annotations
from pipeline.annotations.shapes.repair import labelled_regions
from pipeline.errors import BadAnnotationError

RING = [[0, 0], [10, 0], [10, 5], [0, 5], [0, 0]]
SQUARE = {"type": "Polygon", "coordinates": [RING]}


def feature(classification, geometry=SQUARE, **properties):
    return {"type": "Feature", "geometry": geometry, "properties": {"classification": classification, **properties}}


def read(tmp_path, content):
    path = tmp_path / "a.geojson"
    path.write_text(json.dumps(content), encoding="utf-8")
    return read_annotations(path)


def regions(tmp_path, content):
    return labelled_regions(read(tmp_path, content))[0]


@pytest.mark.parametrize(
    "content",
    [
        {"type": "FeatureCollection", "features": [feature({"name": "Tumor", "color": [1, 2, 3]})]},
        [feature({"name": "Tumor"})],
        feature("Tumor"),
        {"type": "FeatureCollection", "features": [feature({"names": ["Tumor"]})]},
        feature("Tumor", {"type": "Polygon", "coordinates": [RING[:-1]]}),
        feature("Tumor", {"type": "Polygon", "coordinates": [[[*point, 7] for point in RING]]}),
        feature("Tumor", {"type": "MultiPolygon", "coordinates": [[RING]]}),
        feature("Tumor", {"type": "GeometryCollection", "geometries": [SQUARE]}),
        feature("Tumor", {**SQUARE, "plane": {"c": -1, "z": 0, "t": 0}}, object_type="annotation"),
    ],
)
def test_every_spelling_of_qupath_gives_the_same_region(tmp_path, content):
    (region,) = regions(tmp_path, content)

    assert (region.class_name, region.geometry.area) == ("Tumor", 50)


def test_several_names_are_one_derived_class(tmp_path):
    assert read(tmp_path, feature({"names": ["Tumor", "Positive"]})).objects[0].class_name == "Tumor: Positive"


@pytest.mark.parametrize(
    ("classification", "color"),
    [
        ({"name": "T", "color": [200, 10, 0]}, (200, 10, 0)),
        ({"name": "T", "colorRGB": -3670016}, (200, 0, 0)),
        ({"name": "T", "color": [200, 10]}, None),
        ("T", None),
    ],
)
def test_colours_are_read_as_lists_and_as_packed_numbers(tmp_path, classification, color):
    assert read(tmp_path, feature(classification)).class_colors.get("T") == color


def test_bare_geometries_are_kept_without_a_class(tmp_path):
    for geometry in (SQUARE, {"type": "GeometryCollection", "geometries": [SQUARE]}):
        file = read(tmp_path, geometry)
        assert file.count_by_class() == {None: 1}
        assert labelled_regions(file)[0] == []


def test_points_lines_cells_and_unclassified_areas_are_kept_but_label_nothing(tmp_path):
    cell = {**feature("Tumor", objectType="cell"), "nucleusGeometry": {**SQUARE}}
    content = [
        feature("Tumor", {"type": "Point", "coordinates": [1, 2]}),
        feature("Tumor", {"type": "MultiPoint", "coordinates": [[1, 2], [3, 4]]}),
        feature("Tumor", {"type": "LineString", "coordinates": [[1, 2], [3, 4], [5, 9]]}),
        feature("Tumor", {"type": "MultiLineString", "coordinates": [[[1, 2], [3, 4]], [[5, 9], [6, 6]]]}),
        cell,
        feature("Tumor", objectType="detection"),
        feature("Tumor", objectType="tile"),
        feature(None),
        feature({}),
    ]

    file = read(tmp_path, content)
    labelled, report = labelled_regions(file)

    assert (len(file.objects), labelled, report.num_unused) == (9, [], 9)
    assert file.objects[4].nucleus.area == 50
    assert [drawn.geometry.geom_type for drawn in file.objects[:4]] == [f["geometry"]["type"] for f in content[:4]]


def test_children_and_members_of_collections_are_objects_of_their_own(tmp_path):
    point = {"type": "Point", "coordinates": [1, 2]}
    parent = feature("Tumor", {"type": "GeometryCollection", "geometries": [SQUARE, point]})
    parent["properties"]["childObjects"] = [feature("Necrosis")]

    assert read(tmp_path, [parent]).count_by_class() == {"Necrosis": 1, "Tumor": 2}


def test_measurements_are_read_as_objects_and_as_lists(tmp_path):
    old = feature("a", measurements=[{"name": "Area", "value": 5.0}])
    new = feature("a", measurements={"Area": 5.0})

    assert [drawn.measurements for drawn in read(tmp_path, [old, new]).objects] == [{"Area": 5.0}] * 2


def test_holes_stay_holes(tmp_path):
    hole = [[2, 1], [4, 1], [4, 3], [2, 3], [2, 1]]

    (region,) = regions(tmp_path, [feature("Tumor", {"type": "Polygon", "coordinates": [RING, hole]})])

    assert region.geometry.area == 46


@pytest.mark.parametrize("ring", [[[0, 0], [1, 1]], [[0, 0], [1, 1], [0, 0]], [[0, 0], [5, 5], [9, 9], [0, 0]], []])
def test_rings_that_enclose_nothing_are_dropped_and_said(tmp_path, ring):
    file = read(tmp_path, [feature("Tumor", {"type": "Polygon", "coordinates": [ring]}), feature("Tumor")])

    labelled, report = labelled_regions(file)

    assert len(labelled) == 1
    (why,) = report.dropped
    assert why.startswith("a.geojson, feature 0")


def test_a_hole_that_encloses_nothing_is_dropped_and_its_outline_kept(tmp_path):
    with_hole = {"type": "Polygon", "coordinates": [RING, [[2, 1], [4, 1], [2, 1]]]}

    labelled, report = labelled_regions(read(tmp_path, feature("Tumor", with_hole)))

    assert (labelled[0].geometry.area, len(report.dropped)) == (50, 1)


def test_a_crossing_outline_keeps_both_its_halves_and_is_said(tmp_path):
    bow = {"type": "Polygon", "coordinates": [[[0, 0], [10, 10], [10, 0], [0, 10], [0, 0]]]}

    labelled, report = labelled_regions(read(tmp_path, [feature("Tumor", bow), feature("Tumor")]))

    assert labelled[0].geometry.is_valid
    assert [region.geometry.area for region in labelled] == [50, 50]
    assert (report.num_regions, report.num_repaired, report.added_px0) == (2, 1, 50)
    assert report.summary().startswith("2 regions, 1 outline that crossed itself repaired")


def test_a_loop_drawn_over_itself_stays_inside(tmp_path):
    twice_around = [[0, 0], [10, 0], [10, 10], [0, 10], [0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]

    (region,) = regions(tmp_path, feature("Tumor", {"type": "Polygon", "coordinates": [twice_around]}))

    assert region.geometry.area == 100


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "b": 2}', "an object with the keys a, b"),
        ('{"type": "Thing"}', "it holds type 'Thing'"),
        ("{", "is neither GeoJSON nor XML"),
        ('{"type":"Topology"}', "JSON of TopoJSON"),
        ("[1]", "feature 0"),
        ("5", "it holds int"),
        ('{"type": "FeatureCollection", "features": null}', "`features` are NoneType"),
        ('{"type": "FeatureCollection", "features": [{"geometry": 5}]}', "feature 0"),
        ('{"info": {}, "images": [], "annotations": []}', "JSON of COCO"),
        ('{"type": "Polygon", "coordinates": [[[0, 0], [1, NaN], [2, 0]]]}', "not a number of pixels"),
        ('{"type": "Polygon", "coordinates": [[[0, 0], [1], [2, 0]]]}', "cannot be built"),
        ('{"type": "Polygon", "coordinates": [5]}', "cannot be built"),
        ('{"type": "Polygon", "coordinates": 5}', "cannot be built"),
        ('{"type": "MultiPolygon", "coordinates": 5}', "cannot be built"),
        ('{"type": "MultiLineString", "coordinates": 5}', "cannot be built"),
        ('{"type": "Point", "coordinates": 5}', "cannot be built"),
        ('{"type": "GeometryCollection", "geometries": 5}', "cannot be built"),
        ('[{"type": "Feature", "geometry": {"type": "Circle", "coordinates": [1]}}]', "type 'Circle'"),
        ('{"type": "Polygon", "coordinates": [[[1e999, 0], [1, 1], [2, 0]]]}', "the number 1e999 is infinite"),
        ("[" * 100_000, "is neither GeoJSON nor XML"),
        ("", "is neither GeoJSON nor XML"),
    ],
)
def test_what_is_not_geojson_is_refused_and_explained(tmp_path, text, says):
    path = tmp_path / "a.geojson"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(BadAnnotationError, match=says):
        read_annotations(path)


def test_a_feature_without_a_place_is_reported_and_a_byte_order_mark_does_no_harm(tmp_path):
    features = [
        {"type": "Feature", "geometry": None, "properties": {"classification": "Tumor"}},
        {"type": "Feature", "geometry": SQUARE, "properties": None},
        feature("Tumor"),
    ]
    path = tmp_path / "a.geojson"
    path.write_text(json.dumps(features), encoding="utf-8-sig")

    file = read_annotations(path)

    assert (len(file.objects), len(labelled_regions(file)[0])) == (2, 1)
    assert file.dropped == ("a.geojson, feature 0: has no geometry",)


def test_a_file_that_is_not_there_names_the_manifest(tmp_path):
    with pytest.raises(BadAnnotationError, match=r"no such file\. Correct `annotations`"):
        read_annotations(tmp_path / "none.geojson")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: f.update(classification={"name": "Tumor"}), "feature 0: unknown attribute 'classification'"),
        (lambda f: f.update(class_name="Tumor"), "feature 0: unknown attribute 'class_name'; QuPath"),
        (lambda f: f.update(Properties={}), "unknown attribute 'Properties'; QuPath writes 'properties'"),
        (lambda f: f["geometry"].update(properties={}), "feature 0: unknown attribute 'properties'"),
        (lambda f: f["geometry"].update(features=[{"type": "Feature"}]), "member 'features' holds GeoJSON"),
        (lambda f: f["geometry"].update(crs={}), "coordinate system"),
        (lambda f: f["properties"].update(Classification="Tumor"), "'Classification'; QuPath writes 'classification'"),
    ],
)
def test_a_class_that_stands_where_qupath_writes_none_is_refused(tmp_path, change, says):
    drawn = copy.deepcopy(feature(None))
    change(drawn)
    with pytest.raises(BadAnnotationError, match=says):
        read(tmp_path, [drawn])


def test_a_bare_geometry_with_properties_is_refused(tmp_path):
    with pytest.raises(BadAnnotationError, match="unknown attribute 'properties'"):
        read(tmp_path, {**SQUARE, "properties": {"classification": "Tumor"}})


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda f: f["properties"].update(type="Tumor"), "property 'type'"),
        (lambda f: f["properties"].update({"class": "Tumor"}), "property 'class'"),
        (lambda f: f["properties"].update(classification={"name": "a", "grade": 3}), "property 'classification.grade'"),
        (lambda f: f.update(author="x"), "attribute 'author' of features"),
        (lambda f: f["geometry"].update(author="x"), "attribute 'author' of geometries"),
    ],
)
def test_what_is_not_read_of_a_feature_is_noted(tmp_path, change, note):
    drawn = copy.deepcopy(feature(None))
    assert read(tmp_path, [drawn]).notes == ()
    change(drawn)
    (said,) = read(tmp_path, [drawn]).notes
    assert note in said
