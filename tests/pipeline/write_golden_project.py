"""Writes the project under tests/golden anew: `python -m tests.pipeline.write_golden_project`.

Run it when the contract version of stores changes, and commit what it writes with the change.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.project import Project
from pipeline.qc.check import check_quality
from pipeline.settings.config import InferConfig, QualityConfig
from pipeline.store.layers.overlays import read_predictions
from pipeline.store.layers.qc_scores import read_quality
from pipeline.tiles.dataset import TileDataset
from tests import small_trained_project
from tests.pipeline.store.golden import GOLDEN, level_crcs

SIZE_WH_PX0 = (520, 390)
INFER = InferConfig(batch_size=4)
QUALITY = QualityConfig(cell_um=16)
KEPT = ("slides/small-test.ome.zarr", "models/{model_id}", "tiles/small.parquet", "runs")


def main() -> None:
    """Replaces the project under tests/golden by one that the present code writes."""
    small_trained_project.SIZE_WH_PX0 = SIZE_WH_PX0
    with tempfile.TemporaryDirectory() as folder:
        made = small_trained_project.make_small_project(Path(folder))
        infer_slide("small-test", Predictor.load(made.project.model_path(made.model_id)), made.project, INFER)
        check_quality("small-test", made.project, QUALITY)
        shutil.rmtree(GOLDEN, ignore_errors=True)
        for kept in KEPT:
            _copy(made.project.root, GOLDEN, kept.format(model_id=made.model_id))
        facts = facts_of(made.project, made.model_id)
    (GOLDEN / "facts.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def facts_of(project: Project, model_id: str) -> dict[str, Any]:
    """What is read from the project: checksums of pixels, predictions, scores and tiles."""
    store = project.store_path("small-test")
    dataset = TileDataset(project.root, "small")
    (of_slide,) = np.nonzero(dataset.splits == "test")
    return {
        "made_by": f"python -m tests.pipeline.write_golden_project, at commit {_commit()}",
        "model_id": model_id,
        "crc32_of_levels": level_crcs(store),
        "crc32_of_predictions": zlib.crc32(read_predictions(store, model_id).probabilities_cyx.tobytes()),
        "crc32_of_scores": zlib.crc32(read_quality(store).scores_cyx.tobytes()),
        "tiles": len(dataset),
        "fingerprint_of_tiles": dataset.fingerprint,
        "crc32_of_tiles": [zlib.crc32(dataset.read(int(index))) for index in of_slide],
    }


def _copy(source: Path, target: Path, name: str) -> None:
    if (source / name).is_dir():
        shutil.copytree(source / name, target / name)
        return
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source / name, target / name)


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    main()
