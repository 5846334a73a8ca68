import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.grid import tile_grid, tissue_fraction
from training.foundation.errors import BadRecipeError


def test_a_tile_covers_the_same_tissue_whatever_the_scanner():
    fine = tile_grid((1000, 700), 0.25, tile_px=64, mpp=0.5)
    coarse = tile_grid((500, 350), 0.5, tile_px=64, mpp=0.5)

    assert fine.side_px0 * 0.25 == coarse.side_px0 * 0.5 == 32
    assert (fine.columns, fine.rows) == (coarse.columns, coarse.rows) == (7, 5)


def test_corners_run_row_by_row_from_the_origin():
    grid = tile_grid((300, 200), 1.0, tile_px=100, mpp=1.0)

    assert grid.corners_xy0.tolist() == [[0, 0], [100, 0], [200, 0], [0, 100], [100, 100], [200, 100]]


@given(width=st.integers(1, 900), height=st.integers(1, 900), tile_px=st.integers(8, 120), overlap_px=st.integers(0, 7))
def test_no_tile_passes_the_right_or_bottom_edge_and_none_that_fits_is_left_out(width, height, tile_px, overlap_px):
    grid = tile_grid((width, height), 1.0, tile_px=tile_px, mpp=1.0, overlap_px=overlap_px)
    corners = grid.corners_xy0

    assert len(corners) == grid.columns * grid.rows
    if len(corners):
        assert (corners.max(0) + tile_px <= (width, height)).all()
    if width >= tile_px and height >= tile_px:
        assert grid.columns * grid.stride_px0 + tile_px > width
        assert grid.rows * grid.stride_px0 + tile_px > height


def test_finer_tiles_than_were_scanned_are_refused():
    with pytest.raises(BadRecipeError, match=r"0\.25 µm/px from a slide scanned at 0\.5"):
        tile_grid((1000, 700), 0.5, tile_px=64, mpp=0.25)


def test_an_overlap_as_large_as_the_tile_is_refused():
    with pytest.raises(BadRecipeError, match="overlap_px = 64"):
        tile_grid((1000, 700), 0.5, tile_px=64, mpp=0.5, overlap_px=64)


def test_tissue_share_is_exact_even_where_a_tile_cuts_mask_cells():
    random = np.random.default_rng(0)
    mask = (random.random((13, 17)) > 0.5).astype(np.uint8)
    cell = 12
    full = np.kron(mask, np.ones((cell, cell)))
    corners = np.array([[0, 0], [30, 18], [100, 50], [5, 77]])

    shares = tissue_fraction(corners, 54, mask, float(cell))

    expected = [full[y : y + 54, x : x + 54].mean() for x, y in corners]
    assert shares == pytest.approx(expected, abs=1e-6)
