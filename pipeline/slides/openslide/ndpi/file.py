"""Hamamatsu's NDPI files: the levels whose restart intervals can be put together to tiles."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

from pipeline.codecs.jpeg_segments import JpegError
from pipeline.codecs.restart.intervals import IntervalHeader, read_interval_header
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.reading import read_at
from pipeline.slides.common.slide import EncodedLevel, NotCopied
from pipeline.slides.openslide.ndpi.cropped import CroppedNdpiLevel
from pipeline.slides.openslide.ndpi.intervals import Intervals
from pipeline.slides.openslide.ndpi.whole import NdpiLevel
from pipeline.slides.tiff.library import TiffStructure, size_of
from pipeline.slides.tiff.prescan import MCU_STARTS
from pipeline.slides.tiff.validate import has_plain_sizes
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted

SUFFIX = ".ndpi"
SOURCE_LENS = 65421
"""Tag of Hamamatsu: magnification, or -1 and -2 for images of the whole glass."""
_STRIP_OFFSETS, _STRIP_BYTE_COUNTS = 273, 279
_JPEG = 7
_LEAST_TILE_PX, _LARGEST_TILE_PX = 512, 1024
_MAX_HEADER_BYTES = 2**16
_MAX_LAST_BYTES = 2**24
_END = re.compile(rb"\xff\xd9")


class NdpiFile:
    """The levels of an NDPI file as its own tiles. Use `close`.

    OpenSlide shows further levels, which it makes by decoding others at half their size.

    Raises:
        UnreadableError: its tags cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        # As such, tifffile and our own prescan know the 64-bit offsets of files above 4 GiB.
        self._is_named = path.suffix.lower() == SUFFIX
        self._descriptor = os.open(path, os.O_RDONLY)
        try:
            with TiffStructure(path) as tiff:
                pages = {size_of(page): page for page in reversed(tiff.pages()) if _is_level(tiff, page)}
                self.levels = {size: self._encoded(tiff, page, size) for size, page in pages.items()}
                """By width and height in pixels: its tiles, or why they cannot be copied."""
        except DamagedFileError as error:
            os.close(self._descriptor)
            raise UnreadableError(f"{self._name}: its tags cannot be read ({error}). Copy the file again.") from error
        except BaseException:
            os.close(self._descriptor)
            raise

    def _encoded(
        self, tiff: TiffStructure, page: tifffile.TiffPage, size_wh_px: tuple[int, int]
    ) -> EncodedLevel | NotCopied:
        if not self._is_named:
            return NotCopied(f"its name does not end in {SUFFIX}")
        try:
            return self._cut(tiff, page, size_wh_px)
        except (_NotCut, JpegError) as error:
            return NotCopied(str(error))

    def _cut(self, tiff: TiffStructure, page: tifffile.TiffPage, size_wh_px: tuple[int, int]) -> EncodedLevel:
        if page.compression != _JPEG:
            raise _NotCut(f"compressed with {getattr(page.compression, 'name', page.compression)}, not JPEG")
        start, end = _strip(tiff, page)
        starts = self._starts(tiff, page, start, end)
        header = read_interval_header(read_at(self._descriptor, int(starts[0]) - start, start, self._name))
        grid = _grid(header, size_wh_px, len(starts))
        ends = np.append(starts[1:], self._end_of_image(int(starts[-1]), end))
        intervals = Intervals(
            self._descriptor, self._name, header, starts.reshape(grid), ends.reshape(grid), size_wh_px
        )
        step_px = math.lcm(*header.interval_wh_px)
        if step_px <= _LARGEST_TILE_PX:
            return NdpiLevel(intervals, step_px * -(-_LEAST_TILE_PX // step_px))
        if any(_LEAST_TILE_PX % side for side in header.mcu_wh_px):
            raise _NotCut(
                "tiles of {} px cannot be cut at its MCUs of {}×{} px".format(_LEAST_TILE_PX, *header.mcu_wh_px)
            )
        return CroppedNdpiLevel(intervals, _LEAST_TILE_PX)

    def _starts(self, tiff: TiffStructure, page: tifffile.TiffPage, start: int, end: int) -> NDArray[np.int64]:
        """First bytes of the intervals, which tifffile puts together from two tags and the strip's offset."""
        if not tiff.num_values(MCU_STARTS, page):
            raise _NotCut(f"its restart intervals (tag {MCU_STARTS}) are not listed")
        starts = np.asarray(page.dataoffsets, np.int64)
        is_rising = bool((np.diff(starts) >= len(b"\xff\xd0")).all())
        if not (is_rising and start < starts[0] <= start + _MAX_HEADER_BYTES and starts[-1] < end):
            raise _NotCut(f"its restart intervals (tag {MCU_STARTS}) are not in order, or not in its JPEG")
        return starts

    def _end_of_image(self, last: int, end: int) -> int:
        """End of the last interval, after its marker: there may be more in the strip."""
        data = read_at(self._descriptor, min(end - last, _MAX_LAST_BYTES), last, self._name)
        match = _END.search(data)
        return end if match is None else last + match.end()

    def close(self) -> None:
        os.close(self._descriptor)


class _NotCut(Exception):
    """Reason why no tiles can be put together."""


def _is_level(tiff: TiffStructure, page: tifffile.TiffPage) -> bool:
    lens = tiff.tag(SOURCE_LENS, page)
    return has_plain_sizes(page) and isinstance(lens, int | float) and lens > 0


def _strip(tiff: TiffStructure, page: tifffile.TiffPage) -> tuple[int, int]:
    """First byte of a level's JPEG, and the byte after its last."""
    start, count = (tiff.tag(code, page) for code in (_STRIP_OFFSETS, _STRIP_BYTE_COUNTS))
    offsets = [value[0] if isinstance(value, tuple) and len(value) == 1 else value for value in (start, count)]
    if not all(isinstance(value, int) and value > 0 for value in offsets):
        raise _NotCut("it is not stored in one strip")
    return offsets[0], offsets[0] + offsets[1]


def _grid(header: IntervalHeader, size_wh_px: tuple[int, int], num_listed: int) -> tuple[int, int]:
    """Rows of intervals, and intervals in each."""
    interval_px, _ = header.interval_wh_px
    mcus_across, rows = (-(-side // mcu) for side, mcu in zip(size_wh_px, header.mcu_wh_px, strict=True))
    if mcus_across % header.num_mcus:
        raise _NotCut(f"its width of {size_wh_px[0]} px is not a multiple of an interval's {interval_px}")
    across = mcus_across // header.num_mcus
    if num_listed != rows * across:
        raise _NotCut(f"{counted(num_listed, 'restart interval')} listed for a grid of {across}×{rows}")
    return rows, across
