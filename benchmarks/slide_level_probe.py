"""How well an encoder's features separate colorectal tissues: a logistic probe on what `gemslide embed` stored.

    GEMSLIDE_TEST_DATA=… .venv/bin/python -m benchmarks.slide_level_probe [--encoder lite0] [--folder DIR]

Mosaics and published tiles, laid out as slides (`benchmarks.crc_cells`), are ingested and embedded as a user does it.
The probe is logistic regression on standardised features of the 1,250 published training tiles. Its C is chosen on them
alone: of powers of ten the smallest whose accuracy, in five-fold cross-validation, is within one standard error of the
best (Breiman et al., Classification and Regression Trees, 1984, section 3.4.3). The 500 published test tiles, and the
cells of the mosaics of test tiles, come from other slides and influence nothing. Prints a JSON line; the committed ones
are in benchmarks/results/slide_level_probe.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.crc_cells import TESTED, make_tile_sets
from benchmarks.machine import circumstances
from pipeline.project import Project
from pipeline.slide_level.stored_bags import open_slide_features
from pipeline.tiles.table import read_table

GEMSLIDE = Path(sys.executable).parent / "gemslide"
TILE_PX = 224
REGULARISATIONS = tuple(10.0**power for power in range(-6, 2))
PARTS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="lite0")
    parser.add_argument("--folder", type=Path, help="keep the project there; stored features are used again")
    options = parser.parse_args()
    data = Path(os.environ["GEMSLIDE_TEST_DATA"])
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as temporary:
        line = measure(Project(options.folder or Path(temporary)), data, options.encoder)
    print(json.dumps({**line, **circumstances("benchmarks.slide_level_probe")}), flush=True)


def measure(project: Project, data: Path, encoder: str) -> dict[str, Any]:
    """Embed, fit and test."""
    embedded(project, data, encoder)
    train_nd, labels = published(project, encoder)
    best_c = chosen_c(train_nd, labels)
    probe = _probe(best_c).fit(train_nd, labels)
    tested = {name: cells(project, name, "test", encoder) for name in TESTED}
    return {
        "benchmark": "slide_level_probe",
        "encoder": encoder,
        "training tiles": len(labels),
        "C": best_c,
        **{name: _scored(truth, probe.predict(values_nd)) for name, (values_nd, truth) in tested.items()},
    }


def published(project: Project, encoder: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features and labels of the published training tiles, each once: mosaics repeat some."""
    parts = [cells(project, "train", split, encoder) for split in ("train", "val")]
    values, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    first = np.sort(np.unique(values, axis=0, return_index=True)[1])
    return values[first], labels[first]


def chosen_c(values: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """The smallest C whose accuracy is within one standard error of the best."""
    folds = StratifiedKFold(PARTS, shuffle=True, random_state=0)
    scores = np.array([cross_val_score(_probe(c), values, labels, cv=folds) for c in REGULARISATIONS])
    best = int(scores.mean(1).argmax())
    enough = scores[best].mean() - scores[best].std() / np.sqrt(PARTS)
    return REGULARISATIONS[int(np.flatnonzero(scores.mean(1) >= enough)[0])]


def _probe(c: float) -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, C=c))


def embedded(project: Project, data: Path, encoder: str) -> None:
    """Ingest, tile and embed the slides, as a user does it."""
    make_tile_sets(project, data, TILE_PX, with_published=True)
    (project.root / "gemslide.toml").write_text("[embed]\nmin_tissue = 0.0\n")
    for verb in (("encoder", "add", encoder), ("embed", encoder)):
        subprocess.run([GEMSLIDE, *verb, "--project", project.root], check=True, stdout=subprocess.DEVNULL)


def cells(project: Project, tile_set: str, split: str, encoder: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features and labels of the labelled cells of a split that lie on the grid of the features."""
    table = read_table(project.tile_table_path(tile_set))
    frame = table.frame[(table.frame["split"] == split) & table.frame["label"].notna()]
    values, labels = [], []
    for slide_id, of_slide in frame.groupby("slide_id", sort=True):
        slide = open_slide_features(project, slide_id, encoder)
        assert slide is not None, slide_id
        features_nd = slide.stored.read_rows(slice(None))
        row_of = {(int(x), int(y)): row for row, (x, y) in enumerate(slide.stored.xy0_n2)}
        for x, y, label in zip(of_slide["x_px0"], of_slide["y_px0"], of_slide["label"], strict=True):
            if (int(x), int(y)) in row_of:
                values.append(features_nd[row_of[int(x), int(y)]].astype(np.float32))
                labels.append(table.classes.index(label))
    return np.stack(values), np.array(labels)


def _scored(truth: NDArray[np.int64], predicted: NDArray[np.int64]) -> dict[str, float]:
    return {
        "tiles": len(truth),
        "accuracy": round(float(accuracy_score(truth, predicted)), 3),
        "balanced_accuracy": round(float(balanced_accuracy_score(truth, predicted)), 3),
    }


if __name__ == "__main__":
    main()
