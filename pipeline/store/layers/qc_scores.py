"""Quality scores of a slide and its stain, inside the store: one NGFF image, and two entries of the root attribute."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.files import SHORT_WRITE_S, new_folder
from pipeline.places.object_path import StorePath
from pipeline.settings.config import QC_SCORES
from pipeline.stain import METHODS, Normaliser, fit_of
from pipeline.store.format.metadata import multiscale, read_json, write_group, write_json
from pipeline.store.format.plain_array import read_array, write_array
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import UnreadableError

QUALITY = "quality"
SCORE_NAMES = QC_SCORES
_SUMMARY_KEYS = {"verdict", "reasons", "scores"}
CHECK = "Run `gemslide qc` on the slide."


@dataclass(frozen=True)
class Quality:
    """Scores per cell of a slide: 0 good, 1 bad."""

    names: tuple[str, ...]
    scores_cyx: NDArray[np.float16]
    """float16 (scores, rows, columns); NaN = no tissue, or undetermined."""
    cell_px0: int
    """Side of a cell in level-0 pixels; cell (0, 0) starts at the slide's top left."""
    attributes: dict[str, Any]


def write_quality(
    store: Path, quality: Quality, *, mpp0: float, summary: dict[str, Any], stain: dict[str, Any]
) -> Path:
    """Put scores, summary and stain into the store, replacing older ones.

    The scores appear whole or not at all; the root's attribute is rewritten after them, in one rename, and has the
    same `made_from`, so that `stored_summary` notices a run interrupted between the two.
    """
    spacing = quality.cell_px0 * mpp0
    attributes = {
        "ome": {
            "version": "0.5",
            "multiscales": [multiscale("quality", "mean", "cyx", [spacing], offset_um=spacing / 2)],
        },
        "gemslide": {**quality.attributes, "names": list(quality.names), "cell_px0": quality.cell_px0},
    }
    final = store / QUALITY
    with new_folder(final, wait_s=SHORT_WRITE_S) as folder:
        write_array(folder / "0", quality.scores_cyx, "cyx", fill_value=float("nan"))
        write_group(folder, attributes)
    root = read_json(store / "zarr.json")
    root["attributes"]["gemslide"] |= {"qc": summary, "stain": stain}
    write_json(store / "zarr.json", root)
    return final


def read_quality(store: StorePath) -> Quality | None:
    """The scores; None if the slide was never checked.

    Raises:
        UnreadableError: damaged.
    """
    path = store / QUALITY
    if not (path / "zarr.json").exists():
        return None
    try:
        ours = read_json(path / "zarr.json")["attributes"]["gemslide"]
        scores = read_array(store, f"{QUALITY}/0").astype(np.float16)
        quality = Quality(tuple(ours["names"]), scores, int(ours["cell_px0"]), ours)
        if scores.ndim != 3 or len(scores) != len(quality.names):
            raise ValueError(f"scores of shape {scores.shape} for {list(quality.names)}")
        if (
            quality.cell_px0 < 1
            or np.isinf(scores).any()
            or not ((scores >= 0) & (scores <= 1) | np.isnan(scores)).all()
        ):
            raise ValueError(f"cells of {quality.cell_px0} px0, or values that are not scores")
    except (UnreadableError, OSError, KeyError, TypeError, ValueError) as error:
        raise UnreadableError(
            f"{path}: no readable quality scores ({type(error).__name__}: {error}). {CHECK}"
        ) from error
    return quality


def stored_summary(reader: StoreReader) -> dict[str, Any] | None:
    """The summary of a finished check, with what it was `made_from`; None if there is none, or scores are damaged."""
    summary = reader.attributes.qc
    try:
        quality = read_quality(reader.path)
    except UnreadableError:  # damaged: check again and replace it
        return None
    if quality is None or summary is None or not summary.keys() >= _SUMMARY_KEYS:
        return None
    stated = (quality.attributes.get("made_from"), summary.get("made_from"))
    return summary if isinstance(stated[0], dict) and stated[0] == stated[1] else None


def read_stain_fit(reader: StoreReader, method: str) -> dict[str, Any]:
    """A slide's fitted numbers for one method.

    Raises:
        UnreadableError: never fitted, or the fit was refused, with the reason.
    """
    entry = (reader.attributes.stain or {}).get(method)
    if method not in METHODS or entry is None:
        raise UnreadableError(
            f"slide {reader.slide_id}: its stain was not fitted for {method!r}, which this recipe or model requires. "
            f"{CHECK} ([qc] stain names the methods.)"
        )
    if entry.get("fit") is None:
        raise UnreadableError(
            f"slide {reader.slide_id}: its stain could not be fitted by {method}: {entry.get('reason')} "
            'Leave the slide out, or use a model without stain normalisation ([data] stain = "none").'
        )
    fit = entry["fit"]
    assert isinstance(fit, dict)
    return fit


def slide_normaliser(reader: StoreReader, description: dict[str, Any]) -> Normaliser:
    """Normaliser of a slide's tiles to the target that a recipe or a model package describes.

    Args:
        description: as `pipeline.stain.describe` returns it.

    Raises:
        UnreadableError: the slide has no fit, or the numbers of either are damaged.
    """
    method = str(description.get("method"))
    numbers = read_stain_fit(reader, method)
    try:
        return Normaliser(fit_of(method, numbers), fit_of(method, description["target"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnreadableError(
            f"slide {reader.slide_id}: stain normalisation is not possible ({error}). {CHECK}"
        ) from error
