"""Slides of the vendors whose formats only OpenSlide reads.

The level-0 frame is OpenSlide's own, never cropped to the scanned area, so that annotations from other programs fit.
"""

from __future__ import annotations

from pathlib import Path

from pipeline.box import Box, check_region
from pipeline.codecs.types import Pixels
from pipeline.errors import CorruptTileError
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.mpp import parse_number
from pipeline.slides.common.pyramid import level_size
from pipeline.slides.common.slide import LEVEL_OF_SOME_PLANES, EncodedLevel, NotCopied, Slide, SlideInfo
from pipeline.slides.common.slide_warnings import SlideWarnings
from pipeline.slides.openslide.files import companion_files, scn_areas
from pipeline.slides.openslide.library import OpenSlideHandle, detect_vendor, not_rgb
from pipeline.slides.openslide.metadata import (
    bounds_px0,
    mpp_of,
    nm_centre_xy,
    scanner_model_of,
    tile_side_px,
)
from pipeline.slides.openslide.ndpi.file import NdpiFile
from pipeline.slides.openslide.ndpi.plane import NdpiPlane
from pipeline.slides.openslide.pixels import OpenSlideLevel, is_on_whole_pixels
from pipeline.slides.openslide.planes import check_one_plane
from pipeline.slides.openslide.validate import check_claims, check_colours, check_scanned_size
from pipeline.slides.tiff.pages import level_sizes_wh
from pipeline.units import default_plane
from training.foundation.errors import UnreadableError

_PAGES_AS_LEVELS = ("aperio", "generic-tiff")


class VendorSlide:
    """One slide read by OpenSlide. Its levels take the decode route, except those of NDPI files (`ndpi/`).

    Levels whose pixels do not start at whole level-0 positions are left out, so that ingest builds them (`pixels.py`).

    Args:
        every_level: keep them, read from the nearest position; for comparison with another reader's levels.
    """

    def __init__(self, path: Path, *, every_level: bool = False) -> None:
        self._name = path.name
        vendor = detect_vendor(path) or ""
        check_claims(path, vendor)
        check_colours(path, vendor)
        self._handle, self._ndpi = OpenSlideHandle(path), None
        self._stack: dict[tuple[int, int], tuple[EncodedLevel, ...]] = {}
        """Of an NDPI file with several focal planes: its levels at each of them."""
        self._warnings = SlideWarnings()
        try:
            if self._handle.properties.get("mirax.GENERAL.SLIDE_TYPE") == "SLIDE_TYPE_FLUORESCENCE":
                # OpenSlide would show three of its channels as red, green and blue.
                raise not_rgb(self._name, "fluorescence (3DHISTECH's SLIDE_TYPE_FLUORESCENCE)")
            check_one_plane(path, self._handle.vendor, self._handle.properties)
            self.files = companion_files(path, self._handle.vendor)
            self.openslide_file: Path | None = path
            areas = scn_areas(path) if self._handle.vendor == "leica" else []
            self._ndpi = self._ndpi_file(path)
            # OpenSlide rounds positions on a Leica slide itself, so that every level can be read.
            source_levels = self._usable_levels(every_level or bool(areas))
            if self._handle.vendor in _PAGES_AS_LEVELS and not every_level:
                source_levels = self._without_side_images(path, source_levels)
            if self._ndpi is not None and not every_level:
                source_levels = self._own_levels(self._ndpi, source_levels)
            self.info = self._read_info(source_levels)
            check_scanned_size(self.info, self.files, self._name)
            self._levels = [
                OpenSlideLevel(self._handle, self._name, i, self.info.bounds_px0, areas[i] if areas else [])
                for i in source_levels
            ]
        except BaseException:
            self.close()
            raise

    def _usable_levels(self, every_level: bool) -> list[int]:
        if min(side for wh in self._handle.level_sizes_wh for side in wh) < 1:
            raise UnreadableError(f"{self._name}: claims a level of 0 px. The header is damaged; copy it again.")
        sizes_and_steps = zip(self._handle.level_sizes_wh, self._handle.level_downsamples, strict=True)
        return [i for i, (wh, step) in enumerate(sizes_and_steps) if every_level or is_on_whole_pixels(max(wh), step)]

    def _without_side_images(self, path: Path, source_levels: list[int]) -> list[int]:
        """Levels that are not side images: OpenSlide takes any tiled page for a level, and the first for the slide."""
        sizes_wh = level_sizes_wh(path)
        if self._handle.level_sizes_wh[0] != sizes_wh[0]:
            raise UnreadableError(
                f"{self._name}: OpenSlide would read its image of {'×'.join(map(str, self._handle.level_sizes_wh[0]))} "
                f"px, but the slide has {'×'.join(map(str, sizes_wh[0]))} px. Export the slide alone."
            )
        return [level for level in source_levels if self._handle.level_sizes_wh[level] in sizes_wh]

    def _own_levels(self, ndpi: NdpiFile, source_levels: list[int]) -> list[int]:
        """Levels that the file has, of a stack at each of its planes; OpenSlide makes further ones."""
        sizes_wh = self._handle.level_sizes_wh
        own = [i for i in source_levels if sizes_wh[i] in ndpi.levels]
        if len(ndpi.heights_nm) == 1:
            return own
        self._stack = ndpi.stack([sizes_wh[i] for i in own])
        for i in own:
            if sizes_wh[i] not in self._stack:
                self._warnings.add(LEVEL_OF_SOME_PLANES, sizes_wh[i])
        return [i for i in own if sizes_wh[i] in self._stack]

    def at_plane(self, plane: int) -> Slide:
        levels = [self._stack[size.width_px, size.height_px] for size in self.info.levels]
        if plane == default_plane(self.info.planes_um):
            return self
        return NdpiPlane(self.info, self.files, tuple(planes[plane] for planes in levels))

    def _read_info(self, source_levels: list[int]) -> SlideInfo:
        handle, properties = self._handle, self._handle.properties
        mpp = mpp_of(properties)
        sizes_wh = handle.level_sizes_wh
        return SlideInfo(
            format=f"openslide:{handle.vendor}",
            levels=tuple(
                level_size(*sizes_wh[i], *sizes_wh[0], tile_px=tile_side_px(properties, i)) for i in source_levels
            ),
            mpp_xy=mpp.mpp_xy,
            mpp_looked_in=mpp.looked_in,
            mpp_contradiction=mpp.contradiction,
            objective_power=parse_number(handle.objective_power),
            scanner_model=scanner_model_of(properties),
            icc=handle.icc(),
            associated=handle.associated,
            bounds_px0=bounds_px0(properties, sizes_wh[0]),
            nm_centre_xy=nm_centre_xy(properties),
            planes_um=tuple(nm / 1000 for nm in self._ndpi.heights_nm) if self._ndpi and self._stack else (),
            warnings=self._warnings,
        )

    def _ndpi_file(self, path: Path) -> NdpiFile | None:
        """The slide's own tiles, if it is an NDPI file; .vms and .vmu are of the same vendor."""
        is_ndpi = self._handle.vendor == "hamamatsu" and "hamamatsu.NoLayers" not in self._handle.properties
        return NdpiFile(path) if is_ndpi else None

    def read_region(self, level: int, box: Box) -> Pixels:
        check_region(level, len(self._levels), box, self._name)
        return self._levels[level].read_region(box)

    def encoded_level(self, level: int) -> EncodedLevel | NotCopied:
        if self._ndpi is None:
            return NotCopied(f"tiles of {self.info.format} are not stored as they are in the file")
        size = self.info.levels[level]
        return self._ndpi.levels[size.width_px, size.height_px]

    def associated_image(self, name: str) -> Pixels:
        try:
            return self._handle.associated_image(name)
        except DamagedFileError as error:
            raise CorruptTileError(f"{self._name}: its {name} image cannot be decoded: {error}.") from error

    def close(self) -> None:
        if self._ndpi is not None:
            self._ndpi.close()
        self._handle.close()

    def __enter__(self) -> VendorSlide:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
