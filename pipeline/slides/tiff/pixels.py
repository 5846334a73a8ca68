"""Pixels of a TIFF: of a page as a level, tile by tile; and of the images beside the slide."""

from __future__ import annotations

import threading
from functools import lru_cache

import numpy as np
import tifffile

from pipeline.box import Box
from pipeline.codecs import jpeg, jpeg2000
from pipeline.codecs.images import decode_jpeg
from pipeline.codecs.stream_header import StreamError
from pipeline.codecs.tiff_segments import decode_page, decode_tile
from pipeline.codecs.types import DecodeError, Pixels
from pipeline.errors import CorruptTileError
from pipeline.slides.damage import DamagedFileError
from pipeline.slides.limits import MAX_TILE_BYTES, MAX_WHOLE_PAGE_BYTES
from pipeline.slides.reading import read_at
from pipeline.slides.slide import paste
from pipeline.slides.tiff.validate import COMPRESSION_JPEG, COMPRESSIONS_JPEG_2000, has_plain_sizes

_MAX_ASSOCIATED_PX = 100_000_000


class SegmentReader:
    """The bytes of tiles and strips, read by position. Safe in threads."""

    def __init__(self, descriptor: int, file_bytes: int, name: str) -> None:
        self._descriptor, self._file_bytes, self._name = descriptor, file_bytes, name

    def read(self, page: tifffile.TiffPage, index: int) -> bytes | None:
        """One tile or strip; None where the scanner left it out.

        Raises:
            DamagedFileError: it ends behind the file's end.
            UnreadableError: the disk or the network fails.
        """
        offset, count = int(page.dataoffsets[index]), int(page.databytecounts[index])
        if count == 0 or offset == 0:
            return None
        if min(offset, count) < 0 or offset + count > self._file_bytes:
            raise DamagedFileError(f"its bytes end at {offset + count}, the file at {self._file_bytes}")
        return read_at(self._descriptor, count, offset, self._name)


class TiffLevel:
    """One page of a TIFF as a level: its pixels."""

    def __init__(self, page: tifffile.TiffPage, segments: SegmentReader, name: str) -> None:
        self.page, self._segments, self._name = page, segments, name
        self.width_px, self.height_px = page.imagewidth, page.imagelength
        self.is_tiled = bool(page.is_tiled)
        self._segment_wh = (page.tilewidth, page.tilelength) if self.is_tiled else (self.width_px, self.height_px)
        self.columns = -(-self.width_px // max(1, self._segment_wh[0]))
        self.rows = -(-self.height_px // max(1, self._segment_wh[1]))
        self._num_listed = min(len(page.dataoffsets), len(page.databytecounts))
        self._whole_page = lru_cache(maxsize=1)(self._read_whole_page)
        self._whole_page_lock = threading.Lock()

    def read_region(self, box: Box) -> Pixels:
        """Pixels of the level, uint8 (box.height_px, box.width_px, 3); white outside it."""
        region = np.full((box.height_px, box.width_px, 3), 255, np.uint8)
        tile_w, tile_h = self._segment_wh
        inside = box.within(self.width_px, self.height_px)
        rows, columns = inside.cells(self._segment_wh)
        for row in rows:
            for column in columns:
                tile = self._tile(row, column) if self.is_tiled else self._page_once()
                if tile is not None:
                    paste(region, tile, column * tile_w - box.x_px, row * tile_h - box.y_px)
        return region

    def _tile(self, row: int, column: int) -> Pixels | None:
        index = row * self.columns + column
        if index >= self._num_listed:
            raise self._corrupt(row, column, f"only {self._num_listed} tiles are listed")
        try:
            raw = self._segments.read(self.page, index)
            if raw is None:
                return None
            _check_stream(self.page, raw, MAX_TILE_BYTES)
            tile = decode_tile(self.page, raw, index)
        except (DamagedFileError, DecodeError, StreamError) as error:
            raise self._corrupt(row, column, error) from error
        return None if tile is None else self._clip(tile, row, column)

    def _clip(self, tile: Pixels, row: int, column: int) -> Pixels:
        tile_w, tile_h = self._segment_wh
        return tile[: min(tile_h, self.height_px - row * tile_h), : min(tile_w, self.width_px - column * tile_w)]

    def _page_once(self) -> Pixels:
        """The whole page, decoded by the first thread that asks: tifffile reads a page through one file position."""
        with self._whole_page_lock:
            return self._whole_page()

    def _read_whole_page(self) -> Pixels:
        try:
            self._check_strips()
            pixels = decode_page(self.page)
        except (DamagedFileError, DecodeError, StreamError) as error:
            raise self._corrupt(0, 0, error) from error
        if pixels.shape != (self.height_px, self.width_px, 3):
            raise self._corrupt(0, 0, f"decodes to shape {pixels.shape}, not {(self.height_px, self.width_px, 3)}")
        return pixels

    def _check_strips(self) -> None:
        """tifffile fills strips that are missing with black, and JPEG strips that are cut short with grey."""
        wanted = -(-self.height_px // max(1, self.page.rowsperstrip))
        if self._num_listed != wanted:
            raise DamagedFileError(f"{self._num_listed} strips listed where {wanted} are needed")
        for index in range(wanted):
            raw = self._segments.read(self.page, index)
            if raw is None:
                raise DamagedFileError(f"strip {index} of {wanted} is missing")
            _check_stream(self.page, raw, MAX_WHOLE_PAGE_BYTES)

    def _corrupt(self, row: int, column: int, why: object) -> CorruptTileError:
        return CorruptTileError(
            f"{self._name}: the tile in row {row}, column {column} of the {self.width_px}×{self.height_px} px level "
            f"cannot be decoded: {why}. The file is damaged; copy or scan it again."
        )


def _check_stream(page: tifffile.TiffPage, raw: bytes, max_bytes: int) -> None:
    """Notice a segment that unpacks to far too much; or whose end was overwritten, which decoders fill up.

    Raises:
        StreamError: it does.
    """
    if page.compression == COMPRESSION_JPEG:
        jpeg.check_claim(raw, max_bytes)
        jpeg.check_end(raw)
    elif page.compression in COMPRESSIONS_JPEG_2000:
        jpeg2000.check_claim(raw, max_bytes)
        jpeg2000.check_end(raw)


def associated_pixels(source: tifffile.TiffPage | bytes, segments: SegmentReader) -> Pixels:
    """Decode what `pages.associated_sources` found, uint8; of a page in whatever shape it has.

    Raises:
        DamagedFileError: it claims more pixels than such an image has.
        StreamError, DecodeError: it cannot be decoded.
    """
    if isinstance(source, bytes):
        jpeg.check_claim(source, 3 * _MAX_ASSOCIATED_PX)
        return decode_jpeg(source, outcolorspace="RGB")
    _check_page_claim(source, segments)
    return decode_page(source)


def _check_page_claim(page: tifffile.TiffPage, segments: SegmentReader) -> None:
    """Of the page, and of its JPEG segments: their decoder makes room for what they say of themselves."""
    if not has_plain_sizes(page) or page.imagewidth * page.imagelength > _MAX_ASSOCIATED_PX:
        raise DamagedFileError(f"claims {page.imagewidth}×{page.imagelength} px")
    if page.compression == COMPRESSION_JPEG:
        for index in range(min(len(page.dataoffsets), len(page.databytecounts))):
            raw = segments.read(page, index)
            if raw is not None:
                jpeg.check_claim(raw, MAX_WHOLE_PAGE_BYTES)
