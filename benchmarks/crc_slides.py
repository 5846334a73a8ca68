"""Labelled tiles laid out as a slide, so that they go through the usual workflow: levels, JPEG, store, tiles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray

SIDE_PX0, MPP0 = 224, 0.5
LEVELS, JPEG_QUALITY = 4, 85
"""Parameters with which the mosaics of crc-mosaic were written."""
GLASS = 255


class LabelledTile(NamedTuple):
    """A tile as published."""

    jpeg: bytes
    class_name: str


def tiles_in(folder: Path) -> list[LabelledTile]:
    """Tiles of a folder with one sub-folder per class."""
    return [LabelledTile(path.read_bytes(), path.parent.name) for path in sorted(folder.glob("*/*.jpg"))]


def jpegs_of(slide: Path) -> set[bytes]:
    """JPEG streams of the tiles in a TIFF's first level."""
    with tifffile.TiffFile(slide) as tiff:
        page = tiff.pages[0]
        where = zip(page.dataoffsets, page.databytecounts, strict=True)
        return {_bytes_at(tiff, offset, length) for offset, length in where}


def _bytes_at(tiff: tifffile.TiffFile, offset: int, length: int) -> bytes:
    tiff.filehandle.seek(offset)
    content: bytes = tiff.filehandle.read(length)
    return content


def lay_out(path: Path, tiles: Sequence[LabelledTile]) -> None:
    """Write a slide of tiles side by side with glass around them, and beside it their outlines by class (GeoJSON)."""
    columns = int(np.ceil(np.sqrt(len(tiles))))
    at = {(1 + index // columns, 1 + index % columns): tile for index, tile in enumerate(tiles)}
    shape = (-(-len(tiles) // columns) + 2, columns + 2)
    image = np.full((shape[0] * SIDE_PX0, shape[1] * SIDE_PX0, 3), GLASS, np.uint8)
    for (row, column), tile in at.items():
        _cell(image, row, column)[...] = imagecodecs.jpeg_decode(tile.jpeg)
    with tifffile.TiffWriter(path) as tiff:
        tiff.write(_jpegs(at, shape), shape=image.shape, dtype=np.uint8, **_tags(0))
        for level in range(1, LEVELS):
            height, width = (side_px // 2 for side_px in image.shape[:2])
            image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
            tiff.write(image, compressionargs={"level": JPEG_QUALITY}, **_tags(level))
    features = [_outline(row, column, tile.class_name) for (row, column), tile in at.items()]
    path.with_suffix(".geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))


def _cell(image: NDArray[np.uint8], row: int, column: int) -> NDArray[np.uint8]:
    return image[row * SIDE_PX0 : (row + 1) * SIDE_PX0, column * SIDE_PX0 : (column + 1) * SIDE_PX0]


def _jpegs(at: dict[tuple[int, int], LabelledTile], shape: tuple[int, int]) -> Iterator[bytes]:
    glass = np.full((SIDE_PX0, SIDE_PX0, 3), GLASS, np.uint8)
    empty = imagecodecs.jpeg_encode(glass, level=JPEG_QUALITY, subsampling="420")
    for cell in product(*map(range, shape)):
        yield at[cell].jpeg if cell in at else empty


def _tags(level: int) -> dict[str, Any]:
    per_cm = 10_000 / (MPP0 * 2**level)
    return {
        "tile": (SIDE_PX0, SIDE_PX0),
        "photometric": "rgb",  # of the input; tifffile converts it to YCbCr with subsampled chroma, and declares that
        "compression": "jpeg",
        "subfiletype": 1 if level else 0,
        "resolution": (per_cm, per_cm),
        "resolutionunit": "CENTIMETER",
        "metadata": None,
    }


def _outline(row: int, column: int, class_name: str) -> dict[str, Any]:
    left, top = column * SIDE_PX0, row * SIDE_PX0
    right, bottom = left + SIDE_PX0, top + SIDE_PX0
    ring = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "properties": {"objectType": "annotation", "classification": {"name": class_name}},
    }
