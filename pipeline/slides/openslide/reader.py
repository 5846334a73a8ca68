"""Slides through OpenSlide: the only file that imports it.

The level-0 frame is OpenSlide's own, never cropped to what was scanned, so that annotations made in other programs fit.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import openslide
from PIL import Image, ImageCms

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.errors import CorruptTileError, DecompressionBombError, NotBrightfieldRgbError, UnreadableError
from pipeline.slides.limits import MAX_UNPACK_RATIO, SMALL_CLAIM_BYTES
from pipeline.slides.openslide.files import companion_files, scn_areas
from pipeline.slides.openslide.metadata import bounds_px0, mpp_of, positive, scanner_model_of, tile_side_px
from pipeline.slides.openslide.validate import check_claims
from pipeline.slides.slide import EncodedLevel, SlideInfo, level_size, paste
from pipeline.slides.tiff.prescan import prescan_tags

_PIECE_PX = 2048
"""Largest side read at once: a region's memory is its own and one piece's (16 MiB). OpenSlide itself cuts at 4096."""
_MAX_FRAME_PX = 10**12
"""A whole glass slide at 0.1 µm/px has a fifth of it."""
_MAX_OFFSET_PX = 1e-3
"""Cairo, which lays out OpenSlide's tiles, counts in 1/256 px."""
_MARGIN_PX = 2
"""Tiles of lower levels may start between pixels, so what was scanned may reach a little further there."""


def detect_vendor(path: Path) -> str | None:
    """OpenSlide's name for the file's family, None when it does not know it or must not see it."""
    if not prescan_tags(path):
        return None
    try:
        vendor: str | None = openslide.OpenSlide.detect_format(str(path))
    except openslide.OpenSlideError:
        return None
    # Without its folder OpenSlide does not know an .mrxs; opening it says what is missing.
    return "mirax" if vendor is None and path.suffix == ".mrxs" else vendor


def library_version() -> str:
    """Version of the OpenSlide library itself."""
    return str(openslide.__library_version__)


class VendorSlide:
    """One slide read by OpenSlide. All its levels take the decode route.

    OpenSlide takes whole level-0 positions. Where a level's downsample is not a whole number, most of its pixels do
    not start at one and OpenSlide would blend neighbours: such levels are left out, so that ingest builds them.

    Args:
        every_level: keep them, read from the nearest position; for comparison with another reader's levels.
    """

    def __init__(self, path: Path, *, every_level: bool = False) -> None:
        self._name = path.name
        check_claims(path, detect_vendor(path) or "")
        self._handle = _Handle(path)
        try:
            properties = self._handle.slide.properties
            vendor = properties.get(openslide.PROPERTY_NAME_VENDOR, "unknown")
            if properties.get("mirax.GENERAL.SLIDE_TYPE") == "SLIDE_TYPE_FLUORESCENCE":
                # OpenSlide would show three of its channels as red, green and blue.
                raise _not_rgb(self._name, "fluorescence (3DHISTECH's SLIDE_TYPE_FLUORESCENCE)")
            self.files = companion_files(path, vendor)
            self.openslide_file: Path | None = path
            self._scn_areas = scn_areas(path) if vendor == "leica" else []
            self._steps = self._handle.slide.level_downsamples
            self._source_levels = self._usable_levels(every_level)
            self.info = self._read_info(vendor, properties)
            self._check_claim()
        except BaseException:
            self._handle.close()
            raise

    def _usable_levels(self, every_level: bool) -> list[int]:
        sizes_and_steps = zip(self._handle.slide.level_dimensions, self._steps, strict=True)
        # Of a Leica slide OpenSlide rounds positions itself, so that every level can be met (`_location_xy0`).
        every_level = every_level or bool(self._scn_areas)
        return [i for i, (wh, step) in enumerate(sizes_and_steps) if every_level or _is_on_whole_pixels(max(wh), step)]

    def _read_info(self, vendor: str, properties: Mapping[str, str]) -> SlideInfo:
        slide = self._handle.slide
        mpp_xy, looked_in = mpp_of(properties)
        width_px0, height_px0 = slide.dimensions
        sizes = slide.level_dimensions
        return SlideInfo(
            format=f"openslide:{vendor}",
            levels=tuple(
                level_size(*sizes[i], width_px0, height_px0, tile_px=tile_side_px(properties, i))
                for i in self._source_levels
            ),
            mpp_xy=mpp_xy,
            mpp_looked_in=looked_in,
            objective_power=positive(properties.get(openslide.PROPERTY_NAME_OBJECTIVE_POWER)),
            scanner_model=scanner_model_of(properties),
            icc=_icc(slide),
            associated=tuple(slide.associated_images),
            bounds_px0=bounds_px0(properties, (width_px0, height_px0)),
        )

    def _check_claim(self) -> None:
        finest, num_bytes = self.info.levels[0], sum(file.stat().st_size for file in self.files)
        _, _, width, height = self.info.bounds_px0 or (0, 0, finest.width_px, finest.height_px)
        too_dense = 3 * width * height > max(SMALL_CLAIM_BYTES, MAX_UNPACK_RATIO * num_bytes)
        if too_dense or finest.width_px * finest.height_px > _MAX_FRAME_PX:
            raise DecompressionBombError(
                f"{self._name}: claims {width}×{height} px scanned of {finest.width_px}×{finest.height_px} px in "
                f"{num_bytes} bytes; at most {MAX_UNPACK_RATIO} to 1 and {_MAX_FRAME_PX:.0e} px are read. "
                "The header is damaged."
            )

    def read_region(self, level: int, box: Box) -> Pixels:
        pieces = list(self._pieces(level, box))
        if pieces == [box]:
            whole = self._read_piece(level, box)
            return _white(*box.size_wh_px) if whole is None else whole
        region = _white(*box.size_wh_px)
        for piece in pieces:
            pixels = self._read_piece(level, piece)
            if pixels is not None:
                paste(region, pixels, piece.x_px - box.x_px, piece.y_px - box.y_px)
        return region

    def _pieces(self, level: int, box: Box) -> Iterator[Box]:
        """Parts of a region that may hold something, each small enough to be read at once."""
        size = self.info.levels[level]
        box = box.within(size.width_px, size.height_px)
        step = self._steps[self._source_levels[level]]
        if self.info.bounds_px0 is not None:
            box = box.overlap(_grown(self.info.bounds_px0, step))
        cells = _cut_along(self._scn_areas[self._source_levels[level]], box) if self._scn_areas else [box]
        for x, y, width, height in cells:
            for top in range(y, y + height, _PIECE_PX):
                for left in range(x, x + width, _PIECE_PX):
                    yield Box(left, top, min(_PIECE_PX, x + width - left), min(_PIECE_PX, y + height - top))

    def _read_piece(self, level: int, box: Box) -> Pixels | None:
        """Pixels of a piece; None when nothing of it was scanned."""
        source_level = self._source_levels[level]
        slide = self._handle.slide
        location_xy0 = self._location_xy0(level, box.x_px, box.y_px)
        try:
            rgba = slide.read_region(location_xy0, source_level, box.size_wh_px)
        except openslide.OpenSlideError as error:
            self._handle.replace(slide)
            raise CorruptTileError(
                f"{self._name}: OpenSlide cannot read level {source_level} at x={box.x_px}, y={box.y_px}: {error}. "
                "The file is damaged there; copy or scan it again."
            ) from error
        return _on_white(rgba)

    def _location_xy0(self, level: int, x_px: int, y_px: int) -> tuple[int, int]:
        step = self._steps[self._source_levels[level]]
        # Within an area of a Leica slide OpenSlide 4.0.1 cuts off what follows the point of position / step, so that
        # the smallest position behind the pixel's start gives that pixel.
        to_whole = math.ceil if self._scn_areas else round
        return to_whole(x_px * step), to_whole(y_px * step)

    def encoded_level(self, level: int) -> EncodedLevel | str:
        return f"tiles of {self.info.format} are not stored as they stand in the file"

    def associated_image(self, name: str) -> Pixels:
        slide = self._handle.slide
        try:
            rgba = slide.associated_images[name]
        except openslide.OpenSlideError as error:
            self._handle.replace(slide)
            raise CorruptTileError(f"{self._name}: its {name} image cannot be decoded: {error}.") from error
        pixels = _on_white(rgba)
        return _white(rgba.width, rgba.height) if pixels is None else pixels

    def __enter__(self) -> VendorSlide:
        return self

    def __exit__(self, *exc: object) -> None:
        self._handle.close()


class _Handle:
    """OpenSlide's handle, which is dead after its first error: one bad tile must not take the others with it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.slide = self._open()

    def _open(self) -> openslide.OpenSlide:
        try:
            return openslide.OpenSlide(str(self._path))
        except openslide.OpenSlideError as error:
            if "color components" in str(error):
                raise _not_rgb(self._path.name, f"no RGB (OpenSlide: {error})") from error
            raise UnreadableError(
                f"{self._path.name}: OpenSlide {library_version()} cannot open it: {error}. "
                "The file is damaged, incomplete (some formats need their companion files beside them) or of a "
                "variant OpenSlide does not know."
            ) from error

    def replace(self, dead: openslide.OpenSlide) -> None:
        """Open again in place of a handle that failed; it closes itself when the last thread released it."""
        with self._lock:
            if self.slide is dead:
                self.slide = self._open()

    def close(self) -> None:
        self.slide.close()


def _not_rgb(name: str, found: str) -> NotBrightfieldRgbError:
    return NotBrightfieldRgbError(
        f"{name}: holds {found}. Only 8-bit brightfield RGB slides are read. Export it as 8-bit RGB."
    )


def _is_on_whole_pixels(side_px: int, step: float) -> bool:
    """Whether every pixel of a level starts at a whole level-0 position, as near as Cairo can tell."""
    return side_px * abs(step - round(step)) / step < _MAX_OFFSET_PX


def _cut_along(areas: list[Box], box: Box) -> Iterator[Box]:
    """The parts of a region that lie in an area, none of them across an area's border.

    OpenSlide cuts towards zero from an area's corner: a region that begins left of it shows it a pixel off.
    """
    x_cuts = {edge for a in areas for edge in (a.x_px, a.right_px) if box.x_px < edge < box.right_px}
    y_cuts = {edge for a in areas for edge in (a.y_px, a.bottom_px) if box.y_px < edge < box.bottom_px}
    for top, bottom in pairwise(sorted(y_cuts | {box.y_px, box.bottom_px})):
        for left, right in pairwise(sorted(x_cuts | {box.x_px, box.right_px})):
            if any(a.x_px <= left < a.right_px and a.y_px <= top < a.bottom_px for a in areas):
                yield Box(left, top, right - left, bottom - top)


def _grown(box_px0: Box, step: float) -> Box:
    """A level-0 box in pixels of a level, with a margin."""
    x, y, width, height = box_px0
    left, top = math.floor(x / step) - _MARGIN_PX, math.floor(y / step) - _MARGIN_PX
    right, bottom = math.ceil((x + width) / step) + _MARGIN_PX, math.ceil((y + height) / step) + _MARGIN_PX
    return Box(left, top, right - left, bottom - top)


def _white(width_px: int, height_px: int) -> Pixels:
    return np.full((height_px, width_px, 3), 255, np.uint8)


def _on_white(rgba: Image.Image) -> Pixels | None:
    """Transparent means not scanned: shown as white, as on the glass. None when all of it is."""
    lowest, highest = rgba.getchannel("A").getextrema()
    if lowest == 255:
        return np.asarray(rgba.convert("RGB"))
    if highest == 0:
        return None
    white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
    return np.asarray(Image.alpha_composite(white, rgba))[..., :3]


def _icc(slide: openslide.OpenSlide) -> bytes | None:
    try:
        profile = slide.color_profile
    except (ImageCms.PyCMSError, openslide.OpenSlideError):  # a damaged profile: the pixels are there all the same
        return None
    return None if profile is None else bytes(profile.tobytes())


class ReferenceDecoder:
    """OpenSlide as the independent reference decoder of ingest's gate."""

    def __init__(self, path: Path) -> None:
        self._slide = openslide.OpenSlide(str(path))

    @classmethod
    def for_level_sizes(cls, path: Path, sizes_wh: list[tuple[int, int]]) -> ReferenceDecoder | None:
        """A decoder when OpenSlide opens the file and sees the same level sizes, else None."""
        if not prescan_tags(path):
            return None
        try:
            check_claims(path, detect_vendor(path) or "")
            decoder = cls(path)
        except (openslide.OpenSlideError, DecompressionBombError, UnreadableError):
            return None
        if list(decoder._slide.level_dimensions) == sizes_wh or decoder._pads_to(sizes_wh):
            return decoder
        decoder.close()
        return None

    def _pads_to(self, sizes_wh: list[tuple[int, int]]) -> bool:
        """Philips fills lower levels up to whole tiles: OpenSlide counts that in, but has the scale right."""
        if self._slide.properties.get(openslide.PROPERTY_NAME_VENDOR) != "philips":
            return False
        (width_px0, height_px0), steps = self._slide.dimensions, self._slide.level_downsamples
        return sizes_wh == [(int(width_px0 // step), int(height_px0 // step)) for step in steps]

    @property
    def name(self) -> str:
        return f"openslide {library_version()}"

    def read(self, level: int, box: Box) -> Pixels | None:
        """Pixels of one tile, None where OpenSlide cannot read it or only between its pixels."""
        downsample = self._slide.level_downsamples[level]
        location_xy0 = (round(box.x_px * downsample), round(box.y_px * downsample))
        if any(abs(at0 / downsample - at) > _MAX_OFFSET_PX for at0, at in zip(location_xy0, box[:2], strict=True)):
            return None
        try:
            pixels = _on_white(self._slide.read_region(location_xy0, level, box.size_wh_px))
        except openslide.OpenSlideError:
            # OpenSlide's errors latch: open again for the next tile.
            self._slide = openslide.OpenSlide(self._slide._filename)
            return None
        return _white(*box.size_wh_px) if pixels is None else pixels

    def close(self) -> None:
        self._slide.close()
