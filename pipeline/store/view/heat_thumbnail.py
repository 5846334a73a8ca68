"""A class's probabilities as a small image of the slide's own shape, to overlay on its thumbnail."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.palettes import DEFAULT_PALETTE, colours
from pipeline.store.layers.overlays import Predictions

OPACITY = 0.75
_CODES = 256


def heat_thumbnail(
    predictions: Predictions, class_index: int, size_wh_px0: tuple[int, int], max_side_px: int, *, threshold: float
) -> NDArray[np.uint8]:
    """A heatmap of the highest probability under each pixel, so that a single strong cell does not vanish.

    Args:
        size_wh_px0: the slide's size; cells beyond it are left out.
        threshold: lower values are transparent, as are cells that were not predicted.

    Returns:
        uint8 (height, width, 4), RGBA, of the size that `render.thumbnail` has at `max_side_px`.
    """
    width_px0, height_px0 = size_wh_px0
    shrink = max(max(width_px0, height_px0) / max_side_px, 1.0)
    width, height = (max(1, round(side_px0 / shrink)) for side_px0 in size_wh_px0)
    probability_yx = np.nan_to_num(predictions.probabilities_cyx[class_index].astype(np.float32), nan=-1.0)
    for axis, (side, side_px0) in enumerate(((height, height_px0), (width, width_px0))):
        probability_yx = _strongest(probability_yx, side, side_px0 / side / predictions.stride_px0, axis)
    codes = np.clip(np.round(probability_yx * (_CODES - 1)), 0, _CODES - 1).astype(np.intp)
    rgba = np.empty((height, width, 4), np.uint8)
    rgba[..., :3] = np.round(colours(DEFAULT_PALETTE, _CODES) * 255).astype(np.uint8)[codes]
    rgba[..., 3] = np.where(probability_yx >= threshold, round(OPACITY * 255), 0)
    return rgba


def _strongest(values: NDArray[np.float32], side: int, cells: float, axis: int) -> NDArray[np.float32]:
    """Along one axis, the maximum under each of `side` pixels, each `cells` wide; -1 where there are none."""
    edges = np.arange(side + 1) * cells
    first = np.floor(edges[:-1] + 1e-6).astype(np.intp)
    past = np.maximum(first + 1, np.ceil(edges[1:] - 1e-6).astype(np.intp))
    values = np.moveaxis(values, axis, 0)
    padded = np.concatenate([values, np.full((1, *values.shape[1:]), -1, np.float32)])
    last = len(values)
    out = np.full((side, *values.shape[1:]), -1, np.float32)
    for at in range(int((past - first).max())):
        index = np.minimum(first + at, last)
        index[first + at >= past] = last
        np.maximum(out, padded[index], out=out)
    return np.moveaxis(out, 0, axis)
