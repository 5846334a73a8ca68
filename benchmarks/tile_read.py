"""Differences of probabilities and classes with and without a stored level at the model's µm/px, on the same pixels.

    GEMSLIDE_TEST_DATA=… .venv/bin/python -m benchmarks.tile_read [--epochs 8] [--folder DIR] [--trained]

A small network is trained on slides `train_0` to `train_2` of crc-mosaic (tiles of 56 px at 2 µm/px, a quarter of the
scan; `read = "level"`). With each way to read tiles it predicts three real slides twice: the original files, with a
JPEG level at 2 µm/px, and copies whose first page no longer links to a further one, so that only the same level 0 is
left and ingest builds the levels. Also compared: tiles as WSInfer reads them (a region of level 0, resized by Pillow's
bilinear filter).

Prints a JSON line; the committed ones are in benchmarks/results/tile_read.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from benchmarks.crc_mosaic import RECIPE
from benchmarks.machine import circumstances
from pipeline.inference.infer import infer_slide, slide_grid
from pipeline.inference.predictor import Predictor, run_on_of
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.models.launch import train
from pipeline.models.sample_tiles import SampledTiles
from pipeline.project import Project
from pipeline.settings.config import InferConfig, IngestConfig, TileConfig
from pipeline.store.layers.overlays import read_predictions
from pipeline.store.reading.reader import StoreReader
from tests.crc_project import make_tile_set
from training.foundation.reading import read_json_file
from training.foundation.tile_read import TILE_READS, TileRead

TILE_PX, MPP, MPP0 = 56, 2.0, 0.5
CLASSES = ("AC", "H", "S", "T", "V")
TILE_SET, WITHOUT = "level", "-without"
SLIDES = {
    "test_10": "crc-mosaic/test_10.tiff",
    "test_12": "crc-mosaic/test_12.tiff",
    "P2_0039": "kangyeolk+colorectal-cancer-segmentation/P2_0039_section1.tiff",
}
SETTINGS = {"brightness": 0.1, "contrast": 0.2, "stain": 0.2, "precision": "fp32", "depth": 11, "lr": 0.05, "batch": 16}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep the project there; ingested slides are used again")
    parser.add_argument("--trained", action="store_true", help="compare by the model that --folder has, as trained")
    options = parser.parse_args()
    data = Path(os.environ["GEMSLIDE_TEST_DATA"])
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as temporary:
        project = Project(options.folder or Path(temporary))
        line = measure(project, data, options)
    print(json.dumps({**line, **circumstances("benchmarks.tile_read")}), flush=True)


def measure(project: Project, data: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train a network, and compare its predictions for each way to read."""
    for slide_id, path in SLIDES.items():
        copy = project.root / f"{slide_id}{WITHOUT}.tiff"
        project.root.mkdir(parents=True, exist_ok=True)
        first_page_only(data / path, copy)
        for source, name in ((data / path, slide_id), (copy, f"{slide_id}{WITHOUT}")):
            ingest_slide(IngestRequest(source, name, MPP0), project, IngestConfig())
    model_id = trained(project, data, options)
    return {
        "benchmark": "tile_read",
        "model": model_id,
        "read": {read: compared(project, read, model_id) for read in TILE_READS},
        "settings": {"epochs": options.epochs, "seed": options.seed, "tile_px": TILE_PX, "mpp": MPP, **SETTINGS},
    }


def first_page_only(source: Path, target: Path) -> None:
    """Copy a pyramid so that its first page links to no other: the same bytes of level 0, and no other level."""
    with tifffile.TiffFile(source) as tiff:
        page, form = tiff.pages.first, tiff.tiff
        at = page.offset + form.tagnosize + len(page.tags) * form.tagsize
    shutil.copyfile(source, target)
    with target.open("r+b") as file:
        file.seek(at)
        file.write(bytes(form.offsetsize))


def trained(project: Project, data: Path, options: argparse.Namespace) -> str:
    """Model of the last epoch of a run on tiles of the nearest stored level."""
    if options.trained:
        records = [read_json_file(path) for path in sorted(project.runs_dir.glob("*.json"))]
        return str([record["models"]["last"] for record in records if record.get("models")][-1])
    tiles = TileConfig(tile_px=TILE_PX, mpp=MPP, overlap_px=TILE_PX // 2, min_label_fraction=0.9, classes=CLASSES)
    slides = sorted((data / "crc-mosaic").glob("train_*.tiff"))
    make_tile_set(project, TILE_SET, slides, lambda slide_id: "val" if slide_id == "train_2" else "train", tiles)
    recipe = project.root / f"{TILE_SET}.toml"
    settings = {**SETTINGS, "epochs": options.epochs, "seed": options.seed}
    recipe.write_text(RECIPE.format(**settings).replace('"train"', f'"{TILE_SET}"', 1))
    return train(recipe, project.root, 1).last


def compared(project: Project, read: TileRead, model_id: str) -> dict[str, Any]:
    """Differences of probabilities over all slides."""
    config = InferConfig(formats=(), read=read, allow_other_read=True)
    predictor = Predictor.load(project.models_dir / model_id, run_on_of("cpu", config))
    pairs: dict[str, list[tuple[NDArray[np.float32], NDArray[np.float32]]]] = {}
    for slide_id in SLIDES:
        own, without = (predicted(project, predictor, name, config) for name in (slide_id, f"{slide_id}{WITHOUT}"))
        pairs.setdefault("with and without the stored level", []).append((own, without))
        theirs = by_wsinfer(project, predictor, slide_id, own)
        pairs.setdefault("gemslide's and WSInfer's reading", []).append((own, theirs))
    return {name: differences(arrays) for name, arrays in pairs.items()}


def predicted(project: Project, predictor: Predictor, slide_id: str, config: InferConfig) -> NDArray[np.float32]:
    """Probabilities (cells, classes); NaN where there is no tissue."""
    infer_slide(slide_id, predictor, project, config)
    values_cyx = read_predictions(project.store_path(slide_id), predictor.model_id).probabilities_cyx
    return values_cyx.reshape(len(values_cyx), -1).T.astype(np.float32)


def by_wsinfer(
    project: Project, predictor: Predictor, slide_id: str, like_nk: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The same cells' probabilities from tiles as WSInfer reads them."""
    reader = StoreReader(project.store_path(slide_id))
    chosen = np.flatnonzero(np.isfinite(like_nk[:, 0]))
    tiles_nhwc = SampledTiles(reader, slide_grid(reader, predictor), chosen).read_as_wsinfer()
    values_nk = np.full_like(like_nk, np.nan)
    for start in range(0, len(chosen), 256):
        values_nk[chosen[start : start + 256]] = predictor.predict(tiles_nhwc[start : start + 256])
    return values_nk


def differences(pairs: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]]) -> dict[str, Any]:
    """Differences over the cells of all slides that both have."""
    one_nk, other_nk = (np.concatenate(side) for side in zip(*pairs, strict=True))
    known, other_known = np.isfinite(one_nk[:, 0]), np.isfinite(other_nk[:, 0])
    both = known & other_known
    apart_nk = np.abs(one_nk[both] - other_nk[both])
    likeliest, other_likeliest = one_nk[both].argmax(1), other_nk[both].argmax(1)
    return {
        "tiles": int(both.sum()),
        "tiles_of_one_only": int((known != other_known).sum()),
        "mean_difference": round(float(apart_nk.mean()), 4),
        "mean_largest_of_classes": round(float(apart_nk.max(1).mean()), 4),
        "largest_difference": round(float(apart_nk.max()), 4),
        "other_class": round(float((likeliest != other_likeliest).mean()), 4),
    }


if __name__ == "__main__":
    main()
