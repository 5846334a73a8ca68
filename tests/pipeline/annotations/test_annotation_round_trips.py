"""Round trips: a file written in a format reads back equal, and anything the format cannot hold is reported."""

import json
import uuid
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
import shapely
import shapely.affinity
from hypothesis import given, settings
from hypothesis import strategies as st
from shapely.geometry import LineString, MultiLineString, MultiPoint, MultiPolygon, Point, Polygon, box

from pipeline.annotations.files import read_annotations, write_annotations
from pipeline.annotations.formats import imagescope
from pipeline.annotations.shapes import regions_cut
from pipeline.annotations.shapes.objects import AnnotationFile, AnnotationObject, Group
from pipeline.annotations.shapes.repair import labelled_regions
from pipeline.errors import BadAnnotationError

FORMATS = ("qupath", "asap", "imagescope")
RING = Polygon([(0, 0), (100.5, 0), (100.5, 50.25), (0, 50)], [[(20, 10), (40, 10), (40, 30)]])
ISLAND = Polygon([(25, 12), (38, 12), (38, 20)])
BOW = Polygon([(0, 0), (10, 10), (10, 0), (0, 10)])
SQUARE = box(200, 100, 260, 140)
ID = str(uuid.UUID(int=7))


def drawn(geometry, class_name="tumor", **more):
    return AnnotationObject(geometry, "", class_name, **more)


def through(path, file, to):
    """Write and read back; return the objects and the reported losses."""
    lost = write_annotations(path, file, to)
    return read_annotations(path), lost


def facts(file):
    """All properties of an object except its source."""
    plain = [replace(d, where="", object_id=None, geometry=None, nucleus=None) for d in file.objects]
    shapes = [(d.geometry.wkt, d.nucleus.wkt if d.nucleus else None) for d in file.objects]
    return list(zip(plain, shapes, strict=True))


def area_by_class(file):
    regions, _ = labelled_regions(file)
    names = sorted({region.class_name for region in regions})
    return {n: shapely.union_all([r.geometry for r in regions if r.class_name == n]) for n in names}


EVERYTHING = AnnotationFile(
    "qupath",
    (
        drawn(RING, name="roi <1> & co"),
        drawn(MultiPolygon([RING, SQUARE])),
        drawn(MultiPolygon([SQUARE])),
        drawn(BOW, "necrosis"),
        drawn(SQUARE, None, color_rgb=(1, 2, 3)),
        drawn(Point(3, 4)),
        drawn(MultiPoint([(3, 4), (5.5, 6)]), tool="points"),
        drawn(LineString([(3, 4), (5.5, 6), (8, 8)]), tool="line"),
        drawn(MultiLineString([[(3, 4), (5.5, 6)], [(8, 8), (9, 9)]]), tool="line"),
        drawn(SQUARE, object_type="cell", nucleus=box(210, 110, 220, 120), measurements={"Area": 2.5, "n": 3}),
        drawn(SQUARE, "Tumor: Positive", object_type="detection", metadata={"made by": "somebody"}),
        drawn(SQUARE, is_locked=True, object_id=ID, plane={"c": -1, "z": 2, "t": 0}, tool="ellipse"),
    ),
    {"tumor": (200, 0, 0), "necrosis": (10, 20, 30), "Tumor: Positive": (9, 9, 9)},
)


def test_qupath_holds_everything_of_qupath(tmp_path):
    points = (drawn(Point(3, 4), tool="points"),)
    file = AnnotationFile("qupath", EVERYTHING.objects[:5] + points + EVERYTHING.objects[6:], EVERYTHING.class_colors)

    back, lost = through(tmp_path / "a.geojson", file, "qupath")

    assert lost == []
    assert facts(back) == facts(file)
    assert back.class_colors == file.class_colors
    assert back.objects[-1].object_id == ID


def test_what_is_written_for_qupath_has_uuids_and_a_colour_for_every_class(tmp_path):
    write_annotations(tmp_path / "a.geojson", AnnotationFile("asap", EVERYTHING.objects), "qupath")

    features = json.loads((tmp_path / "a.geojson").read_text())["features"]

    assert len({uuid.UUID(feature["id"]) for feature in features}) == len(features)
    classes = [feature["properties"].get("classification") for feature in features]
    assert all(len(entry["color"]) == 3 for entry in classes if entry)
    assert features[10]["properties"]["classification"]["names"] == ["Tumor", "Positive"]


def test_numbers_json_does_not_know_and_ids_that_stand_twice_are_written_so_that_qupath_reads_them(tmp_path):
    odd = {"a": float("nan"), "b": float("inf"), "c": float("-inf")}
    twice = (drawn(SQUARE, measurements=odd, object_id=ID), drawn(SQUARE, object_id=ID), drawn(SQUARE, object_id="7"))

    back, lost = through(tmp_path / "a.geojson", AnnotationFile("qupath", twice), "qupath")

    assert back.objects[0].measurements == {"a": "NaN", "b": "Infinity", "c": "-Infinity"}
    assert len({annotation.object_id for annotation in back.objects}) == 3
    assert lost == ["2 ids were not UUIDs, or not unique, and were replaced"]


def test_every_group_that_asap_needs_is_written(tmp_path):
    file = AnnotationFile(
        "asap", (drawn(SQUARE, "a"), drawn(SQUARE, None), drawn(SQUARE, "b")), {}, (Group("a", "top"),)
    )

    write_annotations(tmp_path / "a.xml", file, "asap")

    root = ET.parse(tmp_path / "a.xml").getroot()
    groups = {group.get("Name") for group in root.iter("Group")}
    assert groups == {"a", "b", "top"}
    assert {element.get("PartOfGroup", "None") for element in root.iter()} == {*groups, "None"}


def test_asap_holds_everything_of_asap(tmp_path):
    shapes = [
        drawn(SQUARE, name="a", color_rgb=(1, 2, 3), tool="rectangle"),
        drawn(BOW, name="b", color_rgb=(1, 2, 3), tool="spline"),
        drawn(Polygon(RING.exterior), None, name="c", color_rgb=(1, 2, 3)),
        drawn(Point(3, 4), name="d", color_rgb=(1, 2, 3), tool="points"),
        drawn(MultiPoint([(3, 4), (5.5, 6)]), name="e", color_rgb=(1, 2, 3), tool="points"),
        drawn(LineString([(3, 4), (5.5, 6)]), name="f", color_rgb=(1, 2, 3), tool="measurement"),
        drawn(MultiPoint([(3, 4), (5.5, 6)]), name="g", color_rgb=(1, 2, 3), tool="nothing"),
    ]
    file = AnnotationFile("asap", tuple(shapes), {"tumor": (255, 0, 0)}, (Group("tumor", None, (255, 0, 0)),))

    back, lost = through(tmp_path / "a.xml", file, "asap")

    assert lost == []
    assert facts(back) == facts(file)
    assert (back.groups, back.class_colors) == (file.groups, file.class_colors)


def test_imagescope_holds_everything_of_imagescope(tmp_path):
    shapes = [
        drawn(RING, name="text"),
        drawn(BOW, metadata={"grade": "3"}),
        drawn(SQUARE, tool="rectangle"),
        drawn(LineString([(3, 4), (5.5, 6), (8, 8)]), tool="line"),
        drawn(SQUARE, "stroma"),
    ]
    file = AnnotationFile("imagescope", tuple(shapes), {"tumor": (255, 128, 0), "stroma": (0, 0, 255)}, mpp=0.25)

    back, lost = through(tmp_path / "a.xml", file, "imagescope")

    assert lost == []
    assert facts(back) == facts(file)
    assert (back.class_colors, back.mpp) == (file.class_colors, 0.25)


def test_an_ellipse_of_imagescope_keeps_its_box(tmp_path):
    angle = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    ellipse = Polygon(np.stack([50 + 30 * np.cos(angle), 40 + 10 * np.sin(angle)], -1))

    back, _ = through(tmp_path / "a.xml", AnnotationFile("qupath", (drawn(ellipse, tool="ellipse"),)), "imagescope")

    assert back.objects[0].tool == "ellipse"
    assert back.objects[0].geometry.symmetric_difference(ellipse).area == pytest.approx(0, abs=1e-6)


def test_what_asap_and_imagescope_cannot_hold_is_said(tmp_path):
    _, of_asap = through(tmp_path / "a.xml", EVERYTHING, "asap")
    _, of_imagescope = through(tmp_path / "b.xml", EVERYTHING, "imagescope")

    both = [
        "2 objects were cells, detections or tiles and became annotations",
        "1 object loses its nucleus",
        "1 object loses its measurements",
        "1 object is no longer locked",
        "1 object loses its id",
        "1 object loses its plane",
    ]
    assert [line.split(";")[0] for line in of_asap] == [
        "2 areas with holes were cut into pieces without holes",
        "1 area of several parts became one annotation per part",
        "2 lines of more than two points are left out",
        *both[:3], "1 object loses its metadata", *both[3:],
    ]  # fmt: skip
    assert [line.split(";")[0] for line in of_imagescope][2:] == [
        "1 object drawn as an ellipse has another outline and became freehand", "1 object has no class", *both,
    ]  # fmt: skip
    assert "3 objects of several parts became one region per part" in of_imagescope


@pytest.mark.parametrize("to", FORMATS)
def test_a_stated_pixel_size_is_kept_or_its_loss_is_said(tmp_path, to):
    back, lost = through(tmp_path / "a", AnnotationFile("imagescope", (drawn(SQUARE),), mpp=0.25), to)

    assert back.mpp == (0.25 if to == "imagescope" else None)
    assert any("pixel size (0.25 µm/px) is left out" in line for line in lost) == (back.mpp is None)


def test_groups_in_groups_are_lost_outside_asap_and_that_is_said(tmp_path):
    file = AnnotationFile("asap", (drawn(SQUARE, "a"),), {}, (Group("a", "top"),))

    for to in ("qupath", "imagescope"):
        _, lost = through(tmp_path / to, file, to)
        assert any("group is inside another" in line for line in lost)


@pytest.mark.parametrize("to", FORMATS)
def test_holes_islands_and_overlaps_keep_every_class_s_area_in_every_format(tmp_path, to):
    overlapping = box(30, 5, 60, 45)  # covers part of the hole of its class
    shapes = (
        drawn(MultiPolygon([RING, ISLAND])),
        drawn(overlapping, "tumor"),
        drawn(RING, "stroma"),
        drawn(BOW, "bow"),
    )
    file = AnnotationFile("qupath", shapes)

    back, _ = through(tmp_path / "a", file, to)

    was, now = area_by_class(file), area_by_class(back)
    assert was.keys() == now.keys()
    for name, area in was.items():
        assert area.symmetric_difference(now[name]).area == pytest.approx(0, abs=1e-9), name


OUTSIDE = Polygon(box(0, 0, 100, 100).exterior, [box(180, 40, 220, 60).exterior])


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize(
    "shapes",
    [
        (drawn(OUTSIDE),),
        (drawn(OUTSIDE), drawn(box(150, 0, 400, 100))),  # whose hole is then in another region
        (drawn(OUTSIDE), drawn(box(150, 0, 400, 100), "stroma")),
        (drawn(Polygon(box(0, 0, 50, 50).exterior, [box(50, 0, 60, 9).exterior, box(40, 40, 70, 70).exterior])),),
        (drawn(box(0, 0, 50, 20), tool="ellipse"),),
    ],
)
def test_areas_of_any_outline_are_the_same_after_conversion(tmp_path, to, shapes):
    file = AnnotationFile("qupath", shapes)

    back, _ = through(tmp_path / "a", file, to)

    was, now = area_by_class(file), area_by_class(back)
    assert {name: area.symmetric_difference(now[name]).area for name, area in was.items()} == dict.fromkeys(now, 0)


def test_an_area_that_imagescope_holds_only_repaired_is_said(tmp_path):
    _, lost = through(tmp_path / "a", AnnotationFile("qupath", (drawn(OUTSIDE), drawn(RING))), "imagescope")

    assert lost == ["1 area with holes outside it was repaired; in ImageScope a hole only cuts its region"]


def test_what_imagescope_s_reader_would_refuse_as_too_crossed_is_not_written(tmp_path):
    angle = np.arange(2001) * 2 * np.pi * 1000 / 2001
    star = Polygon(500 + 400 * np.stack([np.cos(angle), np.sin(angle)], -1), [box(499, 499, 501, 501).exterior])

    with pytest.raises(BadAnnotationError, match="the outlines cross"):
        write_annotations(tmp_path / "a", AnnotationFile("qupath", (drawn(star),)), "imagescope")
    assert not (tmp_path / "a").exists()


def test_no_layer_of_imagescope_has_more_holes_than_are_read(tmp_path, monkeypatch):
    for module in (imagescope, regions_cut):
        monkeypatch.setattr(module, "MAX_CUTS", 2)
    rings = tuple(drawn(shapely.affinity.translate(RING, 200 * column)) for column in range(5))

    back, _ = through(tmp_path / "a", AnnotationFile("qupath", rings), "imagescope")

    assert [obj.geometry for obj in back.objects] == [obj.geometry for obj in rings]


@given(seed=st.integers(0, 2**32 - 1), to=st.sampled_from(FORMATS))
@settings(max_examples=60)
def test_holes_anywhere_keep_every_class_s_area_in_every_format(tmp_path_factory, seed, to):
    random = np.random.default_rng(seed)

    def blob(center, radius, corners):
        angle = np.linspace(0, 2 * np.pi, corners, endpoint=False)
        size = radius * random.uniform(0.5, 1, (corners, 1))
        return np.round(center + size * np.stack([np.cos(angle), np.sin(angle)], -1), 1)

    def shape():
        center = random.uniform(50, 300, 2)
        holes = [blob(center + random.uniform(-60, 60, 2), random.uniform(4, 20), 5) for _ in range(2)]
        return Polygon(blob(center, random.uniform(20, 80), random.integers(3, 12)), holes)

    file = AnnotationFile("qupath", tuple(drawn(shape(), name) for name in "aabb"))
    back, _ = through(tmp_path_factory.mktemp("holes") / "a", file, to)

    was, now = area_by_class(file), area_by_class(back)
    assert was.keys() == now.keys()
    for name, area in was.items():
        assert area.symmetric_difference(now[name]).area == pytest.approx(0, abs=1e-4 * area.area)


@st.composite
def polygons_with_holes(draw):
    """A star-shaped outline, not convex, with up to two holes inside, somewhere on a slide."""
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    corners = draw(st.integers(3, 30))
    angle = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    center = random.uniform(100, 60_000, 2)
    unit = np.stack([np.cos(angle), np.sin(angle)], -1)
    holes = [center + dx + 4 * unit for dx in ((-5, 0), (5, 0))[: draw(st.integers(0, 2))]]
    return Polygon(center + random.uniform(25, 90, (corners, 1)) * unit, holes)


@given(polygons=st.lists(polygons_with_holes(), min_size=1, max_size=5), to=st.sampled_from(FORMATS))
@settings(max_examples=60)
def test_random_areas_survive_every_format_and_the_way_back(tmp_path_factory, polygons, to):
    folder = tmp_path_factory.mktemp("round")
    file = AnnotationFile("qupath", tuple(drawn(p, name) for p, name in zip(polygons, "abcab", strict=False)))

    converted, _ = through(folder / "there", file, to)
    back, _ = through(folder / "back", converted, "qupath")

    was, now = area_by_class(file), area_by_class(back)
    assert was.keys() == now.keys()
    for name, area in was.items():
        assert area.symmetric_difference(now[name]).area == pytest.approx(0, abs=1e-4 * area.area)


@pytest.mark.parametrize("to", FORMATS)
def test_writing_what_was_read_changes_nothing_any_more(tmp_path, to):
    once, _ = through(tmp_path / "one", EVERYTHING, to)
    twice, lost = through(tmp_path / "two", once, to)

    assert facts(twice) == facts(once)
    assert lost == [] or all("have no class" in line for line in lost)


def test_control_characters_in_names_do_not_break_the_file(tmp_path):
    file = AnnotationFile("qupath", (drawn(SQUARE, "a\x00b", name="x\x0by"),))

    for to in ("asap", "imagescope"):
        back, _ = through(tmp_path / to, file, to)
        assert (back.objects[0].class_name, back.objects[0].name) == ("ab", "xy")
