"""Counts of a model's training data, which name no patient, slide or file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.data.tile_dataset import TileSource

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class SplitFacts:
    """One side of the split. Only tiles with a label count."""

    tiles: int
    by_class: dict[str, int]
    slides: int | None
    """None: the dataset does not say."""
    patients: int | None
    """None: the dataset does not say, or not every slide has a patient."""


@dataclass(frozen=True)
class DataFacts:
    """A tile set as a model card describes it."""

    tile_set: str
    by_split: dict[str, SplitFacts]
    scanners: dict[str, int]
    """Number of slides with labelled tiles, by scanner."""


def data_facts(source: TileSource, tile_set: str) -> DataFacts:
    """Count a dataset's labelled tiles."""
    by_split = {split: _split(source, split) for split in SPLITS if (source.splits == split).any()}
    return DataFacts(tile_set, by_split, _scanners(source))


def _split(source: TileSource, split: str) -> SplitFacts:
    chosen = (source.splits == split) & (source.labels >= 0)
    counts = np.bincount(source.labels[chosen], minlength=len(source.classes))
    slides, groups = getattr(source, "slides", None), getattr(source, "groups", None)
    by_patient = groups is not None and getattr(source, "grouped_by", "patient") == "patient"
    return SplitFacts(
        tiles=int(chosen.sum()),
        by_class={name: int(count) for name, count in zip(source.classes, counts, strict=True)},
        slides=None if slides is None else len(np.unique(slides[chosen])),
        patients=len(np.unique(groups[chosen])) if by_patient and groups is not None else None,
    )


def _scanners(source: TileSource) -> dict[str, int]:
    slides: Any = getattr(source, "slides", None)
    scanners: Mapping[str, str | None] = getattr(source, "scanners", None) or {}
    if slides is None or not scanners:
        return {}
    counts: dict[str, int] = {}
    for slide in np.unique(slides[source.labels >= 0]):
        name = scanners.get(str(slide)) or "not known"
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))
