"""How near a prediction came: 1 - |p - m| / m of the predicted p and the measured m (ParaDL, HPDC 2021)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any


def accuracy(predicted: float, measured: float) -> float:
    """Accuracy of one prediction; 1 is exact, and below 0 if it is more than twice what was measured."""
    return 1.0 - abs(predicted - measured) / measured


def summary(predicted_s: Mapping[str, float], measured_s: Mapping[str, float], picked: str) -> dict[str, Any]:
    """Accuracy over all plans, and whether the fastest was the one that would have been picked.

    Args:
        predicted_s, measured_s: seconds of a step, by the plan's name.
        picked: name of the plan that would have been picked.
    """
    accuracies = [accuracy(predicted_s[name], seconds) for name, seconds in measured_s.items()]
    best = min(measured_s, key=measured_s.__getitem__)
    return {
        "mean_accuracy": statistics.fmean(accuracies),
        "worst_accuracy": min(accuracies),
        "best_measured": best,
        "best_picked": picked,
        "picked_by_best": measured_s[picked] / measured_s[best],
    }
