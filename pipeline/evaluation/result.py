"""Results of an evaluation: everything in its report, its tables and its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.against import Difference
from pipeline.evaluation.camelyon17 import Staging
from pipeline.evaluation.collect import Flow
from pipeline.evaluation.statistics.bootstrap import Estimate
from pipeline.evaluation.statistics.froc import Candidates, Froc
from pipeline.evaluation.statistics.level import Level
from pipeline.evaluation.tables import Row
from pipeline.settings.config import EvaluateConfig


@dataclass(frozen=True)
class Detections:
    """Content of CAMELYON16's files for one class."""

    candidates: Mapping[str, Candidates]
    """By slide."""
    slide_scores: Mapping[str, float]


@dataclass(frozen=True)
class Evaluation:
    """Everything in a report."""

    model_id: str
    tile_set: str
    split: str
    threshold: float
    classes: tuple[str, ...]
    config: EvaluateConfig
    flow: Flow
    by_method: dict[str, dict[str, float | None]]
    """Metrics over all tiles: the model first, then the baselines."""
    methods: dict[str, dict[str, Estimate]]
    """The same with intervals, and the model's lead in AUROC over each."""
    levels: tuple[Level, ...]
    """Tiles; also slides and patients, if whole slides have a known truth."""
    froc: tuple[Froc, ...]
    """For each class with outlined lesions."""
    without_lesions: dict[str, dict[str, str]]
    """By class: slides whose lesions are not outlined, and why."""
    staging: Staging | None
    """CAMELYON17's staging, if the manifest's labels are those of lymph nodes."""
    by_slide: list[Row]
    by_patient: list[Row]
    by_scanner: list[Row]
    """Empty if all slides are from one scanner, or none is known."""
    confusion: NDArray[np.int64]
    note: str
    """Note on the tile set's labels and its outdated parts; may be empty."""
    baseline_note: str
    """Note on the meaning of a good result from an untrained baseline; empty if none is good."""
    detections: Mapping[str, Detections]
    """By class; written to separate files."""
    outdated: tuple[str, ...] = ()
    """Data made before a tissue mask was replaced, one sentence each."""
    trained_on_this_split: bool = False
    """Whether the model was trained on the same tiles and split, so that its test tiles are new to it."""
    against: str | None = None
    differences: tuple[Difference, ...] = ()
    """Differences between this model and the one named by `against`."""
