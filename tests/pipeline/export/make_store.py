"""Slide stores written level by level, so that every level has the codec, colours, tiles and holes a test wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.images import encode_jpeg_2000
from pipeline.store.format.chunks import encode_zstd
from pipeline.store.format.layout import ArraySpec
from pipeline.store.format.metadata import Level, SlideAttributes, Source, image_attributes, write_group, write_json
from pipeline.store.format.shard import write_shard
from pipeline.store.layers.labels import write_tissue

Pixels = NDArray[np.uint8]
Encode = Callable[[Pixels], bytes]
MPP0 = 0.5
SHA256 = "5" * 64


def rgb_jpeg(tile: Pixels) -> bytes:
    """R, G, B components with an Adobe marker that declares them, as Aperio's tiles are stored."""
    return bytes(imagecodecs.jpeg8_encode(tile, level=85, colorspace="RGB", outcolorspace="RGB"))


def jfif(subsampling: str) -> Encode:
    return lambda tile: bytes(imagecodecs.jpeg8_encode(tile, level=85, subsampling=subsampling))


@dataclass
class MadeLevel:
    """One level to write."""

    pixels: Pixels
    codec: str
    tile_px: int
    encode: Encode
    sparse: set[tuple[int, int]] = field(default_factory=set)
    """(row, column) of omitted chunks."""

    def chunk(self, row: int, column: int) -> tuple[bytes, ...]:
        t = self.tile_px
        part = self.pixels[row * t : (row + 1) * t, column * t : (column + 1) * t]
        if (row, column) in self.sparse or not part.size:
            return ()
        tile = np.full((t, t, 3), 200, np.uint8)  # a scanner's tile is not white beyond the slide's edge
        tile[: part.shape[0], : part.shape[1]] = part
        return (self.encode(tile),)


def jpeg_level(pixels: Pixels, tile_px: int, encode: Encode, **options: object) -> MadeLevel:
    return MadeLevel(pixels, "imagecodecs_jpeg", tile_px, encode, **options)


def j2k_level(pixels: Pixels, tile_px: int, **options: object) -> MadeLevel:
    return MadeLevel(pixels, "imagecodecs_jpeg2k", tile_px, encode_jpeg_2000, **options)


def zstd_level(pixels: Pixels, tile_px: int, **options: object) -> MadeLevel:
    return MadeLevel(pixels, "zstd", tile_px, encode_zstd, **options)


def make_store(store: Path, levels: list[MadeLevel], *, label: Pixels | None = None, icc: str | None = None) -> Path:
    """Write a complete store of small shards (2 × 2 chunks) with a striped tissue mask."""
    for number, level in enumerate(levels):
        _write_array(store / "0" / str(number), level)
    height, width = levels[0].pixels.shape[:2]
    downsamples = [width / level.pixels.shape[1] for level in levels]
    write_group(store / "0", image_attributes("slide", [MPP0 * d for d in downsamples]))
    mask = np.indices((height // 16, width // 16)).sum(0) // 7 % 2 == 0
    write_tissue(store, mask, 16 * MPP0, MPP0, len(levels))
    if label is not None:
        _write_array(store / "1" / "0", zstd_level(label, 64))
        write_group(store / "1", image_attributes("label", [1.0]))
    write_group(store / "OME", {"ome": {"version": "0.5", "series": ["0"] if label is None else ["0", "1"]}})
    routes = ["decode" if level.codec == "zstd" else "pass-through" for level in levels]
    attributes = SlideAttributes(
        slide_id=store.name.removesuffix(".ome.zarr"),
        mpp0=MPP0,
        source=Source(sha256=SHA256, bytes=1, format="made"),
        levels=tuple(
            Level(path=str(i), downsample=downsamples[i], route=routes[i], codec=level.codec)
            for i, level in enumerate(levels)
        ),
        associated=() if label is None else ("label",),
        icc=icc,
        objective_power=20.0,
        mpp_source="made",
        ingest={},
    )
    ome = {"version": "0.5", "bioformats2raw.layout": 3}
    write_group(store, {"ome": ome, "gemslide": attributes.model_dump(mode="json")})
    return store


def _write_array(path: Path, level: MadeLevel) -> None:
    height, width = level.pixels.shape[:2]
    spec = ArraySpec(width, height, level.tile_px, 2, level.codec)
    for row in range(spec.shard_rows):
        for column in range(spec.shard_columns):
            places = [(2 * row + y, 2 * column + x) for y in (0, 1) for x in (0, 1)]
            target = path / spec.shard_key(row, column)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_shard(target, [level.chunk(*place) for place in places])
    write_json(path / "zarr.json", spec.to_zarr_json())
