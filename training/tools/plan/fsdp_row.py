"""ZeRO-3 (fsdp) as a row of the search's table: priced, though the engine has no such strategy.

Every rank has a share of each weight, its gradient and the optimizer's state. All weights are brought together before
the forward and again before the backward of each micro-batch (Rajbhandari et al., SC20); sums of gradients take what
they take in ddp, at the end of the step.
"""

from __future__ import annotations

from typing import Any

from training.oracle.search.candidates import Candidate
from training.oracle.simulation.costs import StageCost
from training.recipe.choice import with_candidate
from training.recipe.optimisation import optimizer_slots
from training.recipe.planned import Planned


def fsdp_row(planned: Planned, ddp: Candidate, row: dict[str, Any]) -> dict[str, Any] | None:
    """The row beside that of a ddp plan; None on one rank.

    Args:
        planned: with seconds.
        ddp: a whole network on each rank.
        row: its row of the table.
    """
    ranks, pricing = ddp.data_parallel, planned.machine
    if pricing is None or ranks < 2:
        return None
    chosen = with_candidate(planned, ddp)
    plan = chosen.plan
    weight_bytes = sum(cost.weight_bytes for cost in planned.costs)
    stage = [StageCost(0.0, 0.0, weight_bytes=weight_bytes)]
    group = plan.schedule(plan.num_microbatches * ranks)
    with_exchange, without = (
        pricing.group_costs(stage, group, plan.placement).stages[0],
        pricing.costs(stage, plan.placement).stages[0],
    )
    gathered_s = with_exchange.step_s - without.step_s
    kept = weight_bytes * (2 + optimizer_slots(planned.recipe.optim)) / ranks
    gathered_bytes = max(cost.weight_bytes for cost in planned.costs)
    seconds = row["seconds"] + 2 * ddp.num_microbatches * gathered_s
    return {
        **row,
        "strategy": "fsdp",
        "parts": [],
        "seconds": seconds,
        "tiles_per_s": row["tiles_per_s"] * row["seconds"] / seconds,
        "bytes": int(row["bytes"] - chosen.state_bytes(0) + kept + gathered_bytes),
        "communication": None,
        "parallel": None,
        "has_runtime": False,
    }
