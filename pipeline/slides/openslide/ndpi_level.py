"""Tiles of a Hamamatsu level, put together from the restart intervals of its one JPEG without decoding."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.jpeg import EOI, count_marks
from pipeline.codecs.jpeg_padding import white_interval
from pipeline.codecs.restart_intervals import FIRST_RESTART, NUM_RESTARTS, IntervalHeader, joined
from pipeline.codecs.types import Stream, StreamCodec
from pipeline.errors import CorruptTileError
from pipeline.slides.common.limits import MAX_TILE_BYTES
from pipeline.slides.common.reading import read_at

_MARK_BYTES = 2
_AT_END = re.compile(rb"\xff+[\xd0-\xd7\xd9]\Z")
_Cell = tuple[int, int]


@dataclass(frozen=True)
class IntervalFile:
    """The restart intervals of a level by their place in the image, and the file they are in.

    Args:
        starts, ends: first byte and the byte after the marker of each, int64 of shape (rows, intervals across).
    """

    descriptor: int
    name: str
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def read(self, row: int, first: int, last: int) -> bytes:
        """Neighbouring intervals of a row, with their markers; fewer bytes at the end of the file."""
        start, end = int(self.starts[row, first]), int(self.ends[row, last - 1])
        return read_at(self.descriptor, min(end - start, MAX_TILE_BYTES), start, self.name)


class NdpiLevel:
    """An `EncodedLevel` of square tiles, each a JPEG of its own. Thread-safe: it reads by position.

    What a tile has beyond the image is white.

    Args:
        tile_px: a multiple of the interval's width and height.

    Raises:
        JpegError: tiles have to be padded, and the level's tables have no code for white.
    """

    codec: StreamCodec = "imagecodecs_jpeg"

    def __init__(self, file: IntervalFile, header: IntervalHeader, size_wh_px: tuple[int, int], tile_px: int) -> None:
        self._file, self._header, self._size_wh_px = file, header, size_wh_px
        self.tile_px = tile_px
        self.columns, self.rows = (-(-side // tile_px) for side in size_wh_px)
        self._across, self._down = (tile_px // side for side in header.interval_wh_px)
        self._num_rows, self._num_across = file.starts.shape
        self._head = header.head(tile_px, tile_px)
        is_padded = self._num_rows % self._down or self._num_across % self._across
        self._white = white_interval(header) if is_padded else b""
        self.cut = CutFromNdpi(file, header, self._across, self._down)

    def byte_counts(self) -> NDArray[np.int64]:
        lengths = self._file.ends - self._file.starts
        by_row = np.add.reduceat(lengths, range(0, self._num_rows, self._down), axis=0)
        return np.add.reduceat(by_row, range(0, self._num_across, self._across), axis=1)

    def streams(self, row: int, columns: range) -> list[Stream]:
        first, last = columns.start * self._across, min(columns.stop * self._across, self._num_across)
        inside = range(row * self._down, min((row + 1) * self._down, self._num_rows))
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
                parts.append(self._padding((number + num_inside) % NUM_RESTARTS, self._across - num_inside))
        return (*parts[:-1], parts[-1][:-_MARK_BYTES], EOI)

    def _band(self, row: int, first: int, last: int) -> _Band:
        """A row of intervals, with markers numbered as in their tiles.

        Raises:
            CorruptTileError: they are not what the file lists.
        """
        ends = self._file.ends[row, first:last] - self._file.starts[row, first]
        data = bytearray(self._file.read(row, first, last))
        if len(data) != ends[-1]:
            raise self._corrupt(row, first, f"{ends[-1]} bytes are listed, and {len(data)} can be read")
        indices = np.arange(first, last)
        self._check_marks(data, ends, indices, row)
        numbers = ((row % self._down) * self._across + indices % self._across) % NUM_RESTARTS
        np.frombuffer(data, np.uint8)[ends - 1] = FIRST_RESTART + numbers
        return _Band(memoryview(data), [0, *ends.tolist()])

    def _check_marks(self, data: bytearray, ends: NDArray[np.int64], indices: NDArray[np.int64], row: int) -> None:
        """Every interval ends in its marker, numbered through the image, and there is no other in between."""
        numbers = (row * self._num_across + indices) % NUM_RESTARTS
        expected = (FIRST_RESTART + numbers).astype(np.uint8)
        if row == self._num_rows - 1 and indices[-1] == self._num_across - 1:
            expected[-1] = EOI[-1]
        values = np.frombuffer(data, np.uint8)
        is_right = (values[ends - 2] == EOI[0]) & (values[ends - 1] == expected)
        if not is_right.all():
            wrong = int(np.argmin(is_right))
            found = bytes(data[ends[wrong] - 2 : ends[wrong]]).hex()
            raise self._corrupt(row, int(indices[wrong]), f"it ends in {found}, not in ff{expected[wrong]:02x}")
        if count_marks(data) != len(ends):
            raise self._corrupt(row, int(indices[0]), "there are markers inside the intervals from there on")

    def _padding(self, number: int, count: int) -> bytes:
        return self._paddings[number, count]

    @cached_property
    def _paddings(self) -> dict[_Cell, bytes]:
        """White intervals with markers, by the number of the first and how many there are."""
        counts = {self._across, -self._num_across % self._across} - {0}
        return {
            (number, count): b"".join(
                self._white + bytes([0xFF, FIRST_RESTART + (number + i) % NUM_RESTARTS]) for i in range(count)
            )
            for number, count in product(range(NUM_RESTARTS), counts)
        }

    def _corrupt(self, row: int, interval: int, why: str) -> CorruptTileError:
        width_px, height_px = self._size_wh_px
        at = f"row {row // self._down}, column {interval // self._across}"
        return CorruptTileError(
            f"{self._file.name}: the tile in {at} of the {width_px}×{height_px} px level cannot be stored: of the "
            f"restart interval in row {row}, column {interval}, {why}. The file is damaged; copy or scan it again."
        )


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


@dataclass(frozen=True)
class CutFromNdpi:
    """A level's tiles once more, from single intervals, for comparison (`CutTiles`)."""

    _file: IntervalFile
    _header: IntervalHeader
    _across: int
    _down: int

    @property
    def interval_wh_px(self) -> tuple[int, int]:
        return self._header.interval_wh_px

    @property
    def reach_xy_px(self) -> tuple[int, int]:
        return self._header.reach_xy_px

    def coded_data(self, row: int, column: int) -> list[bytes]:
        rows, columns = self._cells(row, column, margin=0)
        return [self._interval(*cell) for cell in product(rows, columns)]

    def with_neighbours(self, row: int, column: int) -> tuple[bytes, tuple[int, int]]:
        rows, columns = self._cells(row, column, margin=1)
        width_px, height_px = self.interval_wh_px
        head = self._header.head(len(columns) * width_px, len(rows) * height_px)
        stream = joined(head, [self._interval(*cell) for cell in product(rows, columns)])
        return stream, ((column * self._across - columns.start) * width_px, (row * self._down - rows.start) * height_px)

    def _cells(self, row: int, column: int, *, margin: int) -> tuple[range, range]:
        """Rows and columns of a tile's intervals and of as many around them, inside the image."""
        num_rows, num_across = self._file.starts.shape
        rows = range(max(0, row * self._down - margin), min((row + 1) * self._down + margin, num_rows))
        return rows, range(
            max(0, column * self._across - margin), min((column + 1) * self._across + margin, num_across)
        )

    def _interval(self, row: int, column: int) -> bytes:
        return _AT_END.sub(b"", self._file.read(row, column, column + 1))
