"""Tiles of a training step or a validation, read when the engine needs them, by micro-batch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.data.augment import augment
from training.data.tile_dataset import Indices, TileSource, read_tiles
from training.recipe.config import AugmentConfig


@dataclass(frozen=True)
class TileBatch:
    """A batch as tile indices. Only the micro-batches that a rank asks for are read; the last may be smaller."""

    source: TileSource
    indices: Indices
    microbatch_size: int
    pool: ThreadPoolExecutor
    augmentation: AugmentConfig | None = None
    """None: tiles are not augmented."""
    seed: int = 0
    epoch: int = 0
    first_sample: int = 0
    """Position of the first tile in the epoch's order."""

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the network's inputs: (tiles, 3, side, side)."""
        side = self.source.tile_px
        return [(len(self.part(k)), 3, side, side) for k in range(-(-len(self.indices) // self.microbatch_size))]

    def inputs(self, microbatch: int) -> Tensor:
        """uint8 (tiles, side, side, 3), which the engine prepares on its device (`augment.normalised`)."""
        chosen = self.part(microbatch)
        tiles = read_tiles(self.source, chosen, self.pool)
        if self.augmentation is not None:
            first = self.first_sample + microbatch * self.microbatch_size
            samples = range(first, first + len(chosen))
            tiles = augment(tiles, samples, epoch=self.epoch, seed=self.seed, config=self.augmentation)
        return torch.from_numpy(tiles)

    def targets(self, microbatch: int) -> Tensor:
        """int64 (tiles,)."""
        return torch.from_numpy(np.ascontiguousarray(self.source.labels[self.part(microbatch)]))

    def part(self, microbatch: int) -> Indices:
        """Indices of the tiles in a micro-batch."""
        start = microbatch * self.microbatch_size
        return self.indices[start : start + self.microbatch_size]
