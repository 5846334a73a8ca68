"""Ensemble of the networks trained by `benchmarks.crc_mosaic`: the mean of their probabilities.

    GEMSLIDE_TEST_DATA=… .venv/bin/python -m benchmarks.crc_mosaic --folder DIR [settings]     (several times)
    .venv/bin/python -m benchmarks.crc_mean DIR

Every network with predictions in the folder counts, including the worse ones: there is no selection. Prints a JSON
line; the committed ones are in benchmarks/results/crc_mean.jsonl.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.crc_cells import TEST_SLIDES, TESTED
from benchmarks.crc_mosaic import scored
from benchmarks.machine import circumstances
from pipeline.evaluation.stored import tile_probabilities
from pipeline.project import Project
from pipeline.store.layers.overlays import list_predictions, read_predictions
from pipeline.tiles.table import read_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the --folder of the runs")
    project = Project(parser.parse_args().folder)
    models = list_predictions(project.store_path(TEST_SLIDES[-1]))
    line = {
        "benchmark": "crc_mean",
        "models": models,
        "network": {name: accuracies_of_mean(project, name, models) for name in TESTED},
    }
    print(json.dumps({**line, **circumstances("benchmarks.crc_mean")}), flush=True)


def accuracies_of_mean(project: Project, tile_set: str, models: list[str]) -> dict[str, float]:
    """Accuracies of the mean of several models' stored predictions, on a tile set's labelled test tiles."""
    table = read_table(project.tile_table_path(tile_set)).frame
    chosen = table[(table["split"] == "test") & table["label"].notna()]
    labels, predicted = [], []
    for slide_id, rows in chosen.groupby("slide_id"):
        stored = [read_predictions(project.store_path(str(slide_id)), model) for model in models]
        probabilities = [
            tile_probabilities(str(slide_id), predictions.model_id, rows, predictions) for predictions in stored
        ]
        labels += rows["label"].tolist()
        predicted += [stored[0].class_names[index] for index in np.mean(probabilities, axis=0).argmax(1)]
    return scored(labels, predicted)


if __name__ == "__main__":
    main()
