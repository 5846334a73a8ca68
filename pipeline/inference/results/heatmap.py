"""An image of the predictions over the slide's thumbnail, with scale bar and colour bar."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pipeline.codecs.types import Pixels
from pipeline.export.common.cells import fingerprint
from pipeline.files import write_bytes_atomic
from pipeline.palettes import DEFAULT_PALETTE, colours
from pipeline.store.layers.overlays import Predictions
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.render import damage_stripes
from pipeline.units import RESEARCH_USE
from training.foundation.reading import read_regular

THUMBNAIL_PX = 1400
COLOUR_MAP = ListedColormap(colours(DEFAULT_PALETTE, 256), DEFAULT_PALETTE)
FINGERPRINT_KEY = "predictions_sha256"
"""Key of a text in the PNG (tEXt) that identifies its array, see `pipeline.export.common.cells.fingerprint`."""
MAX_PNG_BYTES = 64 * 2**20
_PNG_HEAD = b"\x89PNG\r\n\x1a\n"
_LONG_IN, _MARGIN_IN, _TITLE_IN, _BAR_IN, _MIN_WIDTH_IN = 9.0, 0.15, 0.65, 1.0, 6.4
"""Inches: the slide's longer side, and the space around it; a title fits into the smallest width."""
_MARK = {"boxstyle": "circle,pad=0.2", "facecolor": "white", "edgecolor": "black", "linewidth": 0.8, "alpha": 0.9}
_DPI = 130
_COMPRESSION = 4
"""PNG level: twice as fast as the usual 6, with files a twentieth larger."""


def write_heatmap(path: Path, reader: StoreReader, image: Pixels, predictions: Predictions, class_name: str) -> None:
    """Write the heatmap of one class as PNG. The colour's strength follows the probability, so tissue stays visible.

    Damaged areas of the slide's file are striped.

    Args:
        image: the slide's thumbnail, read once for all classes.
    """
    write_bytes_atomic(path, heatmap_png(reader, image, predictions, class_name))


def heatmap_png(
    reader: StoreReader,
    image: Pixels,
    predictions: Predictions,
    class_name: str,
    *,
    long_in: float = _LONG_IN,
    with_title: bool = True,
    marks_xy0: Sequence[tuple[int, int]] = (),
) -> bytes:
    """The heatmap of one class.

    Args:
        image: the slide's thumbnail.
        long_in: inches of the slide's longer side, of 130 pixels each.
        with_title: show slide, class, model and the line about research use; otherwise the page around it must.
        marks_xy0: positions to number from 1, in level-0 pixels.
    """
    # A figure without pyplot: nothing is global, and several threads may draw.
    figure, axes, bar_axes = _figure(*reader.size_wh_px0, long_in, _TITLE_IN if with_title else _MARGIN_IN)
    _draw(axes, reader, image, predictions, class_name)
    for number, mark_xy0 in enumerate(marks_xy0, start=1):
        axes.annotate(str(number), mark_xy0, fontsize=8, ha="center", va="center", bbox=_MARK)
    mappable = ScalarMappable(norm=Normalize(0, 1), cmap=COLOUR_MAP)
    figure.colorbar(mappable, cax=bar_axes).set_label(f"probability of {class_name!r}".replace("$", r"\$"))
    if with_title:
        title = f"{reader.slide_id}: probability of {class_name!r}, {predictions.model_id}\n{RESEARCH_USE}"
        figure.text(0.5, 1 - 0.12 / figure.get_figheight(), title, ha="center", va="top", fontsize=9, parse_math=False)
    buffer = BytesIO()
    figure.savefig(
        buffer,
        format="png",
        dpi=_DPI,
        metadata={"Description": RESEARCH_USE, FINGERPRINT_KEY: fingerprint(predictions)},
        pil_kwargs={"compress_level": _COMPRESSION},
    )
    return buffer.getvalue()


def _figure(width_px0: int, height_px0: int, long_in: float, top_in: float) -> tuple[Figure, Axes, Axes]:
    """A figure laid out by hand: matplotlib's own layouts draw everything two or three times."""
    scale = long_in / max(width_px0, height_px0)
    width_in, height_in = max(0.5, scale * width_px0), max(0.5, scale * height_px0)
    whole_w = max(_MIN_WIDTH_IN, width_in + _BAR_IN + 2 * _MARGIN_IN)
    whole_h = height_in + top_in + _MARGIN_IN
    figure = Figure(figsize=(whole_w, whole_h), dpi=_DPI)
    FigureCanvasAgg(figure)
    left = (whole_w - width_in - _BAR_IN) / 2
    axes = figure.add_axes((left / whole_w, _MARGIN_IN / whole_h, width_in / whole_w, height_in / whole_h))
    bar_left, bar_height = left + width_in + 0.2, min(height_in, 5.0)
    bar_bottom = _MARGIN_IN + (height_in - bar_height) / 2
    bar = figure.add_axes((bar_left / whole_w, bar_bottom / whole_h, 0.18 / whole_w, bar_height / whole_h))
    return figure, axes, bar


def _draw(axes: Axes, reader: StoreReader, image: Pixels, predictions: Predictions, class_name: str) -> None:
    width_px0, height_px0 = reader.size_wh_px0
    probability_yx = predictions.probabilities_cyx[predictions.class_names.index(class_name)].astype(np.float32)
    rows, columns = probability_yx.shape
    axes.imshow(image, extent=(0, width_px0, height_px0, 0), interpolation="bilinear", aspect="auto")
    colours_yxc = COLOUR_MAP(np.nan_to_num(probability_yx), bytes=True)
    strength = np.where(np.isfinite(probability_yx), 0.15 + 0.6 * np.nan_to_num(probability_yx), 0)
    colours_yxc[..., 3] = np.round(255 * strength)
    axes.imshow(
        colours_yxc,
        extent=(0, columns * predictions.stride_px0, rows * predictions.stride_px0, 0),
        interpolation="nearest",
        aspect="auto",
    )
    stripes = damage_stripes(reader, THUMBNAIL_PX)
    if stripes is not None:
        axes.imshow(stripes, extent=(0, width_px0, height_px0, 0), interpolation="nearest", aspect="auto")
    axes.set(xlim=(0, width_px0), ylim=(height_px0, 0), xticks=[], yticks=[])
    _scale_bar(axes, width_px0, height_px0, reader.mpp0)


def _scale_bar(axes: Axes, width_px0: int, height_px0: int, mpp0: float) -> None:
    length_um = round_length_um(width_px0 * mpp0 / 5)
    length_px0 = length_um / mpp0
    margin, thick = 0.02 * max(width_px0, height_px0), 0.006 * max(width_px0, height_px0)
    left, top = width_px0 - margin - length_px0, height_px0 - margin - thick
    back = (left - margin / 2, top - 2.2 * margin)
    axes.add_patch(Rectangle(back, length_px0 + margin, thick + 2.7 * margin, color="white", alpha=0.85, lw=0))
    axes.add_patch(Rectangle((left, top), length_px0, thick, color="black", lw=0))
    text = f"{length_um:g} µm" if length_um < 1000 else f"{length_um / 1000:g} mm"
    axes.text(left + length_px0 / 2, top - margin / 3, text, ha="center", va="bottom", fontsize=9)


def round_length_um(at_most_um: float) -> float:
    """The largest of 1, 2, 5 · 10^n that is not longer."""
    power = 10.0 ** np.floor(np.log10(at_most_um))
    return float(max(step * power for step in (1, 2, 5) if step * power <= at_most_um))


def shown_fingerprint(path: Path) -> str | None:
    """Fingerprint of the array that a heatmap's file states; None: not stated.

    Raises:
        OSError: it cannot be read. ValueError: not a PNG, or truncated.
    """
    data = read_regular(path, max_bytes=MAX_PNG_BYTES)
    if not data.startswith(_PNG_HEAD):
        raise ValueError("is not a PNG")
    at, stated = len(_PNG_HEAD), None
    while data[at + 4 : at + 8] != b"IEND":
        if at + 12 > len(data):
            raise ValueError("is truncated")
        (length,) = struct.unpack(">L", data[at : at + 4])
        key, _, text = data[at + 8 : at + 8 + length].partition(b"\0")
        if data[at + 4 : at + 8] == b"tEXt" and key == FINGERPRINT_KEY.encode():
            stated = text.decode("latin-1")
        at += 12 + length
    return stated
