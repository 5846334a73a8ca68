"""Tiled and stripped TIFF, Aperio SVS and OME-TIFF, tile by tile through tifffile."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import tifffile

from pipeline.box import Box
from pipeline.codecs.stream_header import StreamError
from pipeline.codecs.types import DecodeError, Pixels
from pipeline.errors import CorruptTileError, NotBrightfieldRgbError, UnreadableError
from pipeline.slides.damage import DamagedFileError
from pipeline.slides.pyramid import LevelSize, level_size
from pipeline.slides.reading import first_bytes
from pipeline.slides.slide import EncodedLevel, NotCopied, SlideInfo
from pipeline.slides.tiff.library import TiffStructure
from pipeline.slides.tiff.metadata import icc_of, mpp_of, objective_power_of, scanner_model_of
from pipeline.slides.tiff.pages import associated_sources, check_one_image, describe_stack, level_pages
from pipeline.slides.tiff.pixels import SegmentReader, TiffLevel, associated_pixels
from pipeline.slides.tiff.streams import EncodedTiffLevel, why_not_encoded
from pipeline.slides.tiff.validate import COMPRESSION_APERIO_YCC, check_page, check_page_chain

_ORIENTATION = 274


def is_tiff(path: Path) -> bool:
    """Whether the file starts like a TIFF or BigTIFF of either byte order."""
    return first_bytes(path, 4) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def has_unmarked_ycc(path: Path) -> bool:
    """Whether tifffile would take the file's Y, Cb, Cr for R, G, B. A damaged file is for `TiffSlide` to report."""
    try:
        with TiffStructure(path) as tiff:
            return bool(tiff.first.compression == COMPRESSION_APERIO_YCC)
    except DamagedFileError:
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
                self._tiff = on_error.enter_context(TiffStructure(path))
                pages = self._checked_pages()
                self._associated = associated_sources(self._tiff)
                self.info = self._read_info(pages)
            except DamagedFileError as error:
                raise UnreadableError(
                    f"{self._name}: tifffile cannot read its structure ({error}). "
                    "The file is damaged or cut short; copy it again."
                ) from error
            on_error.pop_all()
        self._fd = os.open(path, os.O_RDONLY)
        self._segments = SegmentReader(self._fd, self._bytes, self._name)
        self._levels = [TiffLevel(page, self._segments, self._name) for page in pages]

    def _checked_pages(self) -> list[tifffile.TiffPage]:
        pages = level_pages(self._tiff, self._name)
        orientation = self._tiff.tag(_ORIENTATION, pages[0])
        check_page(pages[0], self._bytes, self._name, orientation=orientation, more=lambda: describe_stack(self._tiff))
        check_page_chain(self._tiff, self._bytes, self._name)
        check_one_image(self._tiff, self._name)
        return pages

    def _read_info(self, pages: list[tifffile.TiffPage]) -> SlideInfo:
        mpp_xy, looked_in = mpp_of(self._tiff)
        return SlideInfo(
            format=f"tiff:{_family(self._tiff)}",
            levels=_sizes(pages),
            mpp_xy=mpp_xy,
            mpp_looked_in=looked_in,
            objective_power=objective_power_of(self._tiff),
            scanner_model=scanner_model_of(self._tiff),
            icc=icc_of(self._tiff, pages[0]),
            associated=tuple(self._associated),
        )

    def read_region(self, level: int, box: Box) -> Pixels:
        return self._levels[level].read_region(box)

    def encoded_level(self, level: int) -> EncodedLevel | NotCopied:
        page = self._levels[level].page
        not_copied = why_not_encoded(page)
        return EncodedTiffLevel(page, self._fd, self._bytes, self._name) if not_copied is None else not_copied

    def associated_image(self, name: str) -> Pixels:
        try:
            pixels = associated_pixels(self._associated[name], self._segments)
        except (DamagedFileError, DecodeError, StreamError) as error:
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


def _family(tiff: TiffStructure) -> str:
    families = {"svs": "aperio", "ome": "ome", "philips": "philips"}
    return next((name for family, name in families.items() if tiff.is_of(family)), "generic")


def _sizes(pages: list[tifffile.TiffPage]) -> tuple[LevelSize, ...]:
    first = pages[0]
    return tuple(
        level_size(
            p.imagewidth, p.imagelength, first.imagewidth, first.imagelength,
            tile_px=p.tilewidth if p.is_tiled and p.tilewidth == p.tilelength else None,
        )
        for p in pages
    )  # fmt: skip
