"""Order of work of one training step, as plain data.

A schedule lists, for each rank, what it does and in which order. It knows no tensors, no devices and no
communication, so it can be executed (executor.py), checked (check.py), priced (simulate.py) and drawn (draw.py) by
parts that never disagree.

    stage       consecutive blocks held by one rank, 0 .. num_stages - 1
    group       num_stages ranks that together hold the network; there are data_parallel of them
    replica     one full copy of the network over the ranks of a group. Where a group holds two, the odd one is
                mirrored: the group's first rank holds its last stage
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

Then R adds the gradients of a stage's copies on the copy of replica 0, its owner, and S updates the owner's weights
and gives them to the other copies. Source of `mp-basic` and `master`: GEMS (SC20).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import zip_longest

MIRRORED = ("master", "chimera")
"""Strategies whose groups hold two replicas, the second in reverse rank order."""


class Op(Enum):
    """What an action does; the value is its letter in a drawing."""

    F = "F"
    """Forward of one micro-batch through one stage."""
    B = "B"
    """Backward of one micro-batch through one stage."""
    REDUCE = "R"
    """Add the gradients of a stage's copies: take in those of some replicas, give the sum to another."""
    STEP = "S"
    """Update the weights of a stage: the owner computes them, the others take them over and pass them on."""


@dataclass(frozen=True)
class Action:
    """One entry of a schedule. REDUCE and STEP concern the whole step and have no micro-batch."""

    op: Op
    replica: int
    stage: int
    microbatch: int | None = None

    def __str__(self) -> str:
        microbatch = "" if self.microbatch is None else f", micro-batch {self.microbatch}"
        return f"{self.op.name} of stage {self.stage}, replica {self.replica}{microbatch}"


@dataclass(frozen=True)
class Schedule:
    """What each rank does in one step: `ranks[r]` are the actions of rank r = group · num_stages + place, in order."""

    strategy: str
    num_stages: int
    num_microbatches: int
    """Of the whole step, over all replicas."""
    data_parallel: int
    ranks: tuple[tuple[Action, ...], ...]

    @property
    def num_directions(self) -> int:
        """Replicas in each group."""
        return num_directions(self.strategy)

    @property
    def num_replicas(self) -> int:
        return self.data_parallel * self.num_directions

    def rank_of(self, action: Action) -> int:
        """Rank that an action belongs on."""
        return rank_of(action.replica, action.stage, num_stages=self.num_stages, num_directions=self.num_directions)

    def microbatches_of(self, replica: int) -> range:
        """Micro-batches that a replica owns."""
        return self.microbatches_below(replica, 1)

    def microbatches_below(self, replica: int, num_replicas: int) -> range:
        """Micro-batches of a run of neighbouring replicas."""
        end = min(replica + num_replicas, self.num_replicas)
        return range(*(-(-self.num_microbatches * r // self.num_replicas) for r in (replica, end)))

    def sources(self, action: Action) -> list[Action]:
        """The actions whose results this one takes, in order."""
        return self._children(action) if action.op is Op.REDUCE else self._one_before(action)

    def targets(self, action: Action) -> list[Action]:
        """The actions that take the result of this one, in order."""
        if action.op is Op.STEP:
            return self._children(action)
        if action.op is Op.REDUCE:
            return self._parent(action)
        return self._in_chain(action, +1 if action.op is Op.F else -1)

    def _one_before(self, action: Action) -> list[Action]:
        if action.op is Op.STEP:
            return self._parent(action)
        return self._in_chain(action, -1 if action.op is Op.F else +1)

    def _in_chain(self, action: Action, distance: int) -> list[Action]:
        stage = action.stage + distance
        return [replace(action, stage=stage)] if 0 <= stage < self.num_stages else []

    def _parent(self, action: Action) -> list[Action]:
        """Replicas form a binomial tree: 0 takes 1, 2, 4, ...; 2 takes 3; 4 takes 5, 6; and so on."""
        replica = action.replica
        return [replace(action, replica=replica & (replica - 1))] if replica else []

    def _children(self, action: Action) -> list[Action]:
        reach = subtree_size(action.replica, self.num_replicas)
        steps = [1 << k for k in range(reach.bit_length()) if 1 << k < reach]
        children = [action.replica + step for step in steps if action.replica + step < self.num_replicas]
        return [replace(action, replica=child) for child in children]


@dataclass(frozen=True)
class Held:
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


def live_bound(strategy: str, *, stage: int, num_stages: int, num_microbatches: int) -> int:
    """How many micro-batches a stage keeps the activations of, at most, of those that pass through it.

    A rank of `master` keeps one over both its stages, because its replicas take turns; a rank of `chimera` keeps
    what its two stages keep together, num_stages / 2 + 1 up to num_stages.
    """
    wanted = {
        "gpipe": num_microbatches,
        "1f1b": num_stages - stage,
        "chimera": min(num_stages // 2, num_stages - stage),
    }.get(strategy, 1)
    return min(wanted, num_microbatches)


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
    empty = Schedule(strategy, num_stages, num_microbatches, data_parallel, ranks=())
    held = [_held(empty, rank) for rank in range(data_parallel * num_stages)]
    if forward_only:
        return replace(empty, ranks=tuple(_forwards(empty, copies) for copies in held))
    work = [tuple(GENERATORS[strategy](copies, num_stages)) for copies in held]
    done = _clocks(replace(empty, ranks=tuple(work)))
    return replace(
        empty,
        ranks=tuple((*_with_reductions(*pair, done), *_steps(pair[1])) for pair in zip(work, held, strict=True)),
    )


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


def num_directions(strategy: str) -> int:
    """Replicas that each group holds under a strategy."""
    return 2 if strategy in MIRRORED else 1


def rank_of(replica: int, stage: int, *, num_stages: int, num_directions: int) -> int:
    """Rank that holds a stage of a replica; a mirrored replica lies in reverse rank order within its group."""
    group, direction = divmod(replica, num_directions)
    return group * num_stages + (num_stages - 1 - stage if direction else stage)


def subtree_size(replica: int, num_replicas: int) -> int:
    """Neighbouring replicas, itself the first, whose gradients a replica brings together in REDUCE."""
    return replica & -replica or num_replicas


def held_by(rank: int, *, num_stages: int, num_directions: int) -> list[tuple[int, int]]:
    """(replica, stage) of each stage on a rank, the normal one first: the opposite of `rank_of`."""
    group, place = divmod(rank, num_stages)
    stages = (place, num_stages - 1 - place)[:num_directions]
    return [(group * num_directions + direction, stage) for direction, stage in enumerate(stages)]


def _held(schedule: Schedule, rank: int) -> list[Held]:
    pairs = held_by(rank, num_stages=schedule.num_stages, num_directions=schedule.num_directions)
    return [Held(replica, stage, schedule.microbatches_of(replica)) for replica, stage in pairs]


def _forwards(schedule: Schedule, held: Sequence[Held]) -> tuple[Action, ...]:
    """Forwards as one wave per replica, merged by clock."""
    waves = [
        (copy.stage + schedule.num_directions * index, copy.forward(microbatch))
        for copy in held
        for index, microbatch in enumerate(copy.microbatches)
    ]
    return tuple(action for _, action in sorted(waves, key=lambda pair: pair[0]))


def _clocks(schedule: Schedule) -> dict[Action, int]:
    """Clock at which each action ends when all take one clock; and for each REDUCE, when its stage has no more work."""
    clocks = {action: clock for clock, row in enumerate(by_clock(schedule)) for action in row if action is not None}
    for stage in range(schedule.num_stages):
        last = max((clock for a, clock in clocks.items() if a.op is Op.B and a.stage == stage), default=0)
        clocks |= {Action(Op.REDUCE, replica, stage): last for replica in range(schedule.num_replicas)}
    return clocks


def _with_reductions(work: tuple[Action, ...], held: Sequence[Held], clocks: dict[Action, int]) -> list[Action]:
    """Each stage is reduced as soon as its last copy is done, in an order that is the same on all ranks."""
    reductions = [Action(Op.REDUCE, copy.replica, copy.stage) for copy in held]
    return sorted(
        (*work, *reductions), key=lambda a: (clocks[a], a.op is Op.REDUCE, a.stage * (a.op is Op.REDUCE), -a.replica)
    )


def _steps(held: Sequence[Held]) -> list[Action]:
    return [Action(Op.STEP, copy.replica, copy.stage) for copy in sorted(held, key=lambda c: (c.stage, c.replica))]


class ScheduleError(ValueError):
    """A schedule loses work, keeps too much alive, or would stall."""


def by_clock(schedule: Schedule) -> Iterator[list[Action | None]]:
    """What each rank starts at each clock, when every action takes one clock.

    Raises:
        ScheduleError: the schedule stalls.
    """
    done: set[Action] = set()
    queues = [list(reversed(actions)) for actions in schedule.ranks]
    while any(queues):
        row: list[Action | None] = []
        for queue in queues:
            ready = bool(queue) and all(source in done for source in schedule.sources(queue[-1]))
            row.append(queue.pop() if ready else None)
        started = {action for action in row if action is not None}
        if not started:
            raise ScheduleError("the schedule stalls; check_schedule says where")
        done |= started
        yield row
