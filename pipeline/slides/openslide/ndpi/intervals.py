"""The restart intervals of a Hamamatsu level: where they are in the file and in the image, read and checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.jpeg import EOI, count_marks
from pipeline.codecs.restart.intervals import FIRST_RESTART, NUM_RESTARTS, IntervalHeader, joined
from pipeline.errors import CorruptTileError
from pipeline.slides.common.limits import MAX_TILE_BYTES
from pipeline.slides.common.reading import read_at
from pipeline.slides.common.slide import NotCopied

MARK_BYTES = 2
NOT_IN_ONE_PIECE = NotCopied("its tiles are put together from rows of restart intervals")
_AT_END = re.compile(rb"\xff+[\xd0-\xd7\xd9]\Z")


@dataclass(frozen=True)
class Intervals:
    """Intervals by their place in the image. Thread-safe: they are read by position.

    Args:
        starts, ends: first byte and the byte after the marker of each, int64 of shape (rows, intervals across).
        size_wh_px: of the level.
    """

    descriptor: int
    name: str
    header: IntervalHeader
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    size_wh_px: tuple[int, int]

    @property
    def num_rows(self) -> int:
        return int(self.starts.shape[0])

    @property
    def num_across(self) -> int:
        return int(self.starts.shape[1])

    def checked(self, row: int, first: int, last: int) -> tuple[bytearray, NDArray[np.int64]]:
        """Neighbouring intervals of a row, with their markers; and where each ends in these bytes.

        Raises:
            CorruptTileError: they are not what the file lists.
        """
        ends = self.ends[row, first:last] - self.starts[row, first]
        data = bytearray(self._read(row, first, last))
        if len(data) != ends[-1]:
            raise self.corrupt(row, first, f"{ends[-1]} bytes are listed, and {len(data)} can be read")
        self._check_marks(data, ends, np.arange(first, last), row)
        return data, ends

    def unstuffed(self, row: int, first: int, last: int) -> list[bytes]:
        """Coded data of neighbouring intervals, without the 0 after each 0xFF and without markers. As `checked`."""
        data, ends = self.checked(row, first, last)
        starts = [0, *ends.tolist()[:-1]]
        return [
            bytes(data[start : end - MARK_BYTES]).replace(b"\xff\0", b"\xff")
            for start, end in zip(starts, ends.tolist(), strict=True)
        ]

    def _read(self, row: int, first: int, last: int) -> bytes:
        start, end = int(self.starts[row, first]), int(self.ends[row, last - 1])
        return read_at(self.descriptor, min(end - start, MAX_TILE_BYTES), start, self.name)

    def _check_marks(self, data: bytearray, ends: NDArray[np.int64], across: NDArray[np.int64], row: int) -> None:
        """Every interval ends in its marker, numbered through the image, and there is no other in between."""
        numbers = (row * self.num_across + across) % NUM_RESTARTS
        expected = (FIRST_RESTART + numbers).astype(np.uint8)
        if row == self.num_rows - 1 and across[-1] == self.num_across - 1:
            expected[-1] = EOI[-1]
        values = np.frombuffer(data, np.uint8)
        is_right = (values[ends - 2] == EOI[0]) & (values[ends - 1] == expected)
        if not is_right.all():
            wrong = int(np.argmin(is_right))
            found = bytes(data[ends[wrong] - 2 : ends[wrong]]).hex()
            raise self.corrupt(row, int(across[wrong]), f"it ends in {found}, not in ff{expected[wrong]:02x}")
        if count_marks(data) != len(ends):
            raise self.corrupt(row, int(across[0]), "there are markers inside the intervals from there on")

    def alone(self, row: int, column: int) -> bytes:
        """Coded data of one interval, without its marker, unchecked."""
        return _AT_END.sub(b"", self._read(row, column, column + 1))

    def corrupt(self, row: int, column: int, why: str) -> CorruptTileError:
        """Error that names an interval and its place in the image."""
        (width_px, height_px), (left_px, top_px) = self.size_wh_px, self.header.interval_wh_px
        return CorruptTileError(
            f"{self.name}: the {width_px}×{height_px} px level cannot be stored at x={column * left_px}, "
            f"y={row * top_px}: of the restart interval in row {row}, column {column}, {why}. The file is damaged; "
            "copy or scan it again."
        )


@dataclass(frozen=True)
class CutFromNdpi:
    """A level's tiles once more, from single intervals, for comparison (`CutTiles`).

    Args:
        is_whole: whether tiles are made of whole intervals, whose bytes can be compared.
    """

    _intervals: Intervals
    _tile_px: int
    _is_whole: bool

    @property
    def interval_wh_px(self) -> tuple[int, int]:
        return self._intervals.header.interval_wh_px

    @property
    def reach_xy_px(self) -> tuple[int, int]:
        return self._intervals.header.reach_xy_px

    def coded_data(self, row: int, column: int) -> list[bytes] | None:
        if not self._is_whole:
            return None
        rows, columns = self._cells(row, column, margin=0)
        return [self._intervals.alone(*cell) for cell in product(rows, columns)]

    def with_neighbours(self, row: int, column: int) -> tuple[bytes, tuple[int, int]]:
        rows, columns = self._cells(row, column, margin=1)
        width_px, height_px = self.interval_wh_px
        head = self._intervals.header.head(len(columns) * width_px, len(rows) * height_px)
        stream = joined(head, [self._intervals.alone(*cell) for cell in product(rows, columns)])
        return stream, (column * self._tile_px - columns.start * width_px, row * self._tile_px - rows.start * height_px)

    def _cells(self, row: int, column: int, *, margin: int) -> tuple[range, range]:
        """Rows and columns of the intervals that a tile touches and of as many around them, inside the image."""
        sides = zip((row, column), self.interval_wh_px[::-1], self._intervals.starts.shape, strict=True)
        rows, columns = (touched(at * self._tile_px, (at + 1) * self._tile_px, side, num) for at, side, num in sides)
        grown = ((each, num) for each, num in zip((rows, columns), self._intervals.starts.shape, strict=True))
        rows, columns = (range(max(0, each.start - margin), min(each.stop + margin, num)) for each, num in grown)
        return rows, columns


def touched(first_px: int, last_px: int, side_px: int, num: int) -> range:
    """Intervals along a side that a range of pixels touches."""
    return range(first_px // side_px, min(-(-last_px // side_px), num))


def tile_lengths(intervals: Intervals, tile_px: int) -> NDArray[np.int64]:
    """Bytes of each tile, shared out by the part of an interval that it has; int64 (rows, columns)."""
    width_px, height_px = intervals.header.interval_wh_px
    columns = -(-intervals.size_wh_px[0] // tile_px)
    lengths = intervals.ends - intervals.starts
    by_row = np.add.reduceat(lengths, range(0, intervals.num_rows, tile_px // height_px), axis=0)
    until = np.pad(np.cumsum(by_row, axis=1), ((0, 0), (1, 0)))
    edges, borders = np.arange(columns + 1) * tile_px, np.arange(intervals.num_across + 1) * width_px
    return np.diff([np.interp(edges, borders, row) for row in until], axis=1).astype(np.int64)
