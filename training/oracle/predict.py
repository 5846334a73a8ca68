"""A step's time on a measured machine: the plan's schedule, played with measured costs."""

from __future__ import annotations

from collections.abc import Sequence

from training.engine.partition import BlockCost
from training.engine.plan import Plan
from training.oracle.pricing import Pricing
from training.oracle.simulation.costs import stage_costs
from training.oracle.simulation.simulate import Timeline, simulate


def predict_step(plan: Plan, costs: Sequence[BlockCost], machine: Pricing) -> Timeline:
    """Play one full step of a plan.

    Args:
        costs: of the blocks, with the machine's seconds.
    """
    schedule = plan.schedule(plan.num_microbatches * plan.data_parallel)
    return simulate(schedule, machine.costs(stage_costs(costs, plan.cuts, plan.recompute), plan.placement))
