"""A step's time on a measured machine: the plan's schedule, played with measured costs."""

from __future__ import annotations

from training.engine.plan import Plan
from training.oracle.pricing import Pricing
from training.oracle.simulation.costs import plan_stage_costs
from training.oracle.simulation.divided import DividedCosts
from training.oracle.simulation.simulate import Timeline, simulate


def predict_step(plan: Plan, costs: DividedCosts, machine: Pricing) -> Timeline:
    """Play one full step of a plan.

    Args:
        costs: of the blocks, undivided and under each division of the plan, with the machine's seconds.
    """
    schedule = plan.schedule(plan.num_microbatches * plan.data_parallel)
    return simulate(schedule, machine.costs(plan_stage_costs(plan, costs), plan.placement))
