import dataclasses
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from pipeline.cohort.manifest import load_cohort
from pipeline.evaluation.baselines import mean_colour
from pipeline.evaluation.evaluate import evaluate_model
from pipeline.evaluation.report import write_report
from pipeline.evaluation.statistics.metrics import confusion, decide, tile_metrics
from pipeline.evaluation.tables import by_scanner
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.project import Project
from pipeline.settings.config import EvaluateConfig, InferConfig, TileConfig
from pipeline.store.layers.overlays import Predictions, write_predictions
from pipeline.tiles.dataset import TileDataset
from pipeline.tiles.tile import make_tile_table
from training.foundation.errors import BadRecipeError, EmptyTableError, UnreadableError

pytestmark = pytest.mark.xdist_group("evaluation")  # inferred and evaluated once

P = np.array([[0.9, 0.1], [0.4, 0.6], [0.55, 0.45], [0.2, 0.8]], np.float32)
LABELS = np.array([0, 0, 1, 1])


@pytest.fixture(scope="module")
def evaluation(small_project_copy):
    predictor = Predictor.load(small_project_copy.project.models_dir / small_project_copy.model_id)
    infer_slide(small_project_copy.test_slide, predictor, small_project_copy.project, InferConfig())
    return evaluate_model(small_project_copy.project, small_project_copy.model_id, "small", EvaluateConfig())


def test_metrics_of_a_case_counted_by_hand():
    assert tile_metrics(LABELS, P, 0.5) == {"tiles": 4, "accuracy": 0.5, "balanced_accuracy": 0.5, "auc": 0.75}
    assert decide(P, 0.4).tolist() == [0, 1, 1, 1]
    assert confusion(LABELS, P, 0.5, ("a", "b")).tolist() == [[1, 1], [1, 1]]


def test_auc_is_left_out_where_a_class_does_not_occur():
    assert tile_metrics(np.zeros(4, int), P, 0.5)["auc"] is None


def test_many_classes_take_the_likeliest():
    p = np.array([[0.2, 0.5, 0.3], [0.4, 0.3, 0.3], [0.1, 0.2, 0.7]], np.float32)

    assert tile_metrics(np.array([1, 0, 2]), p, 0.9)["accuracy"] == 1.0


def test_an_evaluation_compares_the_model_with_two_baselines(small_project_copy, evaluation):
    assert list(evaluation.by_method) == ["this model", "untrained network", "mean colour (logistic regression)"]
    assert evaluation.by_method["mean colour (logistic regression)"]["accuracy"] > 0.9
    assert evaluation.by_method["this model"]["tiles"] == 150
    assert evaluation.trained_on_this_split
    assert evaluation.confusion.sum() == 150
    assert [slide["slide_id"] for slide in evaluation.by_slide] == [small_project_copy.test_slide]


def test_the_mean_colour_baseline_never_sees_the_test_split(small_project):
    dataset = TileDataset(small_project.project.root, "small")
    test = np.flatnonzero(dataset.splits == "test")
    before = mean_colour(dataset, test)
    dataset.labels[test] = 1 - dataset.labels[test]

    assert np.array_equal(before, mean_colour(dataset, test))


def test_the_report_is_one_file_that_asks_nothing_of_the_network(small_project_copy, evaluation):
    path = write_report(small_project_copy.project, evaluation)
    html = path.read_text()

    assert "Research use only. Not for diagnosis." in html
    assert "Labels derive from colour." in html
    assert "these labels can be told apart by colour alone" in html  # mean colour reaches 1.000
    assert "With 1 patient, an AUROC near 1 says little" in html
    assert "intervals by patient need at least 5" in html
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", html).replace("http://www.w3.org", "")
    assert html.count("data:image/png;base64,") == 1
    assert json.loads(path.with_suffix(".json").read_text())["by_method"]["this model"]["tiles"] == 150


@pytest.fixture
def own(small_project_copy, tmp_path):
    """Project with its own tile sets over the copy's slides and models."""
    for name in ("slides", "models"):
        (tmp_path / name).symlink_to(small_project_copy.project.root / name)
    return Project(tmp_path)


def test_a_split_without_labels_is_refused(small_project_copy, own):
    make_tile_table(own, "bare", TileConfig(tile_px=32, mpp=1.0, classes=("cold", "warm")), cohort=None)

    with pytest.raises(EmptyTableError, match="no labelled tiles in split 'test'"):
        evaluate_model(own, small_project_copy.model_id, "bare", EvaluateConfig())


def test_a_tile_set_of_another_size_is_refused(small_project_copy, own):
    other = TileConfig(tile_px=64, mpp=1.0, classes=("cold", "warm"))
    make_tile_table(own, "other", other, cohort=load_cohort(small_project_copy.cohort))

    with pytest.raises(BadRecipeError, match=r"takes tiles of 32 px at 1\.0 µm/px, but tile set 'other' has 64 px"):
        evaluate_model(own, small_project_copy.model_id, "other", EvaluateConfig())


def test_a_slide_that_was_not_inferred_is_named(small_project_copy, evaluation):
    with pytest.raises(UnreadableError, match=r"small-val.*no readable predictions"):
        evaluate_model(small_project_copy.project, small_project_copy.model_id, "small", EvaluateConfig(split="val"))


def test_tiles_the_model_did_not_look_at_are_not_scored_with_their_neighbours(small_project_copy, own, evaluation):
    overlapping = TileConfig(tile_px=32, mpp=1.0, overlap_px=16, classes=("cold", "warm"), min_tissue=0.9)
    make_tile_table(own, "overlap", overlapping, cohort=load_cohort(small_project_copy.cohort))

    with pytest.raises(BadRecipeError, match="are not among the squares that the model predicted"):
        evaluate_model(own, small_project_copy.model_id, "overlap", EvaluateConfig(), baselines=None)


def test_a_split_the_model_was_not_trained_with_is_said_aloud(small_project_copy, own, evaluation, gemslide):
    swapped = (
        small_project_copy.cohort.read_text().replace(",train", ",x").replace(",test", ",train").replace(",x", ",test")
    )
    (own.root / "swapped.csv").write_text(swapped.replace("file-", f"{small_project_copy.cohort.parent}/file-"))
    tiles = TileConfig(tile_px=32, mpp=1.0, classes=("cold", "warm"))
    make_tile_table(own, "swapped", tiles, cohort=load_cohort(own.root / "swapped.csv"))
    options = ("--project", own.root, "--tile-set", "swapped", "--split", "train", "--no-baselines")

    done, as_json = (
        gemslide("evaluate", small_project_copy.model_id, *options),
        gemslide("evaluate", small_project_copy.model_id, *options, "--json"),
    )

    assert (done.code, as_json.code) == (0, 0)
    assert "these numbers are too good" in done.err
    assert re.search(
        r"^small-\w+: balanced accuracy \S+, accuracy \S+, AUC \S+ on 150 tiles of split train", done.out, re.M
    )
    line = json.loads(as_json.out)
    assert line["message"].startswith("balanced accuracy")
    assert line["metrics"]["this model"]["tiles"] == 150


def test_a_cohort_of_several_scanners_is_compared_by_scanner(small_project, evaluation, tmp_path):
    rows = pd.DataFrame({"slide_id": ["a", "a", "b", "c"]})
    rows_by_scanner = by_scanner(rows, LABELS, P, 0.5, {"a": "Model X", "b": "Model <Y>", "c": None})

    assert [(row["scanner"], row["tiles"], row["accuracy"]) for row in rows_by_scanner] == [
        ("Model <Y>", 1, 0.0), ("Model X", 2, 0.5), ("not known", 1, 1.0),
    ]  # fmt: skip
    assert by_scanner(rows, LABELS, P, 0.5, dict.fromkeys("abc", "Model X")) == evaluation.by_scanner == []
    project = Project(tmp_path)
    report = write_report(project, dataclasses.replace(evaluation, by_scanner=rows_by_scanner)).read_text()
    assert "Model &lt;Y&gt;" in report


def test_predictions_that_end_before_the_tiles_do_are_refused(small_project, tmp_path):
    project = Project(tmp_path)
    for name in ("tiles", "models"):
        (tmp_path / name).symlink_to(small_project.project.root / name)
    store = shutil.copytree(
        small_project.project.store_path(small_project.test_slide), project.store_path(small_project.test_slide)
    )
    few = np.full((2, 3, 3), 0.5, np.float16)
    write_predictions(store, Predictions(small_project.model_id, ("cold", "warm"), few, 64.0, 64.0, {}), mpp0=0.5)

    with pytest.raises(BadRecipeError, match="are not among the squares that the model predicted"):
        evaluate_model(project, small_project.model_id, "small", EvaluateConfig(), baselines=None)
