"""Pixels of one array of an OME-Zarr: RGB, whatever the order of its axes."""

from __future__ import annotations

import numpy as np

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.errors import CorruptTileError
from pipeline.slides.common.absent import WHITE, AbsentTiles
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.level_content import places_of_grid, shows_another_image
from pipeline.slides.common.pyramid import LevelSize, level_size
from pipeline.slides.common.slide import paste
from pipeline.slides.ome_zarr.library import ZarrArray
from pipeline.slides.ome_zarr.metadata import Multiscale
from pipeline.slides.ome_zarr.validate import check_array


class OmeZarrLevel:
    """One array as a level.

    Raises:
        UnreadableError, NotBrightfieldRgbError, DecompressionBombError: it cannot be one (`validate.check_array`).
    """

    def __init__(self, array: ZarrArray, multiscale: Multiscale, name: str) -> None:
        axes = multiscale.axes
        check_array(array, axes, name)
        self._array, self._axes, self._name = array, axes, name
        self._rgb_order = list(multiscale.rgb_order or (0, 1, 2))
        self.width_px, self.height_px = array.shape[axes.x], array.shape[axes.y]

    def size(self, finest: OmeZarrLevel) -> LevelSize:
        """Size among the slide's levels."""
        chunk_y, chunk_x = self._array.chunks[self._axes.y], self._array.chunks[self._axes.x]
        return level_size(
            self.width_px, self.height_px, finest.width_px, finest.height_px,
            tile_px=chunk_x if chunk_x == chunk_y else None,
        )  # fmt: skip

    def is_another_image(self, finer: OmeZarrLevel) -> bool:
        """Whether it shows something other than a finer level, and so is not a level of the same slide."""
        sizes_wh = [(level.width_px, level.height_px) for level in (self, finer)]
        places = places_of_grid(*sizes_wh[0])
        return bool(shows_another_image(self.read_region, sizes_wh[0], finer.read_region, sizes_wh[1], places))

    def absent_tiles(self) -> AbsentTiles:
        """Tiles of which a chunk is not stored: they show the fill value, which means background if it is white."""
        array, axes = self._array, self._axes
        others = tuple(axis for axis in range(len(array.shape)) if axis not in (axes.y, axes.x))
        is_stored = array.is_stored()
        is_absent = np.asarray(~is_stored.all(axis=others))
        is_empty = np.asarray(~is_stored.any(axis=others))
        if axes.y > axes.x:
            is_absent, is_empty = is_absent.T, is_empty.T
        blanks = {0} if array.has_plain_bytes else set()
        blanks |= {array.fill_value} if array.is_sharded else set()
        tile_wh_px = array.chunks[axes.x], array.chunks[axes.y]
        return AbsentTiles(tile_wh_px, is_absent, is_empty & (array.fill_value == WHITE), frozenset(blanks))

    def read_region(self, box: Box) -> Pixels:
        """Pixels of the level, uint8 (box.height_px, box.width_px, 3); white outside it. Raises CorruptTileError."""
        region = np.full((box.height_px, box.width_px, 3), 255, np.uint8)
        inside = box.within(self.width_px, self.height_px)
        if not inside.is_empty:
            paste(region, self._read(inside), inside.x_px - box.x_px, inside.y_px - box.y_px)
        return region

    def _read(self, box: Box) -> Pixels:
        axes = self._axes
        parts = {"x": slice(box.x_px, box.right_px), "y": slice(box.y_px, box.bottom_px), "c": slice(None)}
        try:
            stored = self._array.read(tuple(parts.get(name, 0) for name in axes.names))
        except DamagedFileError as error:
            raise CorruptTileError(
                f"{self._name}: the region at x={box.x_px}, y={box.y_px} of the {self.width_px}×{self.height_px} px "
                f"level cannot be decoded: {error}. A chunk is damaged; copy or convert it again."
            ) from error
        kept = [name for name in axes.names if name in parts]
        stored = stored.transpose([kept.index(name) for name in ("y", "x", "c")])
        return stored if self._rgb_order == [0, 1, 2] else stored[..., self._rgb_order]
