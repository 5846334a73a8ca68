"""Strategies: one row each, with all that other files need to know about it.

Adding a strategy takes a generator and a row: recipes, `gemslide plan`, the checker and training on another number of
ranks read the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import get_args

from training.engine.placement import Placement, over_groups
from training.engine.schedule import Action, Held, Op, Schedule
from training.foundation.words.counts import counted
from training.parallel.parted import Split

Generator = Callable[[Sequence[Held], int], Iterator[Action]]
"""(stages held by a rank, num_stages) -> that rank's forwards and backwards, in order."""
LiveBound = Callable[[int, int, int], int]
"""(stage, num_stages, num_microbatches of a replica) -> most micro-batches whose activations the stage keeps."""
ClosedForm = Callable[[int, int, float, float], float | None]
"""(S, N, forward f, backward b) -> time of a step whose stages cost the same; None where there is no formula."""


@dataclass(frozen=True)
class Strategy:
    """A way to order the work of one step.

    Attributes:
        generate: yields a rank's forwards and backwards.
        live_bound: how many micro-batches a stage keeps alive, of those that pass through it.
        closed_form: the time of a step, with which the simulator agrees.
        is_mirrored: a group holds two replicas, the second in reverse rank order.
        takes_turns: both stages of a rank together keep what `live_bound` allows one.
        refusal: error message for a number of stages, with what would fit; None if the number is valid.
        instead: the strategy for numbers of stages that this one refuses.
    """

    name: str
    generate: Generator
    live_bound: LiveBound
    closed_form: ClosedForm
    is_mirrored: bool = False
    takes_turns: bool = False
    refusal: Callable[[int], str | None] = lambda num_stages: None
    instead: str | None = None


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


def _refuse_several_stages(num_stages: int) -> str | None:
    one = f"single has exactly one stage, got num_stages={num_stages}; for more use mp-basic or master"
    return None if num_stages == 1 else one


def _refuse_odd_stages(num_stages: int) -> str | None:
    even = f"chimera needs an even number of stages, got num_stages={num_stages}; use {num_stages + 1}, or 1f1b"
    return even if num_stages % 2 else None


def _one_live(stage: int, num_stages: int, num_microbatches: int) -> int:
    return 1


def _sequential_time(stages: int, microbatches: int, forward: float, backward: float) -> float:
    return microbatches * stages * (forward + backward)


def _master_time(stages: int, microbatches: int, forward: float, backward: float) -> float:
    """`master`: each further micro-batch waits for the backward before it, or for its own forward where that is longer;
    at most (f + b) / b times faster than `mp-basic`."""
    between = (stages - 1) * max(forward, backward) + forward + backward
    return stages * (forward + backward) + (microbatches - 1) * between


def _pipeline_time(stages: int, microbatches: int, forward: float, backward: float) -> float:
    return (microbatches + stages - 1) * (forward + backward)


def _chimera_time(stages: int, microbatches: int, forward: float, backward: float) -> float | None:
    if forward != backward or microbatches % stages:
        return None
    return (2 * microbatches + stages - 2) * forward


_ROWS = (
    Strategy("single", one_at_a_time, _one_live, _sequential_time, refusal=_refuse_several_stages, instead="mp-basic"),
    Strategy("mp-basic", one_at_a_time, _one_live, _sequential_time),
    Strategy("master", one_at_a_time, _one_live, _master_time, is_mirrored=True, takes_turns=True),
    Strategy("gpipe", all_forward_then_all_backward, lambda stage, stages, microbatches: microbatches, _pipeline_time),
    Strategy("1f1b", one_forward_one_backward, lambda stage, stages, microbatches: stages - stage, _pipeline_time),
    Strategy(
        "chimera",
        bidirectional,
        # For both its stages together a rank keeps S/2 + 1 to S.
        lambda stage, stages, microbatches: min(stages // 2, stages - stage),
        _chimera_time,
        is_mirrored=True,
        refusal=_refuse_odd_stages,
        instead="1f1b",
    ),
)
STRATEGIES = {row.name: row for row in _ROWS}
ALIASES = {"mast": "master", "hybrid": "master", "ddp": "single", "subgraph": "single"}
"""Names in the literature for a strategy with certain numbers; see `resolve_alias`."""


def strategy_named(name: str) -> Strategy:
    """Raise ValueError for an unknown name, and list the known ones."""
    if name not in STRATEGIES:
        raise ValueError(f"unknown strategy {name!r}; choose one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name]


def resolve_alias(name: str, *, num_microbatches: int, data_parallel: int) -> str:
    """The strategy that a name stands for.

    `mast` is `master` with two micro-batches, `hybrid` is `master` with several groups, `ddp` is `single` with several,
    `subgraph` is `single` in parts that share out branches.

    Raises:
        ValueError: the numbers are not those that the name implies.
    """
    if name == "mast" and num_microbatches != 2:
        raise ValueError(f"mast has exactly 2 micro-batches, got {num_microbatches}; for more use master")
    if name in ("hybrid", "ddp") and data_parallel < 2:
        raise ValueError(f"{name} means data_parallel of 2 or more, got {data_parallel}; use {ALIASES[name]}")
    return ALIASES.get(name, name)


def strategy_for(name: str, num_stages: int) -> str:
    """The equivalent strategy for another number of stages: the same one if it allows that number."""
    row = strategy_named(name)
    if num_stages == 1:
        return "single"
    return name if row.refusal(num_stages) is None or row.instead is None else row.instead


def check_request(name: str, *, num_stages: int, num_microbatches: int, data_parallel: int) -> None:
    """Raise ValueError if the numbers do not fit the strategy, and say which would."""
    row = strategy_named(name)
    counts = {"num_stages": num_stages, "num_microbatches": num_microbatches, "data_parallel": data_parallel}
    for count_name, count in counts.items():
        if count < 1:
            raise ValueError(f"{count_name} must be 1 or more, got {count}")
    if (refusal := row.refusal(num_stages)) is not None:
        raise ValueError(refusal)


def check_parts(
    name: str, parts: Sequence[int], split: Sequence[str], *, num_stages: int, virtual: bool = False
) -> None:
    """Raise ValueError if parts do not fit the stages or the strategy, and say what would.

    Args:
        parts: of each stage.
        split: of each stage, or empty.
    """
    stages = counted(num_stages, "stage")
    if len(parts) != num_stages or min(parts) < 1:
        raise ValueError(f"parts {list(parts)}: give a number of 1 or more for each of {stages}")
    if split and (len(split) != num_stages or not set(split) <= set(get_args(Split))):
        raise ValueError(f"split {list(split)}: give one of {', '.join(get_args(Split))} for each of {stages}")
    if strategy_named(name).is_mirrored and list(parts) != list(reversed(parts)):
        raise ValueError(
            f"parts {list(parts)}: under {name} a rank holds a stage from each end of the network, so the numbers must "
            "be the same from both ends; use gpipe or 1f1b, or equal numbers"
        )
    if virtual and num_stages > 1:
        raise ValueError("virtual parts are for one stage; give each part of several stages a rank")


def place(
    strategy: str, *, num_stages: int, data_parallel: int, parts: Sequence[int] = (), virtual: bool = False
) -> Placement:
    """Placement of a strategy's stages, and their parts, on ranks."""
    return over_groups(
        num_stages=num_stages,
        data_parallel=data_parallel,
        mirrored=strategy_named(strategy).is_mirrored,
        parts=parts,
        virtual=virtual,
    )


def live_bound(strategy: str, *, stage: int, num_stages: int, num_microbatches: int) -> int:
    """Upper bound on the micro-batches that pass through a stage and whose activations it keeps at once.

    Raises:
        ValueError: the strategy is unknown.
    """
    return min(strategy_named(strategy).live_bound(stage, num_stages, num_microbatches), num_microbatches)


def build_schedule(
    strategy: str,
    *,
    num_stages: int,
    num_microbatches: int,
    data_parallel: int = 1,
    parts: Sequence[int] = (),
    virtual: bool = False,
    forward_only: bool = False,
) -> Schedule:
    """Build the order of work of one step.

    Args:
        strategy: one of `STRATEGIES`.
        num_stages: S, ranks in a group.
        num_microbatches: of the whole step, over all groups and replicas. If it does not divide evenly, some
            replicas have one more than others; with fewer micro-batches than replicas some have none.
        data_parallel: D, groups.
        parts: of each stage; empty: one each.
        virtual: all parts of a stage are on one rank.
        forward_only: no backward and no update, as in inference.

    Raises:
        ValueError: the numbers do not fit the strategy.
    """
    check_request(strategy, num_stages=num_stages, num_microbatches=num_microbatches, data_parallel=data_parallel)
    placement = place(strategy, num_stages=num_stages, data_parallel=data_parallel, parts=parts, virtual=virtual)
    empty = Schedule(strategy, placement, num_microbatches, ranks=())
    held = [_held(empty, rank) for rank in range(placement.num_ranks)]
    if forward_only:
        return replace(empty, ranks=tuple(_forwards(empty, copies) for copies in held))
    generate = STRATEGIES[strategy].generate
    ranks = ((*generate(copies, num_stages), *_updates(empty, rank)) for rank, copies in enumerate(held))
    return replace(empty, ranks=tuple(ranks))


def _held(schedule: Schedule, rank: int) -> list[Held]:
    return [
        Held(replica, stage, schedule.microbatches_of(replica), schedule.placement.parts_on(rank, stage)[0])
        for replica, stage in schedule.placement.held_by(rank)
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
    """Reductions and updates, after all forwards and backwards; stage by stage, in the same order on all ranks."""
    stages = sorted({stage for _, stage in schedule.placement.held_by(rank)})
    for op in (Op.REDUCE, Op.STEP):
        yield from (schedule.update_of(op, rank, stage) for stage in stages)
