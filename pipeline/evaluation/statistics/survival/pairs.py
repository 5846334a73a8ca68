"""Pairs of patients of whom one is known to have had the event first, counted without forming the pairs.

A pair is comparable if the earlier of the two times is an event. At equal times it is comparable if exactly one of the
two is an event, which then counts as the earlier: the other was still without one. Two events at the same time are not
comparable. lifelines and scikit-survival count the same pairs. Risks are tied only if they are exactly equal;
scikit-survival also ties those up to 1e-8 apart.

Counting takes log₂ n passes over the patients: in each, patients of the left half of a block (earlier) count those of
its right half (later) with a lower risk, as merge sort counts inversions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.statistics.bootstrap import Values
from pipeline.evaluation.statistics.survival.follow_up import Events

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class PairCounts:
    """Pairs in which each patient is the one with the earlier event, (patients,); 0 for patients without an event."""

    comparable_n: Counts
    concordant_n: Counts
    """Pairs in which the patient has the higher risk."""
    tied_n: Counts
    """Pairs in which both have the same risk."""


def pair_counts(times_n: Values, events_n: Events, risks_n: Values) -> PairCounts:
    """Count the comparable pairs of checked data."""
    rank_n = np.unique(risks_n, return_inverse=True)[1].astype(np.int64)
    # Events come before censorings at the same time.
    turn_n = 2 * np.unique(times_n, return_inverse=True)[1].astype(np.int64) + ~events_n
    later_n = len(turn_n) - np.searchsorted(np.sort(turn_n), turn_n, side="right")
    # Risks ascend within a turn, so that none of the same turn is both after a patient and below it.
    position_n = np.empty(len(turn_n), np.int64)
    position_n[np.lexsort((rank_n, turn_n))] = np.arange(len(turn_n))
    lower_n = _later_and_lower(position_n, rank_n)
    tied_n = _later_and_equal(turn_n, rank_n)
    return PairCounts(*(np.where(events_n, counts_n, 0) for counts_n in (later_n, lower_n, tied_n)))


def _later_and_lower(position_n: Counts, rank_n: Counts) -> Counts:
    """Number of patients at a higher position and with a lower rank, of each patient.

    Args:
        position_n: a permutation of 0 … patients − 1.
    """
    number = len(position_n)
    by_rank = np.lexsort((position_n, rank_n))
    lower_n = np.zeros(number, np.int64)
    for bit in range((number - 1).bit_length()):
        order = by_rank[np.argsort(position_n[by_rank] >> (bit + 1), kind="stable")]
        own = position_n[order]
        is_right = (own >> bit) & 1
        rights_before = np.concatenate([[0], np.cumsum(is_right)])
        block_start = (own >> (bit + 1)) << (bit + 1)
        in_block = rights_before[:-1] - rights_before[block_start]
        lower_n[order] += np.where(is_right, 0, in_block)
    return lower_n


def _later_and_equal(turn_n: Counts, rank_n: Counts) -> Counts:
    """Number of patients of a later turn and of the same rank, of each patient."""
    turns = int(turn_n.max()) + 1
    key_n = rank_n * turns + turn_n
    ordered = np.sort(key_n)
    end_of_rank = np.searchsorted(ordered, (rank_n + 1) * turns, side="left")
    return np.asarray(end_of_rank - np.searchsorted(ordered, key_n, side="right"), np.int64)
