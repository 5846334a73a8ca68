"""Slides large enough for two tiles of 1024 px, of scikit-image's real tissue."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import tifffile
from skimage import data

MPP0 = 0.5


def make_large_cohort(folder: Path) -> Path:
    """Make a train and a val slide with one tile of each class. Return the manifest."""
    folder.mkdir(parents=True)
    rows = ["path,patient_id,annotations,split"]
    image = data.immunohistochemistry()
    for number, split in enumerate(("train", "val")):
        pixels = np.ascontiguousarray(np.tile(np.rot90(image, number), (2, 4, 1)))
        pixels[:, 1024:] = pixels[:, 1024:, ::-1]  # the two tiles differ
        tifffile.imwrite(
            folder / f"{split}.tiff", pixels, tile=(256, 256), photometric="rgb", compression="jpeg",
            resolution=(1e4 / MPP0, 1e4 / MPP0), resolutionunit="CENTIMETER", metadata=None,
        )  # fmt: skip
        (folder / f"{split}.geojson").write_text(json.dumps([_feature("a", 0), _feature("b", 1024)]))
        rows.append(f"{split}.tiff,patient-{number},{split}.geojson,{split}")
    manifest = folder / "cohort.csv"
    manifest.write_text("\n".join(rows) + "\n")
    return manifest


def _feature(name: str, x: int) -> dict[str, object]:
    ring = [[x, 0], [x + 1024, 0], [x + 1024, 1024], [x, 1024], [x, 0]]
    geometry = {"type": "Polygon", "coordinates": [ring]}
    return {"type": "Feature", "geometry": geometry, "properties": {"classification": {"name": name}}}
