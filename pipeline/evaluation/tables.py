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
    """One row per slide: its tiles' measures, and the truth and prediction of the whole slide."""
    tiles_of, positive = rows.groupby("slide_id").indices, positive_class(classes)
    table = []
    for case in cases:
        here = tiles_of.get(case.slide_id, _NO_TILES)
        measured = tile_metrics(labels[here], values[here], threshold, positive) if len(here) else _UNLABELLED
        table.append(
            {
                "slide_id": case.slide_id,
                "patient": case.patient,
                **measured,
                **{f"labelled {name}": int((labels[here] == k).sum()) for k, name in enumerate(classes)},
                "truth": occurring(case.truth.has, classes),
                "scores": {name: float(case.scores[k]) for k, name in enumerate(classes)},
            }
        )
    return table


_WITH_INTERVALS = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "auc": AUROC}
"""Measures by column."""
_NO_TILES = np.zeros(0, np.int64)
_UNLABELLED: Row = {"tiles": 0, "accuracy": None, "balanced_accuracy": None, "auc": None}


def occurring(has: NDArray[np.bool_] | None, classes: Sequence[str]) -> list[str] | None:
    """Names of the classes that occur; None if unknown."""
    return None if has is None else [name for name, here in zip(classes, has, strict=True) if here]


def by_patient(
    rows: pd.DataFrame,
    labels: NDArray[np.int64],
    values: Probabilities,
    threshold: float,
    cases: Sequence[SlideCase],
    positive: int = 1,
) -> list[Row]:
    """One row per patient.

    Args:
        positive: as for `pipeline.evaluation.statistics.metrics.decide`.
    """
    tiles_of = rows.groupby("patient").indices
    table = []
    for patient, slides in Counter(case.patient for case in cases).items():
        here = tiles_of.get(patient, _NO_TILES)
        measured = tile_metrics(labels[here], values[here], threshold, positive) if len(here) else _UNLABELLED
        table.append({"patient": patient, "slides": slides, **measured})
    return table


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
    """One row per scanner, since a model that is good on one need not be on another. Empty for a single scanner.

    Args:
        rows: with `slide_id` and, for intervals, `patient`.
        draws: resamples for the intervals; None: without intervals.
    """
    names = np.array([scanners.get(slide_id) or "not known" for slide_id in rows["slide_id"]])
    distinct = sorted(set(names))
    if len(distinct) < 2:
        return []
    patients = rows["patient"].to_numpy(dtype=str) if "patient" in rows else rows["slide_id"].to_numpy(dtype=str)
    table = []
    for name in distinct:
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
