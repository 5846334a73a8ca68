"""A slide's pixels as lazy arrays: blocks decoded once, by several threads, in screen colours or as scanned.

napari reads a level by slices. The levels are those of the web viewer: one at every halving, so that at most four
pixels are decoded per screen pixel.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.store import CORES, ScreenLevel, StoreReader, for_screen, parallel_for, screen_levels, tile_pixels
from training.foundation.errors import GemslideError

Pixels = NDArray[np.uint8]
Key = tuple[int, int, int, int, bool]
"""Slide number, level, row, column, and whether as scanned."""

MAX_BYTES = 384 * 2**20
"""Limit for decoded blocks in the whole process: enough for the last several 4K screens."""
_STRIPE_PX, _GREYS = 12, (150, 205)
_NUMBERS = itertools.count()


class BlockCache:
    """The most recently used blocks, up to a number of bytes. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.held_bytes = max_bytes, 0
        self._blocks: OrderedDict[Key, Pixels] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Pixels | None:
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
            return block

    def put(self, key: Key, block: Pixels) -> None:
        with self._lock:
            if key in self._blocks:  # two threads have decoded the same block
                return
            self._blocks[key] = block
            self.held_bytes += block.nbytes
            while self.held_bytes > self.max_bytes and len(self._blocks) > 1:
                self.held_bytes -= self._blocks.popitem(last=False)[1].nbytes


_BLOCKS = BlockCache(MAX_BYTES)


class SlidePixels:
    """The blocks of one slide. Damaged parts of its store are hatched in grey and reported once."""

    def __init__(self, reader: StoreReader, tell: Callable[[str], None], blocks: BlockCache = _BLOCKS) -> None:
        """Args: tell: takes a message for the user."""
        self.reader, self.levels = reader, screen_levels(reader)
        self._tell, self._blocks, self._number = tell, blocks, next(_NUMBERS)
        self._damage, self._is_told = "", False

    def arrays(self, *, as_scanned: bool) -> list[LevelYxc]:
        """Every level, finest first, converted by the scanner's colour profile unless `as_scanned`."""
        return [LevelYxc(self, index, as_scanned) for index in range(len(self.levels))]

    def read(self, index: int, top: int, left: int, height_px: int, width_px: int, as_scanned: bool) -> Pixels:
        """Pixels of a level inside its bounds, uint8 (height_px, width_px, 3)."""
        side_px, region = self.levels[index].tile_px, np.empty((height_px, width_px, 3), np.uint8)

        def paste(row: int, column: int) -> None:
            block = self._block(index, row, column, as_scanned)
            y_px, x_px = row * side_px, column * side_px
            y0, y1 = max(top, y_px), min(top + height_px, y_px + len(block))
            x0, x1 = max(left, x_px), min(left + width_px, x_px + block.shape[1])
            region[y0 - top : y1 - top, x0 - left : x1 - left] = block[y0 - y_px : y1 - y_px, x0 - x_px : x1 - x_px]

        if region.size:
            rows = range(top // side_px, (top + height_px - 1) // side_px + 1)
            columns = range(left // side_px, (left + width_px - 1) // side_px + 1)
            parallel_for(paste, itertools.product(rows, columns), CORES)
        self._tell_of_damage()
        return region

    def _block(self, index: int, row: int, column: int, as_scanned: bool) -> Pixels:
        key = (self._number, index, row, column, as_scanned)
        block = self._blocks.get(key)
        if block is None:
            block = self._decoded(self.levels[index], row, column, as_scanned)
            self._blocks.put(key, block)
        return block

    def _decoded(self, level: ScreenLevel, row: int, column: int, as_scanned: bool) -> Pixels:
        pixels: Pixels
        try:
            pixels, holes = tile_pixels(level, row, column)
        except GemslideError as error:  # the whole store is gone or replaced
            self._damage = str(error)
            box = level.source_box(row, column)
            return _hatching(-(-box.height_px // level.shrink), -(-box.width_px // level.shrink))
        if not as_scanned:
            pixels = for_screen(self.reader, pixels)
        if holes:
            self._damage = (
                f"{self.reader.slide_id}: parts of the slide's store are damaged (hatched in grey). `gemslide verify` "
                "lists them; ingest the slide again to repair it."
            )
            pixels = pixels.copy()
            hatching = _hatching(*pixels.shape[:2])
            for hole in holes:
                at = slice(hole.y_px, hole.bottom_px), slice(hole.x_px, hole.right_px)
                pixels[at] = hatching[at]
        return pixels

    def _tell_of_damage(self) -> None:
        """Report damage once, in the thread that asked for pixels: a window accepts no message from another."""
        if self._damage and not self._is_told:
            self._is_told = True
            self._tell(self._damage)


def _hatching(height_px: int, width_px: int) -> Pixels:
    y, x = np.ogrid[:height_px, :width_px]
    is_dark = (x + y) % _STRIPE_PX < _STRIPE_PX // 2
    return np.repeat(np.asarray(np.where(is_dark, *_GREYS), np.uint8)[..., None], 3, axis=2)


class LevelYxc:
    """A level as a lazy y,x,c array: napari reads only what it shows.

    The store's arrays are c,y,x, which napari cannot show as RGB.
    """

    ndim = 3
    dtype = np.dtype(np.uint8)

    def __init__(self, pixels: SlidePixels, index: int, as_scanned: bool) -> None:
        self._pixels, self._index, self.as_scanned = pixels, index, as_scanned
        level = pixels.levels[index]
        self.shape: tuple[int, int, int] = (level.height_px, level.width_px, 3)
        self.size = math.prod(self.shape)
        self.chunks = (level.tile_px, level.tile_px, 3)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Pixels:
        keys = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            keys[at : at + 1] = [slice(None)] * (self.ndim + 1 - len(keys))
        keys += [slice(None)] * (self.ndim - len(keys))
        (top, height, rows), (left, width, columns) = (
            _span(part, size) for part, size in zip(keys[:2], self.shape[:2], strict=True)
        )
        region = self._pixels.read(self._index, top, left, height, width, self.as_scanned)
        return region[rows, columns, keys[2]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)


def _span(key: slice | int, size: int) -> tuple[int, int, slice | int]:
    """Span to read for an index into an axis: start, length, and the index into the span read."""
    if isinstance(key, slice):
        start, stop, step = key.indices(size)
        if step < 1:
            raise IndexError(f"slices of a slide must step forward, got a step of {step}")
        return start, max(0, stop - start), slice(None, None, step)
    index = range(size)[int(key)]
    return index, 1, 0
