"""An image of the predictions over the slide's thumbnail, with scale bar and colour bar."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from pipeline.codecs.types import Pixels
from pipeline.files import write_bytes_atomic
from pipeline.store.overlays import Predictions
from pipeline.store.reader import StoreReader
from pipeline.units import RESEARCH_USE

THUMBNAIL_PX = 1400
COLOUR_MAP = "inferno"


def write_heatmap(path: Path, reader: StoreReader, image: Pixels, predictions: Predictions, class_name: str) -> None:
    """Write the heatmap of one class as PNG. The colour's strength follows the probability, so tissue stays visible.

    Args:
        image: the slide's thumbnail, read once for all classes.
    """
    width_px0, height_px0 = reader.size_wh_px0
    probability_yx = predictions.probabilities_cyx[predictions.class_names.index(class_name)].astype(np.float32)
    rows, columns = probability_yx.shape
    figure, axes = plt.subplots(figsize=(10, 10 * height_px0 / width_px0 + 0.9), dpi=130, layout="constrained")
    axes.imshow(image, extent=(0, width_px0, height_px0, 0), interpolation="bilinear")
    overlay = axes.imshow(
        np.ma.masked_invalid(probability_yx),
        extent=(0, columns * predictions.stride_px0, rows * predictions.stride_px0, 0),
        cmap=COLOUR_MAP,
        vmin=0,
        vmax=1,
        alpha=np.where(np.isfinite(probability_yx), 0.15 + 0.6 * np.nan_to_num(probability_yx), 0),
        interpolation="nearest",
    )
    axes.set(xlim=(0, width_px0), ylim=(height_px0, 0), xticks=[], yticks=[])
    axes.set_title(
        f"{reader.slide_id}: probability of {class_name!r}, {predictions.model_id}\n{RESEARCH_USE}", fontsize=9
    )
    _scale_bar(axes, width_px0, height_px0, reader.mpp0)
    bar = figure.colorbar(plt.cm.ScalarMappable(norm=overlay.norm, cmap=COLOUR_MAP), ax=axes, shrink=0.8)
    bar.set_label(f"probability of {class_name!r}")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", metadata={"Description": RESEARCH_USE})
    plt.close(figure)
    write_bytes_atomic(path, buffer.getvalue())


def _scale_bar(axes: Axes, width_px0: int, height_px0: int, mpp0: float) -> None:
    length_um = round_length_um(width_px0 * mpp0 / 5)
    length_px0 = length_um / mpp0
    margin, thick = 0.02 * width_px0, 0.006 * width_px0
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
