import numpy as np
import pytest

from pipeline.qc.focus import blur_score, edge_energies
from pipeline.qc.scan import MAX_OVERVIEW_PX, QualityGrid, quality_grid, tissue_on
from pipeline.settings.config import QualityConfig
from tests.pipeline.qc.planted import blur, real_tissue


def scored(pixels, cell_px=64):
    tissue = np.ones(pixels.shape[:2], bool)
    return blur_score(*edge_energies(pixels, tissue, cell_px), np.full((6, 8), cell_px**2, np.float32))


def test_the_score_does_not_depend_on_how_strongly_the_tissue_is_stained():
    pixels = real_tissue(512, 384)
    pale = (255 - (255 - pixels.astype(float)) * 0.4).astype(np.uint8)

    assert np.abs(scored(pale) - scored(pixels)).max() < 0.05


@pytest.mark.parametrize("sigma_px", [2, 3, 5])
def test_more_blur_scores_higher(sigma_px):
    pixels, softer = real_tissue(512, 384), real_tissue(512, 384)
    blur(pixels, (0, 0, 512, 384), sigma_px)
    blur(softer, (0, 0, 512, 384), sigma_px + 2)

    assert np.median(scored(softer)) > np.median(scored(pixels)) > 0.5


@pytest.mark.parametrize("grey", [255, 243, 0])
def test_nothing_to_see_has_no_score(grey):
    assert np.isnan(scored(np.full((384, 512, 3), grey, np.uint8))).all()


def test_glass_does_not_count():
    pixels = real_tissue(512, 384)
    blur(pixels, (0, 0, 512, 384), 5)
    pixels[:, 256:] = np.random.default_rng(0).integers(0, 256, (384, 256, 3))  # sharp, but marked as glass
    tissue = np.zeros((384, 512), bool)
    tissue[:, :250] = True

    scores = blur_score(*edge_energies(pixels, tissue, 64), np.full((6, 8), 1000, np.float32))

    assert (scores[:, :3] > 0.5).all()
    assert np.isnan(scores[:, 4:]).all()


def test_the_tissue_mask_is_read_at_the_overviews_pixels():
    grid = QualityGrid((1000, 700), downsample=2, shrink=8, cell_side=8, mpp=1.0)
    mask = np.zeros((22, 32), np.uint8)  # 32 level-0 pixels per cell
    mask[5:10, 20:] = 1

    tissue = tissue_on(grid, mask, 32.0)

    assert tissue.shape == grid.overview_hw == (48, 64)
    assert (grid.rows, grid.columns, grid.cell_px0) == (6, 8, 128)
    assert tissue[10:20, 40:62].all()
    assert tissue.sum() == 10 * 22  # the slide is 62.5 overview pixels wide: the centre of the 63rd is outside


@pytest.mark.parametrize("mpp0", [0.1, 0.25, 0.5, 1.0, 8.0])
def test_what_is_kept_of_a_slide_in_memory_is_bounded(mpp0):
    grid = quality_grid((200_000, 150_000), mpp0, QualityConfig())
    rows, columns = grid.overview_hw

    assert rows * columns < 1.05 * MAX_OVERVIEW_PX
    assert grid.cell_px0 * columns // grid.cell_side >= 200_000


def test_a_slide_of_usual_size_is_looked_at_as_the_settings_say():
    grid = quality_grid((100_000, 80_000), 0.25, QualityConfig())

    assert (grid.mpp, grid.overview_mpp, grid.cell_px0 * 0.25) == (1.0, 8.0, 64.0)
