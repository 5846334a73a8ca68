"""Agreement of probabilities with observed frequencies: reliability table, expected calibration error, Brier score.

Bins hold equally many items (equal mass), so that no bin of an ECE has only a handful; equal scores are never split.
ECE = Σ (items in bin ÷ items) · |mean probability − observed share| (Naeini et al. 2015; equal-mass bins: Nixon et al.
2019). It is biased upwards if bins are small, as is its bootstrap interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import brier_score_loss

from pipeline.evaluation.statistics.bootstrap import Estimate, Resamples, Values, estimate
from pipeline.evaluation.statistics.proportions import exact_where_none


@dataclass(frozen=True)
class Bin:
    """Items of neighbouring probability."""

    lowest: float
    highest: float
    count: int
    mean_probability: float
    observed: Estimate
    """Share of the class among them."""


@dataclass(frozen=True)
class Calibration:
    """Calibration of one class against the rest."""

    ece: Estimate
    brier: Estimate
    bins: tuple[Bin, ...]
    histogram: tuple[int, ...]
    """Items by probability, in twenty bins of equal width."""


HISTOGRAM_BINS = 20


def equal_mass_bins(probabilities: Values, bins: int) -> NDArray[np.int64]:
    """Bin of each item, from 0, with as equal numbers of items as ties allow."""
    edges = np.unique(np.quantile(probabilities, np.linspace(0, 1, bins + 1)[1:-1], method="higher"))
    number = np.searchsorted(edges, probabilities, side="right")
    return np.asarray(np.unique(number, return_inverse=True)[1], np.int64)


def calibration_of(
    truth: NDArray[np.bool_], probabilities: NDArray[np.floating], resamples: Resamples, *, bins: int
) -> Calibration:
    """Calibration of probabilities, with intervals by patient. All resamples use the bins of the data.

    Args:
        truth: bool (items,). probabilities: (items,), not empty.
    """
    p = np.asarray(probabilities, np.float64)
    number = equal_mass_bins(p, bins)
    by_patient = _sums(truth, p, number, resamples)
    resampled = resamples.totals(by_patient)  # (resamples, bins, 3)
    whole = by_patient.sum(0)[None]
    with np.errstate(invalid="ignore", divide="ignore"):
        observed_rb = resampled[..., 2] / resampled[..., 0]
    squares = resamples.sum_by_patient((p - truth) ** 2)
    items = resampled[..., 0].sum(1)
    return Calibration(
        ece=estimate(float(expected_calibration_error(whole)[0]), expected_calibration_error(resampled)),
        brier=estimate(float(brier_score_loss(truth, p)), resamples.totals(squares) / items),
        bins=tuple(
            Bin(
                lowest=float(p[number == b].min()),
                highest=float(p[number == b].max()),
                count=int(whole[0, b, 0]),
                mean_probability=float(whole[0, b, 1] / whole[0, b, 0]),
                observed=exact_where_none(
                    estimate(float(whole[0, b, 2] / whole[0, b, 0]), observed_rb[:, b]),
                    by_patient[:, b, 2],
                    by_patient[:, b, 0],
                ),
            )
            for b in range(whole.shape[1])
        ),
        histogram=tuple(int(n) for n in np.histogram(p, HISTOGRAM_BINS, (0, 1))[0]),
    )


def expected_calibration_error(sums_rb3: Values) -> Values:
    """ECE (resamples,) from sums by bin: (resamples, bins, 3) of items, probabilities, events."""
    items = sums_rb3[..., 0].sum(1)
    return np.asarray(np.abs(sums_rb3[..., 1] - sums_rb3[..., 2]).sum(1) / items, np.float64)


def _sums(truth: NDArray[np.bool_], p: Values, number: NDArray[np.int64], resamples: Resamples) -> Values:
    """Items, sums of probability and events, (patients, bins, 3), of each patient in each bin."""
    shape = (resamples.counts_rp.shape[1], int(number.max()) + 1)
    at = resamples.patient_of * shape[1] + number
    parts = [np.bincount(at, weights=w, minlength=shape[0] * shape[1]) for w in (np.ones(len(p)), p, truth)]
    return np.stack([part.reshape(shape) for part in parts], axis=2)
