"""A study of ten slides of eight patients over one small slide's pixels, with known predictions.

Six slides have "warm" tissue, outlined as a lesion; four are "cold" throughout. Probabilities are the label with noise.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.cohort.manifest import load_cohort
from pipeline.project import Project
from pipeline.store.layers.overlays import Predictions, write_predictions
from pipeline.tiles.tile import make_tile_table
from tests.small_trained_project import CELL_PX0, MPP0, SIZE_WH_PX0, TILES, SmallProject

COLUMNS, ROWS = SIZE_WH_PX0[0] // CELL_PX0, SIZE_WH_PX0[1] // CELL_PX0
WARM_SLIDES, NUM_SLIDES = 6, 10
MIDDLE = COLUMNS // 2
WEAK = {3: 0.05, 4: 0.4}
"""Strength of the model's response to the lesion of these slides; 1 elsewhere."""


@dataclass(frozen=True)
class Study:
    """Paths and model ids of the study."""

    project: Project
    manifest: Path
    model_id: str
    other_id: str
    """A worse model."""


def slide_id(number: int) -> str:
    return f"slide-{number}"


def make_study(small_project: SmallProject, folder: Path) -> Study:
    project = Project(folder / "study")
    project.models_dir.mkdir(parents=True)
    other_id = f"worse-{small_project.model_id.rpartition('-')[2]}"
    for model_id in (small_project.model_id, other_id):
        shutil.copytree(small_project.project.model_path(small_project.model_id), project.model_path(model_id))
    shutil.copytree(small_project.project.store_path("small-train"), project.store_path("small-train"))
    train = small_project.cohort.parent / "file-train.geojson"
    rows = ["path,slide_id,patient_id,scanner,annotations,split", f"x.tiff,small-train,p-train,A,{train},train"]
    for number in range(NUM_SLIDES):
        _copy_store(small_project, project, slide_id(number))
        outlines = folder / f"{slide_id(number)}.geojson"
        _write_outlines(outlines, has_lesion=number < WARM_SLIDES)
        patient, scanner = f"patient-{min(number, 7)}", "AB"[number % 2]
        rows.append(f"x{number}.tiff,{slide_id(number)},{patient},{scanner},{outlines.name},test")
        for model_id, noise in ((small_project.model_id, 1.0), (other_id, 3.0)):
            write_known_predictions(project, slide_id(number), model_id, number, noise)
    manifest = folder / "cohort.csv"
    manifest.write_text("\n".join(rows) + "\n")
    make_tile_table(project, "tiles", TILES, cohort=load_cohort(manifest))
    return Study(project, manifest, small_project.model_id, other_id)


def write_known_predictions(project: Project, slide: str, model_id: str, number: int, noise: float) -> None:
    random = np.random.default_rng(number)
    label = np.zeros((ROWS, COLUMNS))
    if number < WARM_SLIDES:
        label[:, :MIDDLE] = WEAK.get(number, 1.0)
    warm = 1 / (1 + np.exp(-(4 * (label - 0.5) + noise * random.normal(size=label.shape) + 0.7 * random.normal())))
    values = np.stack([1 - warm, warm]).astype(np.float16)
    predictions = Predictions(model_id, ("cold", "warm"), values, float(CELL_PX0), float(CELL_PX0), {})
    write_predictions(project.store_path(slide), predictions, mpp0=MPP0)


def _copy_store(small_project: SmallProject, project: Project, slide: str) -> None:
    store = project.store_path(slide)
    shutil.copytree(small_project.project.store_path(small_project.test_slide), store)
    shutil.rmtree(store / "predictions", ignore_errors=True)
    root = json.loads((store / "zarr.json").read_text())
    root["attributes"]["gemslide"]["slide_id"] = slide
    (store / "zarr.json").write_text(json.dumps(root))


def _write_outlines(path: Path, *, has_lesion: bool) -> None:
    left, middle, right = CELL_PX0, MIDDLE * CELL_PX0, (COLUMNS - 1) * CELL_PX0
    areas = [("warm", left, middle), ("cold", middle, right)] if has_lesion else [("cold", left, right)]
    top, bottom = CELL_PX0, (ROWS - 1) * CELL_PX0
    features = [
        {
            "type": "Feature",
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[x0, top], [x1, top], [x1, bottom], [x0, bottom], [x0, top]]],
            },
            "properties": {"objectType": "annotation", "classification": {"name": name, "color": [1, 2, 3]}},
        }
        for name, x0, x1 in areas
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")
