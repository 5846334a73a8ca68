"""Predictions for QuPath: one locked tile object per cell, classified by its likeliest class.

Coordinates are level-0 pixels from QuPath's origin. QuPath handles many objects better as tiles than as annotations.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.annotations.formats.geojson import COLOURS, classification, feature
from pipeline.export.common.cells import CellBlock, cell_blocks
from pipeline.export.qupath.collection import write_collection
from pipeline.store.layers.overlays import Predictions

_NAMESPACE = uuid.UUID("6f1a3c52-0d0e-5b7e-9f6d-2a4f6a2f7c11")


def write_geojson(
    path: Path, predictions: Predictions, source_sha256: str, *, origin_xy0: tuple[int, int] = (0, 0)
) -> None:
    """Write a FeatureCollection, one feature per line; probabilities have four decimals.

    Args:
        origin_xy0: origin of QuPath's coordinates (`qupath_origin_xy0`).

    Raises:
        DiskFullError: no space, or not writable. LockedError: another process is writing the same file.
    """
    template = _Template(predictions, source_sha256)
    write_collection(path, (template.lines(block, origin_xy0) for block in cell_blocks(predictions)))


def object_id(source_sha256: str, *parts: object) -> str:
    """UUID of an object, the same for the same prediction, so that QuPath replaces instead of duplicating it."""
    return str(uuid.uuid5(_NAMESPACE, "/".join((source_sha256, *map(str, parts)))))


class _Template:
    """The JSON of a tile of each class, made once by `json`, with placeholders for what differs between tiles.

    Filling placeholders is ten times as fast as having `json` write each of a hundred thousand features.
    """

    def __init__(self, predictions: Predictions, source_sha256: str) -> None:
        self._predictions, self._source_sha256 = predictions, source_sha256
        names = predictions.class_names
        # No class name can hold the hash of all of them.
        self._hole = hashlib.sha256(json.dumps(names).encode()).hexdigest()
        self._of_class = [self._for(index) for index in range(len(names))]

    def _for(self, index: int) -> str:
        name, left, top, right, bottom = self._predictions.class_names[index], *(f"{self._hole}{n}" for n in range(4))
        corners = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
        whole = feature(
            {"type": "Polygon", "coordinates": [corners]},
            f"{self._hole}id",
            "tile",
            is_locked=True,
            classification=classification(name, COLOURS[index % len(COLOURS)]),
            measurements={
                f"prob_{name}": f"{self._hole}prob{number}" for number, name in enumerate(self._predictions.class_names)
            },
            metadata={"slide_sha256": self._source_sha256, "model": self._predictions.model_id},
        )
        return self._with_holes(whole)

    def _with_holes(self, whole: dict[str, Any]) -> str:
        """Format string for %: the id (with quotation marks), the ten coordinates, the probabilities."""
        text = json.dumps(whole, allow_nan=False).replace("%", "%%").replace(f'"{self._hole}id"', '"%s"')
        for number in range(4):
            text = text.replace(f'"{self._hole}{number}"', "%s")
        for number in range(len(self._predictions.class_names)):
            text = text.replace(f'"{self._hole}prob{number}"', "%s")
        return text

    def lines(self, block: CellBlock, origin_xy0: tuple[int, int]) -> list[str]:
        """The features, one per line, cell by cell."""
        predictions = self._predictions
        stride, side = predictions.stride_px0, predictions.side_px0
        left, right = _edges(block.columns.tolist(), stride, side, origin_xy0[0])
        top, bottom = _edges(block.rows.tolist(), stride, side, origin_xy0[1])
        best = block.probabilities_kn.argmax(0).tolist()
        texts = [block.texts_of_class(k, _four_decimals) for k in range(len(predictions.class_names))]
        prefix = f"{self._source_sha256}/{predictions.model_id}/"
        return [
            self._of_class[k]
            % (
                uuid.uuid5(_NAMESPACE, f"{prefix}{row}/{column}"),
                *(x0, y0, x1, y0, x1, y1, x0, y1, x0, y0),
                *probabilities,
            )
            for k, row, column, x0, y0, x1, y1, *probabilities in zip(
                best, block.rows.tolist(), block.columns.tolist(), left, top, right, bottom, *texts, strict=True
            )
        ]


def _four_decimals(value: float) -> str:
    return repr(round(value, 4))


def _edges(
    indices: Sequence[int], stride_px0: float, side_px0: float, origin_px0: int
) -> tuple[Iterator[str], Iterator[str]]:
    """Near and far edges of cells along one axis, as text."""
    near = {index: float(index * stride_px0) - origin_px0 for index in set(indices)}
    texts = {index: (repr(edge), repr(edge + side_px0)) for index, edge in near.items()}
    return (texts[index][0] for index in indices), (texts[index][1] for index in indices)
