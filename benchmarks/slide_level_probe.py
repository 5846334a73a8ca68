"""How well an encoder's features separate colorectal tissues: a logistic probe on what `gemslide embed` stored.

    GEMSLIDE_TEST_DATA=… .venv/bin/python -m benchmarks.slide_level_probe [--encoder lite0] [--folder DIR]

Mosaics and published tiles, laid out as slides (`benchmarks.crc_cells`), are ingested and embedded as a user does it.
The probe (`pipeline.evaluation.probe.logistic`) is logistic regression on standardised features of the 1,250 published
training tiles; its C is chosen on them alone. The 500 published test tiles, and the cells of the mosaics of test tiles,
come from other slides and influence nothing. The published test tiles are also tested in eight views (each turned by
quarters, and mirrored), whose probabilities are averaged. Prints a JSON line; the committed ones are in
benchmarks/results/slide_level_probe.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, balanced_accuracy_score

from benchmarks.crc_cells import CLASSES, TESTED, make_tile_sets
from benchmarks.machine import circumstances
from pipeline.batches.devices import OneDevice
from pipeline.batches.invariance import values_of_plan
from pipeline.batches.where import RunOn
from pipeline.embedding.embed import encoder_grid, plan_embedding
from pipeline.embedding.encoder import TileEncoder
from pipeline.embedding.rows import find_encoder
from pipeline.evaluation.probe.features import labelled_features
from pipeline.evaluation.probe.logistic import Probe, fit_probe
from pipeline.project import Project
from pipeline.settings.config import EmbedConfig
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.table import read_table
from training.encoding import Encoder
from training.foundation.progress import no_bar

GEMSLIDE = Path(sys.executable).parent / "gemslide"
TILE_PX = 224


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
    probe = fit_probe(train_nd, labels, len(CLASSES))
    tested = {name: cells(project, name, "test", encoder) for name in TESTED}
    seen_nk, truth_n = in_eight_views(project, probe, encoder)
    return {
        "benchmark": "slide_level_probe",
        "encoder": encoder,
        "training tiles": len(labels),
        "C": probe.c,
        **{
            name: _scored(truth, probe.probabilities(values_nd).argmax(1))
            for name, (values_nd, truth) in tested.items()
        },
        "labelled, eight views": _scored(truth_n, seen_nk.argmax(1)),
    }


class _Turned(TileEncoder):
    """An encoder that sees its tiles turned by quarters and mirrored."""

    def __init__(self, encoder: Encoder, quarters: int, *, mirrored: bool) -> None:
        super().__init__(encoder)
        self._quarters, self._mirrored = quarters, mirrored

    def start(self, tiles_nhwc: NDArray[np.uint8]) -> Callable[[], NDArray[np.float32]]:
        tiles_nhwc = np.rot90(tiles_nhwc, self._quarters, (1, 2))
        return super().start(np.ascontiguousarray(tiles_nhwc[:, :, ::-1] if self._mirrored else tiles_nhwc))


def in_eight_views(project: Project, probe: Probe, encoder: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Mean probabilities of the published test tiles over eight views, (tiles, classes), and their labels."""
    found = labelled_features(project, read_table(project.tile_table_path("labelled")), "test", encoder)
    (slide_id,) = set(found.slide_ids.tolist())
    reader, config = StoreReader(project.store_path(slide_id)), EmbedConfig(min_tissue=0.0)
    loaded = Encoder.load(find_encoder(encoder, project), RunOn("cpu"))
    views = [_Turned(loaded, quarters, mirrored=mirrored) for quarters in range(4) for mirrored in (False, True)]
    grid = encoder_grid(reader, views[0], config)
    columns, rows = (found.xy0_n2 // grid.stride_px0).T
    chosen, place = np.unique(rows * grid.columns + columns, return_inverse=True)
    plan = plan_embedding(reader, views[0], grid, chosen, config)
    seen = [values_of_plan(plan, OneDevice(view), no_bar)[np.argsort(plan.order)] for view in views]
    if not np.allclose(seen[0][place], found.values_nd, rtol=1e-2, atol=1e-2):
        raise AssertionError("the first view is not what was stored")
    return np.mean([probe.probabilities(values_nd[place]) for values_nd in seen], axis=0), found.labels


def published(project: Project, encoder: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features and labels of the published training tiles, each once: mosaics repeat some."""
    parts = [cells(project, "train", split, encoder) for split in ("train", "val")]
    values, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    first = np.sort(np.unique(values, axis=0, return_index=True)[1])
    return values[first], labels[first]


def embedded(project: Project, data: Path, encoder: str) -> None:
    """Ingest, tile and embed the slides, as a user does it."""
    make_tile_sets(project, data, TILE_PX, with_published=True)
    (project.root / "gemslide.toml").write_text("[embed]\nmin_tissue = 0.0\n")
    for verb in (("encoder", "add", encoder), ("embed", encoder)):
        subprocess.run([GEMSLIDE, *verb, "--project", project.root], check=True, stdout=subprocess.DEVNULL)


def cells(project: Project, tile_set: str, split: str, encoder: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features and labels of the labelled cells of a split that lie on the grid of the features."""
    found = labelled_features(project, read_table(project.tile_table_path(tile_set)), split, encoder)
    return found.values_nd, found.labels


def _scored(truth: NDArray[np.int64], predicted: NDArray[np.int64]) -> dict[str, float]:
    return {
        "tiles": len(truth),
        "accuracy": round(float(accuracy_score(truth, predicted)), 3),
        "balanced_accuracy": round(float(balanced_accuracy_score(truth, predicted)), 3),
    }


if __name__ == "__main__":
    main()
