"""A cohort whose features hold what there is to learn: no network sees a pixel."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.project import Project
from pipeline.store.layers.features import Features, new_features
from pipeline.store.reading.reader import StoreReader

DIMS = 6
SPLITS = ("train",) * 8 + ("val",) * 4 + ("test",) * 4
SIDE_PX0 = 64.0
WEIGHTS = "c" * 64
ENCODER_ID = "planted-0123abcd"


@dataclass(frozen=True)
class Planted:
    """A project with features, a manifest and a clinical table."""

    project: Project
    manifest: Path
    table: Path
    patients: tuple[str, ...]
    classes: tuple[str, ...]
    """Class of each patient."""
    marked: dict[str, int]
    """The tile of each slide that decides, in slides of "b"."""


def plant(store: Path, folder: Path, *, seed: int = 0) -> Planted:
    """Copies of one store as slides of sixteen patients, the first with two; one tile decides the class."""
    random = np.random.default_rng(seed)
    project = Project(folder)
    rows, clinical, marked, patients, classes = [], [], {}, [], []
    for number, split in enumerate(SPLITS):
        patient, name = f"P-{number:02}", "b" if number % 2 else "a"
        patients.append(patient)
        classes.append(name)
        for part in range(2 if number == 0 else 1):
            slide = f"S-{number:02}-{part}"
            copy_slide(store, project.store_path(slide), slide)
            rows.append(f"{slide}.svs,{slide},{patient},{'site1' if number % 3 else 'site2'},{split}")
            marked[slide] = _write_features(project.store_path(slide), random, decides=name == "b")
        time, event = 10 + 3 * number + (0 if number % 2 else 40), int(number % 4 != 2)
        clinical.append(f"{patient},{name},{number * 1.5:g},{time},{event}")
    manifest, table = folder / "cohort.csv", folder / "clinical.csv"
    manifest.write_text("\n".join(["path,slide_id,patient_id,site,split", *rows]) + "\n")
    table.write_text("\n".join(["patient_id,grade (WHO),Größe mm,months,died", *clinical]) + "\n")
    return Planted(project, manifest, table, tuple(patients), tuple(classes), marked)


def copy_slide(store: Path, copy: Path, slide_id: str) -> None:
    shutil.copytree(store, copy)
    root = json.loads((copy / "zarr.json").read_text())
    root["attributes"]["gemslide"]["slide_id"] = slide_id
    (copy / "zarr.json").write_text(json.dumps(root))


def _write_features(store: Path, random: np.random.Generator, *, decides: bool) -> int:
    reader = StoreReader(store)
    columns, rows = (int(size // SIDE_PX0) for size in reader.size_wh_px0)
    chosen = np.sort(random.choice(columns * rows, int(random.integers(20, 60)), replace=False))
    values = 0.1 * random.normal(size=(len(chosen), DIMS))
    tile = int(random.integers(len(chosen)))
    if decides:
        values[tile, :2] += 4.0
    corners = np.stack([chosen % columns, chosen // columns], 1) * SIDE_PX0
    features = Features(
        encoder_id=ENCODER_ID,
        values_nd=values.astype(np.float16),
        xy0_n2=corners.astype(np.int32),
        side_px0=SIDE_PX0,
        stride_px0=SIDE_PX0,
        attributes={
            "encoder": {"licence": "CC0-1.0", "citation": "Nobody, 2026"},
            "weights_sha256": WEIGHTS,
            "made_from": {
                "source_sha256": reader.source_sha256,
                "encoder": {"encoder_id": ENCODER_ID, "weights_sha256": WEIGHTS},
                "tiles": {
                    "tile_px": 32,
                    "mpp": 1.0,
                    "min_tissue": 0.5,
                    "overlap": 0.0,
                    "mask": "b" * 64,
                    "read": "level",
                },
            },
        },
    )
    with new_features(store, features):
        pass
    return tile


RECIPE = """
[data]
source = "features"
encoder = "planted"
cohort = "cohort.csv"
table = "clinical.csv"
unit = "{unit}"
max_tiles = 40
[[target]]
name = "grade"
columns = ["grade (WHO)"]
kind = "class"
{targets}
[model]
name = "{model}"
hidden = 32
heads = 2
layers = 2
[parallel]
strategy = "{strategy}"
num_stages = {stages}
num_microbatches = 4
timeout_s = 120.0
[optim]
name = "adamw"
lr = 0.01
[train]
epochs = {epochs}
"""
SURVIVAL = """[[target]]
name = "survival"
columns = ["months", "died"]
kind = "survival"
[[target]]
name = "size"
columns = ["Größe mm"]
kind = "number"
"""


def write_recipe(folder: Path, name: str = "slides", **changes: object) -> Path:
    """Write a recipe with some settings."""
    usual = {"unit": "patient", "targets": "", "model": "abmil", "strategy": "single", "stages": 1, "epochs": 20}
    path = folder / f"{name}.toml"
    path.write_text(RECIPE.format(**{**usual, **changes}))
    return path
