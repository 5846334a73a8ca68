"""Sizes of a pyramid's levels: which image is a reduced copy of which, and by what factor."""

from __future__ import annotations

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
    # The width is rounded to a whole pixel: on a tall slide one pixel of it is several of the height.
    tolerance_px = 1 + max(1.0, height_px / width_px)
    return abs(height_px0 * width_px / width_px0 - height_px) <= tolerance_px
