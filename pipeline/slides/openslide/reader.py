"""Slides of the makers whose formats only OpenSlide reads.

The level-0 frame is OpenSlide's own, never cropped to what was scanned, so that annotations made in other programs fit.
"""

from __future__ import annotations

from pathlib import Path

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.errors import CorruptTileError
from pipeline.slides.damage import DamagedFileError
from pipeline.slides.openslide.files import companion_files, scn_areas
from pipeline.slides.openslide.library import OpenSlideHandle, detect_vendor, not_rgb
from pipeline.slides.openslide.metadata import bounds_px0, mpp_of, positive, scanner_model_of, tile_side_px
from pipeline.slides.openslide.pixels import OpenSlideLevel, is_on_whole_pixels
from pipeline.slides.openslide.validate import check_claims, check_scanned_size
from pipeline.slides.pyramid import level_size
from pipeline.slides.slide import EncodedLevel, NotCopied, SlideInfo


class VendorSlide:
    """One slide read by OpenSlide. All its levels take the decode route.

    Levels whose pixels do not start at whole level-0 positions are left out, so that ingest builds them (`pixels.py`).

    Args:
        every_level: keep them, read from the nearest position; for comparison with another reader's levels.
    """

    def __init__(self, path: Path, *, every_level: bool = False) -> None:
        self._name = path.name
        check_claims(path, detect_vendor(path) or "")
        self._handle = OpenSlideHandle(path)
        try:
            if self._handle.properties.get("mirax.GENERAL.SLIDE_TYPE") == "SLIDE_TYPE_FLUORESCENCE":
                # OpenSlide would show three of its channels as red, green and blue.
                raise not_rgb(self._name, "fluorescence (3DHISTECH's SLIDE_TYPE_FLUORESCENCE)")
            self.files = companion_files(path, self._handle.vendor)
            self.openslide_file: Path | None = path
            areas = scn_areas(path) if self._handle.vendor == "leica" else []
            # Of a Leica slide OpenSlide rounds positions itself, so that every level can be met.
            source_levels = self._usable_levels(every_level or bool(areas))
            self.info = self._read_info(source_levels)
            check_scanned_size(self.info, self.files, self._name)
            self._levels = [
                OpenSlideLevel(self._handle, self._name, i, self.info.bounds_px0, areas[i] if areas else [])
                for i in source_levels
            ]
        except BaseException:
            self._handle.close()
            raise

    def _usable_levels(self, every_level: bool) -> list[int]:
        sizes_and_steps = zip(self._handle.level_sizes_wh, self._handle.level_downsamples, strict=True)
        return [i for i, (wh, step) in enumerate(sizes_and_steps) if every_level or is_on_whole_pixels(max(wh), step)]

    def _read_info(self, source_levels: list[int]) -> SlideInfo:
        handle, properties = self._handle, self._handle.properties
        mpp_xy, looked_in = mpp_of(properties)
        sizes_wh = handle.level_sizes_wh
        return SlideInfo(
            format=f"openslide:{handle.vendor}",
            levels=tuple(
                level_size(*sizes_wh[i], *sizes_wh[0], tile_px=tile_side_px(properties, i)) for i in source_levels
            ),
            mpp_xy=mpp_xy,
            mpp_looked_in=looked_in,
            objective_power=positive(handle.objective_power),
            scanner_model=scanner_model_of(properties),
            icc=handle.icc(),
            associated=handle.associated,
            bounds_px0=bounds_px0(properties, sizes_wh[0]),
        )

    def read_region(self, level: int, box: Box) -> Pixels:
        return self._levels[level].read_region(box)

    def encoded_level(self, level: int) -> EncodedLevel | NotCopied:
        return NotCopied(f"tiles of {self.info.format} are not stored as they stand in the file")

    def associated_image(self, name: str) -> Pixels:
        try:
            return self._handle.associated_image(name)
        except DamagedFileError as error:
            raise CorruptTileError(f"{self._name}: its {name} image cannot be decoded: {error}.") from error

    def __enter__(self) -> VendorSlide:
        return self

    def __exit__(self, *exc: object) -> None:
        self._handle.close()
