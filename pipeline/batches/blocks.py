"""A network's work on a slide: batches, which are never repeated, in blocks, which are handed to a device."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.grid import TileGrid
from pipeline.places.object_path import StorePath

MOST_ACROSS = 24
"""Longest side, in tiles, of a square that is read together: a chunk shared by two tiles is decoded once."""
BLOCK_BYTES = 96 * 2**20
"""Size of a block's finished tiles; one batch at least."""
READ_BYTES = 2**30
"""Size of level pixels held while two rows of tiles are made from them; one tile at least."""
MAX_LOOKED_AT = 1000
"""Tiles of a slide whose colours are measured: more hardly change a median."""


@dataclass(frozen=True)
class TileSource:
    """Source of tiles, and how they are processed; enough for another process to read them."""

    store: StorePath
    level: int
    side_px0: int
    tile_px: int
    stain: Mapping[str, Any] | None
    plane_um: float | None = None
    """Height of a stack's focal plane; None: the default one."""


@dataclass(frozen=True)
class Block:
    """Consecutive batches for one device."""

    source: TileSource
    batches: tuple[int, ...]
    """Their numbers in the plan."""
    batch_size: int
    corners_xy0: NDArray[np.int64]
    """(tiles, 2), level-0 pixels; in reading order. All batches but a slide's last are full."""
    squares: NDArray[np.int64]
    """(tiles,): tiles of the same number are close together and are read together."""
    looked_at: NDArray[np.bool_]
    """(tiles,): tiles whose colours are measured."""
    job: int = 0
    """Number by which the sender identifies the block's slide."""

    def tiles_of(self, index: int) -> slice:
        """The block's tiles in its batch of this index."""
        return _part(index, self.batch_size, len(self.corners_xy0))


@dataclass(frozen=True)
class SlidePlan:
    """A slide's tiles in reading order. The same plan gives the same batches on every run and every machine."""

    source: TileSource
    corners_xy0: NDArray[np.int64]
    order: NDArray[np.int64]
    """Index into the grid of each tile."""
    squares: NDArray[np.int64]
    batch_size: int
    num_glass: int = 0
    """Tiles without tissue, which come last, to check the network's output on them."""
    max_block_tiles: int = MOST_ACROSS**2

    @property
    def num_tissue(self) -> int:
        return len(self.order) - self.num_glass

    @property
    def num_batches(self) -> int:
        return -(-len(self.order) // self.batch_size)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the tiles and their order."""
        return hashlib.sha256(np.ascontiguousarray(self.corners_xy0, np.int64).tobytes()).hexdigest()

    def tiles_of(self, batch: int) -> slice:
        """The plan's tiles in a batch."""
        return _part(batch, self.batch_size, len(self.order))

    @property
    def batches_in_block(self) -> int:
        batch_bytes = 3 * self.source.tile_px**2 * self.batch_size
        return max(1, min(self.max_block_tiles // self.batch_size, BLOCK_BYTES // batch_bytes))

    def blocks(self, finished: Container[int] = ()) -> Iterator[Block]:
        """All batches that are not finished, in blocks."""
        looked_at = np.zeros(len(self.order), np.bool_)
        looked_at[:: -(-len(self.order) // MAX_LOOKED_AT)] = True
        for start in range(0, self.num_batches, self.batches_in_block):
            numbers = range(start, min(start + self.batches_in_block, self.num_batches))
            todo = tuple(number for number in numbers if number not in finished)
            if not todo:
                continue
            tiles = np.concatenate([np.arange(len(self.order))[self.tiles_of(number)] for number in todo])
            yield Block(
                self.source, todo, self.batch_size, self.corners_xy0[tiles], self.squares[tiles], looked_at[tiles]
            )


def _part(number: int, size: int, total: int) -> slice:
    """One of the parts of a given size that make up a total; the last may be smaller."""
    return slice(number * size, min((number + 1) * size, total))


def tiles_across(tile_px: int, batch_size: int, *, read_px: int = 1) -> int:
    """Side of a square in tiles; if all of it is tissue, it is one block of whole batches.

    The largest square that a block may hold and whose tiles fill batches; if there is none, the largest.

    Args:
        read_px: side of a tile in pixels of the level that it is read from.
    """
    most = min(MOST_ACROSS, math.isqrt(max(1, BLOCK_BYTES // (3 * tile_px**2))), READ_BYTES // (6 * read_px**2))
    return next((side for side in range(most, most // 2, -1) if side**2 % batch_size == 0), max(1, most))


def plan_slide(
    source: TileSource,
    grid: TileGrid,
    chosen: NDArray[np.int64],
    *,
    glass: NDArray[np.int64],
    batch_size: int,
) -> SlidePlan:
    """Order a slide's tiles square by square.

    Args:
        chosen: indices into the grid.
        glass: indices of tiles without tissue, which come last.
    """
    across = tiles_across(grid.tile_px, batch_size, read_px=grid.side_px0 if source.level == 0 else grid.tile_px)
    squares_across = grid.columns // across + 1

    def square_of(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        rows, columns = np.divmod(tiles, grid.columns)
        numbers: NDArray[np.int64] = rows // across * squares_across + columns // across
        return numbers

    tissue = chosen[np.lexsort((chosen, square_of(chosen)))]
    order = np.concatenate([tissue, glass])
    squares = np.concatenate([square_of(tissue), -1 - np.arange(len(glass))])  # far apart: read one by one
    return SlidePlan(source, grid.corners_xy0[order], order, squares, batch_size, len(glass))
