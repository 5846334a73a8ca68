"""Size and corners of tiles that another program's file describes, as far as the file or a person states them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import BadManifestError
from pipeline.store.layers.feature_checks import Corners, FeatureValues, check_corners
from pipeline.store.layers.overlays import MAX_CELL_PX0
from pipeline.store.reading.reader import StoreReader
from pipeline.units import MAX_MPP, MIN_MPP, is_plausible_mpp
from training.foundation.errors import BadRecipeError

ROUNDING_PX0 = 1.0
"""Sides that differ by no more than this are the same: programs round them."""


@dataclass(frozen=True)
class TileSize:
    """Size of tiles; None where it is not stated."""

    tile_px: int | None = None
    """Side of a finished tile in its own pixels."""
    mpp: float | None = None
    """Microns per pixel of a finished tile."""
    side_px0: float | None = None
    """Side in level-0 pixels."""


NOTHING_GIVEN = TileSize()


@dataclass(frozen=True)
class ForeignFeatures:
    """Features as another program's file has them, checked."""

    values_nd: FeatureValues
    xy0_n2: Corners
    side_px0: float
    stride_px0: float
    """The side, if the file states no distance."""
    tile_px: int | None
    mpp: float | None
    encoder_text: str | None = None
    """Encoder as the file names it, if it does."""


def agreed_size(stated: TileSize, given: TileSize, mpp0: float, path: Path) -> TileSize:
    """Size of a file's tiles from what the file states and what a person gives; `side_px0` is known.

    Raises:
        BadRecipeError: neither says how large a tile is, or they contradict each other.
        BadManifestError: an impossible size.
    """
    tile_px = stated.tile_px or given.tile_px
    if given.tile_px not in (None, tile_px):
        raise BadRecipeError(f"{path}: its tiles have {tile_px} px, but --tile-px is {given.tile_px}. Omit the option.")
    computed = tile_px * given.mpp / mpp0 if tile_px and given.mpp else None
    sides = {"the file": stated.side_px0, "--side-px0": given.side_px0, "tile pixels × --mpp": computed}
    known = {source: side for source, side in sides.items() if side is not None}
    if not known:
        raise BadRecipeError(
            f"{path}: does not state how large a tile is on the slide. Add --side-px0 (its side in level-0 pixels), or "
            "--tile-px and --mpp."
        )
    side_px0 = next(iter(known.values()))
    if max(known.values()) - min(known.values()) > ROUNDING_PX0:
        stated_by = ", ".join(f"{source} {side:g}" for source, side in known.items())
        raise BadRecipeError(f"{path}: the side of its tiles in level-0 pixels is contradictory: {stated_by}.")
    if not 1 <= side_px0 <= MAX_CELL_PX0:
        raise BadManifestError(f"{path}: its tiles have a side of {side_px0:g} level-0 pixels, which cannot be.")
    mpp = given.mpp or (side_px0 * mpp0 / tile_px if tile_px else None)
    if mpp is not None and not is_plausible_mpp(mpp):
        raise BadManifestError(
            f"{path}: its tiles have {mpp:g} µm/px; from {MIN_MPP} to {MAX_MPP:g} are possible. Check --tile-px, --mpp "
            "and --side-px0."
        )
    return TileSize(tile_px, mpp, side_px0)


def whole_corners(xy_n2: NDArray[np.float64], reader: StoreReader, path: Path) -> Corners:
    """Corners in level-0 pixels as whole numbers.

    Raises:
        BadManifestError: not whole, outside the slide, or twice the same.
    """
    fractions = (xy_n2 != np.rint(xy_n2)).any(1)
    if fractions.any():
        tile = int(fractions.argmax())
        raise BadManifestError(
            f"{path}: tile {tile} begins at {tuple(xy_n2[tile].tolist())}; whole level-0 pixels are expected. "
            "Coordinates in µm or of another level are not imported."
        )
    # Positions beyond what 32 bits hold stay outside any slide.
    xy0_n2 = np.clip(xy_n2, -1, np.iinfo(np.int32).max).astype(np.int32)
    try:
        check_corners(xy0_n2, reader.size_wh_px0)
    except ValueError as error:
        raise BadManifestError(
            f"{path}: {error}. Check that it is this slide's file, and that its coordinates are those of level 0."
        ) from error
    return xy0_n2
