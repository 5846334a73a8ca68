"""A pyramidal TIFF from a store: stored JPEG tiles are copied byte for byte, everything else is recompressed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import tifffile

from pipeline.box import Box
from pipeline.codecs.images import white_jpeg, white_jpeg_2000
from pipeline.codecs.types import Pixels
from pipeline.export.tiff.jpeg_kind import JpegKind, jpeg_kind
from pipeline.export.tiff.ome_xml import OmeImage, ome_tiff_xml
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.reader import StoreReader
from pipeline.store.reading.threads import CORES
from training.foundation.progress import Advance

COMPRESSION_JPEG, COMPRESSION_DEFLATE, COMPRESSION_JPEG_2000 = 7, 8, 33005
"""33005 is Aperio's number for JPEG 2000 of R, G, B, which tifffile, Bio-Formats and QuPath support."""
RECODED_TILE_PX = 512
_BUFFER_BYTES = 32 * 2**20


class _MixedTilesError(Exception):
    """A tile differs in kind from its level's first; TIFF cannot express that, so the level is recompressed."""


@dataclass(frozen=True)
class _Page:
    """One level, or one associated image, as a page of the TIFF."""

    array: ArrayReader
    mpp: float | None
    is_level: bool = False
    """Whether it is a smaller copy of the page before it."""


@dataclass
class TiffExport:
    """Writes one TIFF.

    Args:
        is_ome: levels in SubIFDs with OME-XML; otherwise every level is a separate page, as OpenSlide expects.
        quality: JPEG quality of levels that are not stored as JPEG; None: deflate, lossless.
    """

    reader: StoreReader
    is_ome: bool
    quality: int | None
    associated: dict[str, ArrayReader]
    advance: Advance
    how: dict[str, str] = field(default_factory=dict)
    """Explanation of how each level and associated image was written."""
    _recoded: set[str] = field(default_factory=set)

    def write(self, stream: BinaryIO) -> None:
        """Write everything; start again if a level turns out to hold tiles of several kinds."""
        while True:
            try:
                self._write_once(stream)
                return
            except _MixedTilesError as error:
                self._recoded.add(str(error))
                stream.seek(0)
                stream.truncate(0)

    def _write_once(self, stream: BinaryIO) -> None:
        levels = [
            _Page(level.array, self.reader.mpp0 * level.downsample, level.level > 0) for level in self.reader.levels
        ]
        with tifffile.TiffWriter(stream, bigtiff=True) as tiff:
            for number, page in enumerate(levels):
                self._write_page(tiff, str(number), page, subifds=len(levels) - 1 if number == 0 else 0)
            for name, array in self.associated.items():
                self._write_page(tiff, name, _Page(array, None), subifds=0)

    def _write_page(self, tiff: tifffile.TiffWriter, name: str, page: _Page, *, subifds: int) -> None:
        spec = page.array.spec
        options, explanation = self._coding(name, page.array)
        self.how[name] = explanation
        if page.mpp:
            per_cm = 1e4 / page.mpp
            options |= {"resolution": (per_cm, per_cm), "resolutionunit": "CENTIMETER"}
        if self.is_ome and subifds:
            options["subifds"] = subifds
        if name == "0":
            options["description"] = self._description()
        if page.mpp and self.reader.icc:
            options["iccprofile"] = self.reader.icc
        tiff.write(
            shape=(spec.height_px, spec.width_px, 3),
            dtype=np.uint8,
            photometric="rgb",
            subfiletype=1 if page.is_level else 0,
            metadata=None,
            software=False,
            **options,
        )

    def _description(self) -> str:
        if not self.is_ome:
            plane_um = self.reader.plane_um
            at = "" if plane_um is None else f", focal plane at {plane_um:g} micrometres"
            return f"gemslide export of {self.reader.slide_id}{at}"
        width_px, height_px = self.reader.size_wh_px0
        images = [OmeImage(self.reader.slide_id, width_px, height_px, self.reader.mpp0, self.reader.plane_um)]
        images += [OmeImage(n, a.spec.width_px, a.spec.height_px, None) for n, a in self.associated.items()]
        return ome_tiff_xml(images, self.reader.attributes.objective_power)

    def _coding(self, name: str, array: ArrayReader) -> tuple[dict[str, Any], str]:
        """tifffile's options for the tiles of one page, and an explanation."""
        t = array.spec.chunk_px
        if name not in self._recoded and array.spec.codec == "imagecodecs_jpeg":
            kind = _first_kind(array)
            if kind and kind.fits_tiff(t):
                tiles = self._stored(name, array, white_jpeg(t, is_rgb=kind.is_rgb, sampling=kind.subsampling), kind)
                return {"data": tiles, "tile": (t, t), **_jpeg_options(kind)}, "JPEG tiles as stored"
        if self.is_ome and array.spec.codec == "imagecodecs_jpeg2k" and t % 16 == 0:
            tiles = self._stored(name, array, white_jpeg_2000(t), None)
            jpeg_2000 = {"data": tiles, "tile": (t, t), "compression": COMPRESSION_JPEG_2000}
            return jpeg_2000, "JPEG 2000 tiles as stored"
        options: dict[str, Any] = {
            "data": self._decoded(array),
            "tile": (RECODED_TILE_PX, RECODED_TILE_PX),
            "maxworkers": CORES,
            "buffersize": _BUFFER_BYTES,
        }
        if self.quality is None:
            return {**options, "compression": COMPRESSION_DEFLATE, "predictor": True}, "deflate, lossless"
        jpeg = _jpeg_options(JpegKind(is_rgb=False, subsampling=(1, 1)))
        jpeg["compressionargs"]["level"] = self.quality
        return {**options, **jpeg}, f"JPEG of quality {self.quality}"

    def _stored(self, name: str, array: ArrayReader, white: bytes, kind: JpegKind | None) -> Iterator[bytes]:
        """The stored streams, row by row; a white tile where the store has none, which readers would show as black."""
        rows, columns = range(array.spec.rows), range(array.spec.columns)
        tiles = len(rows) * len(columns)
        self.advance.expect(tiles)
        fetched = array.fetched(rows, columns)
        streams = (chunk for some_rows, chunks in fetched for row in some_rows for chunk in chunks(row, columns))
        for number, chunk in enumerate(streams):
            if chunk is not None and kind and jpeg_kind(chunk) != kind:
                self.advance.expect(number - tiles)  # the rest of this page is not written this way
                raise _MixedTilesError(name)
            self.advance(1)  # before the tile is yielded: after the last one tifffile does not resume
            yield white if chunk is None else chunk

    def _decoded(self, array: ArrayReader) -> Iterator[Pixels]:
        """Tiles row by row; the last ones of a row or column are padded with white."""
        t = RECODED_TILE_PX
        self.advance.expect(-(-array.spec.height_px // t) * -(-array.spec.width_px // t))
        for y_px in range(0, array.spec.height_px, t):
            for x_px in range(0, array.spec.width_px, t):
                self.advance(1)
                yield array.read_region(Box(x_px, y_px, t, t))


def _first_kind(array: ArrayReader) -> JpegKind | None:
    """Kind of the first existing tile."""
    chunk = array.first_chunk()
    return None if chunk is None else jpeg_kind(chunk)


def _jpeg_options(kind: JpegKind) -> dict[str, Any]:
    return {
        "compression": COMPRESSION_JPEG,
        "compressionargs": {"outcolorspace": "RGB" if kind.is_rgb else "YCBCR"},
        "subsampling": kind.subsampling,
    }
