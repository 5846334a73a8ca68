"""Tiles of Aperio slides that OpenSlide does not decode, since it takes them for missing.

Where a tile has no bytes, OpenSlide draws it from the level before, and so also every tile of later levels that covers
it, which it considers damaged (openslide-vendor-aperio.c, propagate_missing_tile). If such a tile has bytes of its own,
OpenSlide's image is not a second opinion on it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.slides.common.slide import NotCopied, Slide

APERIO = "tiff:aperio"


def drawn_by_openslide(slide: Slide, level: int) -> NDArray[np.bool_]:
    """Whether OpenSlide draws a tile of an Aperio level from the level before, bool of shape (rows, columns)."""
    encoded = slide.encoded_level(level)
    if isinstance(encoded, NotCopied):
        return np.zeros((0, 0), np.bool_)
    drawn: NDArray[np.bool_] = encoded.byte_counts() == 0
    before = drawn_by_openslide(slide, level - 1) if level else np.zeros((0, 0), np.bool_)
    if before.size:
        # OpenSlide rounds the ratio of the two grids, too.
        ratios = [max(1, round(many / few)) for many, few in zip(before.shape, drawn.shape, strict=True)]
        rows, columns = (indices // ratio for indices, ratio in zip(np.nonzero(before), ratios, strict=True))
        inside = (rows < encoded.rows) & (columns < encoded.columns)
        drawn[rows[inside], columns[inside]] = True
    return np.asarray(drawn, bool)
