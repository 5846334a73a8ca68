"""Predictions as a pyramidal OME-TIFF: one float32 plane per class, one pixel per cell, NaN = not predicted."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree

import numpy as np
import tifffile
from numpy.typing import NDArray

from pipeline.export.common.target import new_file
from pipeline.export.tiff.ome_xml import heatmap_xml
from pipeline.slides.common.damage import library_errors
from pipeline.store.layers.overlays import Predictions, nan_pyramid
from pipeline.units import RESEARCH_USE

HEATMAP_TILE_PX = 256
_TIFFFILE_ERRORS = (
    tifffile.TiffFileError, OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError,
    MemoryError, struct.error, zlib.error, ElementTree.ParseError,
)  # fmt: skip
"""Errors that tifffile raises on inconsistent files."""


def write_ome_heatmap(path: Path, slide_id: str, predictions: Predictions, *, mpp0: float) -> None:
    """Write the planes; coarser levels, in SubIFDs, average the predicted cells.

    The pixel size is that of a cell, in micrometres. Values are unchanged: half precision fits in float32.

    Raises:
        DiskFullError: no space, or not writable. LockedError: another process is writing the same file.
    """
    with new_file(path) as stream:
        _write(stream, slide_id, predictions, predictions.stride_px0 * mpp0)


def _write(stream: BinaryIO, slide_id: str, predictions: Predictions, cell_um: float) -> None:
    pyramid = nan_pyramid(predictions.probabilities_cyx)
    _, rows, columns = pyramid[0].shape
    description = f"Probabilities of {predictions.model_id}. {RESEARCH_USE}"
    xml = heatmap_xml(slide_id, description, predictions.class_names, columns, rows, cell_um)
    with tifffile.TiffWriter(stream, bigtiff=True) as tiff:
        for index in range(len(predictions.class_names)):
            for level, values_cyx in enumerate(pyramid):
                per_cm = 1e4 / (cell_um * 2**level)
                tiff.write(
                    _tiles(values_cyx[index]),
                    shape=values_cyx.shape[1:],
                    dtype=np.float32,
                    tile=(HEATMAP_TILE_PX, HEATMAP_TILE_PX),
                    photometric="minisblack",
                    compression="deflate",
                    subifds=0 if level else len(pyramid) - 1,
                    subfiletype=1 if level else 0,
                    description=xml if index == level == 0 else None,
                    resolution=(per_cm, per_cm),
                    resolutionunit="CENTIMETER",
                    metadata=None,
                    software=False,
                )


def _tiles(values_yx: NDArray[np.float16]) -> Iterator[NDArray[np.float32]]:
    """Tiles row by row, padded with NaN beyond the last cell."""
    rows, columns = values_yx.shape
    for row in range(0, rows, HEATMAP_TILE_PX):
        for column in range(0, columns, HEATMAP_TILE_PX):
            part = values_yx[row : row + HEATMAP_TILE_PX, column : column + HEATMAP_TILE_PX]
            tile = np.full((HEATMAP_TILE_PX, HEATMAP_TILE_PX), np.nan, np.float32)
            tile[: part.shape[0], : part.shape[1]] = part
            yield tile


def read_ome_heatmap(path: Path) -> tuple[NDArray[np.float32], float]:
    """The finest planes, (classes, rows, columns), and micrometres per pixel.

    Raises:
        DamagedFileError: not such an OME-TIFF, or cut short.
    """
    with library_errors(_TIFFFILE_ERRORS):
        with tifffile.TiffFile(path) as tiff:
            series = tiff.series[0]
            values = series.asarray()
            pixels = tifffile.xml2dict(tiff.ome_metadata or "")["OME"]["Image"]["Pixels"]
        cell_um = float(pixels["PhysicalSizeX"])
        return np.asarray(values, np.float32).reshape(-1, *values.shape[-2:]), cell_um
