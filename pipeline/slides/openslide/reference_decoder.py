"""OpenSlide as the independent reference decoder of ingest's gate."""

from __future__ import annotations

from pathlib import Path

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.openslide.library import OpenSlideHandle, detect_vendor, library_version, white
from pipeline.slides.openslide.pixels import whole_location_xy0
from pipeline.slides.openslide.validate import check_claims
from pipeline.slides.tiff.prescan import prescan_tags
from training.foundation.errors import DecompressionBombError, UnreadableError


class ReferenceDecoder:
    """Single tiles of a slide as OpenSlide sees them."""

    def __init__(self, path: Path) -> None:
        self._handle = OpenSlideHandle(path)
        self._levels = list(range(len(self._handle.level_sizes_wh)))
        """OpenSlide's number of each of the file's levels."""

    @classmethod
    def for_level_sizes(cls, path: Path, sizes_wh: list[tuple[int, int]]) -> ReferenceDecoder | None:
        """A decoder if OpenSlide opens the file and sees the same level sizes, else None."""
        if not prescan_tags(path):
            return None
        try:
            check_claims(path, detect_vendor(path) or "")
            decoder = cls(path)
        except (DecompressionBombError, NotBrightfieldRgbError, UnreadableError):
            return None
        if decoder._pads_to(sizes_wh) or decoder._shows(sizes_wh):
            return decoder
        decoder.close()
        return None

    def _shows(self, sizes_wh: list[tuple[int, int]]) -> bool:
        """Whether it sees the same sizes. Of an NDPI it shows more, made from the file's own: these are passed over."""
        shown = list(self._handle.level_sizes_wh)
        if self._handle.vendor == "hamamatsu":
            self._levels = [shown.index(size) for size in sizes_wh if size in shown]
        return [shown[level] for level in self._levels] == sizes_wh

    def _pads_to(self, sizes_wh: list[tuple[int, int]]) -> bool:
        """Whether sizes differ by Philips's padding of lower levels to whole tiles, which OpenSlide counts in."""
        if self._handle.vendor != "philips":
            return False
        width_px0, height_px0 = self._handle.level_sizes_wh[0]
        return sizes_wh == [
            (int(width_px0 // step), int(height_px0 // step)) for step in self._handle.level_downsamples
        ]

    @property
    def name(self) -> str:
        return f"openslide {library_version()}"

    def read(self, level: int, box: Box) -> Pixels | None:
        """Pixels of one tile; None if OpenSlide cannot read it, or only between its pixels."""
        level = self._levels[level]
        location_xy0 = whole_location_xy0(box, self._handle.level_downsamples[level])
        if location_xy0 is None:
            return None
        try:
            pixels = self._handle.read_region(level, location_xy0, box.size_wh_px)
        except DamagedFileError:
            return None
        return white(box) if pixels is None else pixels

    def close(self) -> None:
        self._handle.close()
