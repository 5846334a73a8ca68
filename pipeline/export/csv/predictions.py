"""Predictions as CSV, one row per tile, with WSInfer's column names."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from pipeline.export.common.cells import cell_blocks, corners_px0
from pipeline.export.common.target import new_file
from pipeline.store.layers.overlays import Predictions

CORNER_COLUMNS = ("minx", "miny", "width", "height")


def write_csv(path: Path, slide_id: str, predictions: Predictions) -> None:
    """Write slide_id, minx, miny, width, height (whole level-0 pixels), prob_<class>… (four decimals), in row order.

    Raises:
        DiskFullError: no space, or not writable. LockedError: another process is writing the same file.
    """
    side = str(round(predictions.side_px0))
    with new_file(path) as stream:
        stream.write(_line("slide_id", *CORNER_COLUMNS, *(f"prob_{name}" for name in predictions.class_names)))
        for block in cell_blocks(predictions):
            xs, ys = (
                map(str, corners_px0(indices, predictions.stride_px0).tolist())
                for indices in (block.columns, block.rows)
            )
            texts = [block.texts_of_class(index, "{:.4f}".format) for index in range(len(predictions.class_names))]
            rows = zip(xs, ys, *texts, strict=True)
            lines = [f"{slide_id},{x},{y},{side},{side},{','.join(values)}\n" for x, y, *values in rows]
            stream.write("".join(lines).encode())


def _line(*cells: str) -> bytes:
    """One line with quoting, since class names may hold commas and quotation marks; slide ids and numbers do not."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()
