"""Accuracy of a recipe for colorectal tissue on an appearance missing from training: the darkest or lightest tiles.

    GEMSLIDE_TEST_DATA=… .venv/bin/python -m benchmarks.crc_left_out [--recipe crc_mosaic.toml] [--epochs 6]
        [--change weight_decay=5e-3 …]

A quarter of each class of the published training tiles, the darkest or the lightest, is held out for validation; the
others are used for training. Other tiles of the same slides would flatter a network that has seen all slides, and the
test tiles must not influence any choice. Prints a JSON line; none is committed yet.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import imagecodecs

from benchmarks.crc_cells import CLASSES, LABELLED, cells_of
from benchmarks.crc_recipe import TILE_PX, changed, latest_training
from benchmarks.crc_slides import LabelledTile, lay_out, tiles_in
from benchmarks.machine import circumstances
from pipeline.models.launch import train
from pipeline.project import Project
from tests.crc_project import make_tile_set
from training.foundation.recipe_file import find_recipe
from training.recipe.config import load_recipe

LEFT_OUT = {"darkest": 0, "lightest": 3}
"""Held-out quarter of each class by lightness."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=Path("crc_mosaic.toml"))
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--change", nargs="*", default=[], metavar="KEY=VALUE", help="keys of the recipe")
    options = parser.parse_args()
    changes = dict(change.split("=", 1) for change in options.change)
    recipe = changed(find_recipe(options.recipe).read_text(), {**changes, "epochs": str(options.epochs)})
    tiles = tiles_in(Path(os.environ["GEMSLIDE_TEST_DATA"]) / LABELLED / "training")
    line = {
        "benchmark": "crc_left_out",
        "recipe": options.recipe.name,
        "changes": changes,
        "epochs": options.epochs,
        "balanced_accuracy": {look: balanced_accuracy(recipe, tiles, look) for look in LEFT_OUT},
    }
    print(json.dumps({**line, **circumstances("benchmarks.crc_left_out")}), flush=True)


def balanced_accuracy(recipe_text: str, tiles: Sequence[LabelledTile], look: str) -> float:
    """Balanced accuracy after the last epoch on the held-out tiles of a look, after training on the others."""
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as folder:
        project = Project(Path(folder))
        recipe = project.root / "left_out.toml"
        recipe.write_text(recipe_text)
        loaded = load_recipe(recipe)
        slides = {name: project.root / f"{name}.tiff" for name in ("train", "val")}
        for name, chosen in apart(tiles, look).items():
            lay_out(slides[name], chosen)
        make_tile_set(project, loaded.data.tile_set, list(slides.values()), str, cells_of(TILE_PX, TILE_PX // 2))
        train(recipe, project.root, loaded.parallel.data_parallel)
        epoch: dict[str, Any] = latest_training(project)["epochs"][-1]
        return round(epoch["balanced_accuracy"], 3)


def apart(tiles: Sequence[LabelledTile], look: str) -> dict[str, list[LabelledTile]]:
    """Training tiles, and held-out tiles of a look."""
    split: dict[str, list[LabelledTile]] = {"train": [], "val": []}
    for name in CLASSES:
        of_class = sorted((tile for tile in tiles if tile.class_name == name), key=_lightness)
        quarter = len(of_class) // 4
        begin = LEFT_OUT[look] * quarter
        split["val"] += of_class[begin : begin + quarter]
        split["train"] += of_class[:begin] + of_class[begin + quarter :]
    return split


def _lightness(tile: LabelledTile) -> float:
    return float(imagecodecs.jpeg_decode(tile.jpeg).mean())


if __name__ == "__main__":
    main()
