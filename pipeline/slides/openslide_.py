"""Slides through OpenSlide: the only file that imports it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import openslide
from PIL import Image

from pipeline.errors import CorruptTileError, UnreadableError
from pipeline.slides.slide import EncodedLevel, LevelSize, Pixels, SlideInfo, level_size
from pipeline.units import is_plausible_mpp


def detect_vendor(path: Path) -> str | None:
    """OpenSlide's name for the file's family, None when it does not know it."""
    try:
        vendor: str | None = openslide.OpenSlide.detect_format(str(path))
    except openslide.OpenSlideError:
        return None
    return vendor


def library_version() -> str:
    """Version of the OpenSlide library itself."""
    return str(openslide.__library_version__)


class OpenSlideSlide:
    """One slide read by OpenSlide. All its levels take the decode route."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        try:
            self._slide = openslide.OpenSlide(str(path))
        except openslide.OpenSlideError as error:
            raise UnreadableError(
                f"{self._name}: OpenSlide {library_version()} cannot open it: {error}. "
                "The file is damaged, incomplete (some formats need their companion files beside them) or of a "
                "variant OpenSlide does not know."
            ) from error
        self.info = self._read_info()

    def _read_info(self) -> SlideInfo:
        properties = self._slide.properties
        mpp_xy, looked_in = _mpp(properties)
        return SlideInfo(
            format=f"openslide:{properties.get(openslide.PROPERTY_NAME_VENDOR, 'unknown')}",
            levels=self._levels(),
            mpp_xy=mpp_xy,
            mpp_looked_in=looked_in,
            objective_power=_number(properties.get(openslide.PROPERTY_NAME_OBJECTIVE_POWER)),
            icc=_icc(self._slide),
            associated=tuple(self._slide.associated_images),
        )

    def _levels(self) -> tuple[LevelSize, ...]:
        width_px0, height_px0 = self._slide.dimensions
        return tuple(level_size(w, h, width_px0, height_px0) for w, h in self._slide.level_dimensions)

    def read_region(self, level: int, x_px: int, y_px: int, width_px: int, height_px: int) -> Pixels:
        downsample = self._slide.level_downsamples[level]
        location_xy0 = (round(x_px * downsample), round(y_px * downsample))
        try:
            rgba = self._slide.read_region(location_xy0, level, (width_px, height_px))
        except openslide.OpenSlideError as error:
            raise CorruptTileError(
                f"{self._name}: OpenSlide cannot read level {level} at x={x_px}, y={y_px}: {error}. "
                "The file is damaged there; copy or scan it again."
            ) from error
        return _on_white(rgba)

    def encoded_level(self, level: int) -> EncodedLevel | str:
        return f"tiles of {self.info.format} are not stored as they stand in the file"

    def associated_image(self, name: str) -> Pixels:
        return _on_white(self._slide.associated_images[name])

    def __enter__(self) -> OpenSlideSlide:
        return self

    def __exit__(self, *exc: object) -> None:
        self._slide.close()


def _on_white(rgba: Image.Image) -> Pixels:
    """Transparent means not scanned: shown as white, as on the glass."""
    if rgba.getchannel("A").getextrema() == (255, 255):
        return np.asarray(rgba)[..., :3]
    white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
    return np.asarray(Image.alpha_composite(white, rgba))[..., :3]


def _mpp(properties: Mapping[str, str]) -> tuple[tuple[float, float] | None, str]:
    found = (properties.get(openslide.PROPERTY_NAME_MPP_X), properties.get(openslide.PROPERTY_NAME_MPP_Y))
    x, y = _number(found[0]), _number(found[1])
    looked_in = f"OpenSlide's openslide.mpp-x, openslide.mpp-y: {found[0]}, {found[1]}"
    if x is not None and y is not None and is_plausible_mpp(x) and is_plausible_mpp(y):
        return (x, y), looked_in
    return None, looked_in


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _icc(slide: openslide.OpenSlide) -> bytes | None:
    profile = slide.color_profile
    return None if profile is None else bytes(profile.tobytes())


_MAX_OFFSET_PX = 1e-3
"""Cairo, which lays out OpenSlide's tiles, counts in 1/256 px."""


class SecondDecoder:
    """OpenSlide as the independent witness of ingest's gate."""

    def __init__(self, path: Path) -> None:
        self._slide = openslide.OpenSlide(str(path))

    @classmethod
    def for_level_sizes(cls, path: Path, sizes_wh: list[tuple[int, int]]) -> SecondDecoder | None:
        """A decoder when OpenSlide opens the file and sees the same level sizes, else None."""
        try:
            decoder = cls(path)
        except openslide.OpenSlideError:
            return None
        if list(decoder._slide.level_dimensions) == sizes_wh:
            return decoder
        decoder.close()
        return None

    @property
    def name(self) -> str:
        return f"openslide {library_version()}"

    def read(self, level: int, x_px: int, y_px: int, width_px: int, height_px: int) -> Pixels | None:
        """Pixels of one tile, None where OpenSlide cannot read it or only between its pixels.

        OpenSlide takes whole level-0 positions: where a level's downsample is not a whole number, most of its pixels
        do not start at one, and OpenSlide would blend neighbours.
        """
        downsample = self._slide.level_downsamples[level]
        location_xy0 = (round(x_px * downsample), round(y_px * downsample))
        if any(abs(at0 / downsample - at) > _MAX_OFFSET_PX for at0, at in zip(location_xy0, (x_px, y_px), strict=True)):
            return None
        try:
            return _on_white(self._slide.read_region(location_xy0, level, (width_px, height_px)))
        except openslide.OpenSlideError:
            # OpenSlide's errors latch: open again for the next tile.
            self._slide = openslide.OpenSlide(self._slide._filename)
            return None

    def close(self) -> None:
        self._slide.close()
