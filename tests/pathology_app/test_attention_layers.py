"""Attention as a layer for napari: values and micrometres, tested without napari."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pathology_app.desktop.layers import layers_of, slide_layers
from pathology_app.desktop.slide import OpenedSlide
from pipeline.project import Project
from tests.pathology_app.small_attention import SLIDE_MODEL, times_average_yx, write_small_attention
from tests.pathology_app.small_project import MODEL_ID, MPP0, SLIDE_ID, STRIDE_PX0


@pytest.fixture
def store(project: Project, tmp_path: Path) -> Path:
    shutil.copytree(project.root, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("cache"))
    write_small_attention(Project(tmp_path))
    return Project(tmp_path).store_path(SLIDE_ID)


def test_attention_is_a_hidden_layer_below_the_predictions_with_its_own_values(store: Path) -> None:
    layers = slide_layers(store)

    names = [keywords["name"] for _, keywords, _ in layers]
    assert names[2:4] == [f"attention {SLIDE_MODEL} (1 = average)", f"P(negative) {MODEL_ID}"]
    values_yx, keywords, kind = layers[2]
    np.testing.assert_array_equal(values_yx, times_average_yx().astype(np.float32))
    assert (kind, keywords["visible"], keywords["contrast_limits"]) == ("image", False, (0.0, 6.3))
    assert keywords["colormap"]["nan_color"][3] == 0, "clear where there is no tile"
    assert keywords["scale"] == (STRIDE_PX0 * MPP0, STRIDE_PX0 * MPP0)
    assert keywords["translate"] == ((STRIDE_PX0 - 1) * MPP0 / 2,) * 2


def test_damaged_attention_is_reported_and_the_rest_is_shown(store: Path) -> None:
    whole = [keywords["name"] for _, keywords, _ in slide_layers(store)]
    (store / "attention" / SLIDE_MODEL / "zarr.json").write_text('{"attributes": {"gemslide": {"version": 1}}}')

    slide = OpenedSlide(store)

    (problem,) = slide.problems
    assert "no readable attention" in problem
    assert [keywords["name"] for _, keywords, _ in layers_of(slide)] == [*whole[:2], *whole[3:]]
