import time

import numpy as np
import pytest
from shapely import MultiPolygon, Point, Polygon, box

from pipeline.annotations.shapes.region import Region, check_regions
from pipeline.errors import BadAnnotationError
from pipeline.tiles.labels import SlideLabel, class_order, label_tiles
from pipeline.tiles.nesting import innermost

CORNERS = np.array([[0, 0], [100, 0], [200, 0], [0, 100], [100, 100], [200, 100]])


def region(name, geometry):
    return Region(name, geometry, "file.geojson, feature 0")


def test_a_tile_carries_the_class_that_covers_most_of_it():
    regions = [region("a", box(0, 0, 130, 100)), region("b", box(130, 0, 300, 100))]

    labels = label_tiles(regions, CORNERS, 100, classes=("a", "b"), min_fraction=0.5)

    assert labels.class_index.tolist() == [0, 1, 1, -1, -1, -1]
    assert labels.fraction.tolist() == pytest.approx([1.0, 0.7, 1.0, 0, 0, 0])


def test_a_tile_covered_less_than_asked_stays_unlabelled():
    labels = label_tiles([region("a", box(0, 0, 49, 100))], CORNERS, 100, classes=("a",), min_fraction=0.5)

    assert labels.class_index.tolist() == [-1] * 6


def test_overlapping_regions_of_a_class_count_once():
    twice = [region("a", box(0, 0, 40, 100)), region("a", box(0, 0, 40, 100))]

    labels = label_tiles(twice, CORNERS, 100, classes=("a",), min_fraction=0.5)

    assert labels.fraction[0] == pytest.approx(0.4)


def test_a_hole_is_not_part_of_the_area():
    ring = Polygon([(0, 0), (100, 0), (100, 100), (0, 100)], [[(10, 10), (90, 10), (90, 90), (10, 90)]])

    labels = label_tiles([region("a", ring)], CORNERS, 100, classes=("a",), min_fraction=0.5)

    assert labels.fraction[0] == pytest.approx(0.36)
    assert labels.class_index[0] == -1


def test_an_unknown_class_is_refused_with_the_known_ones():
    with pytest.raises(BadAnnotationError, match=r"'stroma' is not among the classes tumour"):
        class_order([region("stroma", box(0, 0, 1, 1))], ("tumour",), ())


@pytest.mark.parametrize(
    ("one", "other"), [("Tumor", "tumor"), ("tumor bed", "tumor  bed"), ("T 1", "T1"), ("no_tumor", "No tumor")]
)
def test_two_classes_that_differ_only_in_capitals_or_blanks_are_refused_by_name(one, other):
    regions = [region(one, box(0, 0, 1, 1)), region("stroma", box(0, 0, 1, 1)), SlideLabel(other, "S-7")]

    with pytest.raises(BadAnnotationError, match=r"differ only in capitals or blanks") as refused:
        class_order(regions, (), ())

    for said in (repr(one), repr(other), "file.geojson, feature 0", "slide S-7"):
        assert said in str(refused.value)
    assert class_order(regions, (), (other,)) == tuple(sorted((one, "stroma")))
    with pytest.raises(BadAnnotationError, match="differ only"):
        class_order([], (one, other), ())


def test_an_ignored_class_gives_no_label():
    assert class_order([region("ink", box(0, 0, 1, 1)), region("a", box(0, 0, 1, 1))], (), ("ink",)) == ("a",)


def test_an_outline_outside_the_slide_is_refused_with_both_extents():
    with pytest.raises(BadAnnotationError, match=r"x 250 to 350.*the slide only 300×200"):
        check_regions([region("a", box(0, 0, 50, 50)), region("a", box(250, 0, 350, 50))], (300, 200))


def test_by_centre_a_tile_has_the_class_around_its_centre_however_little_it_covers():
    dot = box(45, 45, 55, 55)

    labels = label_tiles([region("a", dot)], CORNERS, 100, classes=("a",), min_fraction=0.5, label_by="centre")

    assert labels.class_index.tolist() == [0, -1, -1, -1, -1, -1]
    assert labels.fraction[0] == pytest.approx(0.01)


def test_by_centre_the_smallest_region_wins_whatever_the_order():
    large, small = region("tissue", box(0, 0, 300, 200)), region("tumour", box(30, 30, 70, 70))
    classes = ("tissue", "tumour")

    for regions in ([large, small], [small, large]):
        labels = label_tiles(regions, CORNERS, 100, classes=classes, min_fraction=0.5, label_by="centre")
        assert labels.class_index.tolist() == [1, 0, 0, 0, 0, 0]


def test_a_hole_around_the_centre_gives_no_label_by_centre():
    ring = Polygon([(0, 0), (100, 0), (100, 100), (0, 100)], [[(40, 40), (60, 40), (60, 60), (40, 60)]])

    by_area, by_centre = (
        label_tiles([region("a", ring)], CORNERS, 100, classes=("a",), min_fraction=0.5, label_by=rule)
        for rule in ("area", "centre")
    )

    assert (by_area.class_index[0], by_centre.class_index[0]) == (0, -1)


NEST = {
    "the inner one": ([("a", box(0, 0, 300, 200)), ("b", box(100, 0, 200, 100))], [0, 1, 0, 0, 0, 0]),
    "the inner one, drawn over the edge": (
        [("a", box(0, 0, 300, 200)), ("b", box(100, -4, 200, 100))],
        [0, 1, 0, 0, 0, 0],
    ),
    "the innermost of three": (
        [("b", box(100, 0, 300, 100)), ("a", box(0, 0, 300, 200)), ("a", box(200, 0, 300, 100))],
        [0, 1, 0, 0, 0, 0],
    ),
    "the inner one through others of the outer's class": (
        [("a", box(0, 0, 300, 200)), ("a", box(0, 0, 300, 100)), ("b", box(100, 0, 200, 100))],
        [0, 1, 0, 0, 0, 0],
    ),
    "the inner one drawn across a hole": (
        [("a", box(0, 0, 300, 200) - box(110, 10, 190, 90)), ("b", box(100, 0, 200, 100))],
        [0, 1, 0, 0, 0, 0],
    ),
    "what fills a hole of an outline within another": (
        [("a", box(0, 0, 300, 200)), ("a", box(50, 0, 300, 150) - box(100, 0, 200, 100)), ("b", box(100, 0, 200, 100))],
        [0, 1, 0, 0, 0, 0],
    ),
    "each part of an inner region": (
        [("a", box(0, 0, 200, 200)), ("b", MultiPolygon([box(100, 0, 200, 100), box(220, 0, 300, 200)]))],
        [0, 1, 1, 0, 0, 1],
    ),
    "no class where the inner one is ignored": (
        [("a", box(0, 0, 300, 200)), ("ignored", box(100, 0, 200, 100))],
        [0, -1, 0, 0, 0, 0],
    ),
    "the inner one where the outer one is ignored": (
        [("ignored", box(0, 0, 300, 200)), ("b", box(100, 0, 200, 100))],
        [-1, 1, -1, -1, -1, -1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEST)
@pytest.mark.parametrize("rule", ["area", "centre"])
def test_within_nested_outlines_a_tile_carries_the_innermost_class(name, rule):
    drawn, expected = NEST[name]

    for order in (drawn, drawn[::-1]):
        regions = [region(*each) for each in order]
        labels = label_tiles(regions, CORNERS, 100, classes=("a", "b"), min_fraction=0.5, label_by=rule)
        assert labels.class_index.tolist() == expected


def test_outlines_that_only_overlap_both_count():
    regions = [region("b", box(0, 0, 80, 100)), region("a", box(20, 0, 120, 100))]

    labels = label_tiles(regions, CORNERS, 100, classes=("a", "b"), min_fraction=0.5)

    assert labels.class_index[0] == 0  # a tie: the class that comes first
    assert labels.largest.tolist() == pytest.approx([0.8, 0.8])


def _nest(random, left, top, side):
    """Squares within squares: up to four in the quarters of each."""
    yield box(left, top, left + side, top + side)
    if side > 10:
        for x, y in ((0, 0), (0, 1), (1, 0), (1, 1)):
            if random.random() < 0.7:
                yield from _nest(random, left + side * x / 2 + 1, top + side * y / 2 + 1, side / 2 - 2)


def test_each_point_belongs_to_the_smallest_outline_around_it():
    random = np.random.default_rng(5)
    drawn = list(_nest(random, 0, 0, 300))
    names = random.choice(["a", "b", "c"], len(drawn)).tolist()
    points = [Point(xy) for xy in random.uniform(0, 300, (300, 2))]

    own = innermost(drawn, names)

    for point in points:
        around = [i for i, shape in enumerate(drawn) if shape.contains(point)]
        assert {names[i] for i in around if own[i].contains(point)} == {names[min(around, key=lambda i: drawn[i].area)]}


def test_ten_thousand_outlines_within_one_are_taken_from_it_in_a_moment():
    centres = [(x, y) for x in range(50, 10_000, 100) for y in range(50, 10_000, 100)]
    drawn = [box(0, 0, 10_000, 10_000), *(Point(centre).buffer(30, quad_segs=4) for centre in centres)]
    start = time.process_time()

    own = innermost(drawn, ["tissue"] + ["cell"] * len(centres))

    assert time.process_time() - start < 5  # 0.3 s measured
    assert own[0].area == pytest.approx(drawn[0].area - sum(shape.area for shape in drawn[1:]))


def test_no_tiles_have_no_labels():
    for rule in ("area", "centre"):
        labels = label_tiles(
            [region("a", box(0, 0, 9, 9))], CORNERS[:0], 100, classes=("a",), min_fraction=0.5, label_by=rule
        )
        assert labels.class_index.shape == labels.fraction.shape == (0,)


def _gear(num_corners):
    """Gear with many teeth around (150, 100), at a radius of 40 to 95 px."""
    angle = np.linspace(0, 2 * np.pi, num_corners, endpoint=False)
    radius = np.where(np.arange(num_corners) % 2, 40, 95)
    return Polygon(np.stack([150 + radius * np.cos(angle), 100 + radius * np.sin(angle)], -1))


def test_shares_are_exact_where_a_region_has_thousands_of_corners():
    gear = _gear(1000)
    corners = np.array([[x, y] for y in range(0, 200, 20) for x in range(0, 300, 20)])

    labels = label_tiles([region("a", gear)], corners, 20, classes=("a",), min_fraction=0.5)

    expected = [gear.intersection(box(x, y, x + 20, y + 20)).area / 400 for x, y in corners]
    assert labels.fraction == pytest.approx(expected, abs=1e-6)


def test_a_hundred_thousand_tiles_meet_ten_thousand_regions_in_seconds():
    random = np.random.default_rng(0)
    centres = random.uniform(50, 19_950, (10_000, 2))
    angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    outlines = centres[:, None] + random.uniform(20, 40, (10_000, 40, 1)) * np.stack([np.cos(angle), np.sin(angle)], -1)
    regions = [region("a" if i % 2 else "b", Polygon(outline)) for i, outline in enumerate(outlines)]
    side = 62
    corners = np.array([[x, y] for y in range(0, 19_900, side) for x in range(0, 19_900, side)])
    assert len(corners) > 100_000

    start = time.process_time()
    labels = label_tiles(regions, corners, side, classes=("a", "b"), min_fraction=0.5)

    assert time.process_time() - start < 15  # 2.8 s measured
    assert 0 < (labels.class_index >= 0).sum() < len(corners)
