"""Processing of a tile between the store and the network."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.tile_dataset import Tiles
from training.recipe.config import AugmentConfig


def augment(tiles_nhwc: Tiles, samples: Sequence[int], *, epoch: int, seed: int, config: AugmentConfig) -> Tiles:
    """Change tiles at random; the same sample of the same epoch changes the same way on every rank.

    Args:
        tiles_nhwc: uint8 (tiles, side, side, 3).
        samples: positions of the tiles in the epoch's order. A tile that is drawn twice is changed in two ways.
    """
    return np.stack(
        [
            _augment_one(tile, np.random.default_rng((seed, epoch, int(sample))), config)
            for tile, sample in zip(tiles_nhwc, samples, strict=True)
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
        gains = 1 + config.stain * random.uniform(-1, 1, 3)
        tile = change_stains(tile, gains, config.stain * random.uniform(-1, 1, 3))
    if config.saturation or config.hue:
        stretch, turn = 1 + config.saturation * random.uniform(-1, 1), config.hue * random.uniform(-1, 1)
        tile = change_colours(tile, stretch, turn)
    if config.contrast or config.brightness:
        mean = tile.mean()
        tile = np.clip((tile - mean) * gain + mean + shift, 0, 255).astype(np.uint8)
    return tile


def change_colours(tile: Tiles, stretch: float, turn: float) -> Tiles:
    """Multiply saturation by `stretch` and rotate hue by `turn`, a share of the colour circle; grey stays grey.

    Args:
        tile: uint8 (side, side, 3).
    """
    hsv = cv2.cvtColor(np.ascontiguousarray(tile, np.float32) / 255, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = (hsv[..., 0] + 360 * turn) % 360
    hsv[..., 1] = np.minimum(hsv[..., 1] * stretch, 1)
    return np.rint(255 * cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)).astype(np.uint8)


def change_stains(tile: Tiles, gains: NDArray[np.float64], shifts: NDArray[np.float64]) -> Tiles:
    """Scale and shift the haematoxylin, eosin and DAB of a tile, in optical density.

    A shift applies only where there is stain, so white glass stays white.

    Args:
        tile: uint8 (side, side, 3).
        gains, shifts: one for each stain; a shift of 1 is optical density 1 (natural logarithm).
    """
    density = _DENSITY[tile]
    mixed = _STAINS_OF_RGB @ np.diag(gains) @ _RGB_OF_STAINS
    stained = np.minimum(density.max(-1, keepdims=True) / FULLY_STAINED, 1)
    changed = density @ mixed.astype(np.float32) + stained * (shifts @ _RGB_OF_STAINS).astype(np.float32)
    return np.asarray(np.clip(np.rint(256 * np.exp(-changed) - 1), 0, 255), np.uint8)


_RGB_OF_STAINS = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11], [0.27, 0.57, 0.78]])
"""Optical density of haematoxylin, eosin and DAB in red, green and blue (Ruifrok and Johnston, 2001), as in
`skimage.color`, whose import would delay the first step by half a second."""
_STAINS_OF_RGB = np.linalg.inv(_RGB_OF_STAINS)
_DENSITY = -np.log((np.arange(256) + 1) / 256).astype(np.float32)
"""Optical density of a grey value; 255 is 0."""
FULLY_STAINED = 0.15
"""Optical density from which a stain shift applies in full."""


def to_input(tiles_nhwc: NDArray[np.uint8], mean: list[float], std: list[float]) -> Tensor:
    """Network input, float32 (tiles, 3, height, width), channels last in memory, so that no copy is needed."""
    return normalised(torch.from_numpy(np.ascontiguousarray(tiles_nhwc)), mean, std)


def normalised(tiles_nhwc: Tensor, mean: list[float], std: list[float]) -> Tensor:
    """`to_input` on the device of the tiles."""
    # A row's pixels and channels form one axis: over a last axis of three, a CPU takes four times as long.
    rows, width, device = tiles_nhwc.flatten(2).float().div_(255), tiles_nhwc.shape[2], tiles_nhwc.device
    rows.sub_(torch.tensor(mean, device=device).repeat(width)).div_(torch.tensor(std, device=device).repeat(width))
    return rows.view(tiles_nhwc.shape).permute(0, 3, 1, 2)
