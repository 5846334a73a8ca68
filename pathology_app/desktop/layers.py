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

from pathology_app.desktop.colouring import attention_colours, mask_colours, prediction_colours, quality_colours
from pathology_app.desktop.slide import OpenedSlide
from pathology_app.html.attention import colour_limit
from pathology_app.html.text import as_text
from pipeline.palettes import DEFAULT_PALETTE
from pipeline.store import PredictionGrid, has_tissue, read_damaged, read_quality, read_tissue
from training.foundation.errors import GemslideError

Layer = tuple[Any, dict[str, Any], str]
"""Data, keyword arguments and kind, as returned by a napari reader."""

UNITS = ("micrometer", "micrometer")
PREDICTION_OPACITY = 0.6
OURS = "gemslide"
"""Key in a layer's `metadata` under which its identity is stored: `about_layer`."""
IMAGE, TISSUE, QUALITY, PREDICTION, ATTENTION, DAMAGED, RINGS, NOTES = (
    "image", "tissue", "quality", "prediction", "attention", "damaged", "hotspots", "annotations",
)  # fmt: skip
_TISSUE_COLOUR = "#009e73"


class CellsYx:
    """One class of a model's predictions as a lazy y,x array, float32; NaN: not predicted, or damaged."""

    ndim = 2
    dtype = np.dtype(np.float32)

    def __init__(self, slide: OpenedSlide, grid: PredictionGrid, index: int) -> None:
        self._slide, self._model_id, self._index = slide, grid.model_id, index
        self.shape: tuple[int, int] = grid.shape_yx
        self.size = math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> NDArray[np.float32]:
        return np.asarray(np.asarray(self)[key])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        predictions = self._slide.predictions(self._model_id)
        if predictions is None or predictions.probabilities_cyx.shape[1:] != self.shape:
            return np.full(self.shape, np.nan, dtype or self.dtype)
        return np.asarray(predictions.probabilities_cyx[self._index], dtype or self.dtype)


def slide_layers(store_path: Path) -> list[Layer]:
    """All layers of a slide, bottom to top: see `layers_of`.

    Raises:
        GemslideError: no store at this path, or a damaged one.
    """
    return layers_of(OpenedSlide(store_path))


def layers_of(slide: OpenedSlide) -> list[Layer]:
    """The slide, its tissue mask, its QC scores, every model's predictions or attention, and the damaged areas of its
    file.

    An overlay that cannot be read is reported (`OpenedSlide.tell`) and left out.
    """
    layers = [image_layer(slide)]
    for overlay in (tissue_layer, quality_layers, attention_layers, prediction_layers, damaged_layer):
        try:
            layers += overlay(slide)
        except GemslideError as error:
            slide.tell(str(error))
    return layers


def image_layer(slide: OpenedSlide) -> Layer:
    """The slide's pyramid, converted by the scanner's colour profile where it has one."""
    mpp0 = slide.reader.mpp0
    keywords = {"name": slide.slide_id, "rgb": True, "multiscale": True, **_frame(mpp0, mpp0)}
    return slide.pixels.arrays(as_scanned=False), keywords | about_layer(slide, IMAGE), "image"


def tissue_layer(slide: OpenedSlide) -> list[Layer]:
    """The tissue mask, hidden at first; none if the store has none.

    Raises:
        UnreadableError: the mask is damaged.
    """
    if not has_tissue(slide.path):
        return []
    mask_yx, mpp = read_tissue(slide.path)
    return [
        _mask_layer(slide, TISSUE, "tissue", mask_yx, mpp, opacity=0.3, visible=False, **mask_colours(_TISSUE_COLOUR))
    ]


def quality_layers(slide: OpenedSlide) -> list[Layer]:
    """One layer per measure of `gemslide qc`, hidden at first; none if the slide was never checked.

    Raises:
        UnreadableError: the scores are damaged.
    """
    quality = read_quality(slide.path)
    if quality is None:
        return []
    cell_um = quality.cell_px0 * slide.reader.mpp0
    layers = []
    for name, scores_yx in zip(quality.names, quality.scores_cyx.astype(np.float32), strict=True):
        title = f"quality: {as_text(name)} (cells of {cell_um:.0f} µm)"
        look = {"opacity": 0.7, "visible": False, **quality_colours()}
        layers.append(_mask_layer(slide, QUALITY, title, scores_yx, cell_um, **look))
    return layers


def damaged_layer(slide: OpenedSlide) -> list[Layer]:
    """Damaged areas of the slide's file, on top and shown; none if no damage is known.

    Raises:
        UnreadableError: the label itself is damaged or missing.
    """
    damaged = read_damaged(slide.path)
    if damaged is None:
        return []
    mask_yx, cell_px0 = damaged
    cell_um = cell_px0 * slide.reader.mpp0
    return [
        _mask_layer(
            slide, DAMAGED, "damaged in the file", mask_yx, cell_um, opacity=0.6, visible=True, **mask_colours()
        )
    ]


def prediction_layers(slide: OpenedSlide) -> list[Layer]:
    """One layer per model and class; one is shown at first. Cells not predicted are NaN and drawn clear."""
    shown = slide.shown_first()
    layers = []
    for model_id, grid in slide.grids.items():
        threshold = slide.hotspots(model_id).threshold
        cell_um = grid.stride_px0 * slide.reader.mpp0
        for index, class_name in enumerate(grid.class_names):
            keywords = {
                "name": f"P({as_text(class_name)}) {model_id}",
                "opacity": PREDICTION_OPACITY,
                "visible": (model_id, class_name) == shown,
                **prediction_colours(DEFAULT_PALETTE, threshold),
                **_cells(cell_um, slide.reader.mpp0),
                **about_layer(slide, PREDICTION, model_id=model_id, class_name=class_name),
            }
            layers.append((CellsYx(slide, grid, index), keywords, "image"))
    return layers


def attention_layers(slide: OpenedSlide) -> list[Layer]:
    """One layer per slide-level model, hidden at first: attention is no finding, and outlines no disease."""
    layers = []
    for model_id, attention in slide.attention.items():
        values_yx = attention.times_average_yx.astype(np.float32)
        cell_um = attention.stride_px0 * slide.reader.mpp0
        keywords = {
            "name": f"attention {model_id} (1 = average)",
            "opacity": PREDICTION_OPACITY,
            "visible": False,
            **attention_colours(colour_limit(attention.times_average_yx)),
            **_cells(cell_um, slide.reader.mpp0),
            **about_layer(slide, ATTENTION, model_id=model_id),
        }
        layers.append((values_yx, keywords, "image"))
    return layers


def about_layer(slide: OpenedSlide, role: str, **more: str) -> dict[str, Any]:
    """Metadata that identifies a layer in a viewer."""
    return {"metadata": {OURS: {"slide": slide, "role": role, **more}}}


def _mask_layer(
    slide: OpenedSlide, role: str, name: str, cells_yx: NDArray[Any], cell_um: float, **keywords: Any
) -> Layer:
    frame = _cells(cell_um, slide.reader.mpp0)
    return cells_yx, {"name": name, **keywords, **frame, **about_layer(slide, role)}, "image"


def _cells(cell_um: float, mpp0: float) -> dict[str, Any]:
    look = {"rgb": False, "interpolation2d": "nearest", "blending": "translucent_no_depth"}
    return look | _frame(cell_um, mpp0)


def _frame(cell_um: float, mpp0: float) -> dict[str, Sequence[Any]]:
    """Scale, translation and units of square cells, the first of which begins where the slide's first pixel begins."""
    offset_um = (cell_um - mpp0) / 2
    return {"scale": (cell_um, cell_um), "translate": (offset_um, offset_um), "units": UNITS}
