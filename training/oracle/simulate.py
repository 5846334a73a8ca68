"""Cost of a schedule: time and kept activations per rank, from the costs of the blocks; no tensors.

Each rank does its actions in order, and starts one when it is free and the action's inputs have arrived. Messages take
no time unless `message_s` says so. The difference from real steps is measured in docs/explanation/engine.md.

For stages of equal cost the time agrees with the closed form of each strategy (strategies.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from training.engine.partition import BlockCost, stage_ranges
from training.engine.recompute import Recompute
from training.engine.schedule import Action, Op, Schedule, ScheduleError

BACKWARD_PER_FORWARD = 2.0
"""Ratio of operations in backward to those in forward: gradients of inputs and of weights."""


@dataclass(frozen=True)
class StageCost:
    """Cost of one micro-batch in one stage. Times in any unit."""

    forward_s: float
    backward_s: float
    """Includes recomputation."""
    kept_bytes: int = 0
    """Bytes kept from forward to backward."""
    recomputed_bytes: int = 0
    """Further bytes at the worst moment of backward."""


@dataclass(frozen=True)
class Span:
    """One action in time."""

    action: Action
    start_s: float
    end_s: float
    live_bytes: int
    """Peak of the rank's activations while it lasts."""


@dataclass(frozen=True)
class Timeline:
    """A whole step."""

    ranks: tuple[tuple[Span, ...], ...]

    @property
    def end_s(self) -> float:
        return max((span.end_s for spans in self.ranks for span in spans), default=0.0)

    @property
    def bubble(self) -> float:
        """Fraction of the ranks' time in which they are idle."""
        busy = sum(span.end_s - span.start_s for spans in self.ranks for span in spans)
        return 1.0 - busy / (self.end_s * len(self.ranks)) if self.end_s else 0.0

    @property
    def peak_bytes(self) -> tuple[int, ...]:
        """Kept by autograd and recomputation, by rank; predict.py also counts what is in transit between ranks."""
        return tuple(max((span.live_bytes for span in spans), default=0) for spans in self.ranks)


def simulate(schedule: Schedule, costs: Sequence[StageCost], *, message_s: float = 0.0) -> Timeline:
    """Play a schedule.

    Args:
        costs: one for each stage.
        message_s: time from the end of an action to the start of one on another rank that takes its result.

    Raises:
        ScheduleError: the schedule stalls.
    """
    ends: dict[Action, float] = {}
    arrivals: dict[Action, float] = {}
    spans: list[list[Span]] = [[] for _ in schedule.ranks]
    live = [0] * len(schedule.ranks)
    moved = True
    while moved:
        moved = False
        for rank, actions in enumerate(schedule.ranks):
            for action in actions[len(spans[rank]) :]:
                if action not in arrivals:
                    arrivals[action] = spans[rank][-1].end_s if spans[rank] else 0.0
                    moved = True
                if not _is_ready(schedule, action, ends, arrivals):
                    break
                span = _span(schedule, action, costs, ends, arrivals, live[rank], message_s)
                live[rank] += _kept_change(action, costs)
                spans[rank].append(span)
                ends[action] = span.end_s
                moved = True
    if any(len(done) < len(actions) for done, actions in zip(spans, schedule.ranks, strict=True)):
        raise ScheduleError("the schedule stalls; check_schedule says where")
    return Timeline(tuple(map(tuple, spans)))


def _is_ready(schedule: Schedule, action: Action, ends: dict[Action, float], arrivals: dict[Action, float]) -> bool:
    return all(source in ends for source in schedule.sources(action)) and all(
        partner in arrivals for partner in schedule.partners(action)
    )


def _span(
    schedule: Schedule,
    action: Action,
    costs: Sequence[StageCost],
    ends: dict[Action, float],
    arrivals: dict[Action, float],
    live_bytes: int,
    message_s: float,
) -> Span:
    rank = schedule.rank_of(action)
    from_others = [ends[s] + (message_s if schedule.rank_of(s) != rank else 0.0) for s in schedule.sources(action)]
    start = max([arrivals[action], *from_others, *(arrivals[partner] for partner in schedule.partners(action))])
    cost = costs[action.stage]
    seconds = {Op.F: cost.forward_s, Op.B: cost.backward_s}.get(action.op, 0.0)
    extra = {Op.F: cost.kept_bytes, Op.B: cost.recomputed_bytes}.get(action.op, 0)
    return Span(action, start, start + seconds, live_bytes + extra)


def _kept_change(action: Action, costs: Sequence[StageCost]) -> int:
    sign = {Op.F: 1, Op.B: -1}.get(action.op, 0)
    return sign * costs[action.stage].kept_bytes


def stage_costs(
    blocks: Sequence[BlockCost], cuts: Sequence[int], recompute: Recompute, *, flops_per_s: float = 1.0
) -> list[StageCost]:
    """Compute the cost of each stage from its operations.

    Args:
        blocks: of the whole network, from `partition.block_costs`.
        flops_per_s: of one rank; 1.0 gives times in operations.
    """
    costs = []
    for stage, indices in enumerate(stage_ranges(cuts, len(blocks))):
        inside = [blocks[index] for index in indices]
        forward = sum(block.flops for block in inside)
        again = kept = worst = 0
        for segment in recompute.segments(stage, len(inside)):
            saved = [inside[index].saved_bytes for index in segment.blocks]
            if segment.policy == "recompute":
                again += sum(inside[index].flops for index in segment.blocks)
                kept += inside[segment.blocks.start].input_bytes
                worst = max(worst, kept + sum(saved))  # the segments after it have been released by then
            elif segment.policy == "offload":
                kept += inside[segment.blocks.start].input_bytes
                worst = max(worst, kept + max(map(sum, pairwise([0, *saved]))))  # one block, and the one before it
            elif segment.policy == "norm":
                kept += sum(inside[index].norm_bytes for index in segment.blocks)
            else:
                kept += sum(saved)
        backward = BACKWARD_PER_FORWARD * forward + again
        costs.append(StageCost(forward / flops_per_s, backward / flops_per_s, kept, max(worst - kept, 0)))
    return costs
