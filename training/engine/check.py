"""Proof that a schedule does all the work, keeps to its memory bound and never stalls."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from training.engine.exchange import Exchange, Message, exchanges
from training.engine.schedule import Action, Op, Schedule, ScheduleError
from training.engine.strategies import live_bound, strategy_named


def check_schedule(schedule: Schedule, *, forward_only: bool = False) -> None:
    """Check a schedule, however it was made.

    Raises:
        ScheduleError: a micro-batch misses a stage or passes it twice, an action comes before another whose result
            it needs, a stage keeps the activations of more micro-batches than its strategy allows, or the ranks
            would wait for each other.
        ValueError: the strategy is unknown.
    """
    _check_work(schedule, forward_only=forward_only)
    for rank, actions in enumerate(schedule.ranks):
        _check_order(schedule, rank, actions)
        if not forward_only:
            _check_live_bound(schedule, rank, actions)
    _check_exchanges(schedule)


def _check_work(schedule: Schedule, *, forward_only: bool) -> None:
    for rank, actions in enumerate(schedule.ranks):
        expected = Counter(_all_work(schedule, rank, forward_only=forward_only))
        missing, surplus = expected - Counter(actions), Counter(actions) - expected
        if missing or surplus:
            raise ScheduleError(
                f"rank {rank}: missing [{'; '.join(map(str, missing))}], too many [{'; '.join(map(str, surplus))}]"
            )


def _all_work(schedule: Schedule, rank: int, *, forward_only: bool) -> Iterator[Action]:
    held = schedule.placement.held_by(rank)
    for replica, stage in held:
        for microbatch in schedule.microbatches_of(replica):
            forward = Action(Op.F, replica, stage, microbatch, schedule.placement.parts_on(rank, stage)[0])
            yield forward
            if not forward_only:
                yield forward._replace(op=Op.B)
    for stage in {stage for _, stage in held if not forward_only}:
        for op in (Op.REDUCE, Op.STEP):
            yield schedule.update_of(op, rank, stage)


def _check_order(schedule: Schedule, rank: int, actions: tuple[Action, ...]) -> None:
    place = {action: index for index, action in enumerate(actions)}
    phases = (Op.F, Op.B), (Op.REDUCE,), (Op.STEP,)
    phase_of = {op: number for number, ops in enumerate(phases) for op in ops}
    for before, after in pairwise(actions):
        if phase_of[before.op] > phase_of[after.op]:
            raise ScheduleError(f"rank {rank}: {after} comes after {before}; all of a step's sums follow its work")
    for action in actions:
        needed = schedule.sources(action) + ([action._replace(op=Op.F)] if action.op is Op.B else [])
        for source in needed:
            if place.get(source, -1) > place[action]:
                raise ScheduleError(f"rank {rank}: {action} comes before {source}, whose result it needs")


def _check_live_bound(schedule: Schedule, rank: int, actions: tuple[Action, ...]) -> None:
    live: list[Action] = []
    turns = strategy_named(schedule.strategy).takes_turns
    for action in actions:
        if action.op is Op.F:
            same = [other for other in live if turns or other.replica == action.replica]
            num_microbatches = len(schedule.microbatches_of(action.replica))
            bound = live_bound(
                schedule.strategy,
                stage=action.stage,
                num_stages=schedule.num_stages,
                num_microbatches=num_microbatches,
            )
            if len(same) + 1 > bound:
                raise ScheduleError(
                    f"rank {rank}: {action} starts while the activations of {'; '.join(map(str, same))} are alive; "
                    f"{schedule.strategy} allows {bound} in all"
                )
            live.append(action)
        elif action.op is Op.B:
            live.remove(action._replace(op=Op.F))


class _Rank:
    """Progress of one rank through its groups of messages."""

    def __init__(self, groups: list[Exchange]):
        self.groups = groups
        self.at = 0
        self.missing = 0
        """Messages of its current group that have not met their counterpart."""

    @property
    def current(self) -> Exchange | None:
        return self.groups[self.at] if self.at < len(self.groups) else None


def _check_exchanges(schedule: Schedule) -> None:
    """Play all groups of messages under the weakest guarantee, that of NCCL over one communicator.

    A rank's groups run one after the other. A group ends when each of its messages has met its counterpart, in the
    group that the other rank is in at that moment.
    """
    ranks = [
        _Rank([group for groups in exchanges(schedule, rank) for group in groups])
        for rank in range(len(schedule.ranks))
    ]
    waiting: dict[Message, int] = {}
    meeting: dict[Action, set[int]] = {}
    arrived = list(range(len(ranks)))
    while arrived:
        rank = arrived.pop()
        group = ranks[rank].current
        if group is not None:
            met = _meet_all(schedule, group, rank, meeting) if group.meets else _meet(group, rank, waiting)
            ranks[rank].missing = len(group.gives) + len(group.takes) + (group.meets is not None)
            for other in met:
                ranks[other].missing -= 1
                if not ranks[other].missing:
                    ranks[other].at += 1
                    arrived.append(other)
    stuck = {rank: state.current for rank, state in enumerate(ranks) if state.current is not None}
    if stuck:
        raise ScheduleError(
            "the ranks wait for each other: "
            + "; ".join(f"rank {rank} in {_name(group)}" for rank, group in stuck.items())
        )


def _meet(group: Exchange, rank: int, waiting: dict[Message, int]) -> Iterator[int]:
    """Yield the ranks with a message that has met its counterpart; both ranks each time."""
    for message in (*group.gives, *group.takes):
        if message in waiting:
            yield from (waiting.pop(message), rank)
        else:
            waiting[message] = rank


def _meet_all(schedule: Schedule, group: Exchange, rank: int, meeting: dict[Action, set[int]]) -> Iterator[int]:
    """Yield the ranks of a meeting once all are there: those of all holders of a stage, or of its parts."""
    action = group.meets
    assert action is not None
    if action.op in (Op.F, Op.B):
        meets, expected = action._replace(part=0), set(schedule.placement.ranks_of[action.replica, action.stage])
    else:
        meets, expected = Action(action.op, 0, action.stage), set(schedule.placement.holders(action.stage))
    present = meeting.setdefault(meets, set())
    present.add(rank)
    if present == expected:
        yield from present


def _name(group: Exchange) -> str:
    messages = [f"({giver}) -> ({taker})" for giver, taker in (*group.gives, *group.takes)]
    return ", ".join(messages) or f"({group.meets})"
