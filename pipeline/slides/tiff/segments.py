"""Tiles and strips of a TIFF's level: their bytes, and their pixels, with colours interleaved or by plane."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import tifffile
from numpy.typing import NDArray

from pipeline.codecs import jpeg, jpeg2000
from pipeline.codecs.images import decode_jpeg_segment, ycbcr_to_rgb
from pipeline.codecs.jpeg_header import RGB, YCBCR
from pipeline.codecs.stream_header import StreamError, StreamHeader
from pipeline.codecs.tiff_segments import decode_segment
from pipeline.codecs.types import DecodeError, Pixels
from pipeline.slides.common.colours import FileColours
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.level_content import are_few_compared
from pipeline.slides.common.limits import MAX_TILE_BYTES, MAX_WHOLE_PAGE_BYTES
from pipeline.slides.common.reading import read_at
from pipeline.slides.common.slide_warnings import SlideWarnings
from pipeline.slides.tiff.validate import (
    COMPRESSION_APERIO_YCC,
    COMPRESSIONS_JPEG,
    COMPRESSIONS_JPEG_2000,
    PHOTOMETRIC_RGB,
    PHOTOMETRIC_YCBCR,
    PLANAR_CONTIG,
)
from training.foundation.words.counts import counted

_SAMPLES = 3
_HEADER_BYTES = 4096
"""Nearly every stream's header fits in this."""
_LIGHT, _NEAR_GREY = 150, 24
_COLOUR_SAMPLE = 8
"""Segments of a level whose header is read when a slide is opened."""

_FEW_TILES = 16
"""Of an edge."""


class SegmentReader:
    """The bytes of tiles and strips, read by position. Thread-safe."""

    def __init__(self, descriptor: int, file_bytes: int, name: str) -> None:
        self._descriptor, self._file_bytes, self._name = descriptor, file_bytes, name

    def read(self, page: tifffile.TiffPage, index: int, *, at_most: int | None = None) -> bytes | None:
        """One tile or strip, or its first bytes; None where the scanner left it out.

        Raises:
            DamagedFileError: it ends past the end of the file, or is not listed.
            UnreadableError: the disk or the network fails.
        """
        num_listed = min(len(page.dataoffsets), len(page.databytecounts))
        if index >= num_listed:
            raise DamagedFileError(f"only {counted(num_listed, 'tile is', 'tiles are')} listed")
        offset, count = int(page.dataoffsets[index]), int(page.databytecounts[index])
        if count == 0 or offset == 0:
            return None
        if min(offset, count) < 0 or offset + count > self._file_bytes:
            raise DamagedFileError(f"its bytes end at {offset + count}, but the file ends at {self._file_bytes}")
        return read_at(self._descriptor, count if at_most is None else min(count, at_most), offset, self._name)

    def stated_header(self, page: tifffile.TiffPage, index: int) -> StreamHeader | None:
        """Header of a JPEG or JPEG 2000 segment; None if the segment is left out or damaged."""
        for at_most in (_HEADER_BYTES, None):
            try:
                raw = self.read(page, index, at_most=at_most)
                return None if raw is None else _header(page, raw)
            except (DamagedFileError, StreamError):
                continue
        return None


@dataclass(frozen=True)
class LevelSource:
    """The page or pages in which a level's colours are stored."""

    page: tifffile.TiffPage
    """Page for sizes and tags; the first one if each colour is a page."""
    planes: tuple[tifffile.TiffPage, ...] = ()
    """Pages that hold red, green and blue; () if one page holds all."""

    @property
    def is_planar(self) -> bool:
        """Whether each colour is stored separately."""
        return bool(self.planes) or self.page.planarconfig != PLANAR_CONTIG

    @property
    def segment_wh_px(self) -> tuple[int, int]:
        """Size of a whole tile or strip."""
        page = self.page
        if page.is_tiled:
            return page.tilewidth, page.tilelength
        return page.imagewidth, max(1, min(page.rowsperstrip, page.imagelength))

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of tiles or strips."""
        width_px, height_px = self.segment_wh_px
        return -(-self.page.imagelength // max(1, height_px)), -(-self.page.imagewidth // max(1, width_px))

    def parts(self, index: int) -> list[tuple[tifffile.TiffPage, int]]:
        """The segments that make up one tile or strip: page and number in it, all colours or red, green, blue."""
        if self.planes:
            return [(plane, index) for plane in self.planes]
        rows, columns = self.grid
        starts = range(0, _SAMPLES * rows * columns, rows * columns) if self.is_planar else [0]
        return [(self.page, start + index) for start in starts]

    def size_inside(self, index: int) -> tuple[int, int]:
        """Width and height of the part of the image that a tile or strip covers."""
        row, column = divmod(index, self.grid[1])
        width_px, height_px = self.segment_wh_px
        return (
            min(width_px, self.page.imagewidth - column * width_px),
            min(height_px, self.page.imagelength - row * height_px),
        )

    def is_cut_to_image(self, index: int, size_wh_px: tuple[int, int]) -> bool:
        """Whether a size is that of a tile cut off at the image's edge, along one side or both."""
        inside, whole = self.size_inside(index), self.segment_wh_px
        fits = all(size in (cut, full) for size, cut, full in zip(size_wh_px, inside, whole, strict=True))
        return fits and size_wh_px != whole


class SegmentDecoder:
    """The tiles or strips of one level as pixels. Thread-safe.

    Args:
        warnings: receives what the file states wrongly about its colours.
    """

    def __init__(self, source: LevelSource, segments: SegmentReader, warnings: SlideWarnings) -> None:
        page = source.page
        self.source, self._segments = source, segments
        size_wh_px = page.imagewidth, page.imagelength
        says_rgb = page.photometric == PHOTOMETRIC_RGB
        self.colours = FileColours(says_rgb, "tag PhotometricInterpretation", size_wh_px, warnings)
        self._max_bytes = MAX_TILE_BYTES if page.is_tiled else MAX_WHOLE_PAGE_BYTES
        if source.is_planar and page.photometric == PHOTOMETRIC_YCBCR:
            warnings.add(
                f"its colour planes are {YCBCR} by the file's tag PhotometricInterpretation; planes of JPEG hold "
                f"single components and were read as {RGB}",
                size_wh_px,
            )

    def look_at_colours(self) -> None:
        """Warn of contradictions in a few streams, before any pixel is read."""
        for header in self.sampled_headers():
            self.colours.holds_rgb(header)

    def sampled_headers(self) -> Iterator[jpeg.JpegHeader]:
        """The headers of a few JPEG streams, spread over the level, that hold all colours."""
        page = self.source.page
        if self.source.is_planar or page.compression not in COMPRESSIONS_JPEG:
            return
        last = min(len(page.dataoffsets), len(page.databytecounts)) - 1
        for index in sorted({round(last * part / (_COLOUR_SAMPLE - 1)) for part in range(_COLOUR_SAMPLE)}):
            header = self._segments.stated_header(page, index) if index >= 0 else None
            if isinstance(header, jpeg.JpegHeader):
                yield header

    def holds_planes_of_ycbcr(self) -> bool:
        """Whether planes that the tag calls Y, Cb, Cr look like it: near grey wherever the first one is lightest.

        In R, G, B all three are light there. Judged by a few segments; those that cannot be decoded are skipped.
        """
        if not self.source.is_planar or self.source.page.photometric != PHOTOMETRIC_YCBCR:
            return False
        rows, columns = self.source.grid
        sampled = []
        for part in range(_COLOUR_SAMPLE):
            with suppress(DamagedFileError, StreamError, DecodeError):
                pixels = self.pixels(round((rows * columns - 1) * part / (_COLOUR_SAMPLE - 1)))
                sampled += [] if pixels is None else [pixels.reshape(-1, _SAMPLES)]
        if not sampled:
            return False
        flat = np.concatenate(sampled)
        lightest = flat[flat[:, 0] >= np.quantile(flat[:, 0], 0.9)]
        first, second, third = np.median(lightest, axis=0)
        return bool(first > _LIGHT and max(abs(second - 128), abs(third - 128)) < _NEAR_GREY)

    def pixels(self, index: int) -> Pixels | None:
        """A tile or strip, uint8 (height, width, 3), whole or cut to the image; None if it is left out.

        Raises:
            DamagedFileError, StreamError, DecodeError: it is damaged, or of another size.
        """
        parts = [self._part(page, number, index) for page, number in self.source.parts(index)]
        present = [part for part in parts if part is not None]
        if not present:
            return None
        if len(present) < len(parts):
            raise DamagedFileError(f"{len(parts) - len(present)} of its {len(parts)} colour planes are missing")
        whole = present[0] if len(present) == 1 else np.concatenate(present, axis=2)
        if whole.shape[2] != _SAMPLES:
            raise DecodeError(f"it decodes to shape {whole.shape}")
        return whole

    def _part(self, page: tifffile.TiffPage, number: int, index: int) -> NDArray[np.uint8] | None:
        """One segment; (height, width, 1) if the level is stored by plane."""
        raw = self._segments.read(page, number)
        if raw is None:
            return None
        if page.compression in COMPRESSIONS_JPEG:
            jpeg.check_claim(raw, self._max_bytes)
            jpeg.check_end(raw)
            return self._decoded_jpeg(raw, page.jpegtables, index)
        if page.compression in COMPRESSIONS_JPEG_2000:
            jpeg2000.check_claim(raw, self._max_bytes)
            jpeg2000.check_end(raw)
            self._check_size(jpeg2000.read_size(raw), index)
        decoded = decode_segment(page, raw, number)
        if decoded is None or page.compression != COMPRESSION_APERIO_YCC or self.source.is_planar:
            return decoded
        return decoded if jpeg2000.parse(raw).header.has_colour_transform else ycbcr_to_rgb(decoded)

    def _check_size(self, header: StreamHeader, index: int) -> None:
        """Refuse any size but a whole tile or one cut to the image: a codec decodes whatever a stream states."""
        samples, size_wh_px = 1 if self.source.is_planar else _SAMPLES, (header.width_px, header.height_px)
        inside = self.source.size_inside(index)
        is_strip_with_more = not self.source.page.is_tiled and size_wh_px[0] == inside[0] and size_wh_px[1] > inside[1]
        is_whole = size_wh_px == self.source.segment_wh_px or is_strip_with_more
        if header.components != samples or not (is_whole or self.source.is_cut_to_image(index, size_wh_px)):
            raise StreamError(f"its stream says {size_wh_px[0]}×{size_wh_px[1]} px with {header.components} components")

    def _decoded_jpeg(self, raw: bytes, tables: object, index: int) -> NDArray[np.uint8]:
        if not isinstance(tables, bytes | None):
            raise DamagedFileError("its shared JPEG tables are damaged")
        header = jpeg.read_header(raw, tables, any_process=True)
        self._check_size(header, index)
        if self.source.is_planar:
            return decode_jpeg_segment(raw, tables, "GRAYSCALE")
        return decode_jpeg_segment(raw, tables, "RGB" if self.colours.holds_rgb(header) else "YCBCR")


def _header(page: tifffile.TiffPage, raw: bytes) -> StreamHeader:
    """Header of a segment's stream. Raises StreamError."""
    if page.compression in COMPRESSIONS_JPEG:
        tables = page.jpegtables if isinstance(page.jpegtables, bytes) else None
        return jpeg.read_header(raw, tables, any_process=True)
    return jpeg2000.read_size(raw)


def has_cut_tiles(source: LevelSource, segments: SegmentReader) -> bool:
    """Whether any JPEG or JPEG 2000 tile at the right or bottom edge is cut to the image.

    All of them are checked, unless few places are compared.
    """
    rows, columns = source.grid
    last = rows * columns - 1
    cut_right, cut_bottom = (
        inside < whole for inside, whole in zip(source.size_inside(last), source.segment_wh_px, strict=True)
    )
    right = range(columns - 1, rows * columns, columns) if cut_right else ()
    bottom = range(last - columns + 1, last + 1) if cut_bottom else ()
    edge = sorted({*right, *bottom})
    if are_few_compared():
        edge = edge[:: max(1, len(edge) // _FEW_TILES)]
    for index in edge:
        header = segments.stated_header(source.page, index)
        if header is not None and source.is_cut_to_image(index, (header.width_px, header.height_px)):
            return True
    return False
