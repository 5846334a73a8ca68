"""The gate's comparison of tiles that were cut out of a larger JPEG: with its coded data, and with pixels off the cuts.

A decoder interpolates subsampled chroma across what is a border in a tile, and OpenSlide decodes every restart interval
alone. So neither shows the pixels of a tile everywhere; but the coded data must be the source's, and pixels must be
equal wherever a decoder does not look across a border.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.codecs import jpeg
from pipeline.codecs.images import decode_jpeg
from pipeline.codecs.restart.intervals import split
from pipeline.codecs.types import Pixels
from pipeline.slides.common.slide import CutTiles

LIBJPEG = "libjpeg, with the intervals around each tile"


@dataclass(frozen=True)
class CutTile:
    """A tile as it would be stored.

    Args:
        box: the part of it inside the level, in the level's pixels.
        pixels: of that part.
    """

    cut: CutTiles
    row: int
    column: int
    box: Box
    level_wh_px: tuple[int, int]
    stream: bytes
    pixels: Pixels

    def unlike_source(self, openslide: Pixels | None) -> str:
        """What differs from the source; "" if nothing does.

        Args:
            openslide: pixels of the box as OpenSlide shows them; None if it does not.
        """
        coded_data = self.cut.coded_data(self.row, self.column)
        if coded_data is not None and self._coded_data() != coded_data:
            return "its coded data differ from those of the source's restart intervals"
        if worst := self._difference(self._as_cut_from(), by_openslide=False):
            return f"differs from {LIBJPEG} by up to {worst} off its borders"
        worst = 0 if openslide is None else self._difference(openslide, by_openslide=True)
        return f"differs from OpenSlide by up to {worst} off the borders of restart intervals" if worst else ""

    def _coded_data(self) -> list[bytes]:
        """Of the intervals inside the image."""
        parsed = jpeg.parse(self.stream)
        intervals = split(parsed.coded)
        width_px, height_px = self.cut.interval_wh_px
        across = parsed.header.width_px // width_px
        inside_across, inside_down = -(-self.box.width_px // width_px), -(-self.box.height_px // height_px)
        rows = range(0, inside_down * across, across)
        return [interval for first in rows for interval in intervals[first : first + inside_across]]

    def _as_cut_from(self) -> Pixels:
        """Pixels of a JPEG that goes on beyond the tile, cut to the box."""
        stream, (x_px, y_px) = self.cut.with_neighbours(self.row, self.column)
        return decode_jpeg(stream)[y_px : y_px + self.box.height_px, x_px : x_px + self.box.width_px]

    def _difference(self, expected: Pixels, *, by_openslide: bool) -> int:
        """Largest difference of pixels off the tile's borders; of OpenSlide's, also off those of intervals."""
        is_off_x, is_off_y = (self._is_off(axis, by_openslide=by_openslide) for axis in (0, 1))
        difference = np.abs(self.pixels.astype(np.int16) - expected)
        return int(difference[is_off_y[:, None] & is_off_x].max(initial=0))

    def _is_off(self, axis: int, *, by_openslide: bool) -> NDArray[np.bool_]:
        """Whether each pixel along x (0) or y (1) may be compared."""
        first_px, side_px = (self.box.x_px, self.box.y_px)[axis], self.box.size_wh_px[axis]
        reach_px, piece_px = self.cut.reach_xy_px[axis], self.cut.interval_wh_px[axis]
        is_off = np.ones(side_px, bool)
        cuts = [0, side_px]
        if by_openslide:
            cuts += range(-first_px % piece_px, side_px, piece_px)
            # Of an interval that is only partly inside the level it shows nothing.
            is_off[max(0, self.level_wh_px[axis] // piece_px * piece_px - first_px) :] = False
        for cut in cuts:
            is_off[max(0, cut - reach_px) : cut + reach_px] = False
        return is_off


def border_rule(cut: CutTiles) -> str | None:
    """What the comparison leaves out; None if nothing."""
    reach_x_px, reach_y_px = cut.reach_xy_px
    if not (reach_x_px or reach_y_px):
        return None
    borders = ["left and right"] * bool(reach_x_px) + ["top and bottom"] * bool(reach_y_px)
    return (
        f"cut out at restart intervals: within {max(reach_x_px, reach_y_px)} px of the {', '.join(borders)} borders of "
        "tiles, subsampled chroma is interpolated without the neighbouring tile; there pixels were not compared"
    )
