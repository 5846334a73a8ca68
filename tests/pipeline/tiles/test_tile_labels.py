import numpy as np
import pytest
from shapely import Polygon, box

from pipeline.errors import BadAnnotationError
from pipeline.tiles.annotations.region import Region, check_region
from pipeline.tiles.labels import class_order, label_tiles

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


def test_an_ignored_class_gives_no_label():
    assert class_order([region("ink", box(0, 0, 1, 1)), region("a", box(0, 0, 1, 1))], (), ("ink",)) == ("a",)


def test_a_self_crossing_outline_is_refused_with_the_place():
    bow = Polygon([(0, 0), (100, 100), (100, 0), (0, 100)])

    with pytest.raises(BadAnnotationError, match=r"feature 0 .*Self-intersection\[50 50\]"):
        check_region(region("a", bow), (300, 200))


def test_an_outline_outside_the_slide_is_refused_with_both_extents():
    with pytest.raises(BadAnnotationError, match=r"x 250 to 350.*the slide only 300×200"):
        check_region(region("a", box(250, 0, 350, 50)), (300, 200))
