from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from pathology_app.slides import presenters
from pathology_app.slides.cache import SlideCache
from pipeline.project import Project
from tests.pathology_app.small_project import CLASS_NAMES, HOTSPOTS_XY_PX0, MODEL_ID, SLIDE_ID, make_project

HOTSPOTS = [
    {"x_px0": 480, "y_px0": 864, "area_um2": 100 * math.pi, "score": 0.97, "class": "positive"},
    {"x_px0": 1376, "y_px0": 352, "area_um2": 1e6 * math.pi, "score": 0.81, "class": "positive"},
]
CROPS = "/crops/S-001/{x_px0}_{y_px0}.jpg?v=1"


def test_the_viewer_gets_a_level_at_every_halving(cache: SlideCache) -> None:
    data = presenters.slide_data(cache.slide(SLIDE_ID))

    assert data["tile_url"].startswith(f"/tiles/{SLIDE_ID}/{{level}}/{{col}}_{{row}}?v=")
    assert data["levels"] == [
        {"width_px": 1800, "height_px": 1300, "tile_px": 512, "downsample": 1.0},
        {"width_px": 900, "height_px": 650, "tile_px": 512, "downsample": 2.0},
        {"width_px": 450, "height_px": 325, "tile_px": 512, "downsample": 4.0},
    ]


def test_the_viewer_and_the_facts_tell_of_damage_and_only_where_there_is_some(
    cache: SlideCache, damaged_project: Project
) -> None:
    whole, damaged = cache.slide(SLIDE_ID), SlideCache(damaged_project).slide(SLIDE_ID)

    assert presenters.slide_data(whole)["damaged"] is None
    data = presenters.slide_data(damaged)["damaged"]
    assert (data["url"], data["cell_px0"]) == (f"/damaged/{SLIDE_ID}.png?v={damaged.version}", 256)
    assert presenters.slide_notes(whole.reader) == []
    (note,) = presenters.slide_notes(damaged.reader)
    assert "4 of 48 tiles are damaged in the slide's file: hatched" in note


def test_a_slide_whose_file_contradicts_itself_says_so_on_its_page(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    root = project.store_path(SLIDE_ID) / "zarr.json"
    content = json.loads(root.read_text())
    content["attributes"]["gemslide"]["ingest"]["warnings"] = ["its tiles are marked YCbCr, its tag says RGB <b>"]
    root.write_text(json.dumps(content))

    (note,) = presenters.slide_notes(SlideCache(project).slide(SLIDE_ID).reader)

    assert note == "Slide file: its tiles are marked YCbCr, its tag says RGB <b>."


def test_hotspots_are_rings_around_a_cell_with_room_around() -> None:
    first, _ = presenters.hotspot_data(HOTSPOTS, stride_px0=100, mpp0=0.5, crop_url=CROPS)
    assert (first["x_px0"], first["y_px0"], first["label"]) == (480, 864, "positive 0.97")
    assert first["radius_px0"] == pytest.approx(math.hypot(50, 50))
    assert first["side_px0"] == 1600  # 800 µm
    assert (first["place"], first["area_mm2"]) == ("x 0.24, y 0.43 mm", pytest.approx(math.pi / 10_000))
    assert first["crop_url"] == "/crops/S-001/480_864.jpg?v=1"

    coarse, _ = presenters.hotspot_data(HOTSPOTS, stride_px0=1000, mpp0=0.5, crop_url=CROPS)
    assert coarse["side_px0"] == 5000  # five cells


def test_the_facts_tell_of_a_colour_profile(cache: SlideCache) -> None:
    reader = cache.slide(SLIDE_ID).reader
    facts = dict(presenters.facts_rows(reader))
    assert facts["Size"] == "0.9 × 0.7 mm, 1800 × 1300 px"
    assert facts["Resolution"].startswith("0.5 µm per pixel")
    assert (facts["Levels"], facts["Colours"]) == ("2", "as scanned: no ICC profile")

    profiled = SimpleNamespace(
        levels=reader.levels, size_wh_px0=reader.size_wh_px0, mpp0=reader.mpp0, icc=b"profile",
        attributes=reader.attributes,
    )  # fmt: skip
    assert "corrected by the scanner's ICC profile" in dict(presenters.facts_rows(profiled))["Colours"]


@pytest.mark.parametrize(
    ("class_names", "hotspots", "expected"),
    [
        (("negative", "positive"), [], 1),
        (("positive", "negative"), HOTSPOTS, 0),
        (("only",), HOTSPOTS, 0),
    ],
)
def test_the_hotspots_class_is_shown_first(class_names: tuple[str, ...], hotspots: list, expected: int) -> None:
    assert presenters.default_class(class_names, hotspots) == expected


def test_texts_under_a_click(cache: SlideCache) -> None:
    predictions = cache.predictions(SLIDE_ID, MODEL_ID).predictions
    assert predictions.class_names == CLASS_NAMES

    assert presenters.probability_text(predictions.at(*HOTSPOTS_XY_PX0[0]), "positive") == "P(positive) = 0.97"
    assert presenters.probability_text(predictions.at(0, 0), "positive") == "not predicted"
    assert presenters.probability_text(predictions.at(-5, 40), "positive") == "not predicted"
    assert presenters.place_text((812, 400), 0.25) == "203 µm right, 100 µm down (pixel 812, 400)"


def test_every_class_is_said_the_likeliest_first() -> None:
    rows = presenters.probability_rows({"a": 0.25, "b": 0.7499, "c": 0.0})
    assert rows == [("b", "0.750"), ("a", "0.250"), ("c", "0.000")]
