"""Cells that reach the threshold as QuPath annotations: one polygon, with its holes, per connected area and class.

Polygons follow the cells' edges, so a polygon's area is that of its cells. Cells that touch only at a corner belong to
different polygons, since a joint polygon would not be valid.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy import ndimage

from pipeline.annotations.formats.geojson import COLOURS, classification, feature
from pipeline.export.qupath.collection import write_collection
from pipeline.export.qupath.predictions import object_id
from pipeline.store.layers.overlays import Predictions

_BLOCK = 1024


def write_contours(
    path: Path,
    predictions: Predictions,
    source_sha256: str,
    class_names: Sequence[str],
    *,
    mpp0: float,
    threshold: float,
    origin_xy0: tuple[int, int] = (0, 0),
) -> None:
    """Write a FeatureCollection of annotations with area and probabilities as measurements.

    Args:
        class_names: classes to outline.
        threshold: probability at or above which a cell belongs to an area.
        origin_xy0: origin of QuPath's coordinates (`qupath_origin_xy0`).

    Raises:
        DiskFullError: no space, or not writable. LockedError: another process is writing the same file.
    """
    cell_um2 = (predictions.stride_px0 * mpp0) ** 2

    def blocks() -> Iterator[list[str]]:
        for name in class_names:
            features = _features(predictions, source_sha256, name, threshold, cell_um2, origin_xy0)
            lines = [json.dumps(item, allow_nan=False) for item in features]
            yield from (lines[start : start + _BLOCK] for start in range(0, len(lines), _BLOCK))

    write_collection(path, blocks())


def cells_above(predictions: Predictions, class_name: str, threshold: float) -> NDArray[np.bool_]:
    """Mask of cells where a class reaches the threshold, bool (rows, columns)."""
    probability_yx = predictions.probabilities_cyx[predictions.class_names.index(class_name)].astype(np.float32)
    return np.asarray(np.nan_to_num(probability_yx, nan=-1.0) >= threshold)


def outlines(mask_yx: NDArray[np.bool_]) -> list[shapely.Polygon]:
    """Valid polygons around the cells of a mask; coordinates are cell corners, x to the right and y down."""
    rows, columns = np.nonzero(mask_yx)
    if not len(rows):
        return []
    merged = shapely.coverage_union_all(shapely.box(columns, rows, columns + 1, rows + 1))
    # Corners between cells on a straight edge are redundant.
    return [shapely.simplify(part, 0) for part in shapely.get_parts(merged)]


def _features(
    predictions: Predictions,
    source_sha256: str,
    name: str,
    threshold: float,
    cell_um2: float,
    origin_xy0: tuple[int, int],
) -> Iterator[dict[str, Any]]:
    index = predictions.class_names.index(name)
    mask_yx = cells_above(predictions, name, threshold)
    polygons = outlines(mask_yx)
    if not polygons:
        return
    probability_yx = np.nan_to_num(predictions.probabilities_cyx[index].astype(np.float32))
    labels, count = ndimage.label(mask_yx)
    numbers = np.arange(1, count + 1)
    sizes = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    means = ndimage.mean(probability_yx, labels, numbers)
    highest = ndimage.maximum(probability_yx, labels, numbers)
    inside = shapely.get_coordinates(shapely.point_on_surface(polygons)).astype(np.int64)
    area_of = labels[inside[:, 1], inside[:, 0]] - 1
    for polygon, area in sorted(zip(polygons, area_of.tolist(), strict=True), key=lambda pair: pair[1]):
        yield feature(
            {"type": "Polygon", "coordinates": _rings(polygon, predictions.stride_px0, origin_xy0)},
            object_id(source_sha256, predictions.model_id, "contour", index, threshold, area),
            "annotation",
            is_locked=True,
            classification=classification(name, COLOURS[index % len(COLOURS)]),
            measurements={
                "mean probability": round(float(means[area]), 4),
                "max probability": round(float(highest[area]), 4),
                "area µm^2": round(float(sizes[area]) * cell_um2, 1),
            },
            metadata={
                "slide_sha256": source_sha256,
                "model": predictions.model_id,
                "threshold": repr(threshold),
            },
        )


def _rings(polygon: shapely.Polygon, stride_px0: float, origin_xy0: tuple[int, int]) -> list[list[list[float]]]:
    """Exterior and holes in QuPath's pixels; the exterior counterclockwise in GeoJSON's sense (RFC 7946, 3.1.6)."""
    turned = shapely.geometry.polygon.orient(polygon)
    return [
        (shapely.get_coordinates(ring) * stride_px0 - origin_xy0).tolist()
        for ring in (turned.exterior, *turned.interiors)
    ]
