"""The whole workflow on labelled colorectal tissue: training slides and test slides come from different patients."""

import json

import pytest

from pipeline.evaluation.evaluate import THE_MODEL, evaluate_model
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.settings.config import EvaluateConfig, InferConfig
from tests.crc_project import crc_project
from tests.distributed.starts import train, train_forked

RECIPE = """
[data]
tile_set = "crc"
balance = true
[model]
depth = 11
num_classes = 5
[parallel]
strategy = "master"
num_stages = 2
num_microbatches = 2
microbatch_size = 8
[optim]
lr = 0.05
warmup_steps = 10
weight_decay = 5e-4
[train]
epochs = {epochs}
[augment]
brightness = 0.05
contrast = 0.1
stain = 0.35
"""


@pytest.mark.data
@pytest.mark.parametrize(
    ("epochs", "start", "accuracy", "balanced_accuracy"),
    [
        (4, train_forked, 0.55, 0.40),
        pytest.param(12, train, 0.65, 0.50, marks=[pytest.mark.prove, pytest.mark.timeout(900)]),
    ],
)
def test_a_short_recipe_beats_the_commonest_class_on_other_slides(
    real_slides, tmp_path_factory, epochs, start, accuracy, balanced_accuracy
):
    project = crc_project(real_slides, tmp_path_factory)
    (project.root / "crc.toml").write_text(RECIPE.format(epochs=epochs))

    trained = start(project.root / "crc.toml", project.root, 2)

    predictor = Predictor.load(project.models_dir / trained.best)
    for slide_id in ("test_10", "test_12"):
        infer_slide(slide_id, predictor, project, InferConfig())
    evaluation = evaluate_model(project, trained.best, "crc", EvaluateConfig(), baselines=None)
    metrics = evaluation.by_method[THE_MODEL]
    print(json.dumps(metrics), evaluation.confusion.tolist())
    assert metrics["tiles"] == 492
    assert metrics["accuracy"] >= accuracy
    assert metrics["balanced_accuracy"] >= balanced_accuracy
