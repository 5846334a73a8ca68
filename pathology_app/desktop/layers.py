"""A slide store as napari layers: plain data, no Qt, no napari.

World coordinates are micrometres; the centre of the slide's first pixel is at 0, as in the store's own metadata.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.store.damaged import read_damaged
from pipeline.store.labels import has_tissue, read_tissue
from pipeline.store.overlays import Predictions, list_predictions, read_predictions
from pipeline.store.reader import LevelArray, StoreReader

Layer = tuple[Any, dict[str, Any], str]
"""Data, keyword arguments, kind: what a napari reader returns."""

UNITS = ("micrometer", "micrometer")
PREDICTION_OPACITY = 0.6

# Clear up to 0.3, then yellow to red: tissue of low probability is neither tinted nor darkened.
_COLOURS_RGBA = np.array(
    [(1.0, 1.0, 0.0, 0.0)] * 4 + [(1.0, 1.0 - step / 6, 0.0, 0.4 + step / 10) for step in range(7)], np.float32
)

_DAMAGED_COLOURS = {None: (0.0, 0.0, 0.0, 0.0), 1: (0.0, 0.35, 1.0, 1.0)}
"""No colour of stained tissue, nor of predictions."""


class LevelYxc:
    """A level of the store as a lazy y,x,c array: napari reads only what it shows.

    The store's arrays are c,y,x, which napari cannot show as RGB.
    """

    ndim = 3
    dtype = np.dtype(np.uint8)

    def __init__(self, reader: StoreReader, level: LevelArray) -> None:
        self._reader = reader
        self._level = level
        self.shape = (level.height_px, level.width_px, 3)
        self.size = math.prod(self.shape)
        self.chunks = (level.chunk_px, level.chunk_px, 3)

    def __len__(self) -> int:
        return self._level.height_px

    def __getitem__(self, key: Any) -> NDArray[np.uint8]:
        keys = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            keys[at : at + 1] = [slice(None)] * (self.ndim + 1 - len(keys))
        keys += [slice(None)] * (self.ndim - len(keys))
        (top, height, rows), (left, width, columns) = (
            _span(part, size) for part, size in zip(keys[:2], self.shape[:2], strict=True)
        )
        region = self._reader.read_region(self._level.level, Box(left, top, width, height))
        return region[rows, columns, keys[2]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)


def _span(key: slice | int, size: int) -> tuple[int, int, slice | int]:
    """What to read for an index into an axis: start, length, and the index into what was read."""
    if isinstance(key, slice):
        start, stop, step = key.indices(size)
        if step < 1:
            raise IndexError(f"slices of a slide go forward, got a step of {step}")
        return start, max(0, stop - start), slice(None, None, step)
    index = range(size)[int(key)]
    return index, 1, 0


def slide_layers(store_path: Path) -> list[Layer]:
    """The slide, its tissue mask, every model's predictions, and what is damaged in its file, bottom to top.

    Raises:
        GemslideError: no store there, or a damaged one.
    """
    reader = StoreReader(store_path)
    layers = [image_layer(reader)]
    if (tissue := tissue_layer(store_path, reader.mpp0)) is not None:
        layers.append(tissue)
    for model_id in list_predictions(store_path):
        layers += prediction_layers(read_predictions(store_path, model_id), reader.mpp0)
    if (damaged := damaged_layer(store_path, reader.mpp0)) is not None:
        layers.append(damaged)
    return layers


def image_layer(reader: StoreReader) -> Layer:
    """The slide's pyramid, as scanned: an ICC profile is not applied."""
    levels = [LevelYxc(reader, level) for level in reader.levels]
    keywords = {"name": reader.slide_id, "rgb": True, "multiscale": True, **_frame(reader.mpp0, reader.mpp0)}
    return levels, keywords, "image"


def tissue_layer(store_path: Path, mpp0: float) -> Layer | None:
    """The tissue mask, hidden at first; None when the store has none.

    Raises:
        UnreadableError: the mask is damaged.
    """
    if not has_tissue(store_path):
        return None
    mask_yx, mpp = read_tissue(store_path)
    return mask_yx, {"name": "tissue", "opacity": 0.3, "visible": False, **_frame(mpp, mpp0)}, "labels"


def damaged_layer(store_path: Path, mpp0: float) -> Layer | None:
    """What is damaged in the slide's file, on top and shown; None where no damage is known.

    Raises:
        UnreadableError: the label is damaged itself, or missing.
    """
    found = read_damaged(store_path)
    if found is None:
        return None
    mask_yx, cell_px0 = found
    keywords = {"name": "damaged in the file", "opacity": 0.6, "colormap": _DAMAGED_COLOURS, "visible": True}
    return mask_yx, {**keywords, **_frame(cell_px0 * mpp0, mpp0)}, "labels"


def prediction_layers(predictions: Predictions, mpp0: float) -> list[Layer]:
    """One layer per class; only the last class is shown at first. Cells that were not predicted are NaN: clear."""
    frame = _frame(predictions.stride_px0 * mpp0, mpp0)
    shown = len(predictions.class_names) - 1
    return [
        (
            np.asarray(predictions.probabilities_cyx[index], np.float32),
            {
                "name": f"P({class_name}) {predictions.model_id}",
                "colormap": {"name": "gemslide", "colors": _COLOURS_RGBA},
                "contrast_limits": (0.0, 1.0),
                "interpolation2d": "nearest",
                "blending": "translucent_no_depth",
                "opacity": PREDICTION_OPACITY,
                "visible": index == shown,
                **frame,
            },
            "image",
        )
        for index, class_name in enumerate(predictions.class_names)
    ]


def _frame(cell_um: float, mpp0: float) -> dict[str, Sequence[Any]]:
    """Scale, translation and units of square cells whose first begins where the slide's first pixel begins."""
    offset_um = (cell_um - mpp0) / 2
    return {"scale": (cell_um, cell_um), "translate": (offset_um, offset_um), "units": UNITS}
