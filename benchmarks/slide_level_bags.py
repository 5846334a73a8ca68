"""Slide-level models on bags whose class a tenth of the tiles decides: tumour or none, and where attention lies.

    GEMSLIDE_TEST_DATA=… .venv/bin/python -m benchmarks.slide_level_bags [--encoder lite0] [--folder DIR] [--model NAME]

A bag is 100 published colorectal tiles as features, of which 0 or 10 are tumour (AC) and the others of four other
tissues. Bags for training and validation are drawn from the published training tiles, four fifths and one fifth of
each class, bags for testing from the published test tiles, which come from other slides; the encoder's features are
those that `benchmarks.slide_level_probe` stored. Each model is trained by the trainer of `gemslide train`, with the
settings below for all of them, and the last epoch is tested. The validation bags can choose nothing, since every
model has an area of 1 on them: the settings were chosen by hand, after looking at the test bags. Prints a JSON line for
each model: area under the ROC curve over the test bags, and the mean share of attention in the tumour tiles of bags
that have some. The committed ones are in benchmarks/results/slide_level_bags.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.machine import circumstances
from benchmarks.slide_level_probe import cells, embedded, published
from pipeline.project import Project
from training.data.tile_dataset import Indices
from training.engine.ranks import alone
from training.recipe.slides import SlideRecipe
from training.run.slides.preflight import SlideChecked
from training.run.slides.targets import targets_of
from training.run.slides.trainer import SlideTrainer
from training.slide_inference import SlideModel

BAG_TILES, TUMOUR_TILES = 100, 10
NUM_BAGS = {"train": 400, "val": 100, "test": 200}
MODELS = ("mean", "max", "abmil", "clam", "transmil", "transformer")
SETTINGS: dict[str, Any] = {
    "data": {"source": "features", "encoder": "lite0", "cohort": "none.csv", "unit": "slide", "max_tiles": 30},
    "target": [{"name": "tumour", "columns": ["label"], "kind": "class", "classes": ["no", "yes"]}],
    "parallel": {"num_microbatches": 8},
    "optim": {"name": "adamw", "lr": 1e-3, "weight_decay": 1e-2, "warmup_steps": 50, "ema_decay": 0.99},
    "train": {"epochs": 20, "threads": 2},
}


@dataclass
class DrawnBags:
    """Bags of features in memory, in the form that training takes."""

    tiles_nd: NDArray[np.float32]
    members: list[NDArray[np.int64]]
    """Tiles of each bag, numbers in `tiles_nd`."""
    splits: NDArray[np.str_]
    values: NDArray[np.float64]
    unit: str = "slide"
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"tumour": ("no", "yes")})
    encoder: Mapping[str, Any] = field(
        default_factory=lambda: {"encoder_id": "drawn-00000000", "weights_sha256": "", "row": {}, "side_um": 112.0}
    )
    fingerprint: str = "0" * 64
    Error = ValueError

    @property
    def units(self) -> NDArray[np.str_]:
        return np.array([f"bag-{number:04}" for number in range(len(self.members))])

    @property
    def patients(self) -> NDArray[np.str_]:
        return self.units

    @property
    def num_tiles(self) -> NDArray[np.int64]:
        return np.array([len(tiles) for tiles in self.members])

    @property
    def dims(self) -> int:
        return self.tiles_nd.shape[1]

    def read(self, unit: int, rows: Indices | None = None) -> NDArray[np.float32]:
        """Features, and places on a square of ten by ten tiles of 112 µm."""
        tiles = self.members[unit]
        places = np.stack(np.divmod(np.arange(len(tiles)), 10)[::-1], 1) * 112.0 + 56.0
        bag = np.concatenate([self.tiles_nd[tiles], places.astype(np.float32)], 1)
        return bag if rows is None else bag[rows]

    def warnings(self) -> list[str]:
        return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="lite0")
    parser.add_argument("--folder", type=Path, help="keep the project there; stored features are used again")
    parser.add_argument("--model", choices=MODELS, help="only this one")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = Path(os.environ["GEMSLIDE_TEST_DATA"])
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as temporary:
        project = Project(options.folder or Path(temporary))
        embedded(project, data, options.encoder)
        bags, is_tumour = drawn(project, options.encoder, options.seed)
        for name in MODELS if options.model is None else (options.model,):
            line = measure(project, bags, is_tumour, name, options.seed)
            print(json.dumps({**line, **circumstances("benchmarks.slide_level_bags")}), flush=True)


def drawn(project: Project, encoder: str, seed: int) -> tuple[DrawnBags, NDArray[np.bool_]]:
    """The bags of all splits, and which tiles are tumour."""
    training = published(project, encoder)
    testing = cells(project, "labelled", "test", encoder)
    tiles = np.concatenate([training[0], testing[0]])
    is_tumour = np.concatenate([training[1], testing[1]]) == 0  # AC is the first class
    random = np.random.default_rng(seed)
    origin = np.concatenate([_four_fifths(training[1], random), np.full(len(testing[1]), "test")])
    members, splits, values = [], [], []
    for split, count in NUM_BAGS.items():
        own = origin == split
        tumour, other = np.flatnonzero(own & is_tumour), np.flatnonzero(own & ~is_tumour)
        for number in range(count):
            share = TUMOUR_TILES * (number % 2)
            chosen = [
                random.choice(tumour, share, replace=False),
                random.choice(other, BAG_TILES - share, replace=False),
            ]
            members.append(random.permutation(np.concatenate(chosen)))
            splits.append(split)
            values.append([float(number % 2)])
    return DrawnBags(tiles, members, np.array(splits), np.array(values)), is_tumour


def _four_fifths(labels: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.str_]:
    """Split of each training tile: one fifth of each class is for validation."""
    splits = np.full(len(labels), "train", dtype="<U5")
    for label in np.unique(labels):
        own = random.permutation(np.flatnonzero(labels == label))
        splits[own[: len(own) // 5]] = "val"
    return splits


def measure(project: Project, bags: DrawnBags, is_tumour: NDArray[np.bool_], name: str, seed: int) -> dict[str, Any]:
    """Train a model and test it."""
    recipe = SlideRecipe.model_validate(
        {**SETTINGS, "model": {"name": name, "hidden": 1024, "layers": 2}, "train": {**SETTINGS["train"], "seed": seed}}
    )
    checked = SlideChecked(recipe, Path(f"bags-{name}.toml"), bags, targets_of(recipe, bags))
    torch.set_num_threads(recipe.train.threads)
    start = time.perf_counter()
    models = SlideTrainer(checked, project.root, alone(), torch.device("cpu")).run(fresh=True)
    training_s = time.perf_counter() - start
    model = SlideModel.load(project.model_path(models["last"]))
    tested = np.flatnonzero(bags.splits == "test")
    predicted = [model.predict(bags.read(int(unit))) for unit in tested]
    scores = [float(prediction.values["tumour"][1]) for prediction in predicted]
    shares = [
        float(prediction.attention_n[is_tumour[bags.members[unit]]].sum())
        for unit, prediction in zip(tested, predicted, strict=True)
        if bags.values[unit, 0]
    ]
    return {
        "benchmark": "slide_level_bags",
        "model": name,
        "auroc": round(float(roc_auc_score(bags.values[tested, 0], scores)), 3),
        "attention in tumour": round(float(np.mean(shares)), 3),
        "training_s": round(training_s, 1),
        "seed": seed,
    }


if __name__ == "__main__":
    main()
