"""A project that an earlier commit wrote (tests/golden) is still read correctly."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest

from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.project import Project
from pipeline.qc.check import check_quality
from pipeline.settings.config import InferConfig, QualityConfig
from pipeline.store.layers.overlays import read_predictions
from pipeline.store.layers.qc_scores import read_quality
from pipeline.tiles.dataset import TileDataset
from tests.pipeline.store.golden import GOLDEN, level_crcs

FACTS = json.loads((GOLDEN / "facts.json").read_text(encoding="utf-8"))
MODEL, SLIDE = FACTS["model_id"], "small-test"


@pytest.fixture
def project(tmp_path):
    return Project(Path(shutil.copytree(GOLDEN, tmp_path / "project")))


def test_a_store_of_before_has_its_pixels_predictions_and_scores(project):
    store = project.store_path(SLIDE)

    assert level_crcs(store) == FACTS["crc32_of_levels"]
    assert zlib.crc32(read_predictions(store, MODEL).probabilities_cyx.tobytes()) == FACTS["crc32_of_predictions"]
    assert zlib.crc32(read_quality(store).scores_cyx.tobytes()) == FACTS["crc32_of_scores"]


def test_a_tile_table_of_before_gives_its_tiles(project):
    dataset = TileDataset(project.root, "small")
    (of_slide,) = np.nonzero(dataset.splits == "test")

    assert len(dataset) == FACTS["tiles"]
    assert dataset.fingerprint == FACTS["fingerprint_of_tiles"]
    assert [zlib.crc32(dataset.read(int(index))) for index in of_slide] == FACTS["crc32_of_tiles"]


def test_results_of_before_are_kept_and_not_made_again(project):
    predictor = Predictor.load(project.model_path(MODEL))

    assert infer_slide(SLIDE, predictor, project, InferConfig(batch_size=4)).skipped
    assert check_quality(SLIDE, project, QualityConfig(cell_um=16)).skipped


def test_a_model_package_of_before_predicts_what_it_did(project):
    stored = read_predictions(project.store_path(SLIDE), MODEL).probabilities_cyx
    shutil.rmtree(project.store_path(SLIDE) / "predictions")

    infer_slide(SLIDE, Predictor.load(project.model_path(MODEL)), project, InferConfig(batch_size=4))

    again = read_predictions(project.store_path(SLIDE), MODEL).probabilities_cyx
    np.testing.assert_allclose(again.astype(np.float32), stored.astype(np.float32), atol=2e-3)
