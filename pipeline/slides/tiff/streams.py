"""A TIFF level's own JPEG and JPEG 2000 tiles as self-contained streams, at the speed of the disk."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from operator import add

import numpy as np
import tifffile
from numpy.typing import NDArray

from pipeline.codecs import jpeg
from pipeline.codecs.jpeg2000 import Jpeg2000Header
from pipeline.codecs.jpeg_header import JpegHeader
from pipeline.codecs.stream_header import StreamError
from pipeline.codecs.tile_streams import TileRule, TileStreams
from pipeline.codecs.types import Stream, StreamCodec
from pipeline.errors import CorruptTileError
from pipeline.slides.common.colours import FileColours
from pipeline.slides.common.limits import MAX_TILE_BYTES
from pipeline.slides.common.reading import read_at
from pipeline.slides.common.slide import NotCopied
from pipeline.slides.common.tile_places import TilePlaces
from pipeline.slides.tiff.segments import LevelSource
from pipeline.slides.tiff.validate import (
    COMPRESSION_APERIO_YCC,
    COMPRESSIONS_JPEG,
    COMPRESSIONS_JPEG_2000,
)
from training.foundation.words.counts import counted

_MAX_GAP_BYTES = 64 * 2**10
"""Tiles this near each other in the file are read at once."""
_MAX_READ_BYTES = 32 * 2**20
_ABSURD = 2**61


def why_not_encoded(source: LevelSource) -> NotCopied | None:
    """None if every whole tile of a level can be stored as it is; else the reason."""
    page = source.page
    if source.is_planar:
        return NotCopied("red, green and blue are stored by plane")
    if not page.is_tiled:
        return NotCopied("stored in strips, not tiles")
    if page.compression == COMPRESSION_APERIO_YCC:
        return NotCopied("JPEG 2000 of Y, Cb, Cr that is not marked as such")
    if page.compression not in COMPRESSIONS_JPEG | COMPRESSIONS_JPEG_2000:
        return NotCopied(
            f"compressed with {getattr(page.compression, 'name', page.compression)}, not JPEG or JPEG 2000"
        )
    if page.tilewidth != page.tilelength:
        return NotCopied(f"tiles are {page.tilewidth}×{page.tilelength} px, not square")
    columns, rows = -(-page.imagewidth // page.tilewidth), -(-page.imagelength // page.tilelength)
    num_listed = min(len(page.dataoffsets), len(page.databytecounts))
    if num_listed != columns * rows:
        return NotCopied(f"{counted(num_listed, 'tile')} listed for a grid of {columns}×{rows}")
    if not isinstance(page.jpegtables, bytes | None):
        return NotCopied("its shared JPEG tables are damaged")
    return None


class EncodedTiffLevel:
    """Tiles of one page as an `EncodedLevel`. Thread-safe: it reads by position."""

    cut = None

    def __init__(
        self, page: tifffile.TiffPage, colours: FileColours, descriptor: int, file_bytes: int, name: str
    ) -> None:
        self._page, self._descriptor, self._file_bytes, self._name = page, descriptor, file_bytes, name
        self._colours = colours
        self.codec: StreamCodec = "imagecodecs_jpeg" if page.compression in COMPRESSIONS_JPEG else "imagecodecs_jpeg2k"
        self.tile_px = int(page.tilewidth)
        self.columns = -(-page.imagewidth // self.tile_px)
        self.rows = -(-page.imagelength // self.tile_px)
        self._rule = TileRule(self.codec, (self.tile_px, self.tile_px), page.jpegtables, colours.says_rgb)
        self._streams = TileStreams(self._rule, self._note_colours)

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        return self._grid(self._page.dataoffsets)

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        return np.where(self._offsets > 0, self._grid(self._page.databytecounts), 0)

    def _grid(self, values: Sequence[int]) -> NDArray[np.int64]:
        """A tag's numbers in rows and columns; absurd ones become positions past the end of any file.

        One of the two tags may be longer than the other, and than the grid.
        """
        values = values[: self.rows * self.columns]
        try:
            numbers = np.asarray(values, dtype=np.int64)
        except OverflowError:
            numbers = np.array([min(value, _ABSURD) for value in values], dtype=np.int64)
        return np.where(numbers < 0, _ABSURD, numbers).reshape(self.rows, self.columns)

    def byte_counts(self) -> NDArray[np.int64]:
        return self._counts

    def places(self) -> TilePlaces:
        for row in np.flatnonzero((self._offsets + self._counts > self._file_bytes).any(1)).tolist():
            self._span(row, range(self.columns), self._offsets[row].tolist(), self._counts[row].tolist())
        return TilePlaces(self._rule, np.zeros((self.rows, self.columns), np.uint16), self._offsets, self._counts)

    def streams(self, row: int, columns: range) -> list[Stream]:
        offsets = self._offsets[row, columns.start : columns.stop].tolist()
        counts = self._counts[row, columns.start : columns.stop].tolist()
        first, last = self._span(row, columns, offsets, counts)
        if last - first > sum(counts) + _MAX_GAP_BYTES * len(counts) or last - first > _MAX_READ_BYTES:
            one_by_one = (self.streams(row, range(c, c + 1)) for c in columns)
            return [stream for (stream,) in one_by_one] if len(columns) > 1 else self._single(row, columns.start)
        data = read_at(self._descriptor, last - first, first, self._name)
        bounds = [(offset - first, offset - first + count) for offset, count in zip(offsets, counts, strict=True)]
        return self._copied(data, bounds) or [
            self._stream(data, start, end, row, column) if start < end else ()
            for (start, end), column in zip(bounds, columns, strict=True)
        ]

    def _copied(self, data: bytes, bounds: list[tuple[int, int]]) -> list[Stream] | None:
        """The streams of a row in which every tile begins and ends as known, with nothing but coded data in between.

        A slide's hundred thousand tiles go through this. Each of them holds at least the markers of its start and its
        end; one pass over the row shows that there are no more in all of them. None if there are, or if tiles overlap,
        which would be counted once.
        """
        known, view = self._streams.known, memoryview(data)
        if not isinstance(known, jpeg.JpegStart):
            return None
        own, head, eoi, skip = known.own, known.head, jpeg.EOI, len(known.own)
        num_tiles = last_end = 0
        copied: list[Stream] = []
        for start, end in bounds:
            if start == end:
                copied.append(())
                continue
            if start < last_end or not (data.startswith(own, start) and data.endswith(eoi, start + skip, end)):
                return None
            num_tiles, last_end = num_tiles + 1, end
            copied.append((head, view[start + skip : end]))
        return copied if jpeg.count_marks(data) == num_tiles * known.num_marks else None

    def _single(self, row: int, column: int) -> list[Stream]:
        data = read_at(self._descriptor, int(self._counts[row, column]), int(self._offsets[row, column]), self._name)
        return [self._stream(data, 0, len(data), row, column) if data else ()]

    def _span(self, row: int, columns: range, offsets: list[int], counts: list[int]) -> tuple[int, int]:
        """First and last byte of the tiles that exist; (0, 0) if there is none."""
        if not any(counts):
            return 0, 0
        first = min(offset for offset, count in zip(offsets, counts, strict=True) if count)
        last = (
            max(map(add, offsets, counts))
            if all(counts)
            else max(offset + count for offset, count in zip(offsets, counts, strict=True) if count)
        )
        if last > self._file_bytes or max(counts) > MAX_TILE_BYTES:
            ends = [offset + count for offset, count in zip(offsets, counts, strict=True)]
            worst = max(range(len(columns)), key=lambda i: (ends[i] > self._file_bytes, counts[i]))
            why = f"its {counts[worst]} bytes end at {ends[worst]}, but the file ends at {self._file_bytes}"
            raise self._corrupt(row, columns[worst], why)
        return first, last

    def _stream(self, data: bytes, start: int, end: int, row: int, column: int) -> Stream:
        try:
            return self._streams.stream(data, memoryview(data), start, end)
        except StreamError as error:
            raise self._corrupt(row, column, error) from error

    def _note_colours(self, header: JpegHeader | Jpeg2000Header) -> None:
        if isinstance(header, JpegHeader):
            self._colours.holds_rgb(header)  # warns if the file says otherwise

    def _corrupt(self, row: int, column: int, why: object) -> CorruptTileError:
        return CorruptTileError(
            f"{self._name}: the tile in row {row}, column {column} of the {self._page.imagewidth}×"
            f"{self._page.imagelength} px level cannot be stored: {why}. The file is damaged; copy or scan it again."
        )
