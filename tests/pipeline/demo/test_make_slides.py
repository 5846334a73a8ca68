"""The demonstration's slides: reproducible, labelled in line with their pixels, without straight edges."""

from __future__ import annotations

import json
from itertools import chain, combinations

import cv2
import numpy as np
import pytest
import shapely
import tifffile

from pipeline.demo import make_slides
from pipeline.demo.make_slides import ENLARGED, POSITIVE_DENSITY, SLIDES, dab_density, make_slide
from pipeline.demo.quilting import PATCH_PX

SMALL_HW_PX = (640, 800)


@pytest.fixture(scope="module")
def small_slides(tmp_path_factory):
    """Smaller versions of the four slides."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_slides, "SIZE_HW_PX", SMALL_HW_PX)
        patch.setattr(make_slides, "SIZE_WH_PX0", (SMALL_HW_PX[1] * ENLARGED, SMALL_HW_PX[0] * ENLARGED))
        for slide in SLIDES:
            make_slide(folder / f"{slide.slide_id}.tiff", slide)
        make_slide(folder / "again.tiff", SLIDES[3])
    return folder


def areas_of(path):
    """Annotated areas by class, in pixels of level 0."""
    areas = {"positive": [], "negative": []}
    for feature in json.loads(path.read_text())["features"]:
        area = shapely.from_geojson(json.dumps(feature["geometry"]))
        areas[feature["properties"]["classification"]["name"]].append(area)
    return areas


def test_the_same_seed_makes_the_same_bytes(small_slides):
    assert (small_slides / "again.tiff").read_bytes() == (small_slides / f"{SLIDES[3].slide_id}.tiff").read_bytes()


def test_no_two_slides_share_a_pixel_of_the_photograph():
    for one, other in combinations(SLIDES, 2):
        for a in one.pieces_px:
            for b in other.pieces_px:
                apart = a.right_px <= b.x_px or b.right_px <= a.x_px or a.bottom_px <= b.y_px or b.bottom_px <= a.y_px
                assert apart, f"{one.slide_id} and {other.slide_id}"


@pytest.mark.parametrize("slide", SLIDES, ids=lambda slide: slide.slide_id)
def test_labels_agree_with_the_pixels(small_slides, slide):
    pixels = tifffile.imread(small_slides / f"{slide.slide_id}.tiff", level=0)
    small = np.asarray(cv2.resize(pixels, SMALL_HW_PX[::-1], interpolation=cv2.INTER_AREA))
    density = dab_density(small)
    y_px0, x_px0 = (np.mgrid[: SMALL_HW_PX[0], : SMALL_HW_PX[1]] + 0.5) * ENLARGED
    areas = areas_of(small_slides / f"{slide.slide_id}.geojson")
    inside = {name: shapely.contains_xy(shapely.union_all(parts), x_px0, y_px0) for name, parts in areas.items()}

    is_dense = density > POSITIVE_DENSITY
    assert bool(inside["positive"].any()) == slide.has_positive
    assert not (inside["positive"] & inside["negative"]).any()
    assert (inside["positive"] & ~is_dense).sum() <= 0.03 * inside["positive"].sum()
    assert (inside["negative"] & is_dense).sum() <= 0.03 * inside["negative"].sum()
    neither = small[~inside["positive"] & ~inside["negative"]]
    assert (neither.min(-1) > 230).mean() > 0.9


@pytest.mark.parametrize("slide", SLIDES, ids=lambda slide: slide.slide_id)
def test_outlines_are_valid_and_have_no_straight_edges(small_slides, slide):
    width_px0, height_px0 = SMALL_HW_PX[1] * ENLARGED, SMALL_HW_PX[0] * ENLARGED
    for area in chain(*areas_of(small_slides / f"{slide.slide_id}.geojson").values()):
        assert area.is_valid
        for ring in (area.exterior, *area.interiors):
            corners = np.asarray(ring.coords)
            lengths_px0 = np.hypot(*np.diff(corners, axis=0).T)
            on_border = (corners[1:] <= 0).any(1) | (corners[1:, 0] >= width_px0) | (corners[1:, 1] >= height_px0)
            assert lengths_px0[~on_border].max() < PATCH_PX * ENLARGED
