"""Hamamatsu's NDPI files: the levels whose restart intervals can be put together to tiles."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypeGuard

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
from pipeline.units import why_no_stack
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted, first_of

SUFFIX = ".ndpi"
SOURCE_LENS = 65421
"""Tag of Hamamatsu: magnification, or -1 and -2 for images of the whole glass."""
_Z_OFFSET_NM = 65424
"""Tag of Hamamatsu: the focal plane's height above the reference plane, which is 0."""
_STRIP_OFFSETS, _STRIP_BYTE_COUNTS = 273, 279
_JPEG = 7
_LEAST_TILE_PX, _LARGEST_TILE_PX = 512, 1024
_MAX_HEADER_BYTES = 2**16
_MAX_LAST_BYTES = 2**24
_MAX_JPEG_PX = 65_500
"""Along a side; what larger levels have in its place is not used."""
_PLACE = (282, 283, 65422, 65423)
"""Tags of resolution, and of the image's centre on the glass."""
_END = re.compile(rb"\xff\xd9")
_MAX_NAMED = 9

SizeWh = tuple[int, int]
Levels = dict[SizeWh, EncodedLevel | NotCopied]
"""By width and height in pixels: its tiles, or why they cannot be copied."""


class NdpiFile:
    """The levels of an NDPI file as its own tiles, by focal plane. Use `close`.

    OpenSlide shows further levels, which it makes by decoding others at half their size, and no plane but that at
    height 0.

    Raises:
        UnreadableError: its tags cannot be read, or it is a stack without a plane at height 0 or of too many.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        # As such, tifffile and our own prescan know the 64-bit offsets of files above 4 GiB.
        self._is_named = path.suffix.lower() == SUFFIX
        self._descriptor = os.open(path, os.O_RDONLY)
        try:
            self._places: dict[tuple[int, SizeWh], tuple[object, ...]] = {}
            with TiffStructure(path) as tiff:
                self._planes = self._read_planes(tiff)
            self.heights_nm = tuple(sorted(self._planes))
            """Of its focal planes, lowest first."""
        except DamagedFileError as error:
            os.close(self._descriptor)
            raise UnreadableError(f"{self._name}: its tags cannot be read ({error}). Copy the file again.") from error
        except BaseException:
            os.close(self._descriptor)
            raise

    @property
    def levels(self) -> Levels:
        """Of the plane that OpenSlide shows."""
        return self._planes[0]

    def stack(self, sizes_wh_px: Collection[SizeWh]) -> dict[SizeWh, tuple[EncodedLevel, ...]]:
        """Levels that all focal planes have, alike, as tiles: of each plane, lowest first.

        Args:
            sizes_wh_px: of the levels that OpenSlide shows; without tiles of the first there is no stack.

        Raises:
            UnreadableError: the first level cannot be read at each plane.
        """
        found = {size: [self._planes[height].get(size) for height in self.heights_nm] for size in sizes_wh_px}
        why = {size: _why_unlike(levels) or self._why_elsewhere(size) for size, levels in found.items()}
        alike = {size: levels for size, levels in found.items() if not why[size]}
        largest = max(sizes_wh_px)
        if largest not in alike:
            raise UnreadableError(
                f"{self._name}: its {len(self.heights_nm)} focal planes cannot be read: "
                f"{why[largest]}. OpenSlide shows only one of them. Export one with the scanner's own "
                "program, and convert that."
            )
        return {size: tuple(one for one in levels if is_encoded(one)) for size, levels in alike.items()}

    def _why_elsewhere(self, size: SizeWh) -> str:
        places = {self._places.get((height, size)) for height in self.heights_nm}
        return "they differ in their resolution or place on the glass" if len(places) > 1 else ""

    def _read_planes(self, tiff: TiffStructure) -> dict[int, Levels]:
        """Levels by height in nanometres, then by width and height in pixels."""
        planes: dict[int, Levels] = {}
        for page in reversed(tiff.pages()):
            if _is_level(tiff, page):
                height, size = height_nm(tiff, page), size_of(page)
                planes.setdefault(height, {})[size] = self._encoded(tiff, page, size)
                self._places[height, size] = tuple(tiff.tag(code, page) for code in _PLACE)
        why = why_no_stack([nm / 1000 for nm in sorted(planes)])
        if why or 0 not in planes:
            heights = f"focal planes at {first_of(sorted(planes), _MAX_NAMED)} nm, and OpenSlide needs one at 0"
            raise UnreadableError(f"{self._name}: has {why or heights}. Export one with the scanner's own program.")
        return planes

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
        _check_size(header, size_wh_px)
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
        """First bytes of the intervals, which tifffile puts together from two tags and the strip's offset.

        It does so if the file names its maker. Others have one tag: their offsets are below 4 GiB.
        """
        num_listed = tiff.num_values(MCU_STARTS, page)
        if not num_listed:
            raise _NotCut(f"its restart intervals (tag {MCU_STARTS}) are not listed")
        if len(page.dataoffsets) == num_listed:
            starts = np.asarray(page.dataoffsets, np.int64)
        else:
            listed = np.atleast_1d(tiff.tag(MCU_STARTS, page))
            if listed.dtype.kind not in "iu":
                raise _NotCut(f"its restart intervals (tag {MCU_STARTS}) are not listed as whole numbers")
            starts = start + listed.astype(np.int64)
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


def height_nm(tiff: TiffStructure, page: tifffile.TiffPage) -> int:
    """Height of a page's focal plane; 0 if it does not state it as a whole number."""
    height = tiff.tag(_Z_OFFSET_NM, page)
    return height if isinstance(height, int) else 0


def is_encoded(level: EncodedLevel | NotCopied | None) -> TypeGuard[EncodedLevel]:
    """Whether it has tiles."""
    return level is not None and not isinstance(level, NotCopied)


def _why_unlike(levels: Sequence[EncodedLevel | NotCopied | None]) -> str:
    """Why a level's planes are not read; "" if they are."""
    for level in levels:
        if not is_encoded(level):
            return level.reason if isinstance(level, NotCopied) else "one lacks a level"
    sides = {level.tile_px for level in levels if is_encoded(level)}
    return "their restart intervals differ" if len(sides) > 1 else ""


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


def _check_size(header: IntervalHeader, size_wh_px: tuple[int, int]) -> None:
    """Compare the sizes that page and JPEG state; a JPEG cannot state those of the largest levels."""
    stated = header.header.width_px, header.header.height_px
    if max(size_wh_px) <= _MAX_JPEG_PX and stated != size_wh_px:
        raise _NotCut("its JPEG is of {}×{} px, its page of {}×{} px".format(*stated, *size_wh_px))


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
