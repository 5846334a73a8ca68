"""Intervals by patient: patients are drawn with replacement, with all their slides and tiles.

Tiles of a slide, and slides of a patient, are correlated. An interval that counts each as an independent case is far
too narrow; the cluster bootstrap (Field & Welsh 2007, J R Stat Soc B 69:369) draws whole patients. Intervals are
percentile intervals (Efron & Tibshirani 1993, chapter 13).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

CONFIDENCE = 0.95
FEWEST_PATIENTS = 5
"""With fewer, resamples are so alike that their spread is meaningless: there is no interval."""
FEW_PATIENTS = 20
"""Below this, percentile intervals are known to be too narrow, and the report says so."""
MIN_SHARE = 0.8
"""Share of resamples in which a measure must be defined (for an AUC, both classes occur) to have an interval."""
MAX_HELD = 1_000_000
"""Numbers held at a time: resamples are processed in pieces."""
BLOCK = 100
"""Resamples that one thread processes at a time."""

_SAME = 1e-12

Values = NDArray[np.float64]
DrawnCounts = NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Estimate:
    """A measure with its 95 % interval; None if there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    resamples: int = 0
    """Number of resamples in which the measure is defined, on which the interval is based."""
    is_exact: bool = False
    """Whether the interval is exact and counts patients (`proportions.py`), instead of being based on resamples."""


@dataclass(frozen=True)
class Resamples:
    """Counts of how often each patient was drawn, and the patient of each item (tile, slide)."""

    counts_rp: DrawnCounts
    """(resamples, patients); no rows if there are too few patients for intervals."""
    patient_of: NDArray[np.int64]
    """Column of each item's patient."""

    @classmethod
    def draw(cls, patients: Sequence[str] | NDArray[np.str_], *, resamples: int, seed: int) -> Resamples:
        """Draw patients with replacement.

        Args:
            patients: the patient of each item.
        """
        names, patient_of = np.unique(np.asarray(patients, dtype=str), return_inverse=True)
        return cls(_drawn(len(names), resamples, seed), patient_of.astype(np.int64))

    @property
    def num_patients(self) -> int:
        return self.counts_rp.shape[1] if len(self.patient_of) else 0

    def pieces(self, width: int) -> Iterator[Values]:
        """The counts in pieces, so that (resamples × `width`) numbers fit in memory."""
        rows = max(1, MAX_HELD // max(width, 1))
        for start in range(0, len(self.counts_rp), rows):
            yield self.counts_rp[start : start + rows].astype(np.float64)

    def sum_by_patient(self, values: NDArray[np.number]) -> Values:
        """Sums of the items' values for each patient: (patients, …) of (items, …)."""
        number = len(self.patient_of)
        shape = (self.counts_rp.shape[1], number)
        belongs = sparse.csr_matrix((np.ones(number), (self.patient_of, np.arange(number))), shape=shape)
        return np.asarray(belongs @ values.reshape(number, -1)).reshape(-1, *values.shape[1:])

    def totals(self, by_patient: Values) -> Values:
        """Sums over the drawn patients, (resamples, …), of sums by patient, (patients, …)."""
        pieces = [np.tensordot(piece, by_patient, axes=1) for piece in self.pieces(self.counts_rp.shape[1])]
        return np.concatenate(pieces) if pieces else np.zeros((0, *by_patient.shape[1:]))


class Draws:
    """Resamples of several sets of items, drawn again only when the number of patients changes.

    With the same seed, the draw depends only on the number of patients.
    """

    def __init__(self, resamples: int, seed: int) -> None:
        self._resamples, self._seed = resamples, seed
        self._last: tuple[int, DrawnCounts] | None = None

    def of(self, patients: NDArray[np.str_] | NDArray[np.integer]) -> Resamples:
        """As `Resamples.draw`; patients can also be numbers."""
        distinct, patient_of = np.unique(patients, return_inverse=True)
        if self._last is None or self._last[0] != len(distinct):
            self._last = (len(distinct), _drawn(len(distinct), self._resamples, self._seed))
        return Resamples(self._last[1], patient_of.astype(np.int64))


def _drawn(patients: int, resamples: int, seed: int) -> DrawnCounts:
    """Count how often each patient is drawn, (resamples, patients); no rows if there are too few patients."""
    drawn = resamples if patients >= FEWEST_PATIENTS else 0
    counts = np.zeros((drawn, max(patients, 1)), np.uint16 if patients < 2**16 else np.uint32)
    seeds = np.random.SeedSequence(seed).spawn(-(-drawn // BLOCK))  # the same whatever the number of threads

    def draw(block: range) -> None:
        random = np.random.default_rng(seeds[block.start // BLOCK])
        for row in counts[block.start : block.stop]:
            row[:] = np.bincount(random.integers(0, patients, patients), minlength=patients)

    in_blocks(drawn, draw)
    return counts


def in_blocks(resamples: int, work: Callable[[range], None]) -> None:
    """Process resamples on all cores, one block at a time; the result of one must not depend on others."""
    blocks = (range(start, min(start + BLOCK, resamples)) for start in range(0, resamples, BLOCK))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        list(threads.map(work, blocks))


def estimate(value: float | None, resampled: Values) -> Estimate:
    """A measure with the interval from its resamples.

    Args:
        resampled: the measure in each resample; NaN where it is undefined.
    """
    if value is None or not np.isfinite(value):
        return Estimate(None)
    low, high, counted = percentile_interval(resampled)
    return Estimate(float(value), low, high, counted)


def percentile_interval(resampled: Values) -> tuple[float | None, float | None, int]:
    """Low, high, and the number of resamples they are based on; None if the measure is defined in too few.

    Also None if all have the same value, for example when these patients' scores separate the classes completely.
    Another patient's may not, and "1.000 to 1.000" would leave no doubt. Shares have an exact interval instead:
    `pipeline.evaluation.statistics.proportions`.
    """
    known = resampled[np.isfinite(resampled)]
    if not len(known) or len(known) < MIN_SHARE * len(resampled) or np.ptp(known) <= _SAME:
        return None, None, len(known)
    low, high = np.quantile(known, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high), len(known)


def band(resampled_rg: Values, width: int) -> tuple[Values, Values]:
    """Pointwise limits of a curve's resamples, (points,) each; NaN where there are none.

    Args:
        resampled_rg: (resamples, points). width: number of points if there are no resamples.
    """
    if not len(resampled_rg):
        return np.full(width, np.nan), np.full(width, np.nan)
    limits = [percentile_interval(column) for column in resampled_rg.T]
    low, high = ([np.nan if limit[side] is None else limit[side] for limit in limits] for side in (0, 1))
    return np.asarray(low, np.float64), np.asarray(high, np.float64)
