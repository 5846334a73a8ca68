"""A recipe with stain normalisation: training, package, inference and evaluation all see the same pixels."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from pipeline.evaluation.evaluate import evaluate_model
from pipeline.inference.infer import infer_slide, slide_grid
from pipeline.inference.predictor import Predictor
from pipeline.models.launch import train
from pipeline.project import Project
from pipeline.qc.check import check_quality
from pipeline.settings.config import EvaluateConfig, InferConfig, QualityConfig
from pipeline.stain import describe
from pipeline.store.layers.overlays import read_predictions
from pipeline.store.layers.qc_scores import slide_normaliser
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.dataset import TileDataset
from tests.pipeline.inference.fed_tiles import fed_tiles
from tests.small_trained_project import write_recipe
from training.foundation.errors import BadRecipeError, UnreadableError

pytestmark = pytest.mark.xdist_group("stain")  # one model is trained

SLIDES = ("small-train", "small-val", "small-test")


@pytest.fixture(scope="module")
def unfitted(small_project, tmp_path_factory):
    """Writable copy of the small project's slides and tiles."""
    project = Project(tmp_path_factory.mktemp("stain"))
    shutil.copytree(small_project.project.slides_dir, project.slides_dir)
    shutil.copytree(small_project.project.tiles_dir, project.tiles_dir)
    return project


def stain_recipe(folder, method):
    path = write_recipe(folder / f"{method}.toml", steps=1)
    text = path.read_text().replace("[model]", f'stain = "{method}"\n[model]')
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def project(unfitted, tmp_path_factory):
    """Project with all slides fitted and one model trained on normalised tiles."""
    with pytest.raises(UnreadableError, match="gemslide qc"):
        TileDataset(unfitted.root, "small", stain="macenko")
    for slide_id in SLIDES:
        check_quality(slide_id, unfitted, QualityConfig())
    trained = train(stain_recipe(tmp_path_factory.mktemp("recipe"), "macenko"), unfitted.root, 1)
    return unfitted, Predictor.load(unfitted.models_dir / trained.best)


def test_the_package_records_the_method_and_the_target_in_numbers(project):
    folder, predictor = project
    config = json.loads((folder.models_dir / predictor.model_id / "config.json").read_text())

    assert config["gemslide"]["stain"] == predictor.stain == describe("macenko")
    assert "stain normalised by macenko" in (folder.models_dir / predictor.model_id / "card.md").read_text()


@pytest.mark.parametrize("method", ["macenko", "reinhard"])
def test_tiles_are_the_slides_own_tiles_normalised(project, method):
    folder, _ = project
    plain, normalised = TileDataset(folder.root, "small"), TileDataset(folder.root, "small", stain=method)
    index = int(np.flatnonzero(plain.labels >= 0)[7])
    slide_id = plain.slides[index]
    normaliser = slide_normaliser(StoreReader(folder.store_path(slide_id)), describe(method))

    assert np.array_equal(normalised.read(index), normaliser(plain.read(index)))
    assert not np.array_equal(normalised.read(index), plain.read(index))
    assert (normalised.stain, plain.stain) == (describe(method), None)
    assert normalised.fingerprint == plain.fingerprint


def test_inference_sees_the_pixels_that_training_saw(project):
    folder, predictor = project
    dataset = TileDataset(folder.root, "small", predictor.class_names, stain=predictor.stain)
    reader = StoreReader(folder.store_path("small-test"))
    grid = slide_grid(reader, predictor)
    mine = np.flatnonzero(dataset.slides == "small-test")[:6]
    cells = [int(y // grid.stride_px0 * grid.columns + x // grid.stride_px0) for _, x, y, _ in dataset._boxes[mine]]

    tiles = fed_tiles(reader, grid, np.array(cells), stain=predictor.stain)

    assert np.array_equal(tiles, np.stack([dataset.read(int(i)) for i in mine]))


def test_predictions_are_those_of_normalised_tiles_and_made_anew_when_the_fit_changes(project):
    folder, predictor = project
    report = infer_slide("small-test", predictor, folder, InferConfig())
    again = infer_slide("small-test", predictor, folder, InferConfig())
    stored = read_predictions(folder.store_path("small-test"), predictor.model_id)
    dataset = TileDataset(folder.root, "small", predictor.class_names, stain=predictor.stain)
    index = int(np.flatnonzero(dataset.slides == "small-test")[3])
    _, x_px0, y_px0, _ = dataset._boxes[index]
    at = stored.at(float(x_px0), float(y_px0))
    expected = predictor.predict(dataset.read(index)[None])[0]

    assert (report.skipped, again.skipped) == (False, True)
    assert [at[name] for name in predictor.class_names] == pytest.approx(expected, abs=2e-3)

    check_quality("small-test", folder, QualityConfig(stain_pixels=10_000))
    assert not infer_slide("small-test", predictor, folder, InferConfig()).skipped


def test_a_slide_never_fitted_is_refused_with_what_to_do(project, small_project, tmp_path):
    _, predictor = project

    with pytest.raises(UnreadableError, match=r"small-test: its stain was not fitted .* Run `gemslide qc`"):
        slide_normaliser(StoreReader(small_project.project.store_path("small-test")), predictor.stain)


def test_a_slide_whose_fit_was_refused_is_refused_with_the_reason(project, tmp_path):
    folder, predictor = project
    store = tmp_path / "small-val.ome.zarr"
    shutil.copytree(folder.store_path("small-val"), store)
    root = json.loads((store / "zarr.json").read_text())
    root["attributes"]["gemslide"]["stain"]["macenko"] = {
        "fit": None,
        "reason": "the tissue has one stain.",
        "pixels": 9,
    }
    (store / "zarr.json").write_text(json.dumps(root))

    with pytest.raises(UnreadableError, match=r"could not be fitted by macenko: the tissue has one stain\. Leave"):
        slide_normaliser(StoreReader(store), predictor.stain)


def test_a_method_that_does_not_exist_is_refused(project):
    with pytest.raises(BadRecipeError, match="expected one of none, macenko, reinhard"):
        TileDataset(project[0].root, "small", stain="vahadane")


def test_evaluation_gives_its_baselines_normalised_tiles_too(project):
    folder, predictor = project
    infer_slide("small-test", predictor, folder, InferConfig())

    evaluation = evaluate_model(folder, predictor.model_id, "small", EvaluateConfig())

    assert len(evaluation.by_method) == 3
    assert evaluation.trained_on_this_split
