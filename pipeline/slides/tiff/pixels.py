"""Pixels of a TIFF: of a page as a level, tile by tile; and of associated images."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import lru_cache

import numpy as np
import tifffile

from pipeline.box import Box
from pipeline.codecs import jpeg
from pipeline.codecs.images import decode_jpeg
from pipeline.codecs.stream_header import StreamError
from pipeline.codecs.tiff_segments import decode_page
from pipeline.codecs.types import DecodeError, Pixels
from pipeline.errors import CorruptTileError, NotBrightfieldRgbError
from pipeline.slides.common.colours import FileColours
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.level_content import detailed_places, shows_another_image
from pipeline.slides.common.limits import MAX_WHOLE_PAGE_BYTES
from pipeline.slides.common.pyramid import covered_sizes_wh
from pipeline.slides.common.slide import NotCopied, paste
from pipeline.slides.common.slide_warnings import SlideWarnings
from pipeline.slides.tiff.segments import LevelSource, SegmentDecoder, SegmentReader, has_cut_tiles
from pipeline.slides.tiff.streams import why_not_encoded
from pipeline.slides.tiff.validate import COMPRESSIONS_JPEG, has_plain_sizes, is_rgb

_MAX_ASSOCIATED_PX = 100_000_000


class TiffLevel:
    """Pixels of one image of a TIFF as a level.

    Args:
        warnings: receives what the file states wrongly about its colours.
    """

    def __init__(self, source: LevelSource, segments: SegmentReader, name: str, warnings: SlideWarnings) -> None:
        self.source, self.page, self._name = source, source.page, name
        self.width_px, self.height_px = self.page.imagewidth, self.page.imagelength
        self.is_tiled = bool(self.page.is_tiled)
        self._decoder = SegmentDecoder(source, segments, warnings)
        self._decoder.look_at_colours()
        self._segments = segments
        self._whole_image = lru_cache(maxsize=1)(self._read_strips)
        self._whole_image_lock = threading.Lock()

    def refuse_planes_of_ycbcr(self) -> None:
        """Raises NotBrightfieldRgbError: its planes are Y, Cb, Cr, not R, G, B."""
        if self._decoder.holds_planes_of_ycbcr():
            raise NotBrightfieldRgbError(
                f"{self._name}: its colour planes hold Y, Cb, Cr, as its tag PhotometricInterpretation says; stored by "
                "plane, only R, G, B are read. Export it as 8-bit RGB."
            )

    @property
    def colours(self) -> FileColours:
        """Colour space of the JPEG tiles as the file states it."""
        return self._decoder.colours

    def is_another_image(self, finer: TiffLevel) -> bool | None:
        """Whether this page shows something other than a finer level, and so is not a level of the same slide.

        None if nothing in them tells.
        """
        size_wh, finer_wh = (self.width_px, self.height_px), (finer.width_px, finer.height_px)
        tile_wh = self.source.segment_wh_px if self.is_tiled else None
        own_places = self._detailed_places((1, 1))
        at_each_size = [
            shows_another_image(
                self._scanned, size_wh, finer._scanned, (width_px, height_px),
                own_places + finer._detailed_places((size_wh[0] / width_px, size_wh[1] / height_px)),
            )
            for width_px, height_px in covered_sizes_wh(size_wh, finer_wh, tile_wh)
        ]  # fmt: skip
        return False if False in at_each_size else None if None in at_each_size else True

    def _scanned(self, box: Box) -> Pixels:
        """As `read_region`. Raises CorruptTileError: a tile is damaged, or was left out, so that it shows nothing."""
        if self.is_tiled and self._has_gaps(box):
            raise CorruptTileError(f"{self._name}: a tile of the {self.width_px} px level was left out.")
        return self.read_region(box)

    def _has_gaps(self, box: Box) -> bool:
        """Whether the scanner left out a tile there. One that cannot be read is another fault: decoding reports it."""
        rows, columns = box.within(self.width_px, self.height_px).cells(self.source.segment_wh_px)
        indices = (row * self.source.grid[1] + column for row in rows for column in columns)
        with suppress(DamagedFileError):
            return any(self._segments.read(*part, at_most=1) is None for i in indices for part in self.source.parts(i))
        return False

    def _detailed_places(self, scale_xy: tuple[float, float]) -> list[Box]:
        """The tiles with the most bytes, in pixels of an image of another scale."""
        rows, columns = self.source.grid
        counts = np.asarray(self.page.databytecounts[: rows * columns], dtype=np.float64)
        size_wh_px = self.width_px, self.height_px
        return detailed_places(counts, columns, self.source.segment_wh_px, size_wh_px, scale_xy)

    def read_region(self, box: Box) -> Pixels:
        """Pixels of the level, uint8 (box.height_px, box.width_px, 3); white outside it."""
        region = np.full((box.height_px, box.width_px, 3), 255, np.uint8)
        inside = box.within(self.width_px, self.height_px)
        if not self.is_tiled:
            if not inside.is_empty:
                paste(region, self._image_once(), -box.x_px, -box.y_px)
            return region
        tile_w, tile_h = self.source.segment_wh_px
        rows, columns = inside.cells((tile_w, tile_h))
        for row in rows:
            for column in columns:
                tile = self._tile(row, column)
                if tile is not None:
                    paste(region, tile, column * tile_w - box.x_px, row * tile_h - box.y_px)
        return region

    def why_not_encoded(self) -> NotCopied | None:
        """None if every tile can be stored as it is; else the reason."""
        reason = why_not_encoded(self.source)
        if reason is None and has_cut_tiles(self.source, self._segments):
            return NotCopied("tiles at its edges are cut to the image, not whole")
        return reason

    def _tile(self, row: int, column: int) -> Pixels | None:
        index = row * self.source.grid[1] + column
        try:
            tile = self._decoder.pixels(index)
        except (DamagedFileError, DecodeError, StreamError) as error:
            raise self._corrupt(row, column, error) from error
        if tile is None:
            return None
        width_px, height_px = self.source.size_inside(index)
        return tile[:height_px, :width_px]

    def _image_once(self) -> Pixels:
        """The whole image, decoded by the first thread that needs it: strips cannot be read piece by piece."""
        with self._whole_image_lock:
            return self._whole_image()

    def _read_strips(self) -> Pixels:
        try:
            return self._joined_strips()
        except (DamagedFileError, DecodeError, StreamError) as error:
            raise self._corrupt(0, 0, error) from error

    def _joined_strips(self) -> Pixels:
        """All strips as one image. A missing one is damage: other programs would fill it with black."""
        pixels = np.empty((self.height_px, self.width_px, 3), np.uint8)
        (rows, _), (_, strip_px) = self.source.grid, self.source.segment_wh_px
        expected = len(self.source.parts(0)) * rows if not self.source.planes else rows
        listed = min(len(self.page.dataoffsets), len(self.page.databytecounts))
        if listed != expected:
            raise DamagedFileError(f"{listed} strips listed where {expected} are needed")
        for index in range(rows):
            strip = self._decoder.pixels(index)
            if strip is None:
                raise DamagedFileError(f"strip {index} of {rows} is missing")
            width_px, height_px = self.source.size_inside(index)
            if strip.shape[0] < height_px or strip.shape[1] != width_px:
                raise DecodeError(f"strip {index} decodes to shape {strip.shape}, not {(height_px, width_px, 3)}")
            pixels[index * strip_px : index * strip_px + height_px] = strip[:height_px]
        return pixels

    def _corrupt(self, row: int, column: int, why: object) -> CorruptTileError:
        return CorruptTileError(
            f"{self._name}: the tile in row {row}, column {column} of the {self.width_px}×{self.height_px} px level "
            f"cannot be decoded: {why}. The file is damaged; copy or scan it again."
        )


def associated_pixels(source: tifffile.TiffPage | bytes, segments: SegmentReader, name: str) -> Pixels:
    """Decode a source from `pages.associated_sources`, uint8; a page in whatever shape it has.

    Raises:
        DamagedFileError: it claims more pixels than such an image has.
        StreamError, DecodeError, CorruptTileError: it cannot be decoded.
    """
    if isinstance(source, bytes):
        jpeg.check_claim(source, 3 * _MAX_ASSOCIATED_PX)
        return decode_jpeg(source, outcolorspace="RGB")
    _check_page_claim(source, segments)
    is_jpeg_of_rgb = source.compression in COMPRESSIONS_JPEG and is_rgb(source)
    if is_jpeg_of_rgb and source.imagewidth * source.imagelength * 3 <= MAX_WHOLE_PAGE_BYTES:
        level = TiffLevel(LevelSource(source), segments, name, SlideWarnings())
        return level.read_region(Box(0, 0, source.imagewidth, source.imagelength))
    return decode_page(source)


def _check_page_claim(page: tifffile.TiffPage, segments: SegmentReader) -> None:
    """Check the sizes that the page and its JPEG segments claim: the segments' decoder allocates what they claim."""
    if not has_plain_sizes(page) or page.imagewidth * page.imagelength > _MAX_ASSOCIATED_PX:
        raise DamagedFileError(f"claims {page.imagewidth}×{page.imagelength} px")
    if page.compression in COMPRESSIONS_JPEG:
        for index in range(min(len(page.dataoffsets), len(page.databytecounts))):
            raw = segments.read(page, index)
            if raw is not None:
                jpeg.check_claim(raw, MAX_WHOLE_PAGE_BYTES)
