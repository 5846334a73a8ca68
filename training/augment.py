"""What happens to a tile between the store and the network."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.config import AugmentConfig
from training.tile_dataset import Indices, Tiles


def augment(tiles_nhwc: Tiles, indices: Indices, *, step: int, seed: int, config: AugmentConfig) -> Tiles:
    """Change tiles at random; the same tile at the same step changes the same way on every rank.

    Args:
        tiles_nhwc: uint8 (tiles, side, side, 3).
        indices: which tiles they are.
    """
    return np.stack(
        [
            _augment_one(tile, np.random.default_rng((seed, step, int(index))), config)
            for tile, index in zip(tiles_nhwc, indices, strict=True)
        ]
    )


def _augment_one(tile: Tiles, random: np.random.Generator, config: AugmentConfig) -> Tiles:
    turns, mirrored = int(random.integers(4)), bool(random.integers(2))
    gain = 1 + config.contrast * random.uniform(-1, 1)
    shift = 255 * config.brightness * random.uniform(-1, 1)
    if config.flips:
        tile = np.rot90(tile, turns)
        tile = tile[:, ::-1] if mirrored else tile
    if config.stain:
        tile = _change_density(tile, 1 + config.stain * random.uniform(-1, 1, 3))
    if config.contrast or config.brightness:
        mean = tile.mean()
        tile = np.clip((tile - mean) * gain + mean + shift, 0, 255).astype(np.uint8)
    return tile


def _change_density(tile: Tiles, gains: NDArray[np.float64]) -> Tiles:
    """Multiply the optical density -log(I/255) of each channel: light to the power of the gain. White stays white."""
    light = np.arange(256)[:, None] / 255.0
    table = np.round(255 * light**gains).astype(np.uint8)
    return np.stack([table[tile[..., channel], channel] for channel in range(3)], axis=-1)


def to_input(tiles_nhwc: NDArray[np.uint8], mean: list[float], std: list[float]) -> Tensor:
    """Network input, float32 (tiles, 3, height, width) with channels last in memory: no copy is made for it."""
    scaled = torch.from_numpy(np.ascontiguousarray(tiles_nhwc)).float().div_(255)
    scaled.sub_(torch.tensor(mean)).div_(torch.tensor(std))
    return scaled.permute(0, 3, 1, 2)
