"""Order of work of one training step, as plain data.

A schedule lists, for each rank, what it does and in which order. It knows no tensors, no devices and no
communication, so it can be written (strategies.py), executed (executor.py), checked (check.py), timed and
drawn (training/oracle) by parts that never disagree. The messages of a rank between its actions are defined only in
exchange.py.

    stage       consecutive blocks held by one rank, 0 .. num_stages - 1
    replica     one full copy of the network, laid over ranks by placement.py
    microbatch  index into the micro-batches of the whole step; each replica owns a contiguous range of them

`master` with two stages and two micro-batches; a mark (') stands for the mirrored replica. Its forward F1' runs
down the ranks after the backward B0 of the first replica, and each rank holds the activations of one micro-batch:

    clock  rank 0  rank 1
        0  F0      .
        1  .       F0
        2  .       B0
        3  B0      F1'
        4  F1'     .
        5  B1'     .
        6  .       B1'

Then, after all forwards and backwards, R adds the gradients of a stage over the ranks that hold it, each its share of
the weights, and S updates them, each again its share, and distributes the new weights. Source of `mp-basic` and
`master`: GEMS (SC20).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from training.engine.placement import Placement, overlapping


class Op(StrEnum):
    """Kind of an action; the value is its letter in a drawing."""

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
    Where it holds several parts of a stage, each of its actions is under the first and does the work of all.
    """

    op: Op
    replica: int
    stage: int
    microbatch: int | None = None
    part: int = 0

    def __str__(self) -> str:
        part = f", part {self.part}" if self.part else ""
        microbatch = "" if self.microbatch is None else f", micro-batch {self.microbatch}"
        return f"{self.op.name} of stage {self.stage}{part}, replica {self.replica}{microbatch}"


@dataclass(frozen=True)
class Schedule:
    """Actions of each rank in one step: `ranks[r]` are those of rank r, in order."""

    strategy: str
    placement: Placement
    num_microbatches: int
    """Number in the whole step, over all replicas."""
    ranks: tuple[tuple[Action, ...], ...]

    @property
    def num_stages(self) -> int:
        return self.placement.num_stages

    @property
    def num_directions(self) -> int:
        """Replicas in each group."""
        return len({replica for replica, _ in self.placement.held_by(0)})

    def rank_of(self, action: Action) -> int:
        """Rank that an action belongs on."""
        return self.placement.rank_of(action.replica, action.stage, action.part)

    def microbatches_of(self, replica: int) -> range:
        """Micro-batches that a replica owns."""
        ends = (-(-self.num_microbatches * r // self.placement.num_replicas) for r in (replica, replica + 1))
        return range(*ends)

    def microbatches_on(self, rank: int, stage: int) -> range:
        """Micro-batches that pass through a stage on a rank that holds it; its replicas are neighbours."""
        replicas = [replica for replica, own in self.placement.held_by(rank) if own == stage]
        return range(self.microbatches_of(replicas[0]).start, self.microbatches_of(replicas[-1]).stop)

    def leaves_on(self, rank: int, stage: int) -> list[range]:
        """Leaves of the gradient sum that a rank adds for a stage: part by part, those of its micro-batches."""
        own = self.microbatches_on(rank, stage)
        firsts = [part * self.num_microbatches for part in self.placement.parts_on(rank, stage)]
        return [range(first + own.start, first + own.stop) for first in firsts]

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
        """The same REDUCE or STEP on the other ranks that hold its stage: they all meet in it. Else empty."""
        if action.op in (Op.F, Op.B):
            return []
        mine, stage = self.rank_of(action), action.stage
        others = (rank for rank in self.placement.holders(stage) if rank != mine)
        return [self.update_of(action.op, rank, stage) for rank in others]

    def update_of(self, op: Op, rank: int, stage: int) -> Action:
        """The REDUCE or STEP of a stage on a rank."""
        part = self.placement.parts_on(rank, stage)[0]
        return Action(op, self.placement.first_held(rank, stage), stage, part=part)

    def _in_chain(self, action: Action, distance: int) -> list[Action]:
        stage = action.stage + distance
        if action.op not in (Op.F, Op.B) or not 0 <= stage < self.num_stages:
            return []
        parts = overlapping(action.part, self.placement.num_parts(action.stage), self.placement.num_parts(stage))
        return [Action(action.op, action.replica, stage, action.microbatch, part) for part in parts]


class Held(NamedTuple):
    """One stage of one replica on a rank, with the micro-batches that pass through it."""

    replica: int
    stage: int
    microbatches: range
    part: int = 0

    def forward(self, microbatch: int) -> Action:
        return Action(Op.F, self.replica, self.stage, microbatch, self.part)

    def backward(self, microbatch: int) -> Action:
        return Action(Op.B, self.replica, self.stage, microbatch, self.part)


class ScheduleError(ValueError):
    """A schedule omits work, keeps too much alive, or would stall."""
