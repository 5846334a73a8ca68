"""No annotation is lost silently: it is read, or the part that was not understood is named."""

import gzip
import json

import pytest

from pipeline.annotations.files import read_annotations
from pipeline.annotations.frames import SlideFrame, on_slide
from pipeline.annotations.shapes.repair import labelled_regions
from pipeline.errors import BadAnnotationError
from pipeline.tiles.labels import class_order
from tests.pipeline.annotations.test_xml_annotations import SQUARE, asap, imagescope, layer, region

RING = [[0, 0], [10, 0], [10, 5], [0, 5], [0, 0]]
AREA = {"type": "Polygon", "coordinates": [RING]}
HOLE = [(2, 1), (4, 1), (4, 3), (2, 3)]


def feature(class_name="Tumor", geometry=AREA, **more):
    return {"type": "Feature", "geometry": geometry, "properties": {"classification": {"name": class_name}}, **more}


def collection(*features, **more):
    return {"type": "FeatureCollection", "features": list(features), **more}


def read(tmp_path, content, name="a.json"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_annotations(path)


def areas(tmp_path, content):
    return [(r.class_name, round(r.geometry.area, 3)) for r in labelled_regions(read(tmp_path, content))[0]]


# --- GeoJSON -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        collection(feature(), collection(feature("Stroma"))),
        [collection(feature()), collection(collection(feature("Stroma")))],
        [[feature()], feature("Stroma")],
        collection(feature(), collection(), feature("Stroma")),
        collection(feature(), feature("Stroma"), crs=None),
    ],
)
def test_collections_in_collections_are_read_in_order(tmp_path, content):
    assert areas(tmp_path, content) == [("Tumor", 50), ("Stroma", 50)]


def test_a_collection_of_many_depths_is_no_crash(tmp_path):
    content = feature()
    for _ in range(400):
        content = {"type": "FeatureCollection", "features": [content]}
    assert areas(tmp_path, content) == [("Tumor", 50)]


def test_collections_of_geometries_in_each_other_are_all_read(tmp_path):
    inner = {"type": "GeometryCollection", "geometries": [AREA, {"type": "Point", "coordinates": [1, 2, 3]}]}
    outer = {"type": "GeometryCollection", "geometries": [AREA, inner]}
    assert read(tmp_path, feature(geometry=outer)).count_by_class() == {"Tumor": 3}


@pytest.mark.parametrize(
    ("geometry", "says"),
    [
        (None, "has no geometry"),
        ({"type": "MultiPoint", "coordinates": []}, "has no points"),
        ({"type": "LineString", "coordinates": []}, "has no points"),
        ({"type": "MultiLineString", "coordinates": []}, "all of its lines"),
        ({"type": "MultiPolygon", "coordinates": []}, "has no points"),
        ({"type": "Polygon", "coordinates": None}, "has no points"),
        ({"type": "GeometryCollection", "geometries": []}, "has no points"),
    ],
)
def test_a_feature_that_draws_nothing_is_reported(tmp_path, geometry, says):
    file = read(tmp_path, [feature(geometry=geometry), feature()])
    assert (len(file.objects), len(file.dropped)) == (1, 1)
    assert says in file.dropped[0]
    with pytest.raises(BadAnnotationError, match=rf"holds no annotation.*{says}"):
        read(tmp_path, [feature(geometry=geometry)])


def test_lines_of_one_point_among_others_are_reported(tmp_path):
    file = read(tmp_path, feature(geometry={"type": "MultiLineString", "coordinates": [[[0, 0], [1, 1]], [[2, 2]]]}))
    assert (len(file.objects), file.dropped) == (1, ("a.json, feature 0: 1 of its lines has fewer than two points",))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (collection(feature(), crs={"type": "name", "properties": {"name": "EPSG:4326"}}), "coordinate system"),
        (feature(crs={"type": "name"}), "coordinate system"),
        ({**feature(), "properties": [1]}, "`properties` are list"),
        ({**feature(), "properties": {"classification": {"names": 5}}}, "does not name a class"),
        ({**feature(), "properties": {"classification": 5}}, "does not name a class"),
        ({**feature(), "properties": {"classification": {"label": "Tumor"}}}, "does not name a class"),
        (collection(feature(), annotations=collection(feature())), "member 'annotations' holds GeoJSON .FeatureColl"),
        (collection(feature(children=[feature()])), "feature 0: its member 'children' holds GeoJSON .Feature"),
        ({**feature(), "properties": {"objectType": "banana"}}, "objectType 'banana'"),
        ({**feature(), "properties": {"childObjects": 5}}, "`childObjects` are int"),
        (feature(geometry={"type": "GeometryCollection", "geometries": [5]}), "is not a geometry"),
        (feature(geometry={"coordinates": [[1, 2]]}), "type None"),
        (
            feature(geometry={"type": "Polygon", "coordinates": [[["1,5", "2"], ["3", "4"], ["5", "6"]]]}),
            "cannot be bu",
        ),
        (collection(feature(), {"type": "Topology"}), "feature 1: is JSON but not GeoJSON: it holds type 'Topology'"),
        (collection(feature(), None), "feature 1: is JSON but not GeoJSON: it holds NoneType"),
    ],
)
def test_what_is_not_understood_is_an_error_that_names_it(tmp_path, content, says):
    with pytest.raises(BadAnnotationError, match=says):
        read(tmp_path, content)


def test_a_class_that_is_a_number_is_kept(tmp_path):
    assert areas(tmp_path, {**feature(), "properties": {"classification": {"name": 0}}}) == [("0", 50)]


@pytest.mark.parametrize(
    ("old", "kind"), [("PathCellObject", "cell"), ("PathDetectionObject", "detection"), ("PathAnnotationObject", None)]
)
def test_what_old_versions_of_qupath_found_labels_no_tiles(tmp_path, old, kind):
    (drawn,) = read(tmp_path, feature(id=old)).objects
    assert drawn.object_type == (kind or "annotation")
    assert drawn.labels_tiles == (kind is None)


def test_properties_of_other_programs_are_reported(tmp_path):
    file = read(tmp_path, {**feature(), "properties": {"stage": "II"}})
    assert file.notes == ("1 features have a property 'stage', which QuPath does not write: it is left out",)


@pytest.mark.parametrize(
    "properties",
    [
        {"class": "tumor"}, {"label": "tumor"}, {"Label": {"name": "tumor", "color": "red"}}, {"category": "tumor"},
        {"class": "tumor", "label": "3"}, {"class_name": "tumor", "classification": None},
        {"class": {"value": "tumor"}},
        {"label": "tumor", "classification": {"color": [1, 2, 3]}},
    ],
)  # fmt: skip
def test_the_class_that_another_program_names_otherwise_is_read_and_reported(tmp_path, properties):
    content = {**feature(), "properties": properties}
    assert areas(tmp_path, content) == [("tumor", 50)]
    assert any("1 feature names its class in" in note for note in read(tmp_path, content).notes)


def test_qupath_s_classification_goes_before_what_other_programs_write(tmp_path):
    content = {**feature(), "properties": {"classification": "Tumor", "label": "7"}}
    assert areas(tmp_path, content) == [("Tumor", 50)]
    assert read(tmp_path, content).notes == (
        "1 features have a property 'label', which QuPath does not write: it is left out",
    )


@pytest.mark.parametrize("value", [["tumor"], True, 1.5, {"color": "red"}])
def test_a_class_of_another_program_that_cannot_be_read_is_refused(tmp_path, value):
    with pytest.raises(BadAnnotationError, match="feature 0: has no `classification`, and its 'class' is"):
        read(tmp_path, {**feature(), "properties": {"class": value}})


def test_qupath_s_ignored_classes_are_kept_but_label_nothing(tmp_path):
    content = collection(feature("Region*"), feature("Tumor"), feature("Ignore*"), feature("T: Own*"))
    file = read(tmp_path, content)
    regions, repairs = labelled_regions(file)

    assert [obj.class_name for obj in file.objects] == ["Region*", "Tumor", "Ignore*", "T: Own*"]
    assert [region.class_name for region in regions] == ["Tumor"]
    assert [note[:20] for note in file.notes] == [
        "1 area is of 'Ignore",
        "1 area is of 'Region",
        "1 area is of 'T: Own",
    ]
    assert "3 objects label nothing (3 of a class that QuPath ignores, named …*)" in repairs.summary()
    with pytest.raises(BadAnnotationError, match=r"`classes` .* names 'Region\*'; QuPath ignores"):
        class_order(regions, ("Tumor", "Region*"), ())


@pytest.mark.parametrize(
    ("content", "program"),
    [
        ({"info": {}, "images": [], "annotations": [], "categories": []}, "COCO"),
        ([{"image_id": 1, "category_id": 2, "bbox": []}], "COCO"),
        ({"shapes": [], "imagePath": "a.png"}, "LabelMe"),
        ({"a.png1": {"filename": "a.png", "regions": []}}, "VIA"),
        ([{"data": {}, "annotations": []}], "Label Studio"),
        ([{"type": "Annotation", "body": [], "target": {}}], "Annotorious"),
        ({"type": "Topology", "arcs": [], "objects": {}}, "TopoJSON"),
        ("<session/>", "Sedeen"),
        ("<annotation><object/></annotation>", "Pascal VOC"),
        ("PK\x03\x04", "ZIP"),
        ("SQLite format 3\0", "database"),
    ],
)
def test_files_of_other_programs_are_refused_by_name(tmp_path, content, program):
    with pytest.raises(BadAnnotationError, match=program):
        read(tmp_path, content)


def test_a_compressed_file_is_refused_by_name(tmp_path):
    (tmp_path / "a.geojson.gz").write_bytes(gzip.compress(json.dumps(feature()).encode()))
    with pytest.raises(BadAnnotationError, match="compressed"):
        read_annotations(tmp_path / "a.geojson.gz")


@pytest.mark.parametrize(
    "content",
    [[], collection(), imagescope(), imagescope(layer(name="a"), layer(name="b")), asap(), "<annotations/>",
     [{"annotation": {"name": "a", "elements": []}}]],
)  # fmt: skip
def test_a_file_without_an_object_says_so(tmp_path, content):
    with pytest.raises(BadAnnotationError, match="holds no annotation"):
        read(tmp_path, content)


# --- ImageScope and HALO -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("negative", ["1", "true", "True", "TRUE", "yes"])
def test_every_spelling_of_negative_is_a_hole(tmp_path, negative):
    text = imagescope(layer(region(SQUARE), region(HOLE, negative=negative), name="t"))
    assert areas(tmp_path, text) == [("t", 46)]


@pytest.mark.parametrize("negative", ["0", "false", "False", "no", ""])
def test_every_spelling_of_not_negative_is_an_area(tmp_path, negative):
    assert areas(tmp_path, imagescope(layer(region(SQUARE, negative=negative), name="t"))) == [("t", 50)]


@pytest.mark.parametrize(
    ("kind", "points", "area"),
    [
        ("Polygon", SQUARE, 50),
        ("polygon", SQUARE, 50),
        ("FREEHAND", SQUARE, 50),
        ("Rectangle", [(10, 5), (0, 0)], 50),
        ("Rectangle", [*SQUARE, SQUARE[0]], 50),
        ("Ellipse", [(0, 0), (10, 5)], 39.207),
        ("2", [*SQUARE, SQUARE[0]], 39.207),
    ],
)
def test_types_are_read_as_numbers_and_as_words(tmp_path, kind, points, area):
    assert areas(tmp_path, imagescope(layer(region(points, kind=kind), name="t"))) == [("t", area)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (imagescope(layer(region(SQUARE), region(SQUARE, kind="Blob"), name="t")), r"region 1: Type='Blob'.*HALO"),
        (imagescope(layer(region(SQUARE, kind=7), name="t")), "Type='7'"),
        (imagescope(layer(region(SQUARE, negative="maybe"), name="t")), "NegativeROA='maybe'"),
        (imagescope(layer(region(SQUARE), region(SQUARE[:2], kind=3, negative=1), name="t")), "encloses no area"),
        (imagescope(layer(region(SQUARE), name="t").replace("NegativeROA", "negativeroa")), "attribute 'negativeroa'"),
        (imagescope(layer(region(SQUARE), name="t").replace("NegativeROA", "IsNegative")), "attribute 'IsNegative'"),
        (imagescope(layer(region(SQUARE, kind=2), name="t").replace("Type", "type")), "attribute 'type'"),
        (imagescope(layer(region(SQUARE), name="t").replace("Regions>", "Shapes>")), "<Shapes>.*ImageScope or HALO"),
        (imagescope(layer(region(SQUARE), name="t").replace("Vertex ", "Point ")), "<Point>"),
        (imagescope(layer(region(SQUARE), name="t"), "<Layer/>"), "<Layer>"),
        (imagescope(layer(region([("1_0", 0), *SQUARE]), name="t")), "X='1_0' is not a number"),
        (imagescope(layer(region(SQUARE), name="t").replace("</Vertices>", "</Vertices><Vertices/>")), "2 lists of co"),
        (imagescope(layer(region(SQUARE), name="t")).replace("0.25", "-1"), "MicronsPerPixel"),
        (asap(("Polygon", "t", SQUARE)).replace("Coordinates>", "Points>"), "<Points>.*ASAP"),
        (asap(("Polygon", "t", SQUARE)).replace("AnnotationGroups>", "Groups>"), "<Groups>.*ASAP"),
    ],
)
def test_an_element_or_value_of_no_known_program_is_named(tmp_path, text, says):
    with pytest.raises(BadAnnotationError, match=says):
        read(tmp_path, text)


def test_a_negative_region_in_another_layer_s_region_is_refused(tmp_path):
    hole = region(HOLE, negative=1)
    with pytest.raises(BadAnnotationError, match=r"layer 1, region 0: a negative region.*layer 0, region 0.*'tumor'"):
        read(tmp_path, imagescope(layer(region(SQUARE), name="tumor"), layer(hole, name="holes")))


def test_a_negative_region_that_only_touches_its_own_layer_is_no_hole_of_it(tmp_path):
    beside = region([(10, 0), (20, 0), (20, 5), (10, 5)], negative=1)
    own, other = region(SQUARE), region([(12, 1), (18, 1), (18, 4), (12, 4)])
    assert len(read(tmp_path, imagescope(layer(own, beside, name="a"))).dropped) == 1
    with pytest.raises(BadAnnotationError, match="no region of its own layer"):
        read(tmp_path, imagescope(layer(own, beside, name="a"), layer(other, name="b", color=65280)))


def test_holes_that_touch_each_other_and_the_edge_are_all_cut(tmp_path):
    holes = [region([(x, 0), (x + 2, 0), (x + 2, 3), (x, 3)], negative=1) for x in (2, 4, 6)]
    assert areas(tmp_path, imagescope(layer(region(SQUARE), *holes, name="t"))) == [("t", 32)]


HALO = """<Annotations>
  <Annotation Name="Tumor" Visible="True" LineColor="65280"><Regions>
    <Region Type="Polygon" HasEndcaps="0" NegativeROA="0"><Vertices>
      <V X="0" Y="0" /><V X="100" Y="0" /><V X="100" Y="80" /><V X="0" Y="80" /><V X="0" Y="0" /></Vertices>
      <Comments><Comment Author="a" Body="dense" CreatedTime="" ModifiedTime="" /></Comments></Region>
    <Region Type="Ellipse" HasEndcaps="0" NegativeROA="1"><Vertices><V X="10" Y="10" /><V X="30" Y="20" /></Vertices>
    </Region>
    <Region Type="Rectangle" HasEndcaps="0" NegativeROA="0"><Vertices><V X="200" Y="5" /><V X="260" Y="45" /></Vertices>
    </Region>
    <Region Type="Ruler" HasEndcaps="1" NegativeROA="0"><Vertices><V X="1" Y="2" /><V X="3" Y="4" /></Vertices></Region>
    <Region Type="Pin" HasEndcaps="0" NegativeROA="0"><Vertices><V X="7" Y="8" /></Vertices></Region>
  </Regions></Annotation>
  <Annotation Name="Empty" Visible="True" LineColor="255"><Regions /></Annotation>
</Annotations>"""


def test_halo_s_regions_are_read_with_their_types_holes_and_comments(tmp_path):
    file = read(tmp_path, HALO, "a.annotations")
    shapes = [(obj.tool, round(obj.geometry.area), obj.name) for obj in file.objects]
    assert (file.format, file.class_colors["Tumor"]) == ("halo", (0, 255, 0))
    assert shapes == [
        ("freehand", 8000 - 157, "dense"), ("rectangle", 2400, None), ("measurement", 0, None), ("points", 0, None),
    ]  # fmt: skip
    with pytest.raises(BadAnnotationError, match="Type='Lasso'"):
        read(tmp_path, HALO.replace('"Ruler"', '"Lasso"'))


# --- the Digital Slide Archive -------------------------------------------------------------------------------------


def polyline(points, **more):
    return {"type": "polyline", "closed": True, "points": [[*xy, 0] for xy in points], **more}


def dsa(*elements, name="Tumor"):
    return [{"_id": "x", "annotation": {"name": name, "elements": list(elements)}}]


@pytest.mark.parametrize(
    "form", [lambda d: d, lambda d: d[0], lambda d: d[0]["annotation"], lambda d: [d[0]["annotation"]]]
)
def test_every_form_of_a_dsa_file_is_read(tmp_path, form):
    assert areas(tmp_path, form(dsa(polyline(SQUARE)))) == [("Tumor", 50)]


def test_every_shape_of_dsa_is_read(tmp_path):
    centre = {"center": [50, 40, 0]}
    content = dsa(
        polyline(SQUARE, holes=[[[2, 1, 0], [4, 1, 0], [4, 3, 0], [2, 3, 0]]]),
        polyline(SQUARE, closed=False),
        {"type": "rectangle", **centre, "width": 20, "height": 10, "rotation": 0},
        {"type": "rectangle", **centre, "width": 20, "height": 10, "rotation": 0.5235987755982988},
        {"type": "circle", **centre, "radius": 5},
        {"type": "ellipse", **centre, "width": 20, "height": 10, "rotation": 1.5707963267948966},
        {"type": "point", **centre},
        {"type": "arrow", "points": [[1, 2, 0], [3, 4, 0]]},
    )
    file = read(tmp_path, content)
    assert [(obj.tool, round(obj.geometry.area)) for obj in file.objects] == [
        ("freehand", 46), ("line", 0), ("rectangle", 200), ("rectangle", 200), ("ellipse", 78), ("freehand", 157),
        ("points", 0), ("line", 0),
    ]  # fmt: skip
    turned, upright_ellipse = file.objects[3].geometry, file.objects[5].geometry
    # A positive angle turns the upper side's right end downwards: its left end is the uppermost corner's neighbour.
    assert tuple(round(v, 2) for v in turned.exterior.coords[1]) == (61.16, 40.67)
    assert [round(v) for v in upright_ellipse.bounds] == [45, 30, 55, 50]


def test_group_label_and_colour_of_dsa_are_kept(tmp_path):
    content = dsa(
        polyline(SQUARE, group="Stroma", label={"value": "S 1"}, lineColor="rgb(1, 2, 3)"),
        polyline(SQUARE, label={"value": "Necrosis"}, lineColor="#0f0"),
        polyline(SQUARE, lineColor="#0000ffff"),
    )
    file = read(tmp_path, content)
    assert [(obj.class_name, obj.name) for obj in file.objects] == [
        ("Stroma", "S 1"), ("Necrosis", None), ("Tumor", None),
    ]  # fmt: skip
    assert file.class_colors == {"Stroma": (1, 2, 3), "Necrosis": (0, 255, 0), "Tumor": (0, 0, 255)}


@pytest.mark.parametrize(
    ("document", "label", "class_name"),
    [("Tumor", None, "Tumor"), ("Tumor", "Necrosis", "Necrosis"), ("", "Necrosis", "Necrosis"), ("", None, "default")],
)
def test_histomicsui_s_default_group_hides_no_class_of_dsa(tmp_path, document, label, class_name):
    element = polyline(SQUARE, group="default", **({"label": {"value": label}} if label else {}))

    (drawn,) = read(tmp_path, dsa(element, name=document)).objects

    assert (drawn.class_name, drawn.name) == (class_name, None)


@pytest.mark.parametrize("kind", ["heatmap", "griddata", "image", "pixelmap"])
def test_overlays_of_dsa_are_reported(tmp_path, kind):
    file = read(tmp_path, dsa(polyline(SQUARE), {"type": kind}))
    assert (len(file.objects), file.notes[0].split(" are ")[0]) == (1, f"1 elements of type {kind!r}")
    with pytest.raises(BadAnnotationError, match=f"holds no annotation.*{kind}"):
        read(tmp_path, dsa({"type": kind}))


@pytest.mark.parametrize(
    ("element", "says"),
    [
        ({"type": "lasso"}, "element 0: unknown element type 'lasso'; the Digital Slide Archive"),
        ({"points": []}, "`type` is None"),
        (5, "is int"),
        (polyline(SQUARE, closed="true"), "`closed` is 'true'"),
        (polyline(SQUARE, closed=False, holes=[[[1, 1]]]), "open line with holes"),
        (polyline([]), "has no list of `points`"),
        ({"type": "rectangle", "center": [1, 2], "width": "5", "height": 2}, "`width` is '5'"),
        ({"type": "circle", "center": [1, 2, 0], "radius": -1}, "`radius` is -1"),
        ({"type": "circle", "radius": 1}, "cannot be built"),
        (polyline(SQUARE, lineColor="reddish"), "colour 'reddish'"),
        (polyline(SQUARE, group=5), "`group` is 5"),
        (polyline(SQUARE, label="x"), "`label` is 'x'"),
        ({"type": "ellipse", "center": [1, 2, 0], "width": 3, "height": 2, "normal": [1, 0, 0]}, "`normal`"),
    ],
)
def test_what_dsa_does_not_write_is_refused_and_named(tmp_path, element, says):
    with pytest.raises(BadAnnotationError, match=says):
        read(tmp_path, dsa(element))


def test_the_server_s_list_without_elements_is_refused(tmp_path):
    with pytest.raises(BadAnnotationError, match="download each annotation"):
        read(tmp_path, [{"_id": "x", "annotation": {"name": "a"}}])
    with pytest.raises(BadAnnotationError, match="annotation 1: is not an annotation of the Digital Slide Archive"):
        read(tmp_path, [*dsa(polyline(SQUARE)), {"a": 1}])


# --- another pixel size --------------------------------------------------------------------------------------------


def test_a_file_of_another_pixel_size_is_refused_unless_allowed(tmp_path):
    file = read(tmp_path, imagescope(layer(region(SQUARE), name="t")))  # states 0.25
    for mpp0 in (0.25, 0.2525, 0.2499, None):
        assert on_slide(file, SlideFrame(mpp0)) is file
    assert on_slide(file, SlideFrame(0.5, allows_other_mpp=True)) is file
    for mpp0 in (0.5, 0.26, 0.23):
        with pytest.raises(BadAnnotationError, match=r"says 0.25 µm/px, the slide has .*allow_other_mpp"):
            on_slide(file, SlideFrame(mpp0))
