"""CAMELYON16's files, written and read: candidates of each slide, and one probability per slide."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pipeline.errors import BadManifestError
from pipeline.evaluation.statistics.froc import Candidates
from pipeline.files import write_text_atomic
from pipeline.spreadsheets import read_rows

MAX_BYTES = 64 * 2**20
MAX_CANDIDATES = 1_000_000


def write_candidates(path: Path, candidates: Candidates) -> None:
    """Write `confidence,x,y` in level-0 pixels, without a header; a slide without candidates has an empty file."""
    lines = [f"{confidence:.6g},{x_px0:.0f},{y_px0:.0f}\n" for confidence, x_px0, y_px0 in candidates]
    write_text_atomic(path, "".join(lines))


def write_slide_scores(path: Path, scores: Mapping[str, float]) -> None:
    """Write `image_name,probability`, one line per slide."""
    lines = [f"{slide_id},{score:.6f}\n" for slide_id, score in scores.items()]
    write_text_atomic(path, "".join(["image_name,probability\n", *lines]))


def read_candidates(path: Path, size_wh_px0: tuple[int, int]) -> Candidates:
    """Candidates of one slide, (candidates, 3).

    Args:
        size_wh_px0: size of the slide; candidates outside it belong to another slide or level.

    Raises:
        BadManifestError: no such file, a line without exactly three numbers, too many candidates, a confidence outside
            0 to 1, or a position outside the slide.
    """
    if not os.path.lexists(path):
        raise BadManifestError(f"{path}: no such file. Every slide needs one, empty if it has no candidates.")
    rows = read_rows(path, max_bytes=MAX_BYTES)
    if len(rows) > MAX_CANDIDATES:
        raise BadManifestError(f"{path}: has {len(rows)} candidates; the limit is {MAX_CANDIDATES}.")
    candidates = [_candidate(path, row.number, row.cells, size_wh_px0) for row in rows]
    return np.asarray(candidates, np.float64).reshape(-1, 3)


def _candidate(path: Path, number: int, row: Sequence[str], size_wh_px0: tuple[int, int]) -> tuple[float, float, float]:
    try:
        confidence, x_px0, y_px0 = (float(cell.replace(",", ".")) for cell in row)
    except ValueError as error:
        shown = ",".join(row)
        raise BadManifestError(
            f"{path}, line {number}: {shown!r:.100} is not `confidence,x,y` in numbers. The file must have no header."
        ) from error
    if not 0 <= confidence <= 1:
        raise BadManifestError(f"{path}, line {number}: the confidence {confidence} is not between 0 and 1.")
    width, height = size_wh_px0
    if not (0 <= x_px0 < width and 0 <= y_px0 < height):
        raise BadManifestError(
            f"{path}, line {number}: ({x_px0:g}, {y_px0:g}) lies outside the slide of {width} × {height} px. "
            "Is the file from another slide, or are these pixels from another level?"
        )
    return confidence, x_px0, y_px0
