"""One pass over a slide's tissue, block by block, so that memory does not grow with the slide."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.types import Pixels
from pipeline.qc.focus import edge_energies
from pipeline.settings.config import QualityConfig
from pipeline.store.reading.reader import StoreReader
from training.foundation.progress import Advance

BLOCK_PX = 1024
OVERVIEW_UM = 8.0
MAX_OVERVIEW_PX = 16e6
MAX_JOBS = 4
"""Blocks in progress at a time."""


@dataclass(frozen=True)
class QualityGrid:
    """Three steps of coarsening by whole numbers: level-0 pixels, working pixels, overview pixels, cells."""

    size_wh_px0: tuple[int, int]
    downsample: int
    """Level-0 pixels per working pixel."""
    shrink: int
    """Working pixels per overview pixel."""
    cell_side: int
    """Overview pixels per cell."""
    mpp: float
    """Microns per working pixel."""

    @property
    def cell_px(self) -> int:
        return self.shrink * self.cell_side

    @property
    def cell_px0(self) -> int:
        return self.cell_px * self.downsample

    @property
    def overview_mpp(self) -> float:
        return self.mpp * self.shrink

    @property
    def rows(self) -> int:
        return -(-self.size_wh_px0[1] // self.cell_px0)

    @property
    def columns(self) -> int:
        return -(-self.size_wh_px0[0] // self.cell_px0)

    @property
    def overview_hw(self) -> tuple[int, int]:
        return self.rows * self.cell_side, self.columns * self.cell_side


def quality_grid(size_wh_px0: tuple[int, int], mpp0: float, config: QualityConfig) -> QualityGrid:
    """Steps nearest to the requested resolution and cell, and to an overview of 8 µm.

    The overview of a very large slide is coarser, since memory holds it for the whole slide.
    """
    downsample = max(1, round(config.mpp / mpp0))
    mpp = mpp0 * downsample
    working_px = size_wh_px0[0] * size_wh_px0[1] / downsample**2
    shrink = max(1, round(OVERVIEW_UM / mpp), math.ceil(math.sqrt(working_px / MAX_OVERVIEW_PX)))
    cell_side = max(1, round(config.cell_um / (mpp * shrink)))
    return QualityGrid(size_wh_px0, downsample, shrink, cell_side, mpp)


def tissue_on(grid: QualityGrid, mask_yx: NDArray[np.uint8], mask_px0: float) -> NDArray[np.bool_]:
    """The tissue mask at the overview's pixels, bool (rows, columns); outside the slide there is none.

    Args:
        mask_px0: side of a mask cell in level-0 pixels.
    """
    step_px0 = grid.downsample * grid.shrink
    picked = []
    for count, length, size_px0 in zip(grid.overview_hw, mask_yx.shape, reversed(grid.size_wh_px0), strict=True):
        centres_px0 = (np.arange(count) + 0.5) * step_px0
        index = np.minimum((centres_px0 / mask_px0).astype(int), length - 1)
        picked.append(np.where(centres_px0 < size_px0, index, -1))
    rows, columns = picked
    inside = (rows >= 0)[:, None] & (columns >= 0)[None, :]
    return np.asarray((mask_yx[np.ix_(rows, columns)] > 0) & inside, bool)


@dataclass
class Scan:
    """Results of one pass over the tissue."""

    overview: Pixels
    """uint8 (overview rows, columns, 3), area means; white where there is no tissue nearby."""
    lightest: NDArray[np.uint8]
    """uint8 (overview rows, columns): the lightest working pixel of each, by its darkest channel."""
    sharp: NDArray[np.float32]
    soft: NDArray[np.float32]
    """Edge energies per cell, float32 (rows, columns); see `focus.edge_energies`."""
    sample: Pixels
    """Tissue pixels drawn evenly over the slide, uint8 (pixels, 3)."""
    sample_at: NDArray[np.int64]
    """Overview pixel that contains each of them, as a flat index."""


@dataclass(frozen=True)
class _Block:
    row: int
    column: int
    rows: int
    columns: int
    """In cells."""


@dataclass(frozen=True)
class _Scanned:
    overview: Pixels
    lightest: NDArray[np.uint8]
    sharp: NDArray[np.float32]
    soft: NDArray[np.float32]
    sample: Pixels
    sample_at: tuple[NDArray[np.int64], NDArray[np.int64]]


def scan_slide(
    reader: StoreReader, grid: QualityGrid, tissue: NDArray[np.bool_], num_sampled: int, advance: Advance
) -> Scan:
    """Read every block that holds tissue, once.

    Args:
        tissue: as `tissue_on` returns it.
        num_sampled: approximate number of pixels to draw for the stain.
    """
    hw, cells = grid.overview_hw, (grid.rows, grid.columns)
    scan = Scan(
        overview=np.full((*hw, 3), 255, np.uint8), lightest=np.full(hw, 255, np.uint8),
        sharp=np.zeros(cells, np.float32), soft=np.zeros(cells, np.float32),
        sample=np.empty((0, 3), np.uint8), sample_at=np.empty(0, np.int64),
    )  # fmt: skip
    share = min(1.0, num_sampled / max(1, int(tissue.sum()) * grid.shrink**2))
    blocks = list(_blocks_with_tissue(grid, tissue))
    advance.expect(len(blocks))
    samples, positions = [], []
    with ThreadPoolExecutor(2) as pool:
        for start in range(0, len(blocks), MAX_JOBS):
            jobs = [
                (block, pool.submit(_scan_block, reader, grid, tissue, block, share))
                for block in blocks[start : start + MAX_JOBS]
            ]
            for block, job in jobs:
                done = job.result()
                top, left = block.row * grid.cell_side, block.column * grid.cell_side
                here = np.s_[top : top + done.overview.shape[0], left : left + done.overview.shape[1]]
                in_cells = np.s_[block.row : block.row + block.rows, block.column : block.column + block.columns]
                scan.overview[here], scan.lightest[here] = done.overview, done.lightest
                scan.sharp[in_cells], scan.soft[in_cells] = done.sharp, done.soft
                samples.append(done.sample)
                positions.append((done.sample_at[0] + top) * hw[1] + done.sample_at[1] + left)
                advance(1)
    scan.sample = np.concatenate([scan.sample, *samples])
    scan.sample_at = np.concatenate([scan.sample_at, *positions])
    return scan


def _blocks_with_tissue(grid: QualityGrid, tissue: NDArray[np.bool_]) -> Iterator[_Block]:
    side, c = max(1, BLOCK_PX // grid.cell_px), grid.cell_side
    for row in range(0, grid.rows, side):
        for column in range(0, grid.columns, side):
            if tissue[row * c : (row + side) * c, column * c : (column + side) * c].any():
                yield _Block(row, column, min(side, grid.rows - row), min(side, grid.columns - column))


def _scan_block(
    reader: StoreReader, grid: QualityGrid, tissue: NDArray[np.bool_], block: _Block, share: float
) -> _Scanned:
    pixels = _read(reader, grid, block)
    top, left = block.row * grid.cell_side, block.column * grid.cell_side
    height, width = block.rows * grid.cell_side, block.columns * grid.cell_side
    tissue_here = tissue[top : top + height, left : left + width]
    fine = tissue_here.repeat(grid.shrink, 0).repeat(grid.shrink, 1)
    sharp, soft = edge_energies(pixels, fine, grid.cell_px)
    darkest = pixels.min(-1)
    lightest = darkest.reshape(height, grid.shrink, width, grid.shrink).max((1, 3))
    overview = np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
    at = np.flatnonzero(fine)
    random = np.random.default_rng((block.row, block.column))
    drawn = np.sort(random.choice(at, min(len(at), int(np.ceil(len(at) * share))), replace=False))
    ys, xs = np.divmod(drawn, fine.shape[1])
    return _Scanned(overview, lightest, sharp, soft, pixels[ys, xs], (ys // grid.shrink, xs // grid.shrink))


def _read(reader: StoreReader, grid: QualityGrid, block: _Block) -> Pixels:
    """A block at the working resolution, uint8 (rows · cell_px, columns · cell_px, 3)."""
    x_px0, y_px0 = block.column * grid.cell_px0, block.row * grid.cell_px0
    side_cells = max(block.rows, block.columns)
    level = reader.level_for_downsample(grid.downsample)
    square = reader.read_square(level, x_px0, y_px0, side_cells * grid.cell_px0, side_cells * grid.cell_px)
    return square[: block.rows * grid.cell_px, : block.columns * grid.cell_px]
