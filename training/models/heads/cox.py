"""Cox's partial likelihood with Efron's handling of ties, and its gradient, in closed form.

For the d events D at one time, R at risk (all who are followed to that time or beyond), and risks r, the loss adds

    sum over l = 0 .. d - 1 of  log(sum over R of exp(r) - l/d · sum over D of exp(r))  -  sum over D of r

and is divided by the number of events. All sums of exponentials are taken by their logarithms, relative to those at
risk at the same time, so that risks of any size neither overflow nor vanish.

Sources: Cox, "Regression Models and Life-Tables" (JRSS B 34, 1972); Efron, "The Efficiency of Cox's Likelihood Function
for Censored Data" (JASA 72, 1977).
"""

from __future__ import annotations

import torch
from torch import Tensor


def cox_efron(risks_n: Tensor, times_n: Tensor, events_n: Tensor) -> tuple[float, Tensor]:
    """Negative log partial likelihood per event, and its gradient by the risks, in O(n log n).

    Args:
        risks_n: log risks; a higher one means an earlier event.
        times_n: times of event or censoring, in any unit.
        events_n: true, or not 0, for an event; the others are censored. A patient censored at the time of an event was
            at risk of it.

    Returns:
        the loss, and float64 (n,) on the device of the risks.

    Raises:
        ValueError: there is no event, lengths differ, or a value is not finite: leave out patients without a time.
    """
    risks_n = risks_n.detach().double()
    times_n, events_n = times_n.to(risks_n.device).double(), events_n.to(risks_n.device).double()
    _check(risks_n, times_n, events_n)
    order_n = torch.argsort(times_n, descending=True, stable=True)
    r_n, is_event_n = risks_n[order_n], events_n[order_n] != 0
    _, group_n, sizes_g = torch.unique_consecutive(times_n[order_n], return_inverse=True, return_counts=True)
    zeros_g = torch.zeros(len(sizes_g), dtype=torch.float64, device=r_n.device)

    # Logarithm of the sum of exp(r) over those at risk, by distinct time (g), from the last.
    log_at_risk_g = torch.logcumsumexp(r_n, dim=0)[sizes_g.cumsum(0) - 1]
    share_n = (r_n - log_at_risk_g[group_n]).exp()

    group_e, share_e = group_n[is_event_n], share_n[is_event_n]
    num_events_g = torch.bincount(group_e, minlength=len(sizes_g))
    tied_share_g = zeros_g.index_add(0, group_e, share_e)
    # l/d of every event: its place among those at its time.
    first_g = num_events_g.cumsum(0) - num_events_g
    place_e = torch.arange(len(group_e), device=r_n.device) - first_g[group_e]
    fraction_e = place_e.double() / num_events_g[group_e]
    # The shares of a time may exceed 1 by a rounding error.
    rest_e = 1 - fraction_e * tied_share_g[group_e].clamp(max=1.0)

    num_events = len(group_e)
    loss = (log_at_risk_g[group_e] + rest_e.log() - r_n[is_event_n]).sum() / num_events

    # Everyone is at risk at all times up to their own: cumulated from the first time, the last in this order.
    hazard_g = zeros_g.index_add(0, group_e, 1 / rest_e)
    log_hazard_g = torch.logcumsumexp((hazard_g.log() - log_at_risk_g).flip(0), dim=0).flip(0)
    expected_n = (r_n + log_hazard_g[group_n]).exp()
    tied_g = zeros_g.index_add(0, group_e, fraction_e / rest_e)
    observed_n = torch.where(is_event_n, 1 + share_n * tied_g[group_n], 0.0)
    gradient_n = torch.empty_like(r_n).index_copy_(0, order_n, (expected_n - observed_n) / num_events)
    return float(loss), gradient_n


def _check(risks_n: Tensor, times_n: Tensor, events_n: Tensor) -> None:
    shapes = {name: tuple(x.shape) for name, x in (("risks", risks_n), ("times", times_n), ("events", events_n))}
    if risks_n.ndim != 1 or len(set(shapes.values())) > 1:
        raise ValueError(f"risks, times and events must be rows of one length, got shapes {shapes}")
    for name, x_n in (("risks", risks_n), ("times", times_n), ("events", events_n)):
        wrong = (~x_n.isfinite()).nonzero()
        if len(wrong):
            raise ValueError(f"{name} must be finite, got {float(x_n[wrong[0, 0]])} in row {int(wrong[0, 0])}")
    if not events_n.any():
        raise ValueError(
            f"a Cox loss needs an event among its {len(events_n)} patients; draw the step's patients so that it has one"
        )
