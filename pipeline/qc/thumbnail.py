"""An image of the slide with its tissue outlined and every cell above a threshold coloured."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import cv2
import matplotlib

from training.foundation.words.counts import counted

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pipeline.files import write_bytes_atomic
from pipeline.store.layers.labels import read_tissue
from pipeline.store.layers.qc_scores import Quality
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.render import DAMAGED_COLOUR, damage_stripes, thumbnail
from pipeline.units import RESEARCH_USE

THUMBNAIL_PX = 1400
COLOURS = {"pen": "#00c8ff", "bubble": "#34c759", "fold": "#ff3b30", "blur": "#ffd000"}
"""A cell with several faults has the colour of the first."""
TISSUE_COLOUR = "black"
_COMPRESSION = 4
"""PNG level: twice as fast as the usual 6, with files a twentieth larger."""


def write_thumbnail(path: Path, reader: StoreReader, quality: Quality, summary: dict[str, Any]) -> None:
    """Write the image as PNG.

    Args:
        summary: the slide's `qc`, for thresholds, shares and the verdict.
    """
    width_px0, height_px0 = reader.size_wh_px0
    figure, axes = plt.subplots(figsize=(10, 10 * height_px0 / width_px0 + 1.4), dpi=130, layout="constrained")
    axes.imshow(thumbnail(reader, THUMBNAIL_PX), extent=(0, width_px0, height_px0, 0), interpolation="bilinear")
    mask_yx, mask_mpp = read_tissue(reader.path)
    shrink = max(1.0, max(mask_yx.shape) / THUMBNAIL_PX)
    height, width = (max(2, round(n / shrink)) for n in mask_yx.shape)
    covered = cv2.resize(mask_yx * np.uint8(255), (width, height), interpolation=cv2.INTER_AREA)
    if covered.min() < 128 <= covered.max():
        rows, columns = (
            (np.arange(n) + 0.5) * mask_mpp / reader.mpp0 * whole / n
            for n, whole in zip((height, width), mask_yx.shape, strict=True)
        )
        axes.contour(columns, rows, covered, levels=[127.5], colors=TISSUE_COLOUR, linewidths=0.7)
    handles: list[Patch | Line2D] = [Line2D([], [], color=TISSUE_COLOUR, linewidth=1, label="tissue")]
    _, rows_c, columns_c = quality.scores_cyx.shape
    extent = (0, columns_c * quality.cell_px0, rows_c * quality.cell_px0, 0)
    overlay = np.zeros((rows_c, columns_c, 4))
    for name in reversed(COLOURS):  # the first one is on top
        scores = quality.scores_cyx[quality.names.index(name)].astype(np.float32)
        entry = summary["scores"][name]
        overlay[np.nan_to_num(scores, nan=0.0) > entry["threshold"]] = to_rgba(COLOURS[name], 0.5)
        share = "not judged" if entry["share_above"] is None else f"{entry['share_above']:.1%} of the tissue"
        label = f"{name} above {entry['threshold']:g}: {share}"
        handles.append(Patch(color=to_rgba(COLOURS[name], 0.5), label=label))
    axes.imshow(overlay, extent=extent, interpolation="nearest")
    handles[1:] = handles[:0:-1]
    stripes = damage_stripes(reader, THUMBNAIL_PX)
    if stripes is not None:
        axes.imshow(stripes, extent=(0, width_px0, height_px0, 0), interpolation="nearest")
        damaged = f"damaged in the slide's file: {counted(reader.attributes.damaged_tiles, 'tile')}"
        handles.append(Patch(facecolor="none", edgecolor=DAMAGED_COLOUR, hatch="////", linewidth=0, label=damaged))
    axes.set(xlim=(0, width_px0), ylim=(height_px0, 0), xticks=[], yticks=[])
    verdict = ": ".join([summary["verdict"], *(["; ".join(summary["reasons"])] if summary["reasons"] else [])])
    axes.set_title(f"{reader.slide_id}: {verdict}\n{RESEARCH_USE}", fontsize=9, wrap=True)
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    buffer = BytesIO()
    figure.savefig(
        buffer,
        format="png",
        bbox_inches="tight",
        metadata={"Description": RESEARCH_USE},
        pil_kwargs={"compress_level": _COMPRESSION},
    )
    plt.close(figure)
    write_bytes_atomic(path, buffer.getvalue())
