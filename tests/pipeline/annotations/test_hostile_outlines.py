"""Annotation files of up to 1 MB, made to take minutes: tiles are labelled or the file refused within seconds."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline.annotations.files import read_annotations, write_annotations
from pipeline.annotations.shapes.repair import labelled_regions
from pipeline.errors import BadAnnotationError
from pipeline.tiles.labels import label_tiles

MAX_CPU_S = 20.0
"""A file takes half a second by itself; nine were seen on a slow machine in a long-running process."""
SIDE = 99_999


def star(corners: int) -> list[list[int]]:
    """Every edge crosses every other."""
    angles = [2 * math.pi * i * (corners // 2) / corners for i in range(corners)]
    return [[round(SIDE / 2 * (1 + math.cos(a))), round(SIDE / 2 * (1 + math.sin(a)))] for a in angles]


def square(x: int, y: int, side: int) -> list[list[int]]:
    return [[x, y], [x + side, y], [x + side, y + side], [x, y + side]]


def quadrilaterals(count: int) -> list[list[list[int]]]:
    return np.random.default_rng(0).integers(0, SIDE, (count, 4, 2)).tolist()


CROSSING = {
    "a star of 40 kB": [star(3001)],
    "thousands that lie across each other": quadrilaterals(6000),
    "thousands of one square": [square(0, 0, SIDE)] * 3000,
    "a fan": [[[0, 0]] + [[SIDE, i] if i % 2 else [0, 0] for i in range(30_000)]],
    "a line run along again and again": [[[0, 9]] + [[i if i % 2 else SIDE - i, 0] for i in range(20_000)]],
    "a random walk": [np.random.default_rng(0).integers(-50, 51, (70_000, 2)).cumsum(0).tolist()],
}


def geojson(rings: list[list[list[int]]]) -> str:
    areas = ({"type": "Polygon", "coordinates": [ring]} for ring in rings)
    features = [{"type": "Feature", "geometry": a, "properties": {"classification": "T"}} for a in areas]
    return json.dumps(features, separators=(",", ":"))


def imagescope(layers: Iterator[list[tuple[list[list[int]], int]]]) -> str:
    """Layers of (ring, whether it is negative)."""
    text = "".join(
        f'<Annotation Name="T"><Regions>{"".join(map(region, layer))}</Regions></Annotation>' for layer in layers
    )
    return f"<Annotations>{text}</Annotations>"


def region(drawn: tuple[list[list[int]], int]) -> str:
    corners = "".join(f'<Vertex X="{x}" Y="{y}"/>' for x, y in drawn[0])
    return f'<Region Type="0" NegativeROA="{drawn[1]}"><Vertices>{corners}</Vertices></Region>'


def label(path: Path) -> list[float]:
    """Label a slide's tiles by the regions; return the areas."""
    regions, _ = labelled_regions(read_annotations(path))
    corners_xy0 = np.stack(np.meshgrid(*[np.arange(0, SIDE, 2000)] * 2), -1).reshape(-1, 2)
    label_tiles(regions, corners_xy0, 2000, classes=["T"], min_fraction=0.5)
    return [area.geometry.area for area in regions]


@pytest.mark.parametrize("name", CROSSING)
def test_outlines_that_cross_thousands_of_times_are_refused_by_name(tmp_path, name):
    (tmp_path / "a.json").write_text(geojson(CROSSING[name]))
    start = time.process_time()

    with pytest.raises(
        BadAnnotationError,
        match=r"feature \d+ \(class 'T'\): the outlines (cross [\d,]+ times or more|run so close)",
    ):
        label(tmp_path / "a.json")

    assert time.process_time() - start < MAX_CPU_S


def test_outlines_that_cross_a_thousand_times_are_repaired(tmp_path):
    (tmp_path / "a.json").write_text(geojson([star(45)]))
    (tmp_path / "b.json").write_text(geojson([[*square(0, 0, 1000)[:3], [0, 500], [1500, 500]]]))

    assert label(tmp_path / "a.json")[0] > SIDE**2 / 4
    assert label(tmp_path / "b.json") == [pytest.approx(562_500, rel=0.2)]


def test_thousands_of_areas_inside_each_other_are_labelled_in_a_moment(tmp_path):
    (tmp_path / "a.json").write_text(geojson([square(i, i, SIDE - 2 * i) for i in range(6000)]))
    start = time.process_time()

    assert len(label(tmp_path / "a.json")) == 6000
    assert time.process_time() - start < MAX_CPU_S


def test_thousands_of_holes_in_one_region_are_cut_in_a_moment(tmp_path):
    holes = [(square(10 + i % 100 * 20, 10 + i // 100 * 20, 9), 1) for i in range(5000)]
    (tmp_path / "a.xml").write_text(imagescope(iter([[(square(0, 0, SIDE), 0), *holes]])))
    start = time.process_time()

    (drawn,) = read_annotations(tmp_path / "a.xml").objects

    assert drawn.geometry.area == SIDE**2 - 5000 * 81
    assert time.process_time() - start < MAX_CPU_S


def test_holes_that_overlap_are_cut_the_same_one_by_one_or_all_at_once(tmp_path):
    holes = [(square(10 + 7 * i, 10, 9), 1) for i in range(300)]
    for name, count in (("a.xml", 150), ("b.xml", 300)):
        (tmp_path / name).write_text(imagescope(iter([[(square(0, 0, SIDE), 0), *holes[:count]]])))

    assert label(tmp_path / "a.xml") == [SIDE**2 - 9 * (149 * 7 + 9)]
    assert label(tmp_path / "b.xml") == [SIDE**2 - 9 * (299 * 7 + 9)]


@pytest.mark.parametrize(
    "layers",
    [
        [
            [(square(i, i, SIDE - 2 * i), 0) for i in range(2000)]
            + [(square(50_000, 50_000 + i, 1), 1) for i in range(900)]
        ],
        [[(square(0, 0, 9), 0), (square(1, 1, 2), 1)]] * 2000,
        [[(star(1001), 0), (square(1, 1, 2), 1)]],
    ],
    ids=["holes in thousands of regions", "thousands of layers in one place", "a star with a hole"],
)
def test_negative_regions_that_would_take_minutes_are_refused(tmp_path, layers):
    (tmp_path / "a.xml").write_text(imagescope(iter(layers)))
    start = time.process_time()

    with pytest.raises(BadAnnotationError, match=r"layer \d+, region \d+.*(more than|cross [\d,]+ times|so close)"):
        label(tmp_path / "a.xml")

    assert time.process_time() - start < MAX_CPU_S


def test_a_star_with_a_hole_is_not_cut_up_for_asap(tmp_path):
    holed = {"type": "Polygon", "coordinates": [star(3001), square(1, 1, 9)]}
    (tmp_path / "a.json").write_text(json.dumps(holed))

    with pytest.raises(BadAnnotationError, match="the outlines cross"):
        write_annotations(tmp_path / "b.xml", read_annotations(tmp_path / "a.json"), "asap")

    assert not (tmp_path / "b.xml").exists()


NESTED = '{"type":"GeometryCollection","geometries":[' * 10_000 + "]}" * 10_000


@pytest.mark.parametrize("x", ["1e308", "NaN", '"a"', "1" + "0" * 400, "1" + "0" * 5000, "[1]", "{}", "null"])
def test_coordinates_that_no_slide_has_are_refused(tmp_path, x):
    (tmp_path / "a.json").write_text(f'{{"type":"Polygon","coordinates":[[[0,0],[{x},0],[0,9]]]}}')

    with pytest.raises(BadAnnotationError):
        read_annotations(tmp_path / "a.json")


@pytest.mark.parametrize("text", [NESTED, NESTED[:-9], "[" * 500_000, "<Annotations>" + "<a>" * 300_000])
def test_files_nested_without_end_are_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)

    with pytest.raises(BadAnnotationError):
        read_annotations(tmp_path / "a.json")
