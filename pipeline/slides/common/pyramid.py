"""Sizes of a pyramid's levels: which image is a reduced copy of which, and by what factor."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class LevelSize:
    """One level of the source's pyramid."""

    width_px: int
    height_px: int
    downsample: float
    """Level-0 pixels per pixel of this level."""
    tile_px: int | None = None
    """Side of the tiles the level is stored in, where known: reading along them decodes each only once."""


def level_size(
    width_px: int, height_px: int, width_px0: int, height_px0: int, *, tile_px: int | None = None
) -> LevelSize:
    """Size of a level with its downsample; a whole number where rounding explains the rest."""
    downsample = (width_px0 / width_px + height_px0 / height_px) / 2
    whole = max(1, round(downsample))
    if _rounds_to(width_px, width_px0, whole) and _rounds_to(height_px, height_px0, whole):
        downsample = float(whole)
    return LevelSize(width_px, height_px, downsample, tile_px)


def _rounds_to(size_px: int, size_px0: int, downsample: int) -> bool:
    return size_px in (size_px0 // downsample, -(-size_px0 // downsample))


def is_reduced_copy(size_wh_px: tuple[int, int], finest_wh_px: tuple[int, int]) -> bool:
    """Whether an image has the shape of the finest level at a smaller size, up to rounding."""
    (width_px, height_px), (width_px0, height_px0) = size_wh_px, finest_wh_px
    if not 1 <= width_px < width_px0 or height_px < 1:
        return False
    # The width is rounded to a whole pixel: on a tall slide one pixel of width equals several of height.
    tolerance_px = 1 + max(1.0, height_px / width_px)
    return abs(height_px0 * width_px / width_px0 - height_px) <= tolerance_px


_LOOSE_SHARE, _LOOSE_PX = 0.005, 8
_LEAST_DOWNSAMPLE = 1.5
_MAX_DOWNSAMPLES = 16


def looks_reduced(
    size_wh_px: tuple[int, int], finest_wh_px: tuple[int, int], tile_wh_px: tuple[int, int] | None = None
) -> bool:
    """Whether an image may be a reduced copy of another, though not exact enough to be read as its level.

    Its proportions are nearly those of the other, or its sides are padded to whole tiles.
    """
    (width_px, height_px), (width_px0, height_px0) = size_wh_px, finest_wh_px
    if is_reduced_copy(size_wh_px, finest_wh_px):
        return True
    if min(width_px, height_px) < 1 or width_px0 / width_px < _LEAST_DOWNSAMPLE:
        return False
    expected_px = height_px0 * width_px / width_px0
    if abs(expected_px - height_px) <= max(_LOOSE_PX, _LOOSE_SHARE * height_px) and width_px > 20 * _LOOSE_PX:
        return True
    return tile_wh_px is not None and _is_padded_copy(size_wh_px, finest_wh_px, tile_wh_px)


def _is_padded_copy(size_wh_px: tuple[int, int], finest_wh_px: tuple[int, int], tile_wh_px: tuple[int, int]) -> bool:
    """Whether some downsample explains both sides, each padded to whole tiles."""
    least, most = _padded_downsamples(size_wh_px, finest_wh_px, tile_wh_px)
    return least < most


def covered_sizes_wh(
    size_wh_px: tuple[int, int], finest_wh_px: tuple[int, int], tile_wh_px: tuple[int, int] | None = None
) -> list[tuple[int, int]]:
    """Sizes that an image that `looks_reduced` may cover, in pixels of the other: all of it; or, if its sides are
    padded to whole tiles, also more than that, by each whole downsample that explains them."""
    sizes = [finest_wh_px]
    if tile_wh_px is not None and not is_reduced_copy(size_wh_px, finest_wh_px):
        least, most = _padded_downsamples(size_wh_px, finest_wh_px, tile_wh_px)
        whole = range(math.ceil(least), math.ceil(min(most, 2 * least)))  # one of them is a power of two
        sizes += [(size_wh_px[0] * downsample, size_wh_px[1] * downsample) for downsample in whole[:_MAX_DOWNSAMPLES]]
    return sizes


def _padded_downsamples(
    size_wh_px: tuple[int, int], finest_wh_px: tuple[int, int], tile_wh_px: tuple[int, int]
) -> tuple[float, float]:
    """The smallest downsample, and the limit that all are below; equal if there is none."""
    least, most = _LEAST_DOWNSAMPLE, float("inf")
    for side_px, finest_px, tile_px in zip(size_wh_px, finest_wh_px, tile_wh_px, strict=True):
        if tile_px < 1 or side_px % tile_px:
            return least, least
        least = max(least, finest_px / side_px)
        most = min(most, finest_px / (side_px - tile_px) if side_px > tile_px else most)
    return least, max(least, most)
