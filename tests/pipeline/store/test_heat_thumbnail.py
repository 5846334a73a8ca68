"""A heat map over a thumbnail shows every strong cell in its position, and nothing where nothing was predicted."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.palettes import DEFAULT_PALETTE, colours
from pipeline.store.layers.overlays import Predictions
from pipeline.store.view.heat_thumbnail import OPACITY, heat_thumbnail


def predictions(rows: int, columns: int, stride_px0: float, strong: dict[tuple[int, int], float]) -> Predictions:
    values = np.full((2, rows, columns), np.nan, np.float16)
    values[:, : rows // 2] = 0.25
    for (row, column), value in strong.items():
        values[1, row, column] = value
    return Predictions("m", ("a", "b"), values, stride_px0, stride_px0, {})


@pytest.mark.parametrize("cells", [7, 40, 500])
def test_a_single_strong_cell_is_seen_at_its_place_however_small_it_is(cells: int) -> None:
    size_wh_px0 = 64 * cells, 48 * cells
    row, column = cells // 3, cells // 5
    shown = heat_thumbnail(predictions(cells, cells, 48.0, {(row, column): 1.0}), 1, size_wh_px0, 100, threshold=0.5)

    assert shown.shape == (75, 100, 4)
    ys, xs = np.nonzero(shown[..., 3])
    px0_per_pixel = 0.64 * cells
    assert ys.min() == int(row * 48 / px0_per_pixel)
    assert xs.min() == int(column * 48 / px0_per_pixel)
    assert ys.max() <= (row + 1) * 48 / px0_per_pixel
    assert xs.max() <= (column + 1) * 48 / px0_per_pixel
    strongest = tuple(np.round(255 * colours(DEFAULT_PALETTE, 256)[255]).astype(int))
    assert tuple(shown[ys[0], xs[0]]) == (*strongest, round(OPACITY * 255))


def test_what_is_below_the_threshold_or_was_not_predicted_is_clear() -> None:
    assert not heat_thumbnail(predictions(8, 8, 10.0, {}), 1, (80, 80), 40, threshold=0.5)[..., 3].any()
    low = heat_thumbnail(predictions(8, 8, 10.0, {}), 1, (80, 80), 40, threshold=0.2)[..., 3]
    assert low[:20].all()
    assert not low[20:].any()


def test_a_slide_larger_than_its_cells_is_clear_beyond_them() -> None:
    shown = heat_thumbnail(predictions(2, 2, 10.0, {(0, 0): 1.0, (0, 1): 1.0}), 1, (40, 20), 400, threshold=0.5)
    assert shown.shape == (20, 40, 4)
    assert shown[:10, :20, 3].all()
    assert not shown[:, 20:, 3].any()
