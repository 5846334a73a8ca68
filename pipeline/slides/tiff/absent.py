"""Tiles of a TIFF's level that are not in the file: TIFF's tables give them no bytes."""

from __future__ import annotations

import numpy as np
import tifffile
from numpy.typing import NDArray

from pipeline.slides.common.absent import AbsentTiles
from pipeline.slides.tiff.segments import LevelSource

_UNCOMPRESSED, _PACKBITS = 1, 32773
_BLANK = {_UNCOMPRESSED, _PACKBITS}
"""Compressions that decode zeros, as a disk returns for bytes never written, to black pixels."""


def absent_of_level(source: LevelSource, *, is_by_format: bool) -> AbsentTiles:
    """Tiles without bytes. A missing strip is not among them: reading it fails.

    Args:
        is_by_format: whether the family of TIFF leaves out tiles of glass.
    """
    shape = source.grid
    is_absent = np.zeros(shape, bool)
    if source.page.is_tiled:
        for page, start in source.parts(0):
            is_absent |= _without_bytes(page, start, shape[0] * shape[1]).reshape(shape)
    blanks = frozenset({0} if source.page.compression in _BLANK else ())
    return AbsentTiles(source.segment_wh_px, is_absent, is_absent & is_by_format, blanks)


def _without_bytes(page: tifffile.TiffPage, start: int, num_tiles: int) -> NDArray[np.bool_]:
    """Whether each tile is listed without bytes; one that is not listed is damaged, as reading it says."""
    empty = np.zeros(num_tiles, bool)
    places = zip(page.dataoffsets[start:], page.databytecounts[start:], strict=False)
    for index, (offset, count) in zip(range(num_tiles), places, strict=False):
        empty[index] = offset == 0 or count == 0
    return empty
