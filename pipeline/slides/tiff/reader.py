"""Tiled and stripped TIFF, Aperio SVS and OME-TIFF, tile by tile through tifffile."""

from __future__ import annotations

import logging
import os
import struct
import threading
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import tifffile
from imagecodecs import DelayedImportError

from pipeline.box import Box
from pipeline.codecs import jpeg, jpeg2000
from pipeline.codecs.types import Pixels
from pipeline.errors import CorruptTileError, NotBrightfieldRgbError, UnreadableError
from pipeline.slides.limits import MAX_TILE_BYTES, MAX_WHOLE_PAGE_BYTES
from pipeline.slides.reading import read_at
from pipeline.slides.slide import EncodedLevel, LevelSize, SlideInfo, level_size, paste
from pipeline.slides.tiff.metadata import mpp_of, objective_power_of, scanner_model_of
from pipeline.slides.tiff.pages import (
    associated_pixels,
    associated_sources,
    check_one_image,
    describe_stack,
    level_pages,
)
from pipeline.slides.tiff.streams import EncodedTiffLevel, why_not_encoded
from pipeline.slides.tiff.validate import (
    COMPRESSION_APERIO_YCC,
    COMPRESSION_JPEG,
    COMPRESSIONS_JPEG_2000,
    check_page,
    check_page_chain,
)

# tifffile reports oddities of damaged files through logging; our errors say what matters.
logging.getLogger("tifffile").setLevel(logging.CRITICAL)

TIFF_ERRORS = (
    tifffile.TiffFileError, ValueError, IndexError, KeyError, TypeError, AttributeError, ArithmeticError,
    struct.error, OSError, RuntimeError, MemoryError, NotImplementedError, DelayedImportError,
    ElementTree.ParseError,
)  # fmt: skip
"""What tifffile and the codecs raise on files that lie about themselves (checked on 26 such files)."""


def is_tiff(path: Path) -> bool:
    """Whether the file starts like a TIFF or BigTIFF of either byte order."""
    with path.open("rb") as stream:
        return stream.read(4) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def has_unmarked_ycc(path: Path) -> bool:
    """Whether tifffile would take the file's Y, Cb, Cr for R, G, B. A damaged file is for `TiffSlide` to report."""
    try:
        with tifffile.TiffFile(path) as tiff:
            return bool(tiff.pages.first.compression == COMPRESSION_APERIO_YCC)
    except TIFF_ERRORS:
        return False


class TiffSlide:
    """One TIFF slide. Level 0 is the first page; lower levels are its reduced copies."""

    def __init__(self, path: Path) -> None:
        self.files: tuple[Path, ...] = (path,)
        self.openslide_file: Path | None = path
        self._name = path.name
        self._bytes = path.stat().st_size
        with ExitStack() as on_error:
            try:
                self._tiff = on_error.enter_context(tifffile.TiffFile(path))
                pages = level_pages(self._tiff, self._name)
                check_page(pages[0], self._bytes, self._name, more=lambda: describe_stack(self._tiff))
                check_page_chain(self._tiff, self._bytes, self._name)
                check_one_image(self._tiff, self._name)
                self._associated = associated_sources(self._tiff)
                self.info = self._read_info(pages)
            except TIFF_ERRORS as error:
                raise UnreadableError(
                    f"{self._name}: tifffile cannot read its structure ({type(error).__name__}: {error}). "
                    "The file is damaged or cut short; copy it again."
                ) from error
            on_error.pop_all()
        self._fd = os.open(path, os.O_RDONLY)
        self._levels = [TiffLevel(page, self._fd, self._bytes, self._name) for page in pages]

    def _read_info(self, pages: list[tifffile.TiffPage]) -> SlideInfo:
        mpp_xy, looked_in = mpp_of(self._tiff)
        icc = pages[0].tags.get(34675)
        return SlideInfo(
            format=f"tiff:{_family(self._tiff)}",
            levels=_sizes(pages),
            mpp_xy=mpp_xy,
            mpp_looked_in=looked_in,
            objective_power=objective_power_of(self._tiff),
            scanner_model=scanner_model_of(self._tiff),
            icc=bytes(icc.value) if icc is not None else None,
            associated=tuple(self._associated),
        )

    def read_region(self, level: int, box: Box) -> Pixels:
        return self._levels[level].read_region(box)

    def encoded_level(self, level: int) -> EncodedLevel | str:
        page = self._levels[level].page
        return why_not_encoded(page) or EncodedTiffLevel(page, self._fd, self._bytes, self._name)

    def associated_image(self, name: str) -> Pixels:
        try:
            pixels = associated_pixels(self._associated[name])
        except TIFF_ERRORS as error:
            raise CorruptTileError(f"{self._name}: its {name} image cannot be decoded: {error}.") from error
        if pixels.ndim != 3 or pixels.shape[2] != 3:
            raise NotBrightfieldRgbError(
                f"{self._name}: its {name} image has shape {pixels.shape}, not RGB. Leave it out of `keep_associated`."
            )
        return pixels

    def __enter__(self) -> TiffSlide:
        return self

    def __exit__(self, *exc: object) -> None:
        self._tiff.close()
        os.close(self._fd)


class TiffLevel:
    """One page of a TIFF as a level: its pixels."""

    def __init__(self, page: tifffile.TiffPage, fd: int, file_bytes: int, name: str) -> None:
        self.page, self._fd, self._file_bytes, self._name = page, fd, file_bytes, name
        self.width_px, self.height_px = page.imagewidth, page.imagelength
        self.is_tiled = bool(page.is_tiled)
        self._segment_wh = (page.tilewidth, page.tilelength) if self.is_tiled else (self.width_px, self.height_px)
        self.columns = -(-self.width_px // max(1, self._segment_wh[0]))
        self.rows = -(-self.height_px // max(1, self._segment_wh[1]))
        self._num_listed = min(len(page.dataoffsets), len(page.databytecounts))
        self._whole_page = lru_cache(maxsize=1)(self._read_whole_page)
        self._whole_page_lock = threading.Lock()

    def _segment_bytes(self, index: int) -> bytes | None:
        offset, count = int(self.page.dataoffsets[index]), int(self.page.databytecounts[index])
        if count == 0 or offset == 0:
            return None
        if offset + count > self._file_bytes:
            row, column = divmod(index, self.columns)
            raise self._corrupt(row, column, f"its bytes end at {offset + count}, the file at {self._file_bytes}")
        return read_at(self._fd, count, offset, self._name)

    def read_region(self, box: Box) -> Pixels:
        """Pixels of the level, uint8 (box.height_px, box.width_px, 3); white outside it."""
        region = np.full((box.height_px, box.width_px, 3), 255, np.uint8)
        tile_w, tile_h = self._segment_wh
        inside = box.within(self.width_px, self.height_px)
        rows, columns = inside.cells(self._segment_wh) if not inside.is_empty else (range(0), range(0))
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
        raw = self._segment_bytes(index)
        if raw is None:
            return None
        try:
            self._check_stream(raw, MAX_TILE_BYTES)
            decoded = self.page.decode(raw, index, jpegtables=self.page.jpegtables)[0]
        except TIFF_ERRORS as error:
            raise self._corrupt(row, column, error) from error
        if decoded is None:
            return None
        return self._clip(np.asarray(decoded)[0], row, column)

    def _check_stream(self, raw: bytes, max_bytes: int) -> None:
        """Notice a segment that unpacks to far too much; or whose end was overwritten, which decoders fill up."""
        if self.page.compression == COMPRESSION_JPEG:
            jpeg.check_claim(raw, max_bytes)
            jpeg.check_end(raw)
        elif self.page.compression in COMPRESSIONS_JPEG_2000:
            jpeg2000.check_claim(raw, max_bytes)
            jpeg2000.check_end(raw)

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
            pixels = np.asarray(self.page.asarray())
        except TIFF_ERRORS as error:
            raise self._corrupt(0, 0, error) from error
        if pixels.shape != (self.height_px, self.width_px, 3):
            raise self._corrupt(0, 0, f"decodes to shape {pixels.shape}, not {(self.height_px, self.width_px, 3)}")
        return pixels

    def _check_strips(self) -> None:
        """tifffile fills strips that are missing with black, and JPEG strips that are cut short with grey."""
        page = self.page
        wanted = -(-self.height_px // max(1, page.rowsperstrip))
        if self._num_listed != wanted:
            raise ValueError(f"{self._num_listed} strips listed where {wanted} are needed")
        for index in range(wanted):
            raw = self._segment_bytes(index)
            if raw is None:
                raise ValueError(f"strip {index} of {wanted} is missing")
            self._check_stream(raw, MAX_WHOLE_PAGE_BYTES)

    def _corrupt(self, row: int, column: int, why: object) -> CorruptTileError:
        return CorruptTileError(
            f"{self._name}: the tile in row {row}, column {column} of the {self.width_px}×{self.height_px} px level "
            f"cannot be decoded: {why}. The file is damaged; copy or scan it again."
        )


def _family(tiff: tifffile.TiffFile) -> str:
    return "aperio" if tiff.is_svs else "ome" if tiff.is_ome else "philips" if tiff.is_philips else "generic"


def _sizes(pages: list[tifffile.TiffPage]) -> tuple[LevelSize, ...]:
    first = pages[0]
    return tuple(
        level_size(
            p.imagewidth, p.imagelength, first.imagewidth, first.imagelength,
            tile_px=p.tilewidth if p.is_tiled and p.tilewidth == p.tilelength else None,
        )
        for p in pages
    )  # fmt: skip
