"""Requirements on the arrays of an OME-Zarr for their pixels to come out right; everything else is refused."""

from __future__ import annotations

import math

import numpy as np

from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.common.limits import MAX_UNPACK_RATIO, MAX_WHOLE_PAGE_BYTES, most_raw_bytes
from pipeline.slides.ome_zarr.library import ZarrArray
from pipeline.slides.ome_zarr.metadata import Axes, Multiscale, listed_axes
from training.foundation.errors import DecompressionBombError, UnreadableError

_MAX_CHUNK_BYTES = 256 * 2**20
_MAX_SCALE_ERROR, _MAX_ROUNDING_PX = 0.1, 2
"""Largest deviation of a level's width from what its step says."""


def check_array(array: ZarrArray, axes: Axes, name: str) -> None:
    """Check that an array is an RGB image of chunks that fit in memory.

    Raises:
        UnreadableError, NotBrightfieldRgbError, DecompressionBombError: it is not.
    """
    if len(array.shape) != len(axes.names):
        raise UnreadableError(
            f"{name}: an array of {len(array.shape)} dimensions for the axes {listed_axes(axes.names)}."
        )
    shape = dict(zip(axes.names, array.shape, strict=True))
    channels = shape.pop("c", 1)
    height_px, width_px = shape.pop("y"), shape.pop("x")
    if channels != 3 or array.dtype != np.uint8 or any(length != 1 for length in shape.values()):
        others = "".join(f", {length} along {listed_axes([axis])}" for axis, length in shape.items())
        raise NotBrightfieldRgbError(
            f"{name}: holds {channels} channels of {array.dtype}{others}. Only 8-bit brightfield RGB slides "
            "are read (3 channels, one focal plane, one time). Export it as 8-bit RGB."
        )
    if height_px < 1 or width_px < 1:
        raise UnreadableError(f"{name}: claims {width_px}×{height_px} px. The OME-Zarr is damaged.")
    chunk_bytes = math.prod(array.chunks)
    if chunk_bytes > _MAX_CHUNK_BYTES:
        raise DecompressionBombError(
            f"{name}: chunks of {array.chunks}, {chunk_bytes >> 20} MiB each; at most {_MAX_CHUNK_BYTES >> 20} "
            "MiB are read at once. Convert it with smaller chunks."
        )


def check_claim(width_px: int, height_px: int, num_bytes: int, name: str) -> None:
    """Check that a folder of so many bytes can hold the finest level. Raises DecompressionBombError."""
    if width_px * height_px * 3 > most_raw_bytes(num_bytes):
        raise DecompressionBombError(
            f"{name}: claims {width_px}×{height_px} px in {num_bytes} bytes: more than "
            f"{MAX_UNPACK_RATIO} to 1. Its metadata is damaged."
        )


def check_associated_claim(width_px: int, height_px: int, what: str, name: str) -> None:
    """Check that an associated image can be read as a whole. Raises DecompressionBombError."""
    if width_px * height_px * 3 > MAX_WHOLE_PAGE_BYTES:
        raise DecompressionBombError(f"{name}: its {what} image claims {width_px}×{height_px} px.")


def has_stated_scale(multiscale: Multiscale, index: int, finest: int, sizes_px: tuple[int, int]) -> bool:
    """Whether a level's step, where stated, fits its width: as many pixels of the finest level as lie in one of it.

    Args:
        sizes_px: widths of the level and of the finest one.
    """
    first, own = multiscale.datasets[finest], multiscale.datasets[index]
    x = multiscale.axes.x
    if not own.is_scaled:
        return True
    if own.scale[x] <= 0 or first.scale[x] <= 0:
        return False
    expected_px = sizes_px[1] * first.scale[x] / own.scale[x]
    return abs(expected_px - sizes_px[0]) <= max(_MAX_ROUNDING_PX, _MAX_SCALE_ERROR * sizes_px[0])


def starts_at_same_corner(multiscale: Multiscale, index: int, finest: int) -> bool:
    """Whether a level's origin is that of the finest level, to within one of its own pixels."""
    first, own = multiscale.datasets[finest], multiscale.datasets[index]
    axes = (multiscale.axes.y, multiscale.axes.x)
    return all(abs(own.translation[axis] - first.translation[axis]) <= abs(own.scale[axis]) for axis in axes)
