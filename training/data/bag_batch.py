"""Bags of a training step or a validation, read when the engine needs them: a micro-batch is one patient or slide."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.bag_source import POSITION_COLUMNS, BagSource
from training.data.tile_dataset import Indices


@dataclass(frozen=True)
class BagBatch:
    """A batch as units. Only those that a rank asks for are read."""

    source: BagSource
    units: Indices
    values: NDArray[np.float32]
    """What the loss is given for each unit, float32 (units, columns)."""
    max_tiles: int | None = None
    """Most tiles of a unit, drawn by seed, epoch and unit; None: all tiles."""
    seed: int = 0
    epoch: int = 0

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the network's inputs: (1, tiles, dims + 2), one sample each."""
        width = self.source.dims + POSITION_COLUMNS
        return [(1, self._count(unit), width) for unit in self.units]

    def inputs(self, microbatch: int) -> Tensor:
        """float32 (1, tiles, dims + 2): features, then the tile's centre in µm."""
        unit = int(self.units[microbatch])
        return torch.from_numpy(self.source.read(unit, self.rows_of(unit)))[None]

    def targets(self, microbatch: int) -> Tensor:
        """float32 (1, columns)."""
        return torch.from_numpy(self.values[microbatch : microbatch + 1])

    def rows_of(self, unit: int) -> Indices | None:
        """Tiles of a unit that are read, in rising order; None for all."""
        count = self._count(unit)
        total = int(self.source.num_tiles[unit])
        if count == total:
            return None
        # By its name, not its place in the table: another unit more or less draws no other tiles.
        name = int.from_bytes(blake2b(str(self.source.units[unit]).encode(), digest_size=8).digest(), "little")
        random = np.random.default_rng((self.seed, self.epoch, name))
        return np.sort(random.choice(total, count, replace=False))

    def _count(self, unit: int | np.int64) -> int:
        total = int(self.source.num_tiles[unit])
        return total if self.max_tiles is None else min(total, self.max_tiles)
