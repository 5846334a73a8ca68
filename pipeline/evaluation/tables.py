"""The same measures by slide, by patient and by scanner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.evaluation.collect import SlideCase
from pipeline.evaluation.statistics.bootstrap import Draws
from pipeline.evaluation.statistics.level import overall_measures, positive_class
from pipeline.evaluation.statistics.metrics import Probabilities, tile_metrics
from pipeline.evaluation.statistics.one_class import AUROC

Row = dict[str, Any]


def by_slide(
    rows: pd.DataFrame,
    labels: NDArray[np.int64],
    values: Probabilities,
    threshold: float,
    classes: Sequence[str],
    cases: Sequence[SlideCase],
) -> list[Row]:
    """A row per slide: its tiles' measures, and what is said and predicted of the whole slide."""
    tiles_of, positive = rows.groupby("slide_id").indices, positive_class(classes)
    found = []
    for case in cases:
        here = tiles_of.get(case.slide_id, _NO_TILES)
        measured = tile_metrics(labels[here], values[here], threshold, positive) if len(here) else _UNLABELLED
        found.append(
            {
                "slide_id": case.slide_id,
                "patient": case.patient,
                **measured,
                **{f"labelled {name}": int((labels[here] == k).sum()) for k, name in enumerate(classes)},
                "truth": occurring(case.truth.has, classes),
                "scores": {name: float(case.scores[k]) for k, name in enumerate(classes)},
            }
        )
    return found


_WITH_INTERVALS = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "auc": AUROC}
"""Measures by column."""
_NO_TILES = np.zeros(0, np.int64)
_UNLABELLED: Row = {"tiles": 0, "accuracy": None, "balanced_accuracy": None, "auc": None}


def occurring(has: NDArray[np.bool_] | None, classes: Sequence[str]) -> list[str] | None:
    """Names of the classes that occur; None where nobody says."""
    return None if has is None else [name for name, here in zip(classes, has, strict=True) if here]


def by_patient(
    rows: pd.DataFrame,
    labels: NDArray[np.int64],
    values: Probabilities,
    threshold: float,
    cases: Sequence[SlideCase],
    positive: int = 1,
) -> list[Row]:
    """A row per patient.

    Args:
        positive: as `pipeline.evaluation.statistics.metrics.decide` takes it.
    """
    tiles_of = rows.groupby("patient").indices
    found = []
    for patient, slides in Counter(case.patient for case in cases).items():
        here = tiles_of.get(patient, _NO_TILES)
        measured = tile_metrics(labels[here], values[here], threshold, positive) if len(here) else _UNLABELLED
        found.append({"patient": patient, "slides": slides, **measured})
    return found


def by_scanner(
    rows: pd.DataFrame,
    labels: NDArray[np.int64],
    values: Probabilities,
    threshold: float,
    scanners: Mapping[str, Any],
    *,
    positive: int = 1,
    draws: Draws | None = None,
) -> list[Row]:
    """A model that is good on one scanner need not be on another. Empty where all slides are from one.

    Args:
        rows: with `slide_id` and, for intervals, `patient`.
        draws: of the intervals; None: there are none.
    """
    names = np.array([scanners.get(slide_id) or "not known" for slide_id in rows["slide_id"]])
    found = sorted(set(names))
    if len(found) < 2:
        return []
    patients = rows["patient"].to_numpy(dtype=str) if "patient" in rows else rows["slide_id"].to_numpy(dtype=str)
    table = []
    for name in found:
        here = names == name
        drawn = (draws or Draws(0, 0)).of(patients[here])
        measures = overall_measures(labels[here], values[here], drawn, threshold, positive)
        table.append(
            {
                "scanner": name,
                "patients": drawn.num_patients,
                **tile_metrics(labels[here], values[here], threshold, positive),
                **{
                    f"{column}_interval": (measures[measure].low, measures[measure].high)
                    for column, measure in _WITH_INTERVALS.items()
                },
            }
        )
    return table
