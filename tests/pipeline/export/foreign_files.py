"""A project with features to exchange, and files of TRIDENT, CLAM and STAMP as these programs write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np

from pipeline.export.features.tile_size import TileSize
from pipeline.project import Project
from pipeline.store.layers.features import Features, new_features
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import ingest, sample_image, write_jpeg_pyramid
from tests.pipeline.store.made_features import made_features

SIDE_ONLY = TileSize(side_px0=32.0)
GIVEN = {"trident": TileSize(), "clam": SIDE_ONLY, "stamp": TileSize()}
FILES = {"trident": "S-1.h5", "clam": "h5_files/S-1.h5", "stamp": "S-1.h5"}


def exchange_project(root: Path) -> Project:
    """Two slides with features: S-1 of 400 × 300 px at 0.5 µm/px, and S-2, the same at 0.25 µm/px with 800 × 600 px."""
    for number, (scale, mpp) in enumerate(((1, 0.5), (2, 0.25)), start=1):
        pixels = np.kron(sample_image(400, 300), np.ones((scale, scale, 1), np.uint8))
        source = write_jpeg_pyramid(root / f"{number}.tiff", [pixels], mpp=mpp)
        reader = StoreReader(ingest(source, root, slide_id=f"S-{number}").store)
        made = made_features(StoreReader(root / "slides/S-1.ome.zarr"), 20)
        made_from = made.attributes["made_from"] | {"source_sha256": reader.source_sha256}
        with new_features(
            reader.path,
            replace(
                made, xy0_n2=made.xy0_n2 * np.int32(scale), side_px0=32.0 * scale, stride_px0=24.0 * scale,
                attributes={**made.attributes, "made_from": made_from},
            ),
        ):  # fmt: skip
            pass
    return Project(root)


def written(
    folder: Path,
    program: str,
    features: Features,
    *,
    coords: np.ndarray | None = None,
    values: np.ndarray | None = None,
    attributes: dict[str, object] | None = None,
) -> Path:
    """A file as the program itself writes it, with parts replaced; an attribute that is None is left out."""
    path = folder / "in.h5"
    values = features.values_nd.astype(np.float32) if values is None else values
    own = {"unit": "um", "tile_size_um": 16.0, "tile_size_px": 16, "extractor": "e", "feat_type": "tile"}
    if program == "trident":
        own = {
            "patch_size": 16, "patch_size_level0": 32, "overlap": 4, "level0_width": 400, "level0_height": 300,
            "target_magnification": 10, "level0_magnification": 20, "name": "x", "savetodir": "/home/jane",
        }  # fmt: skip
    corners = features.xy0_n2 * (0.5 if program == "stamp" else 1)
    with h5py.File(path, "w") as file:
        file["feats" if program == "stamp" else "features"] = values
        file["coords"] = corners if coords is None else coords
        if program != "clam":
            kept = {name: value for name, value in {**own, **(attributes or {})}.items() if value is not None}
            (file if program == "stamp" else file["coords"]).attrs.update(kept)
    return path


def with_one(array: np.ndarray, index: object, value: object) -> np.ndarray:
    """A copy as float64 with one element, or row, replaced."""
    changed = array.astype(np.float64)
    changed[index] = value
    return changed
