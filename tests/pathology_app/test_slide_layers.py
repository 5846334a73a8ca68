"""Layers that can be shown over a slide, and messages about those that cannot."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pathology_app.slides.cache import SlideCache
from pathology_app.slides.overlays import layers_of
from pipeline.project import Project
from pipeline.store import Quality, write_quality
from pipeline.store.layers.overlays import write_predictions
from tests.pathology_app.routes_in_process import get
from tests.pathology_app.small_project import MODEL_ID, MPP0, SLIDE_ID, make_project, small_predictions

SCORES = np.linspace(0, 1, 2 * 6 * 8, dtype=np.float16).reshape(2, 6, 8)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Project with two models and quality scores."""
    project = make_project(tmp_path_factory.mktemp("layers"))
    store = project.store_path(SLIDE_ID)
    write_predictions(store, replace(small_predictions(), model_id="other-1", class_names=("a/b", "c;d")), mpp0=MPP0)
    scores = SCORES.copy()
    scores[:, 0, 0] = np.nan
    summary = {"verdict": "good", "reasons": [], "scores": {}}
    write_quality(store, Quality(("blur", "pen"), scores, 225, {}), mpp0=MPP0, summary=summary, stain={})
    return project


def test_every_class_of_every_model_tissue_and_quality_can_be_shown(project: Project) -> None:
    layers, notes = layers_of(SlideCache(project), SLIDE_ID, [MODEL_ID, "other-1"], (MODEL_ID, 1))

    assert [layer["id"] for layer in layers] == [
        *(f"{MODEL_ID}/negative", f"{MODEL_ID}/positive", "other-1/a%2Fb", "other-1/c%3Bd"),
        *("tissue", "quality/blur", "quality/pen"),
    ]
    assert [layer["id"] for layer in layers if layer["is_first"]] == [f"{MODEL_ID}/positive"]
    assert [layer["cell_px0"] for layer in layers] == [64, 64, 64, 64, 16, 225, 225]
    assert notes == []


def test_each_layer_is_served_as_its_values(project: Project) -> None:
    layers, _ = layers_of(SlideCache(project), SLIDE_ID, [], None)
    tissue, _, pen = (layer["url"] for layer in layers)

    codes = np.asarray(Image.open(_body(project, pen)))
    assert codes.shape == (6, 8)
    assert codes[0, 0] == 0, "not known"
    assert codes[5, 7] == 255
    assert set(np.unique(np.asarray(Image.open(_body(project, tissue))))) == {1, 255}


def test_what_cannot_be_read_is_said_and_the_rest_is_there(tmp_path: Path, project: Project) -> None:
    damaged = make_project(tmp_path)
    (damaged.store_path(SLIDE_ID) / "predictions" / MODEL_ID / "zarr.json").write_text("{}")
    (damaged.store_path(SLIDE_ID) / "0" / "labels" / "tissue" / "zarr.json").write_text("{}")

    layers, notes = layers_of(SlideCache(damaged), SLIDE_ID, [MODEL_ID], None)

    assert layers == []
    assert len(notes) == 2
    assert "no readable predictions" in notes[0]
    assert "no readable tissue mask" in notes[1]
    assert not any(str(tmp_path) in note for note in notes)


@pytest.mark.parametrize(
    "name", ["quality/2.png", "quality/-1.png", "tissue.jpg", "..%2FS-001/tissue.png", "quality/x.png"]
)
def test_a_layer_that_is_not_there_is_an_error_of_its_own(project: Project, name: str) -> None:
    response = get(SlideCache(project), f"/layers/{SLIDE_ID}/{name}")
    assert response.status_code in (400, 404)
    assert response.headers["cache-control"] == "no-store"


def _body(project: Project, url: str) -> io.BytesIO:
    response = get(SlideCache(project), url)
    assert response.status_code == 200
    return io.BytesIO(response.content)
