"""What a slide-level model leaves behind for the small slide: attention in the store, and its predictions beside it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from pipeline.project import Project
from pipeline.store.layers.attention import Attention, new_attention
from tests.pathology_app.small_project import HEIGHT_PX0, MPP0, SLIDE_ID, STRIDE_PX0, WIDTH_PX0

SLIDE_MODEL = "abmil-4e5f6071"
UNIT = "P-17"
PEAK_XY_PX0 = (1376, 352)
"""Centre of the most attended tile."""
PEAK = 14.5
TARGETS: dict[str, dict[str, Any]] = {
    "grade (WHO)": {"kind": "class", "values": [0.125, 0.875], "classes": ["low", "high"], "answer": "high"},
    "Größe mm": {"kind": "number", "values": [12.25], "answer": 12.25},
    "survival": {"kind": "cox", "values": [0.5], "answer": 0.5, "group": "higher risk", "median_risk": 0.25},
    "relapse": {
        "kind": "discrete", "values": [0.9, 0.5], "bounds": [12.0, 36.0], "answer": -1.4, "group": "lower risk",
        "median_risk": -1.0,
    },
}  # fmt: skip


def times_average_yx() -> np.ndarray:
    """A ramp with one peak in its middle; the outer cells have no tile."""
    rows, columns = -(-HEIGHT_PX0 // STRIDE_PX0), -(-WIDTH_PX0 // STRIDE_PX0)
    values = np.linspace(0.2, 1.8, rows * columns, dtype=np.float32).reshape(rows, columns)
    column, row = (at // STRIDE_PX0 for at in PEAK_XY_PX0)
    values[row - 1 : row + 2, column - 1 : column + 2] = 6.25
    values[row, column] = PEAK
    values[:2] = values[-2:] = values[:, :3] = values[:, -3:] = np.nan
    return values.astype(np.float16)


def write_small_attention(
    project: Project, slide_id: str = SLIDE_ID, *, slides: tuple[str, ...] = (SLIDE_ID,), **record: Any
) -> None:
    """Write what inference of a slide-level model writes.

    Args:
        slides: of the patient.
        record: what replaces the record's content.
    """
    made_from = {"model": {"model_id": SLIDE_MODEL}, "unit": UNIT, "features": dict.fromkeys(slides, "d" * 64)}
    values_yx = times_average_yx()
    attributes = {"made_from": made_from, "unit": UNIT, "slides": list(slides)}
    attention = Attention(SLIDE_MODEL, values_yx, float(STRIDE_PX0), float(STRIDE_PX0), attributes)
    with new_attention(project.store_path(slide_id), attention, mpp0=MPP0):
        pass
    content = {
        "about": "Research use only.", "model_id": SLIDE_MODEL, "level": "patient", "unit": UNIT,
        "slides": list(slides), "tiles": int(np.isfinite(values_yx).sum()), "targets": TARGETS, "made_from": made_from,
        "versions": {},
    }  # fmt: skip
    folder = project.result_dir(slide_id, SLIDE_MODEL)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "slide_prediction.json").write_text(json.dumps(content | record))
