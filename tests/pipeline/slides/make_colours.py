"""TIFFs whose JPEG tiles and tags state what a test wants: markers, component names, sampling, shared tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import imagecodecs
import numpy as np
import tifffile
from PIL import Image

from pipeline.codecs.jpeg_segments import JFIF, adobe, packed
from tests.pipeline.make import MPP0, PHOTOMETRIC, Pixels, _split_tables, overwrite_tag

JFIF_SEGMENT = packed(0xE0, JFIF)
ADOBE_RGB, ADOBE_YCC = packed(0xEE, adobe(0)), packed(0xEE, adobe(1))


@dataclass(frozen=True)
class Coding:
    """Coding of tiles: `holds` "rgb" or "ycbcr", the `markers` they carry, and the names of their components."""

    holds: str
    markers: bytes = b""
    names: bytes = b"\1\2\3"
    subsampling: str = "444"

    def encode(self, tile: Pixels) -> bytes:
        if self.holds == "rgb":
            stream = imagecodecs.jpeg8_encode(tile, level=90, colorspace="RGB", outcolorspace="RGB")
        else:
            stream = imagecodecs.jpeg8_encode(tile, level=90, subsampling=self.subsampling)
        return with_markers(bytes(stream), self.markers, self.names)


def with_markers(stream: bytes, markers: bytes, names: bytes) -> bytes:
    """Stream with these markers in place of JFIF's and Adobe's, and its components renamed."""
    at, kept = 2, stream[:2] + markers
    old_names = b""
    while True:
        marker, end = stream[at + 1], at + 2 + int.from_bytes(stream[at + 2 : at + 4], "big")
        segment = bytearray(stream[at:end])
        if marker in (0xC0, 0xC1, 0xC2):
            old_names = bytes(segment[10::3])
            segment[10::3] = names
        if marker == 0xDA:
            for position in (5, 7, 9):
                segment[position] = names[old_names.index(segment[position])]
        if marker not in (0xE0, 0xEE):
            kept += bytes(segment)
        at = end
        if marker == 0xDA:
            return kept + stream[at:]


def tiles_of(pixels: Pixels, tile_px: int, *, is_cut: bool = False) -> list[Pixels]:
    """Tiles row by row, with edge tiles padded with their last pixels or cut to the image."""
    tiles = []
    for y in range(0, pixels.shape[0], tile_px):
        for x in range(0, pixels.shape[1], tile_px):
            part = pixels[y : y + tile_px, x : x + tile_px]
            beyond = ((0, tile_px - part.shape[0]), (0, tile_px - part.shape[1]), (0, 0))
            tiles.append(np.ascontiguousarray(part) if is_cut else np.pad(part, beyond, mode="edge"))
    return tiles


def write_tiles(
    path: Path,
    levels: Sequence[tuple[Pixels, Sequence[bytes]]],
    *,
    tag: str | Sequence[str],
    tile_px: int = 64,
    tables: bytes | None = None,
    subfiletype: int = 1,
    **options: object,
) -> Path:
    """Write encoded tiles as a pyramid; `tag` is the photometric interpretation of all levels, or one per level."""
    tags = [tag] * len(levels) if isinstance(tag, str) else list(tag)
    shared = [] if tables is None else [(347, 7, len(tables), tables, True)]
    with tifffile.TiffWriter(path) as tiff:
        for level, (pixels, tiles) in enumerate(levels):
            per_cm = 1e4 / (MPP0 * 2**level)
            tiff.write(
                iter(tiles), shape=pixels.shape, dtype=np.uint8, tile=(tile_px, tile_px), photometric="rgb",
                compression="jpeg", subfiletype=subfiletype if level else 0, metadata=None, extratags=shared,
                resolution=(per_cm, per_cm), resolutionunit="CENTIMETER", **(options if not level else {}),
            )  # fmt: skip
    for page, tag_value in enumerate(tags):
        overwrite_tag(path, PHOTOMETRIC, {"rgb": 2, "ycbcr": 6}[tag_value], page=page)
    return path


def write_coded(path: Path, levels: Sequence[Pixels], coding: Coding, *, tag: str, **options: object) -> Path:
    """Write a pyramid of one coding."""
    tile_px = int(options.get("tile_px", 64))  # type: ignore[call-overload]
    coded = [(pixels, [coding.encode(tile) for tile in tiles_of(pixels, tile_px)]) for pixels in levels]
    return write_tiles(path, coded, tag=tag, **options)  # type: ignore[arg-type]


def split_tables(tiles: Sequence[bytes], markers: bytes = b"") -> tuple[bytes, list[bytes]]:
    """JPEGTables, with markers in them, and the tiles without the tables."""
    shared, rest = _split_tables(list(tiles))
    return shared[:2] + markers + shared[2:], rest


def by_pillow(stream: bytes) -> Pixels:
    return np.asarray(Image.open(BytesIO(stream)).convert("RGB"))
