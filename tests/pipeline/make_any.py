"""Pyramids of any kind that a scanner may write: encodings, tile sizes, byte orders, omitted tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import imagecodecs
import numpy as np
import tifffile
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.pipeline.make import APERIO, MPP0, PHOTOMETRIC, Pixels, overwrite_tag, sample_image

JPEG_2000, APERIO_JPEG_2000 = 34712, 33005
OFFSETS, BYTE_COUNTS = 324, 325
LOSSLESS = ("lzw", "deflate", "zstd")
_MIN_LEFT_OUT_PX = 128
"""Sides of a tile that is left out: JPEG smears what is beside smaller ones over them on the reduced levels."""


@dataclass(frozen=True)
class Pyramid:
    """Parameters of a pyramid to write."""

    size_wh: tuple[int, int]
    factors: tuple[int, ...]
    """Downsampling factor of each further level from the level before."""
    tile_px: int
    coding: tuple[str, str, str] | int | str
    """("jpeg", photometric, subsampling), a TIFF compression of JPEG 2000, or the name of a lossless one."""
    byteorder: str
    bigtiff: bool
    left_out: float
    """Share of tiles with byte count 0: of level 0 if they are white there and on a further level, which is not so with
    Aperio; of Aperio's reduced levels."""
    seed: int

    @property
    def passes(self) -> bool:
        return self.coding not in LOSSLESS

    def levels(self) -> list[Pixels]:
        """Pixels of the levels, down to 8 px: a smaller level's proportions cannot be matched to the slide's."""
        levels = [sample_image(*self.size_wh, self.seed)]
        for tile in self.left_out_of(0):
            y, x = (at * self.tile_px for at in divmod(tile, -(-self.size_wh[0] // self.tile_px)))
            levels[0][y : y + self.tile_px, x : x + self.tile_px] = 255
        for factor in self.factors:
            smaller = np.ascontiguousarray(levels[-1][::factor, ::factor])
            if min(smaller.shape[:2]) >= 8:
                levels.append(smaller)
        return levels

    def left_out_of(self, level: int, size_wh: tuple[int, int] | None = None) -> list[int]:
        """Numbers of the tiles without bytes of a level of that size; the first tile of level 0 is always there."""
        is_aperio, (width, height) = self.coding == APERIO_JPEG_2000, size_wh or self.size_wh
        has_witness = min(self.size_wh) >= 8 * max(self.factors, default=1000)
        if (level > 0) != is_aperio or not (is_aperio or has_witness):
            return []
        t, columns = self.tile_px, -(-width // self.tile_px)
        share = np.random.default_rng([self.seed, level]).random(columns * -(-height // t))
        chosen = np.flatnonzero(share < self.left_out).tolist()
        if is_aperio:
            return chosen
        return [n for n in chosen if n and min(width - n % columns * t, height - n // columns * t) >= _MIN_LEFT_OUT_PX]


def pyramids() -> st.SearchStrategy[Pyramid]:
    jpeg = [
        ("jpeg", "rgb", "444"), ("jpeg", "ycbcr", "444"), ("jpeg", "ycbcr", "422"), ("jpeg", "ycbcr", "420")
    ]  # fmt: skip
    return st.builds(
        Pyramid,
        size_wh=st.tuples(st.integers(30, 900), st.integers(30, 700)).filter(lambda wh: wh[0] != wh[1]),
        factors=st.lists(st.sampled_from([2, 4]), max_size=5).map(tuple),
        tile_px=st.sampled_from([240, 256, 512]),
        coding=st.sampled_from([*jpeg, *jpeg, JPEG_2000, APERIO_JPEG_2000, *LOSSLESS]),
        byteorder=st.sampled_from("<>"),
        bigtiff=st.booleans(),
        left_out=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
        seed=st.integers(0, 5),
    )


def write_any(path: Path, pyramid: Pyramid) -> Path:
    coding, levels, t = pyramid.coding, pyramid.levels(), pyramid.tile_px
    compression = "jpeg" if isinstance(coding, tuple) else coding
    width, height = pyramid.size_wh
    options: dict[str, object] = {}
    if compression == APERIO_JPEG_2000:
        options["description"] = APERIO.format(width=width, height=height)
    with tifffile.TiffWriter(path, byteorder=pyramid.byteorder, bigtiff=pyramid.bigtiff) as tiff:
        for number, pixels in enumerate(levels):
            tiles = (_encoded(tile, coding) for tile in _cut(pixels, t))
            scale = 1e4 / MPP0 * pixels.shape[1] / width
            tiff.write(
                tiles, shape=pixels.shape, dtype=np.uint8, tile=(t, t), photometric="rgb", compression=compression,
                subfiletype=1 if number else 0, metadata=None, resolution=(scale, scale), resolutionunit="CENTIMETER",
                **options,
            )  # fmt: skip
    if isinstance(coding, tuple):  # tifffile declares YCbCr, whatever is requested
        for page in range(len(levels)):
            overwrite_tag(path, PHOTOMETRIC, {"rgb": 2, "ycbcr": 6}[coding[1]], page=page)
    for page, pixels in enumerate(levels):
        for tile in pyramid.left_out_of(page, (pixels.shape[1], pixels.shape[0])):
            for tag in (OFFSETS, BYTE_COUNTS):
                overwrite_tag(path, tag, 0, page=page, index=tile)
    return path


def decoded_by_tifffile(path: Path) -> list[NDArray[np.uint8]]:
    """Pixels of all pages, with omitted tiles white, not black as in tifffile."""
    pages = []
    with tifffile.TiffFile(path) as tiff:
        for page in tiff.pages:
            pixels, columns = page.asarray(), -(-page.imagewidth // page.tilewidth)
            for tile in np.flatnonzero(np.asarray(page.databytecounts) == 0):
                y, x = (int(at) * page.tilewidth for at in divmod(tile, columns))
                pixels[y : y + page.tilewidth, x : x + page.tilewidth] = 255
            pages.append(pixels)
    return pages


def _cut(pixels: Pixels, tile_px: int) -> Iterator[Pixels]:
    """Full tiles; those at the right and bottom are padded with grey."""
    for y in range(0, pixels.shape[0], tile_px):
        for x in range(0, pixels.shape[1], tile_px):
            tile = np.full((tile_px, tile_px, 3), 128, np.uint8)
            part = pixels[y : y + tile_px, x : x + tile_px]
            tile[: part.shape[0], : part.shape[1]] = part
            yield tile


def _encoded(tile: Pixels, coding: tuple[str, str, str] | int | str) -> bytes | Pixels:
    if coding in LOSSLESS:
        return tile
    if isinstance(coding, int):
        return bytes(imagecodecs.jpeg2k_encode(tile, codecformat="j2k", mct=False, reversible=True, level=0))
    _, photometric, subsampling = coding
    if photometric == "rgb":
        return bytes(imagecodecs.jpeg8_encode(tile, level=85, colorspace="RGB", outcolorspace="RGB"))
    return bytes(imagecodecs.jpeg8_encode(tile, level=85, subsampling=subsampling))
