"""CAMELYON16's files: candidates of each slide, and one probability per slide; written, and read back."""

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
    """`confidence,x,y` in level-0 pixels, without a header; a slide without candidates has an empty file."""
    lines = [f"{confidence:.6g},{x_px0:.0f},{y_px0:.0f}\n" for confidence, x_px0, y_px0 in candidates]
    write_text_atomic(path, "".join(lines))


def write_slide_scores(path: Path, scores: Mapping[str, float]) -> None:
    """`image_name,probability`, a line per slide."""
    lines = [f"{slide_id},{score:.6f}\n" for slide_id, score in scores.items()]
    write_text_atomic(path, "".join(["image_name,probability\n", *lines]))


def read_candidates(path: Path, size_wh_px0: tuple[int, int]) -> Candidates:
    """Candidates of one slide, (candidates, 3).

    Args:
        size_wh_px0: of the slide; candidates outside it are of another slide, or of another level.

    Raises:
        BadManifestError: no such file, not three numbers in a line, too many, a confidence outside 0 to 1, or a
            position outside the slide.
    """
    if not os.path.lexists(path):
        raise BadManifestError(
            f"{path}: no such file. Every slide needs one, an empty one where there is no candidate."
        )
    rows = read_rows(path, max_bytes=MAX_BYTES)
    if len(rows) > MAX_CANDIDATES:
        raise BadManifestError(f"{path}: {len(rows)} candidates; up to {MAX_CANDIDATES} are read.")
    found = [_candidate(path, row.number, row.cells, size_wh_px0) for row in rows]
    return np.asarray(found, np.float64).reshape(-1, 3)


def _candidate(path: Path, number: int, row: Sequence[str], size_wh_px0: tuple[int, int]) -> tuple[float, float, float]:
    try:
        confidence, x_px0, y_px0 = (float(cell.replace(",", ".")) for cell in row)
    except ValueError as error:
        shown = ",".join(row)
        raise BadManifestError(
            f"{path}, line {number}: {shown!r:.100} is not `confidence,x,y` in numbers. The file has no header."
        ) from error
    if not 0 <= confidence <= 1:
        raise BadManifestError(f"{path}, line {number}: the confidence {confidence} is not between 0 and 1.")
    width, height = size_wh_px0
    if not (0 <= x_px0 < width and 0 <= y_px0 < height):
        raise BadManifestError(
            f"{path}, line {number}: ({x_px0:g}, {y_px0:g}) lies outside the slide of {width} × {height} px. "
            "Is it the file of another slide, or are these pixels of another level?"
        )
    return confidence, x_px0, y_px0
