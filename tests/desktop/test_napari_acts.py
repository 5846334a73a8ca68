"""napari as a pathologist uses it, in one window under a virtual display."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.project import Project
from pipeline.store import Quality, write_quality
from pipeline.store.format.layout import LABELS
from tests.desktop.conftest import ARTIFACTS
from tests.pathology_app.small_project import HOTSPOTS_XY_PX0, MODEL_ID, MPP0, SLIDE_ID, make_project
from tests.pipeline.store.test_rendering import swapped_profile

pytestmark = [pytest.mark.display, pytest.mark.xdist_group("display")]

FIRST, SECOND = ([x, y, 1.0] for x, y in HOTSPOTS_XY_PX0)
"""Camera positions: 1 screen pixel per µm is 10×."""


def make_rich_project(root: Path) -> Project:
    """Make a slide with quality scores and a profile, one without tissue mask, a damaged one, and a foreign folder."""
    project = make_project(root)
    store = project.store_path(SLIDE_ID)
    for name in ("other", "damaged"):
        copy = shutil.copytree(store, project.store_path(name))
        text = (copy / "zarr.json").read_text().replace(f'"slide_id": "{SLIDE_ID}"', f'"slide_id": "{name}"')
        (copy / "zarr.json").write_text(text if name == "other" else text[: len(text) // 2])
    shutil.rmtree(project.store_path("other") / LABELS)
    shutil.rmtree(project.store_path("other") / "predictions")
    scores = np.linspace(0, 1, 2 * 10 * 14, dtype=np.float16).reshape(2, 10, 14)
    quality = Quality(("focus", "pen"), scores, 128, {})
    write_quality(store, quality, mpp0=MPP0, summary={}, stain={})
    content = json.loads((store / "zarr.json").read_text())
    content["attributes"]["gemslide"]["icc"] = base64.b64encode(swapped_profile()).decode()
    (store / "zarr.json").write_text(json.dumps(content))
    (root / "strange").mkdir()
    return project


@pytest.fixture(scope="module")
def done(under_xvfb: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("rich")
    make_rich_project(root)
    results: dict[str, Any] = json.loads(under_xvfb("napari_acts.py", root, ARTIFACTS))
    return results


def test_every_layer_is_there_and_quality_is_hidden_at_first(done: dict[str, Any]) -> None:
    assert done["layers"] == [
        [SLIDE_ID, True],
        ["tissue", False],
        ["quality: focus (cells of 64 µm)", False],
        ["quality: pen (cells of 64 µm)", False],
        [f"P(negative) {MODEL_ID}", False],
        [f"P(positive) {MODEL_ID}", True],
        [f"hotspots {MODEL_ID}", True],
        [f"annotations {SLIDE_ID}", True],
        [f"annotation points {SLIDE_ID}", True],
    ]
    assert "Research use only" in done["research_use"]


def test_a_hotspots_row_and_keys_move_the_camera(done: dict[str, Any]) -> None:
    moved = done["hotspots"]

    assert moved["said"] == "Hotspots: 2 of 2 reach the threshold"
    assert moved["second"] == moved["again"] == SECOND
    assert moved["first"] == moved["stays"] == FIRST


def test_the_threshold_clears_what_is_below_it(done: dict[str, Any]) -> None:
    for percent in ("30", "50", "90"):
        below, at_it, above = done["threshold"][percent]["alphas"]
        assert (below, at_it, above) == (0, 1, 1)
    shown, still, cleared = (done["threshold"][percent] for percent in ("30", "50", "90"))
    np.testing.assert_allclose(shown["pixel"], still["pixel"], atol=3)  # a probability keeps its colour
    assert np.abs(np.subtract(still["pixel"], cleared["pixel"])).max() > 50
    assert (still["rings"], still["rows"]) == (2, 2)
    assert (cleared["rings"], cleared["rows"]) == (1, 1)


def test_colours_are_those_of_the_profile_or_as_scanned(done: dict[str, Any]) -> None:
    assert done["colours"] == dict.fromkeys(("profile", "scanned", "again", "differ", "stays"), True)


def test_the_status_bar_says_what_lies_under_the_cursor(done: dict[str, Any]) -> None:
    assert done["probe"] == "P(positive) = 0.97 · 240 µm right, 432 µm down"


def test_slides_are_dropped_one_after_another_and_one_is_shown_at_a_time(done: dict[str, Any]) -> None:
    dropped = done["drop"]

    assert dropped["other"] == ["other"]  # without tissue mask and predictions
    assert dropped["back"] == [
        SLIDE_ID,
        f"P(positive) {MODEL_ID}",
        f"hotspots {MODEL_ID}",
        f"annotations {SLIDE_ID}",
        f"annotation points {SLIDE_ID}",
    ]
    assert dropped["docks"] == 1


def test_a_strange_folder_is_left_to_others_and_a_damaged_store_says_so(done: dict[str, Any]) -> None:
    assert not done["drop"]["stranger_taken"]
    assert "damaged.ome.zarr: not a gemslide store" in done["drop"]["damaged"]
    assert done["drop"]["none_added"]


def test_annotations_are_saved_where_the_browser_keeps_them(done: dict[str, Any]) -> None:
    notes = done["notes"]

    assert (notes["untouched"], notes["unsaved"]) == (0, 3)
    assert sorted(notes["kept"], key=str) == sorted(
        [
            ["freehand", "tumour", "edge", 1],
            ["rectangle", "tumour", "mine", 2],
            ["polygon", "stroma", "", 1],
            ["point", "mitosis", "", 1],
            ["polygon", None, "", 1],
            ["point", None, "", 1],
        ],
        key=str,
    )
    assert notes["hole_is_kept"]


def test_another_persons_change_is_not_overwritten_and_ours_is_not_lost(done: dict[str, Any]) -> None:
    notes = done["notes"]

    assert "1 annotation was also changed by others" in notes["said"]
    assert notes["asked"] == ["1 annotation change is not saved."]
    assert notes["stays"]
    assert sorted(notes["both"]) == ["necrosis", "tumour"]
    assert notes["left"] == 0
