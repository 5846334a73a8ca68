"""Trial run of an encoder: does it take its tiles, and return numbers that depend on each tile and on nothing else?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from training.foundation.errors import ImplausibleOutputError, UnreadableError

Tiles = NDArray[np.uint8]
Features = NDArray[np.float32]
Encode = Callable[[Tiles], Features]
"""From tiles uint8 (tiles, side, side, 3) to features float32 (tiles, dims)."""
TOLERANCE = {"fp32": 1e-3, "bf16": 0.1}
"""Largest difference between two ways of computing the same tile, relative to its features, by number format."""
_SAME = 1e-5
"""Relative difference below which the features of two tiles are the same."""


def probe_tiles(side_px: int) -> Tiles:
    """Three tiles that differ, uint8 (3, side, side, 3): stripes of pink on white, a ramp of violet, noise."""
    rows, columns = np.indices((side_px, side_px))
    stripes = np.where((columns // 4 % 3 == 0)[..., None], (225, 120, 175), (245, 240, 243))
    ramp = np.stack([80 + 150 * rows / side_px, 40 + 120 * columns / side_px, 130 + 100 * rows / side_px], axis=-1)
    noise = np.random.default_rng(0).integers(0, 256, (side_px, side_px, 3))
    return np.stack([stripes, ramp, noise]).astype(np.uint8)


def run(encode: Encode, tiles_nhwc: Tiles, where: str) -> Features:
    """Run an encoder that may not fit its row.

    Raises:
        UnreadableError: it does not take such tiles.
    """
    try:
        return encode(tiles_nhwc)
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError) as error:
        last = (str(error).strip().splitlines() or [""])[-1]
        raise UnreadableError(
            f"{where}: cannot be run on {len(tiles_nhwc)} tiles of {tiles_nhwc.shape[1]} px ({last:.200}). Check that "
            "tile_px in its row is the size that it was made for."
        ) from error


def check_features(encode: Encode, where: str, *, tile_px: int, dims: int, precision: str) -> Features:
    """Run an encoder on three different tiles, together and one of them alone. Return the features of the three.

    Raises:
        UnreadableError: it does not take them, or returns other dims than stated.
        ImplausibleOutputError: numbers that are not finite, that depend on the other tiles, or are always the same.
    """
    tiles = probe_tiles(tile_px)
    together, alone = run(encode, tiles, where), run(encode, tiles[1:2], where)
    for features, count in ((together, len(tiles)), (alone, 1)):
        if features.shape != (count, dims):
            raise UnreadableError(
                f"{where}: returns numbers of the shape {features.shape} for {count} tiles; dims = {dims} in its row "
                f"needs ({count}, {dims}). Correct `dims` or `pool`."
            )
    if not np.isfinite(together).all():
        raise ImplausibleOutputError(
            f"{where}: returns numbers that are not finite for ordinary tiles. Its weights are damaged, or its numbers "
            "need another `precision`."
        )
    if (difference := relative_difference(together[1:2], alone)) > TOLERANCE[precision]:
        raise ImplausibleOutputError(
            f"{where}: returns different numbers for a tile among others than for it alone (by {difference:.2g} of "
            "their size). It was exported in training mode, or mixes the tiles of a batch: export it again."
        )
    closest = min(relative_difference(together[[one]], together[[other]]) for one, other in ((0, 1), (0, 2), (1, 2)))
    if closest < _SAME:
        raise ImplausibleOutputError(
            f"{where}: returns the same numbers for different tiles. Its weights are not those of this network, or "
            "`mean` and `std` in its row are not those that it was trained with."
        )
    return together


def check_prepared(prepared: Features, original: Features, where: str, *, precision: str) -> None:
    """Compare the features of a network that was prepared for prediction with those of the network as it was opened.

    Raises:
        ImplausibleOutputError: they differ.
    """
    if (difference := relative_difference(prepared, original)) > TOLERANCE[precision]:
        raise ImplausibleOutputError(
            f"{where}: prepared for prediction, its numbers change by {difference:.2g} of their size; at most "
            f"{TOLERANCE[precision]:g} is allowed in {precision}. Its network cannot be run in this number format."
        )


def relative_difference(features_nd: Features, others_nd: Features) -> float:
    """Largest distance between the features of the same tile, relative to their length."""
    distance = np.linalg.norm(features_nd - others_nd, axis=1)
    length = np.maximum(np.linalg.norm(features_nd, axis=1), np.linalg.norm(others_nd, axis=1))
    return float(np.max(distance / np.maximum(length, np.finfo(np.float32).tiny)))
