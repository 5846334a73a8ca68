"""The whole road on labelled colorectal tissue, beside a method without a network that sees the same tiles.

    GEMSLIDE_TEST_DATA=… .venv/bin/python -m benchmarks.crc_mosaic [--epochs 60] [--tile-px 56] [--folder DIR]

Slides `train_0` to `train_2`, `test_10` and `test_12` of crc-mosaic (five classes; test tiles are of other slides)
are ingested and tiled in cells of 112 µm; a ResNet-v2 is trained on the training slides, of which `train_2` chooses the
epoch; the test slides are predicted, and evaluated by tile and by lesion (FROC). The other method: colour means and
deviations and local binary patterns (scikit-image) of each cell, a standard scale, and logistic regression, fitted on
the same training cells. `tiles` counts the test slides' labelled cells; `labelled tiles` are the 500 test tiles that
the mosaics are laid from, 100 of each class. Prints a JSON line; the committed ones are in
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

import cv2
import imagecodecs
import numpy as np
from numpy.typing import NDArray
from skimage.color import rgb2gray
from skimage.feature import local_binary_pattern
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.machine import circumstances
from pipeline.cohort.manifest import load_cohort
from pipeline.config import EvaluateConfig, InferConfig, TileConfig
from pipeline.evaluation.evaluate import THE_MODEL, evaluate_model
from pipeline.evaluation.froc import FALSE_POSITIVES_PER_SLIDE
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.launch import train
from pipeline.project import Project
from pipeline.tiles.dataset import TileDataset
from tests.crc_project import make_crc_tiles

CELL_UM = 112.0
LESIONS = ("AC", "S", "T", "V")
LABELLED = "Flagy+Colorectal_Carcinoma_Classifier/images"
RECIPE = """
[data]
tile_set = "crc"
balance = true
[model]
depth = {depth}
num_classes = 5
[parallel]
strategy = "single"
num_stages = 1
num_microbatches = 1
microbatch_size = 16
[optim]
lr = {lr}
warmup_steps = 40
weight_decay = 5e-4
[train]
epochs = {epochs}
seed = {seed}
threads = 2
[augment]
brightness = 0.1
contrast = 0.2
stain = {stain}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--tile-px", type=int, default=56)
    parser.add_argument("--depth", type=int, default=11)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--stain", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep the project there; ingested slides are used again")
    options = parser.parse_args()
    data = Path(os.environ["GEMSLIDE_TEST_DATA"])
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as temporary:
        project = Project(options.folder or Path(temporary))
        line = measure(project, data, options)
    print(json.dumps({**line, **circumstances("benchmarks.crc_mosaic")}), flush=True)


def measure(project: Project, data: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train, predict, evaluate; and the same for the method without a network."""
    tiles = TileConfig(tile_px=options.tile_px, mpp=CELL_UM / options.tile_px)
    make_crc_tiles(project, data / "crc-mosaic", tiles)
    recipe = project.root / "crc.toml"
    recipe.write_text(RECIPE.format(**vars(options)))
    start = time.perf_counter()
    trained = train(recipe, project.root, 1)
    training_s = time.perf_counter() - start
    package = project.models_dir / trained.best
    predictor = Predictor.load(package)
    for slide_id in ("test_10", "test_12"):
        infer_slide(slide_id, predictor, project, InferConfig())
    config = EvaluateConfig(lesion_classes=LESIONS)
    cohort = load_cohort(project.root / "cohort.csv")
    evaluation = evaluate_model(project, trained.best, "crc", config, cohort=cohort)
    images, labels = labelled_tiles(data / LABELLED / "test", options.tile_px)
    return {
        "benchmark": "crc_mosaic",
        "model": trained.best,
        "training_s": round(training_s),
        "network": {
            "tiles": _rounded(evaluation.by_method[THE_MODEL]),
            "labelled tiles": _accuracies(labels, _predicted(predictor, images)),
        },
        "colour, texture, logistic regression": without_network(project, images, labels),
        "froc": {
            found.class_name: {
                "score": found.score.value,
                "sensitivity": dict(
                    zip(map(str, FALSE_POSITIVES_PER_SLIDE), (s.value for s in found.sensitivities), strict=True)
                ),
                "lesions": found.lesions,
            }
            for found in evaluation.froc
        },
        "settings": {key: value for key, value in vars(options).items() if key != "folder"},
    }


def labelled_tiles(folder: Path, tile_px: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Tiles in a folder per class, made as small as the model's."""
    images, labels = [], []
    for label, class_folder in enumerate(sorted(path for path in folder.iterdir() if path.is_dir())):
        for path in sorted(class_folder.glob("*.jpg")):
            image = imagecodecs.imread(path)
            images.append(cv2.resize(image, (tile_px, tile_px), interpolation=cv2.INTER_AREA))
            labels.append(label)
    return np.stack(images), np.array(labels)


def without_network(project: Project, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> dict[str, Any]:
    """Accuracy of logistic regression on colour and texture, fitted on the training slides' cells (and train_2's)."""
    dataset = TileDataset(project.root, "crc")
    known, is_test = dataset.labels >= 0, dataset.splits == "test"
    tiles = np.stack([dataset.read(int(index)) for index in np.flatnonzero(known)])
    features, of_test = np.stack([_features(tile) for tile in tiles]), is_test[known]
    truth = dataset.labels[known]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000, class_weight="balanced"))
    model.fit(features[~of_test], truth[~of_test])
    return {
        "tiles": _accuracies(truth[of_test], model.predict(features[of_test])),
        "labelled tiles": _accuracies(labels, model.predict(np.stack([_features(image) for image in images]))),
    }


def _features(tile: NDArray[np.uint8]) -> NDArray[np.float64]:
    grey = (255 * rgb2gray(tile)).astype(np.uint8)
    pixels = tile.reshape(-1, 3).astype(float)
    parts = [pixels.mean(0), pixels.std(0)]
    for radius in (1, 2, 3):
        codes = local_binary_pattern(grey, 8 * radius, radius, "uniform")
        parts.append(np.histogram(codes, bins=8 * radius + 2, range=(0, 8 * radius + 2), density=True)[0])
    return np.concatenate(parts)


def _predicted(predictor: Predictor, images: NDArray[np.uint8]) -> NDArray[np.int64]:
    parts = [predictor.predict(images[start : start + 50]) for start in range(0, len(images), 50)]
    return np.concatenate(parts).argmax(1)


def _accuracies(truth: NDArray[np.int64], predicted: NDArray[np.int64]) -> dict[str, float]:
    return {
        "accuracy": round(float(accuracy_score(truth, predicted)), 3),
        "balanced accuracy": round(float(balanced_accuracy_score(truth, predicted)), 3),
        "number": len(truth),
    }


def _rounded(values: dict[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(float(value), 3) for name, value in values.items()}


if __name__ == "__main__":
    main()
