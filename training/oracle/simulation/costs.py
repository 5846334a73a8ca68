"""Cost of each stage, from the costs of its blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from training.engine.partition import BlockCost, BlockTimes, stage_ranges
from training.engine.placement import Placement
from training.engine.plan import Plan
from training.engine.recompute import Recompute, Segment
from training.engine.schedule import Action, Op
from training.oracle.simulation.divided import DividedCosts
from training.oracle.simulation.links import Network, instant, swaps_s
from training.parallel.division import NO_SWAPS, WHOLE, Division, Swaps

BACKWARD_PER_FORWARD = 2.0
"""Ratio of operations in backward to those in forward: gradients of inputs and of weights."""


@dataclass(frozen=True)
class StageCost:
    """Cost of one stage: of one micro-batch, and of the update at the end of the step. Times in any unit."""

    forward_s: float
    backward_s: float
    """Includes recomputation."""
    kept_bytes: int = 0
    """Bytes kept from forward to backward."""
    recomputed_bytes: int = 0
    """Further bytes at the worst moment of backward."""
    input_bytes: int = 0
    """Received from the stage before, by all parts together."""
    gradient_bytes: int = 0
    """Sent back to it, by all parts together."""
    weight_bytes: int = 0
    """Weights that are trained; their gradients take as much."""
    branch_bytes: int = 0
    """Those of them that only this part has."""
    reduce_s: float = 0.0
    """Sum of the gradients, once they are on the rank."""
    step_s: float = 0.0
    """Update of the weights, without their distribution."""
    at_once_s: float = 0.0
    """Part of `backward_s` that is saved where a backward follows its own forward: what is recomputed first is kept."""
    alone: float = 1.0
    """Factor, at most 1, of the times of forward and backward while no other rank computes."""
    division: Division = WHOLE
    """The costs are those of one of these parts."""
    forward_swaps: Swaps = NO_SWAPS
    """Messages between the parts."""
    backward_swaps: Swaps = NO_SWAPS
    """Includes those of recomputation."""
    backward_at_once_swaps: Swaps = NO_SWAPS
    """The same where a backward follows its own forward."""

    def held(self, placement: Placement, stage: int, part: int = 0) -> list[tuple[int, tuple[int, ...]]]:
        """Weights of a part, in bytes, with the ranks that have them: those of all parts, and its own."""
        shared = self.weight_bytes - self.branch_bytes, placement.holders(stage)
        return [shared, (self.branch_bytes, placement.holders(stage, part))] if self.branch_bytes else [shared]

    def owned_bytes(self, placement: Placement, stage: int) -> float:
        """Weights that a rank updates."""
        return sum(num_bytes / len(holders) for num_bytes, holders in self.held(placement, stage))

    def with_swaps(self, gradient_sets: int, swapped_s: float) -> StageCost:
        """The same with the exchange of weights, and of so many sets of gradients, as part of update and sum."""
        reduce_s, step_s = self.reduce_s + gradient_sets * swapped_s, self.step_s + swapped_s
        return replace(self, weight_bytes=0, branch_bytes=0, reduce_s=reduce_s, step_s=step_s)


@dataclass(frozen=True)
class Costs:
    """Everything that decides how long a step takes."""

    stages: Sequence[StageCost]
    network: Network = instant
    agree_s: float = 0.0
    """Exchange of losses and norms between all ranks, before the weights are updated."""
    slowness: Sequence[float] | None = None
    """By rank: factor of its times; None if all ranks are equal."""
    meeting_s: float = 0.0
    """Further time of a message if both sides come to it at the same time."""
    groups: int = 1
    """Groups that do the same at the same time, of which one is played."""

    def seconds(self, action: Action, rank: int, before: Action | None = None) -> float:
        """How long a rank takes for an action, which may depend on the one before it."""
        cost = self.stages[action.stage]
        by_op = {Op.F: cost.forward_s, Op.B: cost.backward_s, Op.REDUCE: cost.reduce_s, Op.STEP: cost.step_s}
        saved_s = cost.at_once_s if action.op is Op.B and before == action._replace(op=Op.F) else 0.0
        return (by_op[action.op] - saved_s) * (1.0 if self.slowness is None else self.slowness[rank])

    def swaps_s(self, action: Action, ranks: Sequence[int], before: Action | None = None) -> float:
        """How long the parts of a stage, on these ranks, take for the messages inside an action."""
        cost = self.stages[action.stage]
        if action.op is Op.F:
            swaps = cost.forward_swaps
        elif action.op is Op.B:
            swaps = cost.backward_at_once_swaps if before == action._replace(op=Op.F) else cost.backward_swaps
        else:
            return 0.0
        return swaps_s(self.network, swaps, ranks, self.meeting_s)

    def message_bytes(self, giver: Action, taker: Action) -> float:
        """Bytes that an action gives to one of the stage after it (forward) or before it (backward)."""
        sides = [(action.part, self.stages[action.stage].division) for action in (giver, taker)]
        if giver.op is Op.F:
            return self.stages[taker.stage].input_bytes * _share(*sides[0], *sides[1], forward=True)
        return self.stages[giver.stage].gradient_bytes * _share(*sides[1], *sides[0], forward=False)


def _share(before: int, giving: Division, after: int, taking: Division, *, forward: bool) -> float:
    """What passes between a part of one stage and a part of the next, relative to the whole (engine/parts.py)."""
    is_cut = giving.split == "rows" if giving.parts > 1 else taking.split == "rows"
    if is_cut:
        start = max(before / giving.parts, after / taking.parts)
        return max(min((before + 1) / giving.parts, (after + 1) / taking.parts) - start, 0.0)
    if giving.parts == taking.parts:
        return float(before == after)
    return float(after * giving.parts // taking.parts == before) if forward else 1.0


def stage_costs(
    blocks: Sequence[BlockCost], cuts: Sequence[int], recompute: Recompute, *, flops_per_s: float = 1.0
) -> list[StageCost]:
    """Compute the cost of each stage, from the seconds of its blocks or else from their operations.

    Args:
        blocks: of the whole network, from `partition.block_costs`.
        flops_per_s: of one rank, for blocks that have not been measured; 1.0 gives times in operations.
    """
    blocks = [replace(block, times=block.times or _from_flops(block, flops_per_s)) for block in blocks]
    return [
        stage_cost(
            [blocks[index] for index in indices],
            recompute.segments(stage, len(indices)),
            is_first=stage == 0,
            is_last=stage == len(cuts),
        )
        for stage, indices in enumerate(stage_ranges(cuts, len(blocks)))
    ]


def plan_stage_costs(plan: Plan, costs: DividedCosts) -> list[StageCost]:
    """Compute the cost of each stage of a plan.

    Args:
        costs: of the blocks, undivided and under each division of the plan.
    """
    ranges = stage_ranges(plan.cuts, len(costs[WHOLE]))
    return [
        stage_cost(
            [costs[division][index] for index in indices],
            plan.recompute.segments(stage, len(indices)),
            is_first=stage == 0,
            is_last=stage == plan.num_stages - 1,
            division=division,
            taken=costs[WHOLE][indices.start],
            parts_here=division.parts if plan.virtual_parts else 1,
        )
        for stage, (indices, division) in enumerate(zip(ranges, plan.divisions, strict=True))
    ]


def stage_cost(
    blocks: Sequence[BlockCost],
    segments: Sequence[Segment],
    *,
    is_first: bool,
    is_last: bool,
    division: Division = WHOLE,
    taken: BlockCost | None = None,
    parts_here: int = 1,
) -> StageCost:
    """Compute the cost of one stage from its blocks and their treatment.

    Args:
        blocks: their costs under the stage's division.
        taken: the first block, undivided, for what all parts take together; None: it is undivided.
        parts_here: parts on one rank, which computes them one after the other.
    """
    times = [block.times or _from_flops(block, 1.0) for block in blocks]
    taken = taken or blocks[0]
    again = last_again = NO_SWAPS
    again_s = last_again_s = 0.0
    kept = worst = 0
    for segment in segments:
        last_again_s, last_again = 0.0, NO_SWAPS
        own, own_times = [blocks[i] for i in segment.blocks], [times[i] for i in segment.blocks]
        saved = [block.saved_bytes for block in own]
        if segment.policy == "recompute":
            last_again_s = sum(each.forward_s for each in own_times)
            again_s += last_again_s
            last_again = _all(block.forward_swaps for block in own)
            again += last_again
            kept += own[0].input_bytes
            worst = max(worst, kept + sum(saved))  # the segments after it have been released by then
        elif segment.policy == "offload":
            again_s += sum(each.offload_s for each in own_times)
            kept += own[0].input_bytes
            worst = max(worst, kept + max(map(sum, pairwise([0, *saved]))))  # one block, and the one before it
        elif segment.policy == "norm":
            again_s += sum(each.norm_s for each in own_times)
            kept += sum(block.norm_bytes for block in own)
        else:
            kept += sum(saved)
    back = _all(block.backward_swaps for block in blocks) + again
    return StageCost(
        parts_here * sum(each.forward_s for each in times),
        parts_here * (sum(each.backward_s for each in times) + again_s),
        parts_here * kept,
        parts_here * max(worst - kept, 0),
        input_bytes=0 if is_first else taken.input_bytes,
        gradient_bytes=0 if is_first else taken.gradient_bytes,
        weight_bytes=sum(block.weight_bytes for block in blocks),
        branch_bytes=sum(block.branch_bytes for block in blocks),
        at_once_s=parts_here * last_again_s if is_last else 0.0,
        alone=_alone(times),
        division=division,
        forward_swaps=_all(block.forward_swaps for block in blocks),
        backward_swaps=back,
        backward_at_once_swaps=back - last_again if is_last else back,
    )


def _all(swaps: Iterable[Swaps]) -> Swaps:
    return sum(swaps, NO_SWAPS)


def _alone(times: Sequence[BlockTimes]) -> float:
    """The factor of a whole stage."""
    together_s = sum(each.forward_s + each.backward_s for each in times)
    alone_s = sum(each.alone * (each.forward_s + each.backward_s) for each in times)
    return alone_s / together_s if together_s else 1.0


def _from_flops(block: BlockCost, flops_per_s: float) -> BlockTimes:
    """Times of a block that has not been measured: normalisations and copies to host memory count as free."""
    forward_s = block.flops / flops_per_s
    return BlockTimes(forward_s, BACKWARD_PER_FORWARD * forward_s)
