"""napari really opens a store: layers, units and positions, under a virtual display."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.desktop.conftest import ARTIFACTS
from tests.pathology_app.small_project import HEIGHT_PX0, MODEL_ID, MPP0, SLIDE_ID, STRIDE_PX0, WIDTH_PX0, make_project

pytestmark = [pytest.mark.display, pytest.mark.xdist_group("display")]


def test_napari_shows_every_layer_in_its_place(under_xvfb: Callable[..., str], tmp_path: Path) -> None:
    store = make_project(tmp_path).store_path(SLIDE_ID)

    shown = json.loads(under_xvfb("napari_window.py", store, ARTIFACTS / "napari.png"))

    assert "Research use only" in shown["title"]
    names = [layer["name"] for layer in shown["layers"]]
    assert names == [SLIDE_ID, "tissue", f"P(negative) {MODEL_ID}", f"P(positive) {MODEL_ID}"]
    assert [layer["kind"] for layer in shown["layers"]] == ["Image"] * 4
    assert {unit for layer in shown["layers"] for unit in layer["units"]} == {"micrometer"}
    corners_um = {layer["name"]: np.array(layer["corners_um"]) for layer in shown["layers"]}
    size_um = np.array([HEIGHT_PX0, WIDTH_PX0]) * MPP0
    # napari gives the centres of the first and last cells.
    np.testing.assert_allclose(corners_um[SLIDE_ID], [[0, 0], size_um - MPP0], atol=MPP0)
    cells = np.array([HEIGHT_PX0, WIDTH_PX0]) // STRIDE_PX0
    first_um = (STRIDE_PX0 - 1) / 2 * MPP0
    expected = [[first_um] * 2, first_um + (cells - 1) * STRIDE_PX0 * MPP0]
    np.testing.assert_allclose(corners_um[f"P(positive) {MODEL_ID}"], expected, atol=0.01)
    assert shown["colours"] > 20
    left, top, width, height = shown["window"]
    assert (width, height) == pytest.approx((1260, 810), abs=2), "nine tenths of a screen of 1400 × 900"
    assert (left, top) >= (0, 0)
    assert (left + width <= 1400, top + height <= 900) == (True, True)


def test_napari_finds_the_plug_in() -> None:
    """By its entry point, as in an installation; npe2 also imports everything the manifest names."""
    done = subprocess.run([sys.executable, "-m", "npe2", "validate", "gemslide"], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
