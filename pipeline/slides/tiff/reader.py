"""Tiled and stripped TIFF, Aperio SVS and OME-TIFF, tile by tile through tifffile."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import tifffile

from pipeline.box import Box, check_region
from pipeline.codecs.stream_header import StreamError
from pipeline.codecs.types import DecodeError, Pixels
from pipeline.errors import CorruptTileError, NotBrightfieldRgbError
from pipeline.slides.common.absent import AbsentTiles
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.level_content import ANOTHER_IMAGE
from pipeline.slides.common.pyramid import LevelSize, level_size
from pipeline.slides.common.reading import first_bytes
from pipeline.slides.common.series import left_out, recorded_series
from pipeline.slides.common.slide import EncodedLevel, NotCopied, SlideInfo
from pipeline.slides.common.slide_warnings import SlideWarnings
from pipeline.slides.tiff.absent import absent_of_level
from pipeline.slides.tiff.images import TiffImage
from pipeline.slides.tiff.library import TiffStructure, size_of
from pipeline.slides.tiff.metadata import icc_of, mpp_of, objective_power_of, scanner_model_of
from pipeline.slides.tiff.pages import PageChecks, associated_sources, choose_image, describe_stack, level_pages
from pipeline.slides.tiff.pixels import TiffLevel, associated_pixels
from pipeline.slides.tiff.planes import level_source
from pipeline.slides.tiff.prescan import compressions
from pipeline.slides.tiff.segments import SegmentReader
from pipeline.slides.tiff.streams import EncodedTiffLevel
from pipeline.slides.tiff.validate import COMPRESSION_APERIO_YCC, check_page, check_page_chain
from training.foundation.errors import UnreadableError

_ORIENTATION = 274


def is_tiff(path: Path) -> bool:
    """Whether the file starts like a TIFF or BigTIFF of either byte order."""
    return first_bytes(path, 4) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def has_unmarked_ycc(path: Path) -> bool:
    """Whether tifffile would take the file's Y, Cb, Cr for R, G, B. Raises UnreadableError: the disk fails."""
    return COMPRESSION_APERIO_YCC in compressions(path)


class TiffSlide:
    """One TIFF slide: the largest image of the file that is not a label, macro or thumbnail, and its reduced copies.

    Args:
        series: the number of the image to read, if there are several.
    """

    def __init__(self, path: Path, series: str | None = None) -> None:
        self.files: tuple[Path, ...] = (path,)
        self._name = path.name
        self._bytes = path.stat().st_size
        with ExitStack() as on_error:
            self._fd = os.open(path, os.O_RDONLY)
            on_error.callback(os.close, self._fd)
            self._segments = SegmentReader(self._fd, self._bytes, self._name)
            try:
                self._tiff = on_error.enter_context(TiffStructure(path))
                pages, images = self._checked_pages(series)
                self._associated = associated_sources(self._tiff, images)
                # OpenSlide takes the first page for the slide.
                is_first = pages[0].offset == self._tiff.first.offset
                is_first &= len([one for one in images if one.kind is None]) == 1
                self.openslide_file: Path | None = path if is_first else None
                self.info = self._read_info(pages, images)
            except DamagedFileError as error:
                raise UnreadableError(
                    f"{self._name}: tifffile cannot read its structure ({error}). "
                    "The file is damaged or cut short; copy it again."
                ) from error
            self._levels = [self._level(page, self.info.warnings) for page in pages]
            for level in self._levels:
                level.refuse_planes_of_ycbcr()
            on_error.pop_all()
        self._encoded: dict[int, EncodedLevel | NotCopied] = {}

    def _level(self, page: tifffile.TiffPage, warnings: SlideWarnings) -> TiffLevel:
        return TiffLevel(level_source(self._tiff, page, self._name), self._segments, self._name, warnings)

    def _checked_pages(self, series: str | None) -> tuple[list[tifffile.TiffPage], list[TiffImage]]:
        image, images = choose_image(self._tiff, self._name, series, PageChecks(self._check_page, self._are_unlike))
        check_page_chain(self._tiff, self._bytes, self._name)
        pages = level_pages(self._tiff, image)
        # If each colour is a page, a single page is not a level.
        by_plane = [bool(level_source(self._tiff, page, self._name).planes) for page in pages]
        return [page for page, is_plane in zip(pages, by_plane, strict=True) if is_plane == by_plane[0]], images

    def _are_unlike(self, page: tifffile.TiffPage, finer: tifffile.TiffPage) -> bool | None:
        """As `TiffLevel.is_another_image`; a page's colour warnings count once it is a level."""
        level = self._level(page, SlideWarnings())
        level.refuse_planes_of_ycbcr()
        return level.is_another_image(self._level(finer, SlideWarnings()))

    def _check_page(self, page: tifffile.TiffPage) -> None:
        orientation = self._tiff.tag(_ORIENTATION, page)
        check_page(
            page, self._bytes, self._name, is_plane=bool(level_source(self._tiff, page, self._name).planes),
            orientation=orientation, more=lambda: describe_stack(self._tiff),
        )  # fmt: skip

    def _read_info(self, pages: list[tifffile.TiffPage], images: list[TiffImage]) -> SlideInfo:
        mpp = mpp_of(self._tiff)
        candidates = [image.candidate for image in images]
        chosen, unlike = next(
            (one, image.unlike) for one, image in zip(candidates, images, strict=True) if image.page is pages[0]
        )
        warnings = SlideWarnings()
        for page in unlike:
            warnings.add(ANOTHER_IMAGE, size_of(page))
        if clause := left_out(candidates, chosen):
            warnings.add(clause)
        return SlideInfo(
            format=f"tiff:{_family(self._tiff)}",
            levels=_sizes(pages),
            mpp_xy=mpp.mpp_xy,
            mpp_looked_in=mpp.looked_in,
            mpp_contradiction=mpp.contradiction,
            objective_power=objective_power_of(self._tiff),
            scanner_model=scanner_model_of(self._tiff),
            icc=icc_of(self._tiff, pages[0]),
            associated=tuple(self._associated),
            series=recorded_series(candidates, chosen),
            warnings=warnings,
        )

    def read_region(self, level: int, box: Box) -> Pixels:
        check_region(level, len(self._levels), box, self._name)
        return self._levels[level].read_region(box)

    def encoded_level(self, level: int) -> EncodedLevel | NotCopied:
        check_region(level, len(self._levels), Box(0, 0, 0, 0), self._name)
        if level not in self._encoded:
            own = self._levels[level]
            not_copied = own.why_not_encoded()
            self._encoded[level] = not_copied or EncodedTiffLevel(
                own.page, own.colours, self._fd, self._bytes, self._name
            )
        return self._encoded[level]

    def absent_tiles(self, level: int) -> AbsentTiles:
        check_region(level, len(self._levels), Box(0, 0, 0, 0), self._name)
        return absent_of_level(self._levels[level].source, is_by_format=self._tiff.is_of("philips"))

    def associated_image(self, name: str) -> Pixels:
        try:
            pixels = associated_pixels(self._associated[name], self._segments, self._name)
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
