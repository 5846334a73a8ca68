"""Cox's proportional hazards with a ridge penalty, by Newton's method; ties as Breslow counts them.

Minimises −log L(β) + strength/2 · |β|². Its risks fit `statistics.survival.breslow`, which counts ties alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
MOST_STEPS, MOST_HALVINGS = 100, 40
LEAST_EXPONENT = -500.0
"""Relative risks stay above 0, so that nothing is divided by it."""
_SMALL = 1e-9


def cox_ridge(x_nd: Values, times_n: Values, events_n: NDArray[np.bool_], strength: float) -> Values:
    """Coefficients, (columns,), of units' columns; the risk of a unit is their product.

    Args:
        x_nd: (units, columns), centred. times_n: (units,), above 0. events_n: bool (units,), at least one True.
        strength: of the penalty, above 0, so that there is exactly one minimum.
    """
    order = np.argsort(-times_n, kind="stable")
    x, events, descending = x_nd[order], events_n[order], -times_n[order]
    # At risk at an event are all units up to the last one of the same time.
    last_n = np.searchsorted(descending, descending, side="right") - 1
    beta = np.zeros(x.shape[1])
    loss = _loss(x, events, last_n, beta, strength)
    for _ in range(MOST_STEPS):
        gradient, hessian = _derivatives(x, events, last_n, beta, strength)
        step = np.linalg.solve(hessian, gradient)
        size = 1.0
        for _ in range(MOST_HALVINGS):
            tried = _loss(x, events, last_n, beta - size * step, strength)
            if tried <= loss:
                break
            size /= 2
        else:
            return beta
        beta = beta - size * step
        if loss - tried <= _SMALL * (1 + abs(loss)) and size * np.abs(step).max() <= 1e-6:
            return beta
        loss = tried
    return beta


def _loss(x: Values, events: NDArray[np.bool_], last_n: NDArray[np.int64], beta: Values, strength: float) -> float:
    risks = x @ beta
    log_sums = np.logaddexp.accumulate(risks)[last_n]
    return float((log_sums - risks)[events].sum() + strength / 2 * beta @ beta)


def _derivatives(
    x: Values, events: NDArray[np.bool_], last_n: NDArray[np.int64], beta: Values, strength: float
) -> tuple[Values, Values]:
    """Gradient (columns,) and Hessian (columns, columns) of the loss."""
    risks = x @ beta
    weights = np.exp(np.maximum(risks - risks.max(), LEAST_EXPONENT))
    sums_n = np.cumsum(weights)[last_n]
    means_ed = (np.cumsum(weights[:, None] * x, axis=0)[last_n] / sums_n[:, None])[events]
    gradient = (means_ed - x[events]).sum(0) + strength * beta
    # Each unit counts in every event at whose time it is at risk.
    per_event = np.zeros(len(x))
    np.add.at(per_event, last_n[events], 1 / sums_n[events])
    share_n = weights * np.cumsum(per_event[::-1])[::-1]
    hessian = (x * share_n[:, None]).T @ x - means_ed.T @ means_ed
    return gradient, hessian + strength * np.eye(x.shape[1])
