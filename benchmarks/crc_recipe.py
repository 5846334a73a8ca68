"""The shipped recipe for colorectal tissue: training time, start of the plateau, and accuracy.

    GEMSLIDE_TEST_DATA=… .venv/bin/python -m benchmarks.crc_recipe [--folder DIR] [--recipe NAME.toml] [--seed N]

Trained on slides `train_0` to `train_2` of crc-mosaic and on the published training tiles that are in none of them,
laid out as a slide (`benchmarks.crc_cells`). The 500 published test tiles and the mosaics of test tiles come from other
slides. They influence no choice of epoch or setting. The tested network is that of the last epoch, whatever its
validation accuracy; tiles are predicted once, and in their eight rotations and flips (`[infer] views = "all"`).

Compared with logistic regression on colour and texture, fitted on the same cells. Prints a JSON line; the committed
ones are in benchmarks/results/crc_recipe.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.crc_cells import TESTED, make_tile_sets
from benchmarks.crc_mosaic import accuracies, fitted_without_network, rounded, tested
from benchmarks.machine import circumstances
from pipeline.evaluation.evaluate import THE_MODEL
from pipeline.models.launch import train
from pipeline.project import Project
from training.foundation.recipe_file import find_recipe
from training.recipe.config import load_recipe

GEMSLIDE = Path(sys.executable).parent / "gemslide"
TILE_PX = 56
NO_MORE = 0.01
"""Tolerance of validation accuracy below the mean of the last tenth of the epochs, which defines the plateau."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="keep the project there; ingested slides are used again")
    parser.add_argument("--recipe", type=Path, default=Path("crc_mosaic.toml"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trained", action="store_true", help="test what was trained last in --folder once more")
    options = parser.parse_args()
    data = Path(os.environ["GEMSLIDE_TEST_DATA"])
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as temporary:
        project = Project(options.folder or Path(temporary))
        line = measure(project, data, find_recipe(options.recipe), options)
    print(json.dumps({**line, **circumstances("benchmarks.crc_recipe")}), flush=True)


def measure(project: Project, data: Path, shipped: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train, predict and evaluate; do the same for the method without a network."""
    project.root.mkdir(parents=True, exist_ok=True)
    recipe = project.root / shipped.name
    recipe.write_text(changed(shipped.read_text(), {"seed": str(options.seed)}))
    loaded = load_recipe(recipe)
    tile_set, num_ranks = loaded.data.tile_set, loaded.parallel.data_parallel
    cohorts = make_tile_sets(project, data, TILE_PX, train=tile_set, with_published=True)
    if loaded.data.stain != "none":
        subprocess.run([GEMSLIDE, "qc", "--project", project.root], check=True, stdout=subprocess.DEVNULL)
    if not options.trained:
        train(recipe, project.root, num_ranks)
    record = latest_training(project)
    model_id = record["models"]["last"]
    by_views = {views: tested(project, model_id, cohorts, views) for views in ("none", "all")}
    without = fitted_without_network(project, tile_set)
    return {
        "benchmark": "crc_recipe",
        "recipe": shipped.name,
        "seed": options.seed,
        "model": model_id,
        "training_s": round(record["seconds"]["total"]),
        **_course(record),
        "network": {
            f"views = {views}": {
                name: rounded(evaluation.by_method[THE_MODEL]) for name, evaluation in evaluations.items()
            }
            for views, evaluations in by_views.items()
        },
        "colour, texture, logistic regression": {name: accuracies(project, name, without) for name in TESTED},
    }


def changed(recipe: str, changes: dict[str, str]) -> str:
    """Text of a recipe with other values.

    Raises:
        SystemExit: the recipe has no such key.
    """
    for key, value in changes.items():
        recipe, num_lines = re.subn(rf"^{re.escape(key)} = .*$", f"{key} = {value}", recipe, flags=re.MULTILINE)
        if num_lines != 1:
            raise SystemExit(f"{key} = {value}: the recipe has {num_lines} lines `{key} = …`")
    return recipe


def latest_training(project: Project) -> dict[str, Any]:
    """Run record of the latest training run."""
    records = (json.loads(path.read_text()) for path in sorted(project.runs_dir.glob("*.json"), reverse=True))
    record_found: dict[str, Any] = next(record for record in records if record["verb"] == "train")
    return record_found


def _course(record: dict[str, Any]) -> dict[str, Any]:
    """Validation accuracy of a training run by epoch, and the start of its plateau."""
    accuracy = [epoch["accuracy"] for epoch in record["epochs"]]
    last = accuracy[-max(len(accuracy) // 10, 1) :]
    level = sum(last) / len(last) - NO_MORE
    first = next(index for index, value in enumerate(accuracy, 1) if value >= level)
    return {
        "val_accuracy": [round(value, 3) for value in accuracy],
        "plateau from epoch": first,
        "plateau after s": round(record["seconds"]["total"] * first / len(accuracy)),
    }


if __name__ == "__main__":
    main()
