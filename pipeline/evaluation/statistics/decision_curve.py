"""Decision curves: net benefit of acting on a model, compared with acting on all and on none.

Net benefit at threshold probability t = TP ÷ n − FP ÷ n · t ÷ (1 − t) (Vickers & Elkin 2006, Med Decis Making 26:565).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.evaluation.statistics.bootstrap import Values, band
from pipeline.evaluation.statistics.ranking import Counts, Ranking

THRESHOLDS: Values = np.arange(1, 100) / 100


@dataclass(frozen=True)
class DecisionCurve:
    """Net benefit per item at each threshold probability; acting on none has 0."""

    thresholds: tuple[float, ...]
    model: tuple[float, ...]
    low: tuple[float, ...]
    """Pointwise 95 % limits; NaN where there are none."""
    high: tuple[float, ...]
    act_on_all: tuple[float, ...]


def decision_curve(ranking: Ranking) -> DecisionCurve:
    """The curve of one class against the rest, with a pointwise band by patient."""
    whole = net_benefit(ranking, ranking.counts())[0]
    resampled = [net_benefit(ranking, ranking.counts(piece)) for piece in ranking.pieces()]
    low, high = band(np.concatenate(resampled) if resampled else np.zeros((0, len(THRESHOLDS))), len(THRESHOLDS))
    counts = ranking.counts()
    share = float(counts.positives[0] / (counts.positives[0] + counts.negatives[0]))
    act_on_all = share - (1 - share) * _odds()
    return DecisionCurve(*(tuple(line.tolist()) for line in (THRESHOLDS, whole, low, high, act_on_all)))


def net_benefit(ranking: Ranking, counts: Counts) -> Values:
    """Net benefit, (resamples, thresholds). An item exactly at a threshold is acted on."""
    reached = len(ranking.scores) - np.searchsorted(ranking.scores[::-1], THRESHOLDS - 1e-12, side="left")
    tp, fp = (np.concatenate([np.zeros((len(c), 1)), c], axis=1)[:, reached] for c in (counts.tp, counts.fp))
    items = (counts.positives + counts.negatives)[:, None]
    return np.asarray((tp - fp * _odds()) / items, np.float64)


def _odds() -> Values:
    return THRESHOLDS / (1 - THRESHOLDS)
