"""Places a pathologist should look at first: connected cells above the threshold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from scipy import ndimage

from pipeline.errors import UnreadableError
from pipeline.files import write_text_atomic
from pipeline.project import Project
from pipeline.store.overlays import MAX_CELL_PX0, Predictions
from training.foundation.reading import read_json_file

Hotspot = dict[str, Any]
"""x_px0, y_px0 (centre of its strongest cell), area_um2, score (highest probability), class."""

MAX_STORED = 1_000_000
_TOUCHING = np.ones((3, 3), int)


def find_hotspots(
    predictions: Predictions, class_names: Sequence[str], *, mpp0: float, threshold: float, most: int
) -> list[Hotspot]:
    """Connected areas where a class reaches `threshold`, strongest first, larger first among equals."""
    found: list[Hotspot] = []
    for name in class_names:
        found += _of_class(predictions, name, mpp0, threshold)
    found.sort(key=lambda spot: (-spot["score"], -spot["area_um2"], spot["y_px0"], spot["x_px0"]))
    return found[:most]


def _of_class(predictions: Predictions, name: str, mpp0: float, threshold: float) -> list[Hotspot]:
    probability_yx = predictions.probabilities_cyx[predictions.class_names.index(name)].astype(np.float32)
    labels, count = ndimage.label(np.nan_to_num(probability_yx, nan=0.0) >= threshold, structure=_TOUCHING)
    if not count:
        return []
    stride_px0 = predictions.stride_px0
    cell_um2 = (stride_px0 * mpp0) ** 2
    numbers = range(1, count + 1)
    peaks = ndimage.maximum_position(np.nan_to_num(probability_yx, nan=0.0), labels, numbers)
    sizes = ndimage.sum_labels(np.ones_like(labels), labels, numbers)
    return [
        {
            "x_px0": round((column + 0.5) * stride_px0),
            "y_px0": round((row + 0.5) * stride_px0),
            "area_um2": round(float(size) * cell_um2, 1),
            "score": round(float(probability_yx[row, column]), 4),
            "class": name,
        }
        for (row, column), size in zip(peaks, sizes, strict=True)
    ]


def write_hotspots(path: Path, hotspots: list[Hotspot]) -> None:
    """Hotspots as JSON."""
    write_text_atomic(path, json.dumps(hotspots, indent=1) + "\n")


class _Stored(BaseModel):
    """One entry of `hotspots.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)

    x_px0: int = Field(ge=0, le=MAX_CELL_PX0)
    y_px0: int = Field(ge=0, le=MAX_CELL_PX0)
    area_um2: float = Field(ge=0)
    score: float = Field(ge=0, le=1)
    class_name: str = Field(alias="class", max_length=200)


_STORED: TypeAdapter[list[_Stored]] = TypeAdapter(Annotated[list[_Stored], Field(max_length=MAX_STORED)])


def read_hotspots(project: Path, slide_id: str, model_id: str) -> list[Hotspot]:
    """Hotspots of a slide; none where inference left no file.

    Raises:
        UnreadableError: the file is damaged.
    """
    path = Project(project).result_dir(slide_id, model_id) / "hotspots.json"
    try:
        stored = _STORED.validate_python(read_json_file(path))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:  # pydantic's own is a ValueError, too
        raise UnreadableError(
            f"{path.parent}: hotspots.json is damaged ({' '.join(str(error).split()):.200}). "
            "Run `gemslide infer` again."
        ) from error
    return [spot.model_dump(by_alias=True) for spot in stored]
