"""Facts about a slide for the worklist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pathology_app.html.text import as_text
from pipeline.places.object_path import StorePath
from pipeline.project import slide_id_of
from pipeline.store.layers.labels import read_tissue
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import GemslideError

MAX_WORD = 120
"""Maximum length, in characters, of free text from a store."""
LINKED = "linked, not verified"
"""In place of a quality verdict, which such a slide cannot have."""


@dataclass(frozen=True)
class SlideSummary:
    """Facts about a slide for the worklist, without keeping the slide open."""

    slide_id: str
    version: str
    size_wh_px0: tuple[int, int]
    mpp0: float
    levels: int
    tissue_mm2: float | None
    """None if the store has no readable tissue mask."""
    scanner: str | None
    stain: str | None
    """Result of fitting the stain's colours; None if not tried."""
    damaged_tiles: int
    verdict: str | None
    """QC verdict; None if QC was not run."""
    ingested_utc: str | None


def summary_of(store_path: StorePath, version: str) -> SlideSummary:
    reader = StoreReader(store_path)
    metadata = reader.attributes
    return SlideSummary(
        slide_id=slide_id_of(store_path),
        version=version,
        size_wh_px0=reader.size_wh_px0,
        mpp0=reader.mpp0,
        levels=len(reader.levels),
        tissue_mm2=_tissue_mm2(store_path),
        scanner=metadata.scanner_model,
        stain=stain_text(metadata.stain),
        damaged_tiles=metadata.damaged_tiles,
        verdict=LINKED if metadata.is_unverified else _short_text((metadata.qc or {}).get("verdict")),
        ingested_utc=_short_text(metadata.ingest.get("utc")),
    )


def stain_text(stain: Mapping[str, Any] | None) -> str | None:
    """Result of fitting the colours of haematoxylin and eosin; None if not tried."""
    fit = (stain or {}).get("macenko")
    if not fit:
        return None
    return "colours fitted (Macenko)" if fit.get("fit") else f"no fit: {_short_text(fit.get('reason')) or 'no reason'}"


def _short_text(value: object) -> str | None:
    """A short text from a store, where the value may be anything."""
    return as_text(value)[:MAX_WORD] if isinstance(value, str) and value else None


def _tissue_mm2(store_path: StorePath) -> float | None:
    try:
        mask_yx, mpp = read_tissue(store_path)
    except (GemslideError, OSError):
        return None
    return float(mask_yx.sum()) * mpp**2 / 1e6
