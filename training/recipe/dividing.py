"""Parts that a search may give the stages of a recipe, where that can pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from training.engine.partition import BlockCost
from training.engine.recompute import Recompute
from training.oracle.simulation.costs import StageCost, stage_costs
from training.parallel.division import Division
from training.recipe.plan import costs_of
from training.recipe.planned import Planned

MOST_PARTS = 8
"""Most parts of a stage that are searched."""


def with_parts_to_choose(planned: Planned, num_ranks: int, cap_bytes: float) -> Planned:
    """Add costs of parts by rows, if a step has fewer micro-batches than there are ranks, or a tile is too large.

    Args:
        cap_bytes: memory of a rank.
    """
    parallel = planned.recipe.parallel
    may_pay = parallel.data_parallel * parallel.num_microbatches < num_ranks or not _fits(planned.costs, cap_bytes)
    if planned.plan.compiled or not may_pay:
        return planned
    numbers = [parts for parts in range(2, min(num_ranks, MOST_PARTS) + 1) if num_ranks % parts == 0]
    wanted = [Division(parts, "rows") for parts in numbers]
    missing = [division for division in wanted if division not in planned.divided]
    try:
        costs = costs_of(planned.recipe, planned.blocks, planned.side_px, planned.plan.device, missing)
    except ValueError:  # a block cannot be computed in parts
        return planned
    return replace(planned, divided={**planned.divided, **costs})


def _fits(costs: Sequence[BlockCost], cap_bytes: float) -> bool:
    """Whether a rank has room for a whole network, with recomputation if need be."""
    _, least = least_memory(costs)
    return least.kept_bytes + least.recomputed_bytes <= cap_bytes


def least_memory(costs: Sequence[BlockCost]) -> tuple[Recompute, StageCost]:
    """Recomputation with which a whole network on one rank keeps the least memory, and its cost."""
    every_k = [Recompute(every=k) for k in range(1, len(costs) + 1)]
    priced = [(recompute, stage_costs(costs, (), recompute)[0]) for recompute in every_k]
    return min(priced, key=lambda pair: pair[1].kept_bytes + pair[1].recomputed_bytes)
