"""Regions of a level through OpenSlide, in pieces that fit in memory and from positions on whole pixels.

OpenSlide takes whole level-0 positions. If a level's downsample is not a whole number, most of its pixels do not
start at one, and OpenSlide blends neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.errors import CorruptTileError
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.slide import paste
from pipeline.slides.openslide.library import OpenSlideHandle, white

_PIECE_PX = 2048
"""Largest side read at once: a region's memory is its own and one piece's (16 MiB). OpenSlide itself cuts at 4096."""
_MAX_OFFSET_PX = 1e-3
"""Cairo, which lays out OpenSlide's tiles, counts in 1/256 px."""
_MARGIN_PX = 2
"""Tiles of lower levels may start between pixels, so the scanned area may reach a little further there."""


class OpenSlideLevel:
    """Pixels of one of OpenSlide's levels. Thread-safe.

    Args:
        source_level: its number in OpenSlide.
        bounds_px0: scanned area; None for everything.
        scn_areas: of a Leica slide, the areas placed on the level's canvas; [] for other vendors.
    """

    def __init__(
        self,
        handle: OpenSlideHandle,
        name: str,
        source_level: int,
        bounds_px0: Box | None,
        scn_areas: list[Box],
    ) -> None:
        self._handle, self._name, self._source_level = handle, name, source_level
        self._bounds_px0, self._scn_areas = bounds_px0, scn_areas
        self._size_wh_px = handle.level_sizes_wh[source_level]
        self._step = handle.level_downsamples[source_level]

    def read_region(self, box: Box) -> Pixels:
        """Pixels of the level, uint8 (box.height_px, box.width_px, 3); white outside it and where nothing was scanned.

        Raises:
            CorruptTileError: OpenSlide cannot read it.
        """
        pieces = list(self._pieces(box))
        if pieces == [box]:
            whole = self._read_piece(box)
            return white(box) if whole is None else whole
        region = white(box)
        for piece in pieces:
            pixels = self._read_piece(piece)
            if pixels is not None:
                paste(region, pixels, piece.x_px - box.x_px, piece.y_px - box.y_px)
        return region

    def _pieces(self, box: Box) -> Iterator[Box]:
        """Parts of a region that may hold something, each small enough to be read at once."""
        box = box.within(*self._size_wh_px)
        if self._bounds_px0 is not None:
            box = box.overlap(_grown(self._bounds_px0, self._step))
        cells = _cut_along(self._scn_areas, box) if self._scn_areas else [box]
        for x, y, width, height in cells:
            for top in range(y, y + height, _PIECE_PX):
                for left in range(x, x + width, _PIECE_PX):
                    yield Box(left, top, min(_PIECE_PX, x + width - left), min(_PIECE_PX, y + height - top))

    def _read_piece(self, box: Box) -> Pixels | None:
        """Pixels of a piece; None if none of it was scanned."""
        try:
            return self._handle.read_region(self._source_level, self._location_xy0(box), box.size_wh_px)
        except DamagedFileError as error:
            raise CorruptTileError(
                f"{self._name}: OpenSlide cannot read level {self._source_level} at x={box.x_px}, y={box.y_px}: "
                f"{error}. The file is damaged there; copy or scan it again."
            ) from error

    def _location_xy0(self, box: Box) -> tuple[int, int]:
        # Within an area of a Leica slide OpenSlide 4.0.1 truncates position / step to a whole number, so that the
        # smallest position from the pixel's start on gives that pixel.
        to_whole = math.ceil if self._scn_areas else round
        return to_whole(box.x_px * self._step), to_whole(box.y_px * self._step)


def is_on_whole_pixels(side_px: int, step: float) -> bool:
    """Whether every pixel of a level starts at a whole level-0 position, as near as Cairo can tell.

    Args:
        side_px: the level's longer side.
        step: its downsample.
    """
    return side_px * abs(step - round(step)) / step < _MAX_OFFSET_PX


def whole_location_xy0(box: Box, step: float) -> tuple[int, int] | None:
    """The level-0 position of a level's box; None if it is between whole positions."""
    x_px0, y_px0 = round(box.x_px * step), round(box.y_px * step)
    if max(abs(x_px0 / step - box.x_px), abs(y_px0 / step - box.y_px)) > _MAX_OFFSET_PX:
        return None
    return x_px0, y_px0


def _cut_along(areas: list[Box], box: Box) -> Iterator[Box]:
    """The parts of a region that are in an area, none of them across an area's border.

    OpenSlide truncates towards zero from an area's corner: a region that begins left of it shows it a pixel off.
    """
    x_cuts = {edge for a in areas for edge in (a.x_px, a.right_px) if box.x_px < edge < box.right_px}
    y_cuts = {edge for a in areas for edge in (a.y_px, a.bottom_px) if box.y_px < edge < box.bottom_px}
    for top, bottom in pairwise(sorted(y_cuts | {box.y_px, box.bottom_px})):
        for left, right in pairwise(sorted(x_cuts | {box.x_px, box.right_px})):
            if any(a.x_px <= left < a.right_px and a.y_px <= top < a.bottom_px for a in areas):
                yield Box(left, top, right - left, bottom - top)


def _grown(box_px0: Box, step: float) -> Box:
    """A level-0 box in pixels of a level, with a margin."""
    x, y, width, height = box_px0
    left, top = math.floor(x / step) - _MARGIN_PX, math.floor(y / step) - _MARGIN_PX
    right, bottom = math.ceil((x + width) / step) + _MARGIN_PX, math.ceil((y + height) / step) + _MARGIN_PX
    return Box(left, top, right - left, bottom - top)
