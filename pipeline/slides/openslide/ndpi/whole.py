"""Tiles of a Hamamatsu level, put together from whole restart intervals of its one JPEG without decoding."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.jpeg import EOI
from pipeline.codecs.restart.intervals import FIRST_RESTART, NUM_RESTARTS
from pipeline.codecs.restart.padding import white_interval
from pipeline.codecs.types import Stream, StreamCodec
from pipeline.slides.common.slide import NotCopied
from pipeline.slides.openslide.ndpi.intervals import (
    MARK_BYTES,
    NOT_IN_ONE_PIECE,
    CutFromNdpi,
    Intervals,
    tile_lengths,
)

_Cell = tuple[int, int]


class NdpiLevel:
    """An `EncodedLevel` of square tiles, each a JPEG of its own. Thread-safe.

    What a tile has beyond the image is white.

    Args:
        tile_px: a multiple of the interval's width and height.

    Raises:
        JpegError: tiles have to be padded, and the level's tables have no code for white.
    """

    codec: StreamCodec = "imagecodecs_jpeg"

    def __init__(self, intervals: Intervals, tile_px: int) -> None:
        self._intervals, header = intervals, intervals.header
        self.tile_px = tile_px
        self.columns, self.rows = (-(-side // tile_px) for side in intervals.size_wh_px)
        self._across, self._down = (tile_px // side for side in header.interval_wh_px)
        self._head = header.head(tile_px, tile_px)
        is_padded = intervals.num_rows % self._down or intervals.num_across % self._across
        self._white = white_interval(header) if is_padded else b""
        self.cut = CutFromNdpi(intervals, tile_px, True)

    def byte_counts(self) -> NDArray[np.int64]:
        return tile_lengths(self._intervals, self.tile_px)

    def places(self) -> NotCopied:
        return NOT_IN_ONE_PIECE

    def streams(self, row: int, columns: range) -> list[Stream]:
        first, last = columns.start * self._across, min(columns.stop * self._across, self._intervals.num_across)
        inside = range(row * self._down, min((row + 1) * self._down, self._intervals.num_rows))
        bands = [self._band(interval_row, first, last) for interval_row in inside]
        return [self._stream(bands, column * self._across) for column in range(len(columns))]

    def _stream(self, bands: list[_Band], first: int) -> Stream:
        """A tile from its rows of intervals, padded where it reaches beyond the image."""
        parts: list[bytes | memoryview] = [self._head]
        last = min(first + self._across, bands[0].num_intervals)
        for row in range(self._down):
            number, num_inside = row * self._across, last - first if row < len(bands) else 0
            if num_inside:
                parts.append(bands[row].between(first, last))
            if num_inside < self._across:
                parts.append(self._paddings[(number + num_inside) % NUM_RESTARTS, self._across - num_inside])
        return (*parts[:-1], parts[-1][:-MARK_BYTES], EOI)

    def _band(self, row: int, first: int, last: int) -> _Band:
        """A row of intervals, with markers numbered as in their tiles. Raises CorruptTileError."""
        data, ends = self._intervals.checked(row, first, last)
        numbers = ((row % self._down) * self._across + np.arange(first, last) % self._across) % NUM_RESTARTS
        np.frombuffer(data, np.uint8)[ends - 1] = FIRST_RESTART + numbers
        return _Band(memoryview(data), [0, *ends.tolist()])

    @cached_property
    def _paddings(self) -> dict[_Cell, bytes]:
        """White intervals with markers, by the number of the first and how many there are."""
        counts = {self._across, -self._intervals.num_across % self._across} - {0}
        return {
            (number, count): b"".join(
                self._white + bytes([0xFF, FIRST_RESTART + (number + i) % NUM_RESTARTS]) for i in range(count)
            )
            for number, count in product(range(NUM_RESTARTS), counts)
        }


@dataclass(frozen=True)
class _Band:
    """Neighbouring intervals of a row."""

    data: memoryview
    bounds: list[int]

    @property
    def num_intervals(self) -> int:
        return len(self.bounds) - 1

    def between(self, first: int, last: int) -> memoryview:
        return self.data[self.bounds[first] : self.bounds[last]]
