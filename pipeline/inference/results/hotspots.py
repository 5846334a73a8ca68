"""Places a pathologist should look at first: connected cells above the threshold, or the peaks within them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy import ndimage
from scipy.spatial import KDTree

from pipeline.files import write_text_atomic
from pipeline.project import Project
from pipeline.settings.config import InferConfig
from pipeline.store.layers.overlays import MAX_CELL_PX0, Predictions
from training.foundation.errors import UnreadableError
from training.foundation.reading import read_json_file
from training.foundation.words.class_order import lesion_classes

Hotspot = dict[str, Any]
"""x_px0, y_px0 (centre of its strongest cell), area_um2, score (that cell's probability), class."""

MAX_STORED = 1_000_000
_TOUCHING = np.ones((3, 3), int)


def wanted_classes(class_names: Sequence[str], config: InferConfig) -> tuple[str, ...]:
    """Classes to look for: those of the settings, else all but the first and those whose names mean healthy."""
    return config.hotspot_classes or lesion_classes(class_names)


def find_hotspots(
    predictions: Predictions,
    class_names: Sequence[str],
    *,
    mpp0: float,
    threshold: float,
    most: int,
    min_distance_um: float = 0.0,
) -> list[Hotspot]:
    """Areas where a class reaches `threshold`, strongest first, larger first among equals.

    Args:
        min_distance_um: 0: one hotspot per connected area, at its strongest cell. Otherwise an area has a hotspot at
            each local maximum that is at least this far from every stronger one (non-maximum suppression), and each of
            the area's cells is assigned to the nearest, so that they add up to the area.
    """
    spots: list[Hotspot] = []
    for name in class_names:
        spots += _hotspots_of_class(predictions, name, mpp0, threshold, min_distance_um)
    spots.sort(key=lambda spot: (-spot["score"], -spot["area_um2"], spot["y_px0"], spot["x_px0"]))
    return spots[:most]


def _hotspots_of_class(
    predictions: Predictions, name: str, mpp0: float, threshold: float, min_distance_um: float
) -> list[Hotspot]:
    probability_yx = np.nan_to_num(
        predictions.probabilities_cyx[predictions.class_names.index(name)].astype(np.float32)
    )
    labels, count = ndimage.label(probability_yx >= threshold, structure=_TOUCHING)
    if not count:
        return []
    stride_px0 = predictions.stride_px0
    cell_um = stride_px0 * mpp0
    if min_distance_um > 0:
        peaks, sizes = _separate_peaks(probability_yx, labels, min_distance_um / cell_um)
    else:
        numbers = range(1, count + 1)
        peaks = np.array(ndimage.maximum_position(probability_yx, labels, numbers))
        sizes = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    return [
        {
            "x_px0": round((column + 0.5) * stride_px0),
            "y_px0": round((row + 0.5) * stride_px0),
            "area_um2": round(float(size) * cell_um**2, 1),
            "score": round(float(probability_yx[row, column]), 4),
            "class": name,
        }
        for (row, column), size in zip(peaks.tolist(), sizes.tolist(), strict=True)
    ]


def _separate_peaks(
    probability_yx: NDArray[np.float32], labels: NDArray[np.int32], min_distance_cells: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(row, column) of peaks, int64 (peaks, 2), and how many cells of the same area are nearest to each."""
    is_maximum = (probability_yx == ndimage.maximum_filter(probability_yx, footprint=_TOUCHING)) & (labels > 0)
    candidates = np.argwhere(is_maximum)
    strongest_first = np.argsort(-probability_yx[is_maximum], kind="stable")
    candidates = candidates[strongest_first]
    area_of = labels[candidates[:, 0], candidates[:, 1]]
    tree = KDTree(candidates)
    is_open = np.ones(len(candidates), bool)
    kept = []
    for index in range(len(candidates)):
        if not is_open[index]:
            continue
        kept.append(index)
        near = np.array(tree.query_ball_point(candidates[index], min_distance_cells * (1 - 1e-9)))
        is_open[near[area_of[near] == area_of[index]]] = False
    peaks = candidates[kept]
    return peaks, _nearest_counts(labels, peaks)


def _nearest_counts(labels: NDArray[np.int32], peaks: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each peak, the number of cells of its own area that are nearest to it."""
    cells = np.argwhere(labels > 0)
    # A third coordinate keeps areas further apart than any two cells of the same area.
    apart = 4.0 * sum(labels.shape)
    nearest = KDTree(_with_area(peaks, labels, apart)).query(_with_area(cells, labels, apart))[1]
    return np.bincount(nearest, minlength=len(peaks))


def _with_area(cells: NDArray[np.int64], labels: NDArray[np.int32], apart: float) -> NDArray[np.float64]:
    return np.column_stack([cells, apart * labels[cells[:, 0], cells[:, 1]]])


@dataclass(frozen=True)
class Hotspots:
    """A model's hotspots on a slide, strongest first.

    Attributes:
        threshold: the probability that they reach, from the settings they were made with.
    """

    threshold: float
    spots: list[Hotspot]


def write_hotspots(path: Path, hotspots: Hotspots) -> None:
    """Write `hotspots.json`. Raises DiskFullError: no space, or not writable."""
    content = {"threshold": hotspots.threshold, "hotspots": hotspots.spots}
    write_text_atomic(path, json.dumps(content, indent=1) + "\n")


HOTSPOTS_FILE = "hotspots.json"
FOUR_DECIMALS = 0.5e-4 + 1e-7
"""Largest difference between a number written with four decimals and the array's."""


def false_hotspot(spots: Sequence[Hotspot], predictions: Predictions) -> str | None:
    """How the first hotspot that these predictions do not have differs from them; None if all agree."""
    for number, spot in enumerate(spots, start=1):
        values = predictions.at(spot["x_px0"], spot["y_px0"])
        if values is None or not abs(values.get(spot["class"], np.nan) - spot["score"]) <= FOUR_DECIMALS:
            return f"hotspot {number} has a score of {spot['score']}, but its cell has {values}"
    return None


def check_hotspots(hotspots: Hotspots, predictions: Predictions, slide_id: str) -> None:
    """Check that a list was made from a slide's predictions, by the rule of `gemslide verify`.

    Raises:
        UnreadableError: it was not, such as one copied from another slide.
    """
    if fault := false_hotspot(hotspots.spots, predictions):
        raise not_of_predictions(HOTSPOTS_FILE, predictions, slide_id, fault)


def not_of_predictions(name: str, predictions: Predictions, slide_id: str, fault: str) -> UnreadableError:
    """Error about a result file that disagrees with a slide's predictions.

    Args:
        fault: how it disagrees, as a clause.
    """
    return UnreadableError(
        f"{name} of model {predictions.model_id} for slide {slide_id}: is not of these predictions: {fault}. "
        "The file was edited, or comes from another slide or an earlier run. Delete it and run `gemslide infer` again."
    )


_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


class _Spot(BaseModel):
    """One entry of `hotspots.json`."""

    model_config = _STRICT

    x_px0: int = Field(ge=0, le=MAX_CELL_PX0)
    y_px0: int = Field(ge=0, le=MAX_CELL_PX0)
    area_um2: float = Field(ge=0)
    score: float = Field(ge=0, le=1)
    class_name: str = Field(alias="class", max_length=200)


class _Stored(BaseModel):
    """`hotspots.json`."""

    model_config = _STRICT

    threshold: float = Field(gt=0, lt=1)
    hotspots: list[_Spot] = Field(max_length=MAX_STORED)


def read_hotspots(project: Path, slide_id: str, model_id: str) -> Hotspots | None:
    """Hotspots of a slide; None where inference left no file.

    Raises:
        UnreadableError: the file is damaged.
    """
    path = Project(project).result_dir(slide_id, model_id) / HOTSPOTS_FILE
    try:
        stored = _Stored.model_validate(read_json_file(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # pydantic's error is a ValueError, too
        raise UnreadableError(
            f"{path.parent}: hotspots.json is damaged ({' '.join(str(error).split()):.200}). "
            "Run `gemslide infer` again."
        ) from error
    return Hotspots(stored.threshold, [spot.model_dump(by_alias=True) for spot in stored.hotspots])
