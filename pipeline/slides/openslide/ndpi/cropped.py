"""Tiles of a Hamamatsu level whose restart intervals are wider than a tile: cut at MCUs without loss.

Newer files have intervals of 3,840 × 8 px. Their codes are walked through once to find where MCUs begin, several rows
of tiles at a time (`codecs/restart/scan.py`); a tile then has an interval of its own for every row of MCUs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.jpeg_segments import JpegError
from pipeline.codecs.restart.cut import Run, joined_runs
from pipeline.codecs.restart.huffman import bits_of_difference
from pipeline.codecs.restart.intervals import joined
from pipeline.codecs.restart.padding import white_interval
from pipeline.codecs.restart.scan import CutTable, find_cuts
from pipeline.codecs.types import Stream, StreamCodec
from pipeline.errors import CorruptTileError
from pipeline.slides.common.slide import NotCopied
from pipeline.slides.openslide.ndpi.intervals import (
    NOT_IN_ONE_PIECE,
    CutFromNdpi,
    Intervals,
    tile_lengths,
    touched,
)

_LEAST_AT_ONCE = 4096
"""Intervals walked through at a time: fewer are slower, as each step has its cost; more take more memory."""
_MAX_KEPT = 8
"""Tables of cuts in memory."""
_LONGEST_MEAN = 11
"""Bits of the largest difference between two means of 8-bit samples."""


class CroppedNdpiLevel:
    """An `EncodedLevel` of square tiles, each a JPEG of its own. Thread-safe.

    What a tile has beyond the image is white.

    Args:
        tile_px: a multiple of an MCU's sides.

    Raises:
        JpegError: the level's tables lack codes that may be needed at a cut.
    """

    codec: StreamCodec = "imagecodecs_jpeg"

    def __init__(self, intervals: Intervals, tile_px: int) -> None:
        self._intervals, header = intervals, intervals.header
        self.tile_px = tile_px
        self.columns, self.rows = (-(-side // tile_px) for side in intervals.size_wh_px)
        self._num_mcus_across = intervals.num_across * header.num_mcus
        self._mcus, self._down = (tile_px // side for side in header.mcu_wh_px)
        for block in header.blocks:
            for bits in range(_LONGEST_MEAN + 1):
                bits_of_difference(block.dc, 2**bits - 1)
        self._head = header.head(tile_px, tile_px, self._mcus)
        self._white = white_interval(header, self._mcus)
        self.cut = CutFromNdpi(intervals, tile_px, False)
        per_tile_row = self._down * intervals.num_across
        self._tile_rows_at_once = max(1, _LEAST_AT_ONCE // per_tile_row)
        self._tables: OrderedDict[int, _Table] = OrderedDict()
        self._lock = threading.Lock()
        self.walking = threading.Lock()
        """One walk at a time: they would not be faster together, and each has its intervals in memory."""

    def byte_counts(self) -> NDArray[np.int64]:
        return np.maximum(1, tile_lengths(self._intervals, self.tile_px))

    def places(self) -> NotCopied:
        return NOT_IN_ONE_PIECE

    def streams(self, row: int, columns: range) -> list[Stream]:
        table = self._table(row // self._tile_rows_at_once)
        inside = range(row * self._down, min((row + 1) * self._down, self._intervals.num_rows))
        width_px, _ = self._intervals.header.interval_wh_px
        across = touched(
            columns.start * self.tile_px, columns.stop * self.tile_px, width_px, self._intervals.num_across
        )
        bands = [self._unstuffed(table, interval_row, across) for interval_row in inside]
        return [(self._stream(table, inside, bands, across, column),) for column in columns]

    def _stream(self, table: _Table, inside: range, bands: list[list[bytes]], across: range, column: int) -> bytes:
        """A tile from the parts of intervals that it covers, a row of MCUs at a time."""
        pieces, parts, num_white = [], self._parts(column), max(0, (column + 1) * self._mcus - self._num_mcus_across)
        for interval_row, band in zip(inside, bands, strict=True):
            runs = [Run(band[at - across.start], table.cuts, table.number(interval_row, at), cut) for at, cut in parts]
            try:
                pieces.append(joined_runs(self._intervals.header, runs, num_white))
            except JpegError as error:
                raise self._intervals.corrupt(interval_row, parts[0][0], str(error)) from error
        return joined(self._head, pieces + [self._white] * (self._down - len(pieces)))

    def _parts(self, column: int) -> list[tuple[int, int]]:
        """The intervals that a tile has MCUs of, and the cut where these begin."""
        num_mcus, first = self._intervals.header.num_mcus, column * self._mcus
        last = min(first + self._mcus, self._num_mcus_across)
        parts = []
        for at in range(first // num_mcus, -(-last // num_mcus)):
            begins = max(0, first - at * num_mcus)
            parts.append((at, self._cuts_of(at).index(begins)))
        return parts

    def _cuts_of(self, across: int) -> tuple[int, ...]:
        """The MCUs at which an interval is cut: its first, and those where tiles begin."""
        num_mcus = self._intervals.header.num_mcus
        first = -(across * num_mcus) % self._mcus
        return tuple(sorted({0, *range(first, num_mcus, self._mcus)}))

    def _unstuffed(self, table: _Table, row: int, across: range) -> list[bytes]:
        """Coded data of a row's intervals without stuffed bytes. Raises CorruptTileError."""
        for at in across:
            why = table.cuts.damaged.get(table.number(row, at))
            if why is not None:
                raise self._intervals.corrupt(row, at, why)
        return self._intervals.unstuffed(row, across.start, across.stop)

    # --- the cuts --------------------------------------------------------------------------------

    def _table(self, number: int) -> _Table:
        """The cuts of some rows of tiles; found once, and kept while other rows near them are read."""
        with self._lock:
            table = self._tables.setdefault(number, _Table(self, number))
            self._tables.move_to_end(number)
            while len(self._tables) > _MAX_KEPT:
                self._tables.popitem(last=False)
        return table.found()

    def find(self, number: int) -> tuple[range, CutTable]:
        """Walk through the intervals of some rows of tiles; those that cannot be read are damaged."""
        per_table = self._tile_rows_at_once * self._down
        rows = range(number * per_table, min((number + 1) * per_table, self._intervals.num_rows))
        data: list[bytes] = []
        damaged: dict[int, str] = {}
        for row in rows:
            for why, own in self._readable(row, 0, self._intervals.num_across):
                if why:
                    damaged[len(data)] = why
                data.append(own)
        mcus = [self._cuts_of(at) for at in range(self._intervals.num_across)] * len(rows)
        cuts = find_cuts(data, self._intervals.header.blocks, self._intervals.header.num_mcus, mcus)
        cuts.damaged.update(damaged)
        return rows, cuts

    def _readable(self, row: int, first: int, last: int) -> list[tuple[str, bytes]]:
        """Intervals of a row without stuffed bytes; or why one cannot be read, and nothing."""
        try:
            return [("", data) for data in self._intervals.unstuffed(row, first, last)]
        except CorruptTileError:
            if last == first + 1:
                return [("its marker is missing, or there are others in it", b"")]
        return [one for at in range(first, last) for one in self._readable(row, at, at + 1)]


class _Table:
    """The cuts of some rows of tiles, found by the first thread that asks."""

    def __init__(self, level: CroppedNdpiLevel, number: int) -> None:
        self._level, self._number = level, number
        self._rows: range | None = None

    def found(self) -> _Table:
        if self._rows is None:
            with self._level.walking:
                if self._rows is None:
                    rows, self.cuts = self._level.find(self._number)
                    self._num_across = len(self.cuts.mcus) // len(rows)
                    self._rows = rows
        return self

    def number(self, row: int, across: int) -> int:
        """An interval's number among those of the table."""
        assert self._rows is not None
        return (row - self._rows.start) * self._num_across + across
