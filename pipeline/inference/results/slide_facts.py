"""Numbers and crops for a slide's report, from its store and its predictions."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.codecs.images import encode_jpeg
from pipeline.errors import CorruptTileError
from pipeline.inference.results.hotspots import Hotspot
from pipeline.store.layers.labels import read_tissue
from pipeline.store.layers.overlays import Predictions
from pipeline.store.layers.qc_scores import stored_summary
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.render import for_screen
from training.foundation.errors import UnreadableError

MAX_SHOWN = 8
CROP_UM = 256.0
"""Side of the square shown of a hotspot, whatever the resolution of the slide and the size of the cells."""
_CROP_PX = 192
_CROP_QUALITY = 85


@dataclass(frozen=True)
class HotspotRow:
    """A hotspot with its position and a crop."""

    number: int
    spot: Hotspot
    x_mm: float
    """From the slide's left edge."""
    y_mm: float
    crop: str | None
    """JPEG in base64; None where the store's pixels are damaged."""


@dataclass(frozen=True)
class Quality:
    """Findings of `gemslide qc`."""

    verdict: str
    reasons: tuple[str, ...]
    scores: tuple[tuple[str, float, float, float], ...]
    """(name, threshold, share of the cells above it, allowed share)."""
    stain: tuple[tuple[str, str], ...]
    """(method, "fitted" or the reason why not)."""


def class_counts(predictions: Predictions, threshold: float, mpp0: float) -> list[dict[str, Any]]:
    """Per class: cells in which it is the likeliest, cells that reach the threshold, their area, mean probability."""
    known = np.isfinite(predictions.probabilities_cyx[0])
    likeliest = np.bincount(
        predictions.probabilities_cyx[:, known].argmax(0), minlength=len(predictions.class_names)
    ).tolist()
    cell_mm2 = (predictions.stride_px0 * mpp0 / 1000) ** 2
    counts = []
    for index, name in enumerate(predictions.class_names):
        values = predictions.probabilities_cyx[index][known].astype(np.float32)
        above = int((values >= threshold).sum())
        counts.append(
            {
                "class": name,
                "likeliest": likeliest[index],
                "above": above,
                "above_mm2": above * cell_mm2,
                "mean": float(values.mean()) if len(values) else None,
            }
        )
    return counts


def tissue_mm2(reader: StoreReader) -> float | None:
    """Area of the tissue mask; None where it cannot be read."""
    try:
        mask_yx, mpp = read_tissue(reader.path)
    except UnreadableError:
        return None
    return float(mask_yx.astype(bool).sum()) * (mpp / 1000) ** 2


def hotspot_rows(reader: StoreReader, hotspots: Sequence[Hotspot]) -> list[HotspotRow]:
    """The first few hotspots, which are the strongest."""
    return [
        HotspotRow(
            number,
            spot,
            spot["x_px0"] * reader.mpp0 / 1000,
            spot["y_px0"] * reader.mpp0 / 1000,
            _crop(reader, spot["x_px0"], spot["y_px0"]),
        )
        for number, spot in enumerate(hotspots[:MAX_SHOWN], start=1)
    ]


def _crop(reader: StoreReader, x_px0: int, y_px0: int) -> str | None:
    mpp = max(reader.mpp0, CROP_UM / _CROP_PX)
    side_px, half_px0 = round(CROP_UM / mpp), CROP_UM / reader.mpp0 / 2
    try:
        pixels = reader.read_at_mpp(x_px0 - half_px0, y_px0 - half_px0, side_px, side_px, mpp)
    except CorruptTileError:
        return None
    return base64.b64encode(encode_jpeg(for_screen(reader, pixels), quality=_CROP_QUALITY)).decode()


def quality_of(reader: StoreReader) -> Quality | None:
    """The stored summary of quality control; None where there is none, or it is damaged."""
    summary = stored_summary(reader)
    if summary is None:
        return None
    scores = summary["scores"] if isinstance(summary["scores"], dict) else {}
    reasons = summary["reasons"] if isinstance(summary["reasons"], list | tuple) else ()
    rows = [_score(name, score) for name, score in scores.items() if isinstance(score, dict)]
    return Quality(
        str(summary["verdict"]),
        tuple(map(str, reasons)),
        tuple(row for row in rows if row),
        tuple(_stain(reader)),
    )


def _score(name: object, score: dict[str, Any]) -> tuple[str, float, float, float] | None:
    numbers = [score.get(key) for key in ("threshold", "share_above", "max_share")]
    if not all(isinstance(number, int | float) for number in numbers):
        return None
    threshold, share, allowed = map(float, numbers)  # type: ignore[arg-type]
    return str(name), threshold, share, allowed


def _stain(reader: StoreReader) -> list[tuple[str, str]]:
    entries = {name: entry for name, entry in (reader.attributes.stain or {}).items() if isinstance(entry, dict)}
    return [
        (name, "fitted" if entry.get("fit") else str(entry.get("reason")))
        for name, entry in entries.items()
        if "fit" in entry
    ]
