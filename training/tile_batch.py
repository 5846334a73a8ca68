"""The tiles of one optimizer step as the engine asks for them: micro-batch by micro-batch, where they are needed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training.augment import augment
from training.config import AugmentConfig
from training.tile_dataset import Indices, TileSource, read_tiles


@dataclass(frozen=True)
class TileBatch:
    """A batch as tile indices. Only the micro-batches that a rank asks for are read; the last may be smaller."""

    source: TileSource
    indices: Indices
    microbatch_size: int
    step: int
    seed: int
    augmentation: AugmentConfig
    pool: ThreadPoolExecutor

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the network's input: (tiles, 3, side, side)."""
        side = self.source.tile_px
        return [(len(self._part(k)), 3, side, side) for k in range(-(-len(self.indices) // self.microbatch_size))]

    def inputs(self, microbatch: int) -> Tensor:
        """uint8 (tiles, side, side, 3), which the engine makes ready on its device (`training.augment.normalised`)."""
        chosen = self._part(microbatch)
        tiles = read_tiles(self.source, chosen, self.pool)
        return torch.from_numpy(augment(tiles, chosen, step=self.step, seed=self.seed, config=self.augmentation))

    def targets(self, microbatch: int) -> Tensor:
        """int64 (tiles,)."""
        return torch.from_numpy(np.ascontiguousarray(self.source.labels[self._part(microbatch)]))

    def _part(self, microbatch: int) -> Indices:
        start = microbatch * self.microbatch_size
        return self.indices[start : start + self.microbatch_size]
