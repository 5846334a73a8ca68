"""Costs of sub-graphs: what is counted of one, who exchanges its weights, and what a step of groups of them takes."""

from __future__ import annotations

import pytest

from tests.distributed.networks import branching_network
from training.engine.plan import make_plan
from training.oracle.simulation.costs import Costs, StageCost, plan_stage_costs
from training.oracle.simulation.divided import divided_costs
from training.oracle.simulation.links import Link, pairs
from training.oracle.simulation.simulate import simulate
from training.parallel.branches import branches_in
from training.parallel.division import WHOLE, Division

SHAPE = (2, 3, 12, 16)


def bytes_of(blocks) -> tuple[int, int]:
    """Of all weights, and of those in branches."""
    all_of_them = sum(weight.nbytes for block in blocks for weight in block.parameters())
    inside = [each for block in blocks for each in branches_in(block)]
    return all_of_them, sum(weight.nbytes for each in inside for weight in each.parameters())


@pytest.mark.parametrize("num_parts", [2, 3])
def test_a_sub_graph_counts_its_own_branches_and_two_sums_for_each_block_with_branches(num_parts):
    blocks, division = branching_network(), Division(num_parts, "branches")
    costs = divided_costs(blocks, SHAPE, [WHOLE, division])
    blocks[1].towers.keep(num_parts - 1, num_parts)
    blocks[3].heads.keep(num_parts - 1, num_parts)
    blocks[4].heads.keep(num_parts - 1, num_parts)

    everything, inside = bytes_of(blocks)
    assert sum(cost.weight_bytes for cost in costs[division]) == everything
    assert sum(cost.branch_bytes for cost in costs[division]) == inside
    assert sum(cost.branch_bytes for cost in costs[WHOLE]) == 0
    for index, (mine, whole) in enumerate(zip(costs[division], costs[WHOLE], strict=True)):
        has_branches = index in (1, 3, 4)
        assert (mine.flops < whole.flops) == has_branches
        sums = 1 if has_branches else 0  # of small tensors, each in one group of messages
        assert mine.forward_swaps.count == sums, index
        assert mine.backward_swaps.count == sums, index


def test_a_step_takes_what_each_group_of_ranks_exchanges():
    """Two groups of two sub-graphs: 60 bytes that all four have, and 100 that two have, at one byte a second."""
    stage = StageCost(1.0, 2.0, weight_bytes=160, branch_bytes=100)
    plan = make_plan("subgraph", costs=[1.0], data_parallel=2, parts=(2,), split=("branches",))
    assert stage.held(plan.placement, 0, 1) == [(60, (0, 1, 2, 3)), (100, (1, 3))]
    assert stage.owned_bytes(plan.placement, 0) == 60 / 4 + 100 / 2

    network = pairs(Link("link", 0.0, 1.0))
    end_s = simulate(plan.schedule(2), Costs([stage], network)).end_s
    assert end_s == pytest.approx(1.0 + 2.0 + 2 * (60 / 4 + 100 / 2))


def test_a_plan_of_sub_graphs_has_their_costs():
    costs = divided_costs(branching_network(), SHAPE, [WHOLE, Division(2, "branches")])
    plan = make_plan("subgraph", costs=[1.0] * 6, parts=(2,), split=("branches",))
    (stage,) = plan_stage_costs(plan, costs)
    assert 0 < stage.branch_bytes < stage.weight_bytes
    assert stage.forward_swaps.count == 3
