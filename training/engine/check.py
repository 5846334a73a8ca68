"""Proof that a schedule does all the work, keeps to its memory bound and never stalls."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from training.engine.schedule import Action, Op, Schedule, ScheduleError, live_bound

Message = tuple[Action, Action]
"""(giver, taker)"""


def check_schedule(schedule: Schedule, *, forward_only: bool = False) -> None:
    """Check a schedule, whoever wrote it.

    Raises:
        ScheduleError: a micro-batch misses a stage or passes it twice, an action comes before another whose result
            it needs, a stage keeps the activations of more micro-batches than its strategy allows, or the ranks
            would wait for each other.
    """
    _check_work(schedule, forward_only=forward_only)
    for rank, actions in enumerate(schedule.ranks):
        _check_order(schedule, rank, actions)
        if not forward_only:
            _check_live_bound(schedule, rank, actions)
    _check_messages(schedule)


def _check_work(schedule: Schedule, *, forward_only: bool) -> None:
    work = list(_all_work(schedule, (Op.F,) if forward_only else tuple(Op)))
    for rank, actions in enumerate(schedule.ranks):
        expected = Counter(action for action in work if schedule.rank_of(action) == rank)
        missing, surplus = expected - Counter(actions), Counter(actions) - expected
        if missing or surplus:
            raise ScheduleError(
                f"rank {rank}: missing [{'; '.join(map(str, missing))}], too many [{'; '.join(map(str, surplus))}]"
            )


def _all_work(schedule: Schedule, ops: tuple[Op, ...]) -> Iterator[Action]:
    for stage in range(schedule.num_stages):
        for replica in range(schedule.num_replicas):
            for op in ops:
                if op in (Op.F, Op.B):
                    yield from (Action(op, replica, stage, k) for k in schedule.microbatches_of(replica))
                else:
                    yield Action(op, replica, stage)


def _check_order(schedule: Schedule, rank: int, actions: tuple[Action, ...]) -> None:
    place = {action: index for index, action in enumerate(actions)}
    for action in actions:
        for needed in (*schedule.sources(action), *_own_needs(schedule, action)):
            if schedule.rank_of(needed) == rank and place.get(needed, -1) > place[action]:
                raise ScheduleError(f"rank {rank}: {action} comes before {needed}, whose result it needs")
    steps = [place[action] for action in actions if action.op is Op.STEP]
    others = [place[action] for action in actions if action.op is not Op.STEP]
    if steps and others and min(steps) < max(others):
        raise ScheduleError(f"rank {rank}: {actions[max(others)]} comes after the first update")


def _own_needs(schedule: Schedule, action: Action) -> list[Action]:
    """What the same copy of the stage must have done before."""
    if action.op is Op.B:
        return [replace(action, op=Op.F)]
    if action.op is Op.REDUCE:
        return [replace(action, op=Op.B, microbatch=k) for k in schedule.microbatches_of(action.replica)]
    return []


def _check_live_bound(schedule: Schedule, rank: int, actions: tuple[Action, ...]) -> None:
    live: list[Action] = []
    turns = schedule.strategy == "master"  # its two stages share one place
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
            live.remove(replace(action, op=Op.F))


@dataclass
class _Rank:
    """One rank on its way through its messages."""

    todo: deque[tuple[Message, bool]]
    """Message and whether this rank gives it."""
    sent: dict[bool, Message] = field(default_factory=dict)
    """The last boundary (True) and the last sum or weights (False) given; the next waits until it has been taken."""


def _check_messages(schedule: Schedule) -> None:
    """Play all messages over channels as strict as there are: those of nccl, where both sides must come in order.

    A rank goes on at once after giving a message, but gives the next only when that one has been taken; it waits for
    what it takes. On a channel between two ranks the first message must be taken before the second moves.
    """
    ranks = [_Rank(deque(_messages(schedule, rank))) for rank in range(len(schedule.ranks))]
    posted: dict[tuple[object, ...], deque[Message]] = defaultdict(deque)
    done: set[Message] = set()
    moved = True
    while moved:
        moved = False
        for rank, state in enumerate(ranks):
            while state.todo and _may_post(state, done):
                message, gives = state.todo[0]
                mine, theirs = (posted[key] for key in _sides(schedule, message, rank))
                if message not in mine and message not in done:
                    mine.append(message)
                    moved = True
                if mine and theirs and mine[0] == theirs[0]:
                    done.add(mine.popleft())
                    theirs.popleft()
                    moved = True
                if not gives and message not in done:
                    break
                if gives:
                    state.sent[_is_boundary(message)] = message
                state.todo.popleft()
                moved = True
    stuck = {rank: state.todo[0][0] for rank, state in enumerate(ranks) if state.todo}
    if stuck or any(posted.values()):
        raise ScheduleError(
            "the ranks wait for each other: "
            + "; ".join(f"rank {rank} at ({giver}) -> ({taker})" for rank, (giver, taker) in stuck.items())
        )


def _may_post(state: _Rank, done: set[Message]) -> bool:
    message, gives = state.todo[0]
    before = state.sent.get(_is_boundary(message))
    return not gives or before is None or before in done


def _is_boundary(message: Message) -> bool:
    return message[0].op in (Op.F, Op.B)


def _sides(schedule: Schedule, message: Message, rank: int) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """The channel of a message as seen from this rank and from the other."""
    giver, taker = message
    lane = (giver.op, giver.replica % schedule.num_directions) if _is_boundary(message) else ("sync",)
    pair = {schedule.rank_of(giver), schedule.rank_of(taker)}
    (other,) = pair - {rank}
    return (*lane, *sorted(pair), rank), (*lane, *sorted(pair), other)


def _messages(schedule: Schedule, rank: int) -> Iterator[tuple[Message, bool]]:
    for action in schedule.ranks[rank]:
        for source in schedule.sources(action):
            if schedule.rank_of(source) != rank:
                yield (source, action), False
        for target in schedule.targets(action):
            if schedule.rank_of(target) != rank:
                yield (action, target), True
