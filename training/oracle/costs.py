"""Cost of each stage, from the costs of its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from training.engine.partition import BlockCost, stage_ranges
from training.engine.recompute import Recompute
from training.engine.schedule import Action, Op
from training.oracle.links import Network, instant

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
    """Received from the stage before."""
    gradient_bytes: int = 0
    """Sent back to it."""
    weight_bytes: int = 0
    """Weights that are trained; their gradients take as much."""
    reduce_s: float = 0.0
    """Sum of the gradients, once they are on the rank."""
    step_s: float = 0.0
    """Update of the weights, without their distribution."""


@dataclass(frozen=True)
class Costs:
    """Everything that decides how long a step takes."""

    stages: Sequence[StageCost]
    network: Network = instant
    agree_s: float = 0.0
    """Exchange of losses and norms between all ranks, before the weights are updated."""
    slowness: Sequence[float] | None = None
    """By rank: factor of its times; None if all ranks are equal."""

    def seconds(self, action: Action, rank: int) -> float:
        """How long a rank takes for an action."""
        cost = self.stages[action.stage]
        by_op = {Op.F: cost.forward_s, Op.B: cost.backward_s, Op.REDUCE: cost.reduce_s, Op.STEP: cost.step_s}
        return by_op[action.op] * (1.0 if self.slowness is None else self.slowness[rank])

    def message_bytes(self, giver: Action) -> int:
        """Bytes that an action gives to the stage after it (forward) or before it (backward)."""
        if giver.op is Op.F:
            return self.stages[giver.stage + 1].input_bytes
        return self.stages[giver.stage].gradient_bytes


def stage_costs(
    blocks: Sequence[BlockCost], cuts: Sequence[int], recompute: Recompute, *, flops_per_s: float = 1.0
) -> list[StageCost]:
    """Compute the cost of each stage from its operations.

    Args:
        blocks: of the whole network, from `partition.block_costs`.
        flops_per_s: of one rank; 1.0 gives times in operations.
    """
    return [
        _stage_cost([blocks[index] for index in indices], stage, recompute, flops_per_s)
        for stage, indices in enumerate(stage_ranges(cuts, len(blocks)))
    ]


def _stage_cost(blocks: Sequence[BlockCost], stage: int, recompute: Recompute, flops_per_s: float) -> StageCost:
    forward = sum(block.flops for block in blocks)
    again = kept = worst = 0
    for segment in recompute.segments(stage, len(blocks)):
        saved = [blocks[index].saved_bytes for index in segment.blocks]
        if segment.policy == "recompute":
            again += sum(blocks[index].flops for index in segment.blocks)
            kept += blocks[segment.blocks.start].input_bytes
            worst = max(worst, kept + sum(saved))  # the segments after it have been released by then
        elif segment.policy == "offload":
            kept += blocks[segment.blocks.start].input_bytes
            worst = max(worst, kept + max(map(sum, pairwise([0, *saved]))))  # one block, and the one before it
        elif segment.policy == "norm":
            kept += sum(block.norm_bytes for block in blocks[segment.blocks.start : segment.blocks.stop])
        else:
            kept += sum(saved)
    return StageCost(
        forward / flops_per_s,
        (BACKWARD_PER_FORWARD * forward + again) / flops_per_s,
        kept,
        max(worst - kept, 0),
        input_bytes=blocks[0].input_bytes if stage else 0,
        gradient_bytes=blocks[0].gradient_bytes if stage else 0,
        weight_bytes=sum(block.weight_bytes for block in blocks),
    )
