"""Numbers in a vendor's headers that must be checked before OpenSlide sees them.

OpenSlide allocates for every tile that a header claims, and aborts the process if that fails: no error can be caught.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import tifffile

from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.limits import MAX_TILE_BYTES, MAX_UNPACK_RATIO, most_raw_bytes
from pipeline.slides.common.reading import first_bytes
from pipeline.slides.common.slide import SlideInfo
from pipeline.slides.common.slide_warnings import SlideWarnings
from pipeline.slides.openslide.czi import check_czi
from pipeline.slides.tiff.library import TiffStructure
from pipeline.slides.tiff.segments import LevelSource, SegmentDecoder, SegmentReader
from pipeline.slides.tiff.validate import has_plain_sizes, is_rgb
from training.foundation.errors import DecompressionBombError, UnreadableError
from training.foundation.words.counts import counted

MAX_INI_BYTES = 2**20
_MAX_TILES = 20_000_000
"""A whole glass slide at 0.1 µm/px in images of 128 px has half as many."""
_MAX_FRAME_PX = 10**12
"""A whole glass slide at 0.1 µm/px has a fifth of that."""
_TILE_WIDTH, _TILE_OFFSETS, _TILE_BYTE_COUNTS, _XML_PACKET = 322, 324, 325, 700
_TIFF_VENDORS = ("aperio", "generic-tiff", "hamamatsu", "leica", "philips", "trestle", "ventana")


def check_claims(path: Path, vendor: str) -> None:
    """Refuse headers that claim more tiles or pixels than any slide has.

    Raises:
        DecompressionBombError: they do.
        UnreadableError: the header cannot be read at all.
    """
    if vendor == "mirax":
        ini = path.with_suffix("") / "Slidedat.ini"
        if ini.is_file():
            _check_grid(path.name, ini, ("IMAGENUMBER_X", "IMAGENUMBER_Y"), ("DIGITIZER_WIDTH", "DIGITIZER_HEIGHT"))
    elif path.suffix.lower() in (".vms", ".vmu"):
        _check_grid(path.name, path, ("NoJpegColumns", "NoJpegRows"), ("NoLayers",))
    elif vendor == "zeiss":
        check_czi(path)
    elif vendor in _TIFF_VENDORS:
        _check_pages(path)


def check_scanned_size(info: SlideInfo, files: tuple[Path, ...], name: str) -> None:
    """Refuse a slide that claims more pixels than its files can hold. Raises DecompressionBombError."""
    finest, num_bytes = info.levels[0], sum(file.stat().st_size for file in files)
    _, _, width, height = info.bounds_px0 or (0, 0, finest.width_px, finest.height_px)
    too_dense = 3 * width * height > most_raw_bytes(num_bytes)
    if too_dense or finest.width_px * finest.height_px > _MAX_FRAME_PX:
        raise DecompressionBombError(
            f"{name}: claims {width}×{height} px scanned of {finest.width_px}×{finest.height_px} px in "
            f"{num_bytes} bytes; at most {MAX_UNPACK_RATIO} to 1 and {_MAX_FRAME_PX:.0e} px are read. "
            "The header is damaged."
        )


def check_colours(path: Path, vendor: str) -> None:
    """Refuse a TIFF in which a tile's own JPEG markers contradict the tag: OpenSlide would follow the tag.

    Raises:
        UnreadableError: they do, or the file cannot be read.
    """
    if vendor not in _TIFF_VENDORS or vendor == "hamamatsu":  # for NDPI OpenSlide follows the stream
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        segments = SegmentReader(descriptor, path.stat().st_size, path.name)
        with TiffStructure(path) as tiff:
            for page in (page for page in tiff.pages() if page.is_tiled and is_rgb(page)):
                _check_page_colours(SegmentDecoder(LevelSource(page), segments, SlideWarnings()), path.name)
    except DamagedFileError as error:
        raise UnreadableError(f"{path.name}: its tags cannot be read ({error}). Copy the file again.") from error
    finally:
        os.close(descriptor)


def _check_page_colours(decoder: SegmentDecoder, name: str) -> None:
    for header in decoder.sampled_headers():
        contradiction = decoder.colours.contradiction(header)
        if contradiction:
            raise UnreadableError(
                f"{name}: {contradiction}. OpenSlide, which reads this format, follows the tag and would show "
                "wrong colours. Correct the tag, or convert the slide with the scanner's own program."
            )


def read_ini(path: Path) -> str:
    """Text of a small settings file."""
    return first_bytes(path, MAX_INI_BYTES).decode("utf-8", "replace")


def _check_grid(name: str, ini: Path, counts: tuple[str, ...], sides: tuple[str, ...]) -> None:
    text = read_ini(ini)
    tiles, tile_bytes = 1, 4
    for key in counts:
        tiles *= _largest(text, rf"{key}\s*=\s*")
    for key in sides:
        tile_bytes *= _largest(text, rf"{key}\s*=\s*")
    if tiles > _MAX_TILES or tile_bytes > MAX_TILE_BYTES:
        raise _too_much(name, f"{tiles} images of {tile_bytes} bytes each")


def _largest(text: str, before: str) -> int:
    """The largest whole number after a pattern; 1 if there is none."""
    # More than 20 digits are not a number for OpenSlide either.
    return max((int(digits[:20]) for digits in re.findall(rf"{before}[\"']?\+?([0-9]+)", text)), default=1)


def _check_pages(path: Path) -> None:
    allowed = most_raw_bytes(path.stat().st_size)
    try:
        with TiffStructure(path) as tiff:
            for number, page in enumerate(tiff.pages()):
                if not has_plain_sizes(page):
                    raise UnreadableError(f"{path.name}: a size on page {number} holds several numbers. Copy it again.")
                if page.imagewidth * page.imagelength * 3 > allowed:
                    raise _too_much(path.name, f"{page.imagewidth}×{page.imagelength} px on page {number}")
                if tiff.num_values(_TILE_WIDTH, page):  # tifffile calls restart intervals of NDPI tiles, too
                    _check_tiles(tiff, page, allowed, f"{path.name}: page {number}")
                _check_areas(path.name, tiff.tag(_XML_PACKET, page))
    except DamagedFileError as error:
        raise UnreadableError(f"{path.name}: its tags cannot be read ({error}). Copy the file again.") from error


def _check_tiles(tiff: TiffStructure, page: tifffile.TiffPage, allowed_bytes: int, where: str) -> None:
    """Refuse a damaged list: libtiff reads it as far as it goes, and OpenSlide allocates what it finds there."""
    num_tiles = -(-page.imagewidth // max(1, page.tilewidth)) * -(-page.imagelength // max(1, page.tilelength))
    # Counted from the tags: if one is missing or damaged, tifffile fills in what fits.
    listed = min(tiff.num_values(code, page) for code in (_TILE_OFFSETS, _TILE_BYTE_COUNTS))
    if listed < num_tiles:
        raise UnreadableError(
            f"{where} lists {listed} of {counted(num_tiles, 'tile')}. The file is damaged; copy it again."
        )
    if max(page.databytecounts, default=0) > allowed_bytes:
        raise _too_much(where, f"a tile of {max(page.databytecounts)} bytes")


def _check_areas(name: str, packet: object) -> None:
    """Refuse areas of too many tiles, as Ventana states them in XML."""
    text = packet.decode("utf-8", "replace") if isinstance(packet, bytes) else str(packet or "")
    tiles = _largest(text, r"NumRows\s*=\s*") * _largest(text, r"NumCols\s*=\s*")
    if tiles > _MAX_TILES:
        raise _too_much(name, f"{tiles} tiles in one area")


def _too_much(name: str, what: str) -> DecompressionBombError:
    return DecompressionBombError(f"{name}: claims {what}, more than a slide can have. The header is damaged.")
