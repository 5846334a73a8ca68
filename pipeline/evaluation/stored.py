"""Probabilities of labelled tiles and whole slides, from stored predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.measure import regionprops

from pipeline.evaluation.statistics.metrics import Probabilities
from pipeline.store.layers.overlays import Predictions
from training.foundation.errors import BadRecipeError, EmptyTableError
from training.foundation.words.counts import counted

if TYPE_CHECKING:
    import pandas as pd

TOP_SHARE = 0.1
SlideScore = Literal["max", "mean", "top_decile"]
RULES: tuple[SlideScore, ...] = get_args(SlideScore)
_TOUCHING = np.ones((3, 3), int)


def tile_probabilities(slide_id: str, model_id: str, rows: pd.DataFrame, predictions: Predictions) -> Probabilities:
    """Probabilities of a slide's tiles, float32 (tiles, classes).

    The tiles must be those that the model predicted; if predictions were merged from overlapping squares, a tile has
    the mean of the cells whose centre it covers.

    Raises:
        BadRecipeError: the model predicted other squares. EmptyTableError: it did not predict a tile.
    """
    if _are_merged(predictions, rows):
        values = _means(predictions, rows)
    else:
        columns, lines = _cells(slide_id, rows, predictions)
        values = predictions.probabilities_cyx[:, lines, columns].T.astype(np.float32)
    missing = np.isnan(values).any(1)
    if missing.any():
        raise EmptyTableError(
            f"slide {slide_id}: model {model_id} has no prediction for {int(missing.sum()):,} of "
            f"{counted(len(values), 'labelled tile')}. Infer with the same min_tissue as the tile set."
        )
    return values


def _are_merged(predictions: Predictions, rows: pd.DataFrame) -> bool:
    """Whether cells were merged from overlapping squares: they are smaller than the tiles, and adjacent."""
    own_side_px0, tile_side_px0 = predictions.side_px0, float(rows["side_px0"].iloc[0])
    return own_side_px0 == predictions.stride_px0 and own_side_px0 < tile_side_px0 - 0.5


def _cells(slide_id: str, rows: pd.DataFrame, predictions: Predictions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Columns and rows of the prediction cells that match these tiles exactly."""
    x_px0, y_px0 = rows["x_px0"].to_numpy(np.int64), rows["y_px0"].to_numpy(np.int64)
    columns, lines = (np.round(v / predictions.stride_px0).astype(np.int64) for v in (x_px0, y_px0))
    same = (columns * predictions.stride_px0 == x_px0) & (lines * predictions.stride_px0 == y_px0)
    same &= rows["side_px0"].to_numpy(np.int64) == round(predictions.side_px0)
    _, num_lines, num_columns = predictions.probabilities_cyx.shape
    same &= (lines < num_lines) & (columns < num_columns)
    if not same.all():
        of_all = f"of {counted(len(same), 'tile')} of the tile set"
        raise BadRecipeError(
            f"slide {slide_id}: {counted(int((~same).sum()), f'{of_all} is', f'{of_all} are')} not "
            f"among the squares that the model predicted (every {predictions.stride_px0:g} level-0 pixels). "
            "Evaluate on a tile set made without overlap."
        )
    return columns, lines


def _means(predictions: Predictions, rows: pd.DataFrame) -> Probabilities:
    """Mean over the predicted cells whose centre is in each tile; NaN if there is none."""
    values = predictions.probabilities_cyx.astype(np.float64)
    known = np.isfinite(values[0])
    sums = _summed(np.where(known, values, 0.0))
    counts = _summed(known[None].astype(np.float64))[0]
    _, num_lines, num_columns = values.shape
    (left, right), (top, bottom) = (
        _covered(rows[name].to_numpy(np.float64), rows["side_px0"].to_numpy(np.float64), predictions.stride_px0, most)
        for name, most in (("x_px0", num_columns), ("y_px0", num_lines))
    )
    number = counts[bottom, right] - counts[top, right] - counts[bottom, left] + counts[top, left]
    total = sums[:, bottom, right] - sums[:, top, right] - sums[:, bottom, left] + sums[:, top, left]
    means = np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0.5)
    return np.asarray(means.T, np.float32)


def _covered(
    start_px0: NDArray[np.float64], side_px0: NDArray[np.float64], stride_px0: float, most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and end (exclusive) of the cells whose centre lies from `start` to `start + side`."""
    first, end = (np.ceil(edge / stride_px0 - 0.5) for edge in (start_px0, start_px0 + side_px0))
    return np.clip(first, 0, most).astype(np.int64), np.clip(end, 0, most).astype(np.int64)


def _summed(values_cyx: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums over all cells above and to the left, with a first row and column of zeros."""
    return np.pad(values_cyx.cumsum(1).cumsum(2), ((0, 0), (1, 0), (1, 0)))


def slide_scores(predictions: Predictions, rule: SlideScore) -> NDArray[np.float64]:
    """One score per class of a slide: the highest probability, the mean, or the mean of the highest tenth.

    Raises:
        EmptyTableError: no cell of the slide was predicted.
    """
    values = predictions.probabilities_cyx[:, np.isfinite(predictions.probabilities_cyx[0])].astype(np.float64)
    if not values.shape[1]:
        raise EmptyTableError(f"model {predictions.model_id}: no cell of the slide was predicted. Infer it again.")
    if rule == "max":
        return np.asarray(values.max(1), np.float64)
    if rule == "mean":
        return np.asarray(values.mean(1), np.float64)
    most = max(1, round(TOP_SHARE * values.shape[1]))
    return np.asarray(np.sort(values, axis=1)[:, -most:].mean(1), np.float64)


def longest_extent_um(predictions: Predictions, class_index: int, *, threshold: float, mpp0: float) -> float:
    """Longer axis of the largest connected area of cells at or above the threshold, in microns; 0 if there is none.

    The axis is that of the ellipse with the same second moments, as in CAMELYON16's rule, and at least a cell's side.
    """
    reached = np.nan_to_num(predictions.probabilities_cyx[class_index].astype(np.float32), nan=0.0) >= threshold
    number_yx, count = ndimage.label(reached, structure=_TOUCHING)
    if not count:
        return 0.0
    cells = max(1.0, *(float(region.axis_major_length) for region in regionprops(number_yx)))
    return cells * predictions.stride_px0 * mpp0
