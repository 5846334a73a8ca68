"""A tissue mask that the user provides: outlines in level-0 pixels, or a black-and-white PNG of the whole slide."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

from pipeline.annotations.shapes.region import Region
from pipeline.codecs.images import PNG_SIGNATURE, decode_png, png_size
from pipeline.codecs.types import DecodeError
from pipeline.errors import BadAnnotationError
from pipeline.ingest.tissue.detection import overview_downsample
from pipeline.settings.config import TissueConfig
from pipeline.store.layers.damaged import damaged_cells, read_damaged
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import BadRecipeError
from training.foundation.words.counts import counted

Mask = NDArray[np.bool_]

MAX_PNG_BYTES, MAX_DECODED_BYTES = 2**28, 2**29
"""Size of a file, and of its pixels: 16,384 × 16,384 in grey."""
MAX_CELLS = 2**27
"""Cells of a mask: 128 MB."""
POINTS_AT_ONCE = 2**20
MAX_TIMES_COVERED = 30
"""Number of times the bounds of all areas may cover a slide: outlines drawn by people cover it a few times."""


def mask_grid(reader: StoreReader, config: TissueConfig) -> tuple[tuple[int, int], float]:
    """(rows, columns) of a slide's mask, and level-0 pixels along its cells.

    Raises:
        BadRecipeError: cells so small that the mask would take too much memory.
    """
    downsample = overview_downsample(reader.mpp0, config)
    columns, rows = (max(1, round(side_px / downsample)) for side_px in reader.size_wh_px0)
    if rows * columns > MAX_CELLS:
        raise BadRecipeError(
            f"slide {reader.slide_id}: a mask at {config.mpp:g} µm per cell has {rows * columns} cells; at most "
            f"{MAX_CELLS} are allowed. Give a larger mpp ([ingest.tissue], or --set mpp=8)."
        )
    return (rows, columns), downsample


def mask_of_regions(reader: StoreReader, regions: Sequence[Region], config: TissueConfig) -> tuple[Mask, float]:
    """The cells whose centre is in an area, and microns per cell; damaged parts of the slide's file are not tissue.

    Args:
        regions: level-0 pixels, on the slide.

    Raises:
        BadAnnotationError: areas overlap so often that it would take minutes.
        BadRecipeError: as `mask_grid`.
    """
    shape_yx, downsample = mask_grid(reader, config)
    polygons = [polygon for region in regions for polygon in shapely.get_parts(region.geometry)]
    _check_work(polygons, shape_yx, downsample, regions[0].where)
    mask_yx = np.zeros(shape_yx, bool)
    for polygon in polygons:
        _fill(mask_yx, polygon, downsample)
    return _without_damage(reader, mask_yx, downsample), downsample * reader.mpp0


def _check_work(polygons: Sequence[BaseGeometry], shape_yx: tuple[int, int], cell_px0: float, where: str) -> None:
    """Refuse areas that would test every cell of the mask over and over: each polygon tests those in its bounds."""
    left, top, right, bottom = shapely.bounds(polygons).T / cell_px0
    tested, cells = float(((right - left + 1) * (bottom - top + 1)).sum()), shape_yx[0] * shape_yx[1]
    if tested > MAX_TIMES_COVERED * cells + POINTS_AT_ONCE:
        raise BadAnnotationError(
            f"{where}: {counted(len(polygons), 'area')}, whose bounds together are {tested / cells:.0f} times the "
            f"slide; at most {MAX_TIMES_COVERED} are allowed. Merge overlapping areas, or choose some with --class."
        )


def _fill(mask_yx: Mask, polygon: BaseGeometry, cell_px0: float) -> None:
    """Set the cells whose centre is in a polygon."""
    left, top, right, bottom = polygon.bounds
    rows, columns = mask_yx.shape
    first_column, last_column = max(0, int(left / cell_px0)), min(columns, int(right / cell_px0) + 1)
    first_row, last_row = max(0, int(top / cell_px0)), min(rows, int(bottom / cell_px0) + 1)
    shapely.prepare(polygon)
    x_px0 = (np.arange(first_column, last_column) + 0.5) * cell_px0
    at_once = max(1, POINTS_AT_ONCE // max(1, len(x_px0)))
    for row in range(first_row, last_row, at_once):
        y_px0 = (np.arange(row, min(row + at_once, last_row)) + 0.5) * cell_px0
        inside = shapely.contains_xy(polygon, *np.meshgrid(x_px0, y_px0))
        mask_yx[row : row + len(y_px0), first_column:last_column] |= inside


def is_png(data: bytes) -> bool:
    """Whether a file's bytes begin like a PNG's."""
    return data.startswith(PNG_SIGNATURE)


def mask_of_png(reader: StoreReader, data: bytes, path: Path, config: TissueConfig) -> tuple[Mask, float]:
    """The cells that are at least half white in an image of the whole slide, and microns per cell.

    Args:
        data: the file's bytes. path: for messages.

    Raises:
        BadAnnotationError: not a readable PNG, not black and white, or of other proportions than the slide.
        BadRecipeError: as `mask_grid`.
    """
    shape_yx, downsample = mask_grid(reader, config)
    white_yx = _white(data, path)
    _check_proportions(reader, white_yx.shape, path)
    is_coarser = white_yx.shape[0] < shape_yx[0]
    share_yx = cv2.resize(
        white_yx.astype(np.float32), shape_yx[::-1], interpolation=cv2.INTER_NEAREST if is_coarser else cv2.INTER_AREA
    )
    mask_yx = np.asarray(share_yx >= 0.5 - 1e-6).reshape(shape_yx)
    return _without_damage(reader, mask_yx, downsample), downsample * reader.mpp0


def _white(data: bytes, path: Path) -> Mask:
    """Mask of an image's white pixels. Its size is checked before it is decoded."""
    try:
        width, height, decoded_bytes = png_size(data)
        if decoded_bytes > MAX_DECODED_BYTES:
            raise BadAnnotationError(
                f"{path}: has {width} × {height} pixels, which take {decoded_bytes / 2**20:.0f} MiB; at most "
                f"{MAX_DECODED_BYTES / 2**20:.0f} are read. Save it smaller: a pixel of 4 to 8 µm is enough."
            )
        values = decode_png(data)
    except DecodeError as error:
        raise BadAnnotationError(f"{path}: is not a readable PNG ({error!s:.200}). Save the mask again.") from error
    return _two_values(values, path)


def _two_values(values: NDArray[Any], path: Path) -> Mask:
    """Mask of an image: black is glass, any single other value is tissue. Transparent pixels are black."""
    channels = values.shape[2]
    colours = values[..., : channels - (channels in (2, 4))]
    is_white = colours.any(2)
    if channels in (2, 4):
        is_white &= values[..., -1] > 0
    whites = colours[is_white]
    if len(whites) and (whites != whites[0]).any():
        number = len(np.unique(whites.reshape(len(whites), -1), axis=0))
        raise BadAnnotationError(
            f"{path}: has {number} values besides black; a mask has one, for tissue. Save it in black and white, "
            "without smoothing at edges."
        )
    return np.asarray(is_white)


def _check_proportions(reader: StoreReader, shape_yx: tuple[int, ...], path: Path) -> None:
    """Refuse an image that cannot be one of the whole slide: its sides must fit one scale to within a pixel."""
    (width_px0, height_px0), (height, width) = reader.size_wh_px0, shape_yx[:2]
    least = max(width_px0 / (width + 1), height_px0 / (height + 1))
    most = min(width_px0 / max(0.5, width - 1), height_px0 / max(0.5, height - 1))
    if least > most:
        raise BadAnnotationError(
            f"{path}: is {width} × {height} pixels, slide {reader.slide_id} is {width_px0} × {height_px0}: other "
            "proportions, so it is not a mask of this whole slide. Export the mask of the whole image, from its corner."
        )


def _without_damage(reader: StoreReader, mask_yx: Mask, downsample: float) -> Mask:
    damaged = read_damaged(reader.path)
    if damaged is None:
        return mask_yx
    rows, columns = mask_yx.shape
    return mask_yx & ~damaged_cells(*damaged, (rows, columns), downsample)
