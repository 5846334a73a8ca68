"""Requirements on a TIFF for its pixels to come out right; everything else is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral

import numpy as np
import tifffile

from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.common.limits import MAX_TILE_BYTES, MAX_UNPACK_RATIO, MAX_WHOLE_PAGE_BYTES, most_raw_bytes
from pipeline.slides.tiff.library import TiffStructure
from training.foundation.errors import DecompressionBombError, UnreadableError

COMPRESSION_OLD_JPEG, COMPRESSION_JPEG = 6, 7
COMPRESSIONS_JPEG = {COMPRESSION_JPEG, 33007, 34892}
COMPRESSION_APERIO_YCC = 33003
"""JPEG 2000 of Y, Cb, Cr; neither the stream nor the TIFF tags distinguish it from RGB, only OpenSlide knows."""
COMPRESSIONS_JPEG_2000 = {33003, 33004, 33005, 34712}
KNOWN_COMPRESSIONS = {int(compression) for compression in tifffile.COMPRESSION}
PHOTOMETRIC_GREY, PHOTOMETRIC_RGB, PHOTOMETRIC_YCBCR = 1, 2, 6
PLANAR_CONTIG = 1


def check_sizes(page: tifffile.TiffPage, name: str) -> None:
    """Check that a page's sizes can be calculated with.

    Raises:
        UnreadableError: they are not numbers.
    """
    if not has_plain_sizes(page):
        raise UnreadableError(
            f"{name}: its size tags hold several numbers each, or its tile tags none. The file is damaged; copy it "
            "again."
        )


def check_page(
    page: tifffile.TiffPage,
    file_bytes: int,
    name: str,
    *,
    is_plane: bool,
    orientation: object,
    more: Callable[[], str],
) -> None:
    """Check that the finest page, of plain sizes, can be read as a slide.

    Args:
        is_plane: whether it is one of three pages, one per colour.
        orientation: value of its tag; None if absent.
        more: further clause on a page that is not RGB.

    Raises:
        UnreadableError, DecompressionBombError, NotBrightfieldRgbError: it cannot.
    """
    _check_claim(page, file_bytes, name)
    _check_compression(page, name)
    if not is_plane:
        _check_pixels_are_rgb(page, name, more)
    _check_layout(page, name, orientation)


def check_page_chain(tiff: TiffStructure, file_bytes: int, name: str) -> None:
    """Refuse a page past the end of the file: tifffile leaves it out silently."""
    following = tiff.offset_behind_chain()
    if following >= file_bytes:
        raise UnreadableError(
            f"{name}: the page after the first {tiff.num_pages} is at byte {following}, but the file ends at "
            f"{file_bytes}. It was cut short; copy it again."
        )


def has_plain_sizes(page: tifffile.TiffPage) -> bool:
    """Whether sizes, offsets and byte counts are numbers.

    A damaged tag yields a tuple for a size, which takes all memory when multiplied; and bytes or text for an offset.
    """
    sizes = (
        page.imagewidth, page.imagelength, page.imagedepth, page.tilewidth, page.tilelength, page.rowsperstrip,
        page.samplesperpixel, page.compression,
    )  # fmt: skip
    return all(isinstance(size, int) for size in sizes) and all(
        isinstance(offsets, tuple | list | np.ndarray) and all(isinstance(offset, Integral) for offset in offsets[:1])
        for offsets in (page.dataoffsets, page.databytecounts)
    )


def is_rgb(page: tifffile.TiffPage) -> bool:
    """Whether the decoder returns three bytes of R, G, B per pixel."""
    # Only JPEG's decoder turns YCbCr into RGB: with other compressions tifffile returns Y, Cb, Cr as they are.
    is_ycc_jpeg = page.photometric == PHOTOMETRIC_YCBCR and page.compression in COMPRESSIONS_JPEG
    return bool(
        page.samplesperpixel == 3
        and page.bitspersample == 8
        and page.dtype == np.uint8
        and page.imagedepth == 1
        and (page.photometric == PHOTOMETRIC_RGB or is_ycc_jpeg)
    )


def is_grey(page: tifffile.TiffPage) -> bool:
    """Whether a page has one 8-bit sample per pixel, as each colour of three pages is stored."""
    return bool(
        page.samplesperpixel == 1
        and page.bitspersample == 8
        and page.dtype == np.uint8
        and page.imagedepth == 1
        and page.photometric == PHOTOMETRIC_GREY
    )


def check_planes_alike(pages: Sequence[tifffile.TiffPage], name: str) -> None:
    """Check that the pages of red, green and blue fit together. Raises UnreadableError."""
    kinds = {
        (page.imagewidth, page.imagelength, page.is_tiled, page.tilewidth, page.tilelength, page.rowsperstrip)
        for page in pages
    }
    if len(kinds) != 1 or not all(has_plain_sizes(page) and is_grey(page) for page in pages):
        raise UnreadableError(
            f"{name}: its pages of red, green and blue differ in size or in tiles. Export the slide as 8-bit RGB."
        )


def _check_pixels_are_rgb(page: tifffile.TiffPage, name: str, more: Callable[[], str]) -> None:
    photometric = getattr(page.photometric, "name", str(page.photometric))
    pixels = (
        f"{page.samplesperpixel} samples of {page.bitspersample} bits, photometric {photometric}, "
        f"compression {getattr(page.compression, 'name', page.compression)}, "
        f"{page.imagewidth}×{page.imagelength}×{page.imagedepth} px"
    )
    if not is_rgb(page):
        raise NotBrightfieldRgbError(
            f"{name}: holds {pixels}{more()}. Only 8-bit brightfield RGB slides are read (no fluorescence, 16-bit, "
            "grey, CMYK, palette or transparent images, no YCbCr except in JPEG). Export it as 8-bit RGB."
        )


def _check_layout(page: tifffile.TiffPage, name: str, orientation: object) -> None:
    if orientation is not None and not (isinstance(orientation, int) and orientation == 1):
        raise UnreadableError(
            f"{name}: has TIFF orientation {orientation!r}, rotated or mirrored. Save it with orientation 1 "
            "(top left), so that coordinates mean the same in every program."
        )
    if page.imagewidth < 1 or page.imagelength < 1 or (page.is_tiled and not tile_bytes(page)):
        tiles = f" in tiles of {page.tilewidth}×{page.tilelength} px" if page.is_tiled else ""
        raise UnreadableError(f"{name}: claims {page.imagewidth}×{page.imagelength} px{tiles}. The file is damaged.")


def _check_compression(page: tifffile.TiffPage, name: str) -> None:
    if page.compression == COMPRESSION_OLD_JPEG or int(page.compression) not in KNOWN_COMPRESSIONS:
        raise UnreadableError(
            f"{name}: TIFF compression {int(page.compression)} "
            f"({getattr(page.compression, 'name', 'unknown')}) cannot be read. Convert the slide to a tiled TIFF "
            "(for example `vips tiffsave --tile --compression jpeg`)."
        )


def tile_bytes(page: tifffile.TiffPage) -> int:
    """Raw bytes of one tile."""
    return int(page.tilewidth * page.tilelength * page.samplesperpixel * page.imagedepth)


def _check_claim(page: tifffile.TiffPage, file_bytes: int, name: str) -> None:
    samples = page.samplesperpixel * page.imagedepth
    claimed = page.imagewidth * page.imagelength * samples
    bytes_per_tile = tile_bytes(page) if page.is_tiled else 0
    claim = (
        f"{name}: claims {page.imagewidth}×{page.imagelength} px of {samples} samples, {claimed / 2**30:.2f} GiB raw, "
    )
    if claimed > most_raw_bytes(file_bytes):
        raise DecompressionBombError(
            f"{claim}in a file of {file_bytes} bytes: more than {MAX_UNPACK_RATIO} to 1. The header is damaged."
        )
    if bytes_per_tile > MAX_TILE_BYTES:
        raise DecompressionBombError(
            f"{claim}in tiles of {bytes_per_tile / 2**20:.0f} MiB; at most {MAX_TILE_BYTES >> 20} MiB per tile "
            "are read."
        )
    if not page.is_tiled and claimed > MAX_WHOLE_PAGE_BYTES:
        raise DecompressionBombError(
            f"{claim}in strips, which cannot be read piece by piece; at most {MAX_WHOLE_PAGE_BYTES >> 20} MiB. "
            "Convert it to a tiled TIFF (for example `vips tiffsave --tile`)."
        )
