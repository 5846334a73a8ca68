"""Order of work of one training step, as plain data.

A schedule lists, for each rank, what it does and in which order. It knows no tensors, no devices and no
communication, so it can be executed (executor.py), checked (check.py), priced (simulate.py) and drawn (draw.py) by
parts that never disagree. What a rank gives and takes between its actions is written down once, in exchange.py.

    stage       consecutive blocks held by one rank, 0 .. num_stages - 1
    replica     one full copy of the network, laid over ranks by placement.py
    microbatch  index into the micro-batches of the whole step; each replica owns a contiguous range of them

`master` with two stages and two micro-batches; a mark (') stands for the mirrored replica. Its forward F1' runs
down the ranks behind the backward B0 of the first replica, and each rank holds the activations of one micro-batch:

    clock  rank 0  rank 1
        0  F0      .
        1  .       F0
        2  .       B0
        3  B0      F1'
        4  F1'     .
        5  B1'     .
        6  .       B1'

Then, after all forwards and backwards, R adds the gradients of a stage over the ranks that hold it, each its share of
the weights, and S updates them, each again its share, and hands the new weights round. Source of `mp-basic` and
`master`: GEMS (SC20).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import zip_longest
from typing import NamedTuple

from training.engine.placement import Placement, over_groups

MIRRORED = ("master", "chimera")
"""Strategies whose groups hold two replicas, the second in reverse rank order."""


class Op(StrEnum):
    """What an action does; the value is its letter in a drawing."""

    F = "F"
    """Forward of one micro-batch through one stage."""
    B = "B"
    """Backward of one micro-batch through one stage."""
    REDUCE = "R"
    """Add the gradients of a stage over all ranks that hold it: each rank those of its share of the weights."""
    STEP = "S"
    """Update the weights of a stage: each rank its share, which it then gives to the others."""


class Action(NamedTuple):
    """One entry of a schedule. REDUCE and STEP concern the whole step and have no micro-batch.

    Where a rank holds a stage of several replicas, one REDUCE and one STEP under the first of them serve them all.
    """

    op: Op
    replica: int
    stage: int
    microbatch: int | None = None

    def __str__(self) -> str:
        microbatch = "" if self.microbatch is None else f", micro-batch {self.microbatch}"
        return f"{self.op.name} of stage {self.stage}, replica {self.replica}{microbatch}"


@dataclass(frozen=True)
class Schedule:
    """What each rank does in one step: `ranks[r]` are the actions of rank r, in order."""

    strategy: str
    placement: Placement
    num_microbatches: int
    """Of the whole step, over all replicas."""
    ranks: tuple[tuple[Action, ...], ...]

    @property
    def num_stages(self) -> int:
        return self.placement.num_stages

    @property
    def num_directions(self) -> int:
        """Replicas in each group."""
        return 2 if self.strategy in MIRRORED else 1

    def rank_of(self, action: Action) -> int:
        """Rank that an action belongs on."""
        return self.placement.rank_of(action.replica, action.stage)

    def microbatches_of(self, replica: int) -> range:
        """Micro-batches that a replica owns."""
        ends = (-(-self.num_microbatches * r // self.placement.num_replicas) for r in (replica, replica + 1))
        return range(*ends)

    def replica_of(self, microbatch: int) -> int:
        """The replica that owns a micro-batch."""
        return microbatch * self.placement.num_replicas // self.num_microbatches

    def sources(self, action: Action) -> list[Action]:
        """The actions whose results a forward or backward takes, in order."""
        return self._in_chain(action, -1 if action.op is Op.F else +1)

    def targets(self, action: Action) -> list[Action]:
        """The actions that take the result of a forward or backward, in order."""
        return self._in_chain(action, +1 if action.op is Op.F else -1)

    def partners(self, action: Action) -> list[Action]:
        """The same REDUCE or STEP on the other ranks that hold its stage: they all meet in it. Else nobody."""
        if action.op in (Op.F, Op.B):
            return []
        mine, stage = self.rank_of(action), action.stage
        others = (rank for rank in self.placement.holders(stage) if rank != mine)
        return [Action(action.op, self.placement.first_held(rank, stage), stage) for rank in others]

    def _in_chain(self, action: Action, distance: int) -> list[Action]:
        stage = action.stage + distance
        if action.op not in (Op.F, Op.B) or not 0 <= stage < self.num_stages:
            return []
        return [Action(action.op, action.replica, stage, action.microbatch)]


class Held(NamedTuple):
    """One stage of one replica on a rank, with the micro-batches that pass through it."""

    replica: int
    stage: int
    microbatches: range

    def forward(self, microbatch: int) -> Action:
        return Action(Op.F, self.replica, self.stage, microbatch)

    def backward(self, microbatch: int) -> Action:
        return Action(Op.B, self.replica, self.stage, microbatch)


def one_at_a_time(held: Sequence[Held], num_stages: int) -> Iterator[Action]:
    """single, mp-basic, master: the replicas take turns, each finishes a micro-batch before its next."""
    for turn in zip_longest(*(copy.microbatches for copy in held)):
        for copy, microbatch in zip(held, turn, strict=True):
            if microbatch is not None:
                yield from (copy.forward(microbatch), copy.backward(microbatch))


def all_forward_then_all_backward(held: Sequence[Held], num_stages: int) -> Iterator[Action]:
    """gpipe: fills the stages once; every micro-batch is alive in the middle of the step (Huang et al. 2019)."""
    for copy in held:
        yield from map(copy.forward, copy.microbatches)
        yield from map(copy.backward, copy.microbatches)


def one_forward_one_backward(held: Sequence[Held], num_stages: int) -> Iterator[Action]:
    """1f1b: a stage runs ahead by its distance to the end, then alternates (DAPPLE, Fan et al. 2021)."""
    for copy in held:
        ahead = [None] * (num_stages - 1 - copy.stage)
        for forward, backward in zip([*copy.microbatches, *ahead], [*ahead, *copy.microbatches], strict=True):
            if forward is not None:
                yield copy.forward(forward)
            if backward is not None:
                yield copy.backward(backward)


def bidirectional(held: Sequence[Held], num_stages: int) -> Iterator[Action]:
    """chimera: two 1f1b waves in opposite directions on alternate clocks, S/2 micro-batches of each at a time.

    On a rank p of an even number S of stages, stage p of one replica works at clocks of one parity and stage S-1-p of
    the other at those of the other parity, forward and backward, so they never meet (Li & Hoefler, SC21).
    """

    def clock(action: Action) -> int:
        first = next(copy.microbatches.start for copy in held if copy.replica == action.replica)
        unit, place = divmod((action.microbatch or 0) - first, num_stages // 2)
        start = 2 * place + 2 * num_stages * unit
        return start + (action.stage if action.op is Op.F else 2 * num_stages - 1 - action.stage)

    return iter(sorted(all_forward_then_all_backward(held, num_stages), key=clock))


Generator = Callable[[Sequence[Held], int], Iterator[Action]]
"""(stages held by a rank, num_stages) -> that rank's forwards and backwards, in order."""

GENERATORS: dict[str, Generator] = {
    "single": one_at_a_time,
    "mp-basic": one_at_a_time,
    "master": one_at_a_time,
    "gpipe": all_forward_then_all_backward,
    "1f1b": one_forward_one_backward,
    "chimera": bidirectional,
}
STRATEGIES = tuple(GENERATORS)


def build_schedule(
    strategy: str, *, num_stages: int, num_microbatches: int, data_parallel: int = 1, forward_only: bool = False
) -> Schedule:
    """Write down the order of work of one step.

    Args:
        strategy: one of `STRATEGIES`.
        num_stages: S, ranks in a group.
        num_microbatches: of the whole step, over all groups and replicas. Where it does not divide evenly, some
            replicas have one more than others; with fewer micro-batches than replicas some have none.
        data_parallel: D, groups.
        forward_only: no backward, no update: what inference does.

    Raises:
        ValueError: the numbers do not fit the strategy.
    """
    check_request(strategy, num_stages=num_stages, num_microbatches=num_microbatches, data_parallel=data_parallel)
    placement = place(strategy, num_stages=num_stages, data_parallel=data_parallel)
    empty = Schedule(strategy, placement, num_microbatches, ranks=())
    held = [_held(empty, rank) for rank in range(placement.num_ranks)]
    if forward_only:
        return replace(empty, ranks=tuple(_forwards(empty, copies) for copies in held))
    generate = GENERATORS[strategy]
    ranks = ((*generate(copies, num_stages), *_updates(empty, rank)) for rank, copies in enumerate(held))
    return replace(empty, ranks=tuple(ranks))


def place(strategy: str, *, num_stages: int, data_parallel: int) -> Placement:
    """Where the stages of a strategy lie."""
    return over_groups(num_stages=num_stages, data_parallel=data_parallel, mirrored=strategy in MIRRORED)


def check_request(strategy: str, *, num_stages: int, num_microbatches: int, data_parallel: int) -> None:
    """Raises ValueError where the numbers do not fit the strategy, and says which would."""
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown strategy {strategy!r}; choose one of {', '.join(STRATEGIES)}")
    counts = {"num_stages": num_stages, "num_microbatches": num_microbatches, "data_parallel": data_parallel}
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be 1 or more, got {count}")
    if strategy == "single" and num_stages != 1:
        raise ValueError(f"single has exactly one stage, got num_stages={num_stages}; for more use mp-basic or master")
    if strategy == "chimera" and num_stages % 2:
        raise ValueError(
            f"chimera needs an even number of stages, got num_stages={num_stages}; use {num_stages + 1}, or 1f1b"
        )


def _held(schedule: Schedule, rank: int) -> list[Held]:
    return [
        Held(replica, stage, schedule.microbatches_of(replica)) for replica, stage in schedule.placement.held_by(rank)
    ]


def _forwards(schedule: Schedule, held: Sequence[Held]) -> tuple[Action, ...]:
    """Forwards as one wave per replica, merged by clock."""
    waves = [
        (copy.stage + schedule.num_directions * index, copy.forward(microbatch))
        for copy in held
        for index, microbatch in enumerate(copy.microbatches)
    ]
    return tuple(action for _, action in sorted(waves, key=lambda pair: pair[0]))


def _updates(schedule: Schedule, rank: int) -> Iterator[Action]:
    """After all forwards and backwards, stage by stage in an order that is the same on all ranks."""
    stages = sorted({stage for _, stage in schedule.placement.held_by(rank)})
    for op in (Op.REDUCE, Op.STEP):
        yield from (Action(op, schedule.placement.first_held(rank, stage), stage) for stage in stages)


class ScheduleError(ValueError):
    """A schedule loses work, keeps too much alive, or would stall."""
