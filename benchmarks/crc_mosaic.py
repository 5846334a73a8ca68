"""The whole workflow on labelled colorectal tissue, compared with a method without a network on the same tiles.

    GEMSLIDE_TEST_DATA=… .venv/bin/python -m benchmarks.crc_mosaic [--epochs 30] [--tile-px 56] [--folder DIR]

A ResNet-v2 is trained on slides `train_0` to `train_2` of crc-mosaic: five classes, in cells of 112 µm
(`benchmarks.crc_cells`). The epoch is chosen on the validation slide; nothing is chosen on tiles of the test slides.
Two test sets are predicted:

- `mosaics`: the cells of `test_10` and `test_12`, by cell and by lesion (FROC);
- `labelled`: the 500 published test tiles, 100 of each class, laid out as a slide, so that levels and JPEG
  change them in the same way as the training tiles.

The other method: colour means and deviations and local binary patterns (scikit-image) of each cell, a standard scale,
and logistic regression, fitted on the cells of the same three slides. Prints a JSON line; the committed ones are in
benchmarks/results/crc_mosaic.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from skimage.color import rgb2gray
from skimage.feature import local_binary_pattern
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.crc_cells import TEST_SLIDES, TESTED, make_tile_sets
from benchmarks.machine import circumstances
from pipeline.cohort.manifest import Cohort
from pipeline.evaluation.evaluate import THE_MODEL, evaluate_model
from pipeline.evaluation.result import Evaluation
from pipeline.evaluation.statistics.froc import FALSE_POSITIVES_PER_SLIDE, Froc
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor, run_on_of
from pipeline.models.launch import train
from pipeline.project import Project
from pipeline.settings.config import EvaluateConfig, InferConfig
from pipeline.tiles.dataset import TileDataset

LESIONS = ("AC", "S", "T", "V")
RECIPE = """
[data]
tile_set = "train"
balance = true
[model]
depth = {depth}
num_classes = 5
[parallel]
strategy = "single"
num_stages = 1
num_microbatches = 1
microbatch_size = {batch}
[optim]
lr = {lr}
warmup_steps = 40
weight_decay = 5e-4
[train]
epochs = {epochs}
seed = {seed}
threads = 2
precision = "{precision}"
[augment]
brightness = {brightness}
contrast = {contrast}
stain = {stain}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--tile-px", type=int, default=56)
    parser.add_argument("--depth", type=int, default=11)
    parser.add_argument("--lr", type=float, default=0.05)
    for augmentation, usual in (("brightness", 0.1), ("contrast", 0.2), ("stain", 0.2)):
        parser.add_argument(f"--{augmentation}", type=float, default=usual)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--views", choices=("none", "flips", "all"), default="all")
    parser.add_argument("--folder", type=Path, help="keep the project there; ingested slides are used again")
    options = parser.parse_args()
    data = Path(os.environ["GEMSLIDE_TEST_DATA"])
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as temporary:
        project = Project(options.folder or Path(temporary))
        line = measure(project, data, options)
    print(json.dumps({**line, **circumstances("benchmarks.crc_mosaic")}), flush=True)


def measure(project: Project, data: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train, predict and evaluate; do the same for the method without a network."""
    cohorts = make_tile_sets(project, data, options.tile_px)
    recipe = project.root / "crc.toml"
    recipe.write_text(RECIPE.format(**vars(options)))
    start = time.perf_counter()
    trained = train(recipe, project.root, 1)
    training_s = time.perf_counter() - start
    evaluations = tested(project, trained.best, cohorts, options.views)
    without = fitted_without_network(project)
    return {
        "benchmark": "crc_mosaic",
        "model": trained.best,
        "training_s": round(training_s),
        "network": {name: rounded(evaluation.by_method[THE_MODEL]) for name, evaluation in evaluations.items()},
        "colour, texture, logistic regression": {name: accuracies(project, name, without) for name in TESTED},
        "froc": {froc.class_name: _sensitivities(froc) for froc in evaluations["mosaics"].froc},
        "settings": {key: value for key, value in vars(options).items() if key != "folder"},
    }


def tested(project: Project, model_id: str, cohorts: dict[str, Cohort], views: str) -> dict[str, Evaluation]:
    """Predict the test slides with a model; return its evaluation on each tile set with test cells, by name."""
    how = InferConfig.model_validate({"views": views})
    predictor = Predictor.load(project.models_dir / model_id, run_on_of("cpu", how))
    for slide_id in TEST_SLIDES:
        infer_slide(slide_id, predictor, project, how)
    config = EvaluateConfig(lesion_classes=LESIONS)
    return {
        name: evaluate_model(project, model_id, name, config, baselines=None, cohort=cohorts[name]) for name in TESTED
    }


def fitted_without_network(project: Project, tile_set: str = "mosaics") -> Pipeline:
    """Logistic regression on colour and texture of the training cells of a tile set."""
    dataset = TileDataset(project.root, tile_set)
    features, labels = _cells(dataset, "train")
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000, class_weight="balanced"))
    return model.fit(features, labels)


def accuracies(project: Project, tile_set: str, model: Pipeline) -> dict[str, float]:
    """Accuracies of the method without a network, on a tile set's test cells."""
    features, labels = _cells(TileDataset(project.root, tile_set), "test")
    return scored(labels, model.predict(features))


def scored(labels: ArrayLike, predicted: ArrayLike) -> dict[str, float]:
    """Accuracy of predicted labels."""
    return {
        "tiles": len(np.asarray(labels)),
        "accuracy": round(float(accuracy_score(labels, predicted)), 3),
        "balanced_accuracy": round(float(balanced_accuracy_score(labels, predicted)), 3),
    }


def _cells(dataset: TileDataset, split: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Features and labels of a split's labelled tiles."""
    indices = np.flatnonzero((dataset.labels >= 0) & (dataset.splits == split))
    return np.stack([_features(dataset.read(int(index))) for index in indices]), dataset.labels[indices]


def _features(tile: NDArray[np.uint8]) -> NDArray[np.float64]:
    grey = (255 * rgb2gray(tile)).astype(np.uint8)
    pixels = tile.reshape(-1, 3).astype(float)
    parts = [pixels.mean(0), pixels.std(0)]
    for radius in (1, 2, 3):
        codes = local_binary_pattern(grey, 8 * radius, radius, "uniform")
        parts.append(np.histogram(codes, bins=8 * radius + 2, range=(0, 8 * radius + 2), density=True)[0])
    return np.concatenate(parts)


def _sensitivities(froc: Froc) -> dict[str, Any]:
    by_rate = zip(map(str, FALSE_POSITIVES_PER_SLIDE), (estimate.value for estimate in froc.sensitivities), strict=True)
    return {"score": froc.score.value, "sensitivity": dict(by_rate), "lesions": froc.lesions}


def rounded(values: dict[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(float(value), 3) for name, value in values.items()}


if __name__ == "__main__":
    main()
