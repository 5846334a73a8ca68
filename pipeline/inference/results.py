"""The files of a slide's results, beside its store: all of them from the one array of predictions."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from pipeline.annotations.geojson import qupath_origin_xy0
from pipeline.config import InferConfig
from pipeline.export.csv.predictions import write_csv
from pipeline.export.qupath.predictions import write_geojson
from pipeline.inference.heatmap import THUMBNAIL_PX, write_heatmap
from pipeline.inference.hotspots import find_hotspots, write_hotspots
from pipeline.store.overlays import Predictions
from pipeline.store.reader import StoreReader
from pipeline.store.render import thumbnail

OUR_FILES = {"predictions.csv", "predictions.geojson", "hotspots.json"}
"""And a heatmap for each class."""


def heatmap_name(class_name: str) -> str:
    """File of a class's heatmap. What could mean a folder becomes an underscore, and no two classes share a file."""
    word = re.sub(r"[^A-Za-z0-9.-]", "_", class_name)
    told_apart = "" if word == class_name else f"-{hashlib.sha256(class_name.encode()).hexdigest()[:8]}"
    return f"heatmap_{word[:100]}{told_apart}.png"


def write_results(reader: StoreReader, predictions: Predictions, result_dir: Path, config: InferConfig) -> int:
    """CSV, GeoJSON, hotspots and heatmap beside the store. Returns the number of hotspots."""
    wanted = config.hotspot_classes or predictions.class_names[1:]
    hotspots = find_hotspots(
        predictions, wanted, mpp0=reader.mpp0, threshold=config.threshold, most=config.max_hotspots
    )
    write_csv(result_dir / "predictions.csv", reader.slide_id, predictions)
    origin_xy0 = qupath_origin_xy0(reader.attributes.bounds_px0)
    write_geojson(result_dir / "predictions.geojson", predictions, reader.source_sha256, origin_xy0=origin_xy0)
    write_hotspots(result_dir / "hotspots.json", hotspots)
    # With two classes the second says it all; with more, each has its own image.
    shown = predictions.class_names if len(predictions.class_names) > 2 else wanted
    image = thumbnail(reader, THUMBNAIL_PX)
    for class_name in shown:
        path = result_dir / heatmap_name(class_name)
        write_heatmap(path, reader, image, predictions, class_name)
    return len(hotspots)


def keep_what_others_wrote(old: Path, new: Path, class_names: Sequence[str]) -> None:
    """What inference does not write into a slide's results: somebody's notes, say. Folders and links come along."""
    ours = {*OUR_FILES, *(heatmap_name(name) for name in class_names)}
    for path in old.iterdir() if old.is_dir() else ():
        if path.name in ours or path.name[0] == ".":
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, new / path.name, symlinks=True)
        elif path.is_file() or path.is_symlink():
            shutil.copy2(path, new / path.name, follow_symlinks=False)
