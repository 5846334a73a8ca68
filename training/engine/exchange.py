"""Messages of a rank between its actions: one rule for both the executor and the checker.

All messages go over one communicator, in groups; a rank's groups run one after the other, and a group ends when every
message in it has met its counterpart. NCCL guarantees no more than that. After each forward and backward there is one
group: its results, and the inputs of the rank's next action. There are two only where a forward is followed by the
backward of the same micro-batch: its gradient cannot come before the activations have been sent, so their memory is
released first. A separate group, in which all holders of the stage meet, precedes REDUCE and follows STEP.

Inside a forward or backward of a stage in parts, these meet as often as its layers need each other's rows or sums
(training/parallel): all parts in the same order, with no other group in between, so one meeting stands for them here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from training.engine.schedule import Action, Op, Schedule

Message = tuple[Action, Action]
"""(giver, taker)"""


class Exchange(NamedTuple):
    """One group of messages of a rank."""

    gives: tuple[Message, ...] = ()
    takes: tuple[Message, ...] = ()
    meets: Action | None = None
    """The REDUCE or STEP in which the rank gives to and takes from all its partners, or the forward or backward in
    which it does so with the other parts of its stage."""


def exchanges(schedule: Schedule, rank: int) -> list[list[Exchange]]:
    """The groups before each action of a rank, and at the end of the list those after its last one."""
    actions = (None, *schedule.ranks[rank], None)
    return [
        [exchange for exchange in _between(schedule, rank, before, after) if any(exchange)]
        for before, after in pairwise(actions)
    ]


def _between(schedule: Schedule, rank: int, before: Action | None, after: Action | None) -> Iterator[Exchange]:
    gives = _gives(schedule, rank, before)
    takes = _takes(schedule, rank, after)
    if before is not None and before.op is Op.F and after == before._replace(op=Op.B):
        yield Exchange(gives=gives)
        yield Exchange(takes=takes)
    else:
        yield Exchange(gives, takes)
    if before is not None and before.op is Op.STEP and _is_shared(schedule, before):
        yield Exchange(meets=before)
    if after is not None and after.op is Op.REDUCE and _is_shared(schedule, after):
        yield Exchange(meets=after)
    if after is not None and after.op in (Op.F, Op.B) and _has_parts_elsewhere(schedule, after):
        yield Exchange(meets=after)


def _has_parts_elsewhere(schedule: Schedule, action: Action) -> bool:
    return len(set(schedule.placement.ranks_of[action.replica, action.stage])) > 1


def _is_shared(schedule: Schedule, action: Action) -> bool:
    return len(schedule.placement.holders(action.stage)) > 1


def _gives(schedule: Schedule, rank: int, action: Action | None) -> tuple[Message, ...]:
    targets = [] if action is None else schedule.targets(action)
    return tuple((action, target) for target in targets if action and schedule.rank_of(target) != rank)


def _takes(schedule: Schedule, rank: int, action: Action | None) -> tuple[Message, ...]:
    sources = [] if action is None else schedule.sources(action)
    return tuple((source, action) for source in sources if action and schedule.rank_of(source) != rank)
