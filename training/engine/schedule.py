"""Order of work of one training step, as plain data.

A schedule lists, for each rank, what it does and in which order. It knows no tensors, no devices and no
communication, so it can be executed, checked, drawn and priced by different parts that never disagree.

    stage       consecutive blocks held by one rank, 0 .. num_stages - 1
    replica     one full copy of the model over the ranks; replica 1 is mirrored, so rank 0 holds its last stage
    microbatch  index into the micro-batches of the step; each replica owns a contiguous range of it

`mast` with two stages and two micro-batches; the mirrored replica's work carries a mark ('). Its forward F1' runs
down the ranks behind the backward B0 of the first replica, and each rank holds the activations of one micro-batch:

    clock  rank 0  rank 1
        0  F0      .
        1  .       F0
        2  .       B0
        3  B0      F1'
        4  F1'     .
        5  B1'     .
        6  .       B1'

Then R adds the gradients of a stage's two copies on the copy of replica 0, its owner, and S updates the owner's
weights and gives them to the mirror. Source: GEMS (SC20), designs MP-Basic, MAST and MASTER.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

STRATEGIES = ("single", "mp-basic", "mast", "master")


class Op(Enum):
    """What an action does; the value is its letter in a drawing."""

    F = "F"
    """Forward of one micro-batch through one stage."""
    B = "B"
    """Backward of one micro-batch through one stage."""
    REDUCE = "R"
    """Add up the gradients of a stage's two copies: the mirror sends, the owner receives."""
    STEP = "S"
    """Update the weights of a stage: the owner updates and sends, the mirror receives."""


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
    """What each rank does in one step: `ranks[r]` are the actions of rank r, in order."""

    strategy: str
    num_stages: int
    num_microbatches: int
    num_replicas: int
    ranks: tuple[tuple[Action, ...], ...]

    def rank_of(self, action: Action) -> int:
        """Rank that an action belongs on."""
        return rank_of(action.stage, replica=action.replica, num_stages=self.num_stages)

    def replica_of(self, microbatch: int) -> int:
        """Replica that owns a micro-batch: the mirrored one, if any, has the upper half."""
        return int(self.num_replicas == 2 and 2 * microbatch >= self.num_microbatches)

    def source(self, action: Action) -> Action | None:
        """The action whose result this one waits for, or None."""
        return self._neighbour(action, -1)

    def target(self, action: Action) -> Action | None:
        """The action that waits for the result of this one, or None."""
        return self._neighbour(action, +1)

    def _neighbour(self, action: Action, direction: int) -> Action | None:
        if action.op in (Op.F, Op.B):
            stage = action.stage + (direction if action.op is Op.F else -direction)
            return replace(action, stage=stage) if 0 <= stage < self.num_stages else None
        giver = 1 if action.op is Op.REDUCE else 0
        if self.num_replicas == 1 or (action.replica == giver) == (direction < 0):
            return None
        return replace(action, replica=1 - action.replica)


class ScheduleError(ValueError):
    """A schedule loses work, keeps too much alive, or would stall."""


def rank_of(stage: int, *, replica: int, num_stages: int) -> int:
    """Rank that holds `stage` of `replica`; the mirrored replica lies in reverse rank order."""
    return stage if replica == 0 else num_stages - 1 - stage


def build_schedule(strategy: str, *, num_stages: int, num_microbatches: int) -> Schedule:
    """Write down the order of work of one step.

    Args:
        strategy: "single" (one rank holds all), "mp-basic" (one replica, one rank at work at a time), "mast" (a
            mirrored replica, one micro-batch each) or "master" (the same with any even number of micro-batches).
        num_stages: also the number of ranks.
        num_microbatches: of the whole step, over both replicas.

    Raises:
        ValueError: the numbers do not fit the strategy.
    """
    _check_request(strategy, num_stages, num_microbatches)
    num_replicas = 2 if strategy in ("mast", "master") else 1
    in_turn = [(0, microbatch) for microbatch in range(num_microbatches)]
    passes = _mirrored_passes(num_microbatches) if num_replicas == 2 else in_turn
    ranks = tuple(
        (*_compute_actions(rank, num_stages, passes), *_update_actions(rank, num_stages, num_replicas))
        for rank in range(num_stages)
    )
    return Schedule(strategy, num_stages, num_microbatches, num_replicas, ranks)


def check_schedule(schedule: Schedule) -> None:
    """Prove that a schedule does all the work, within its memory bound, and never stalls.

    Raises:
        ScheduleError: a micro-batch misses a stage or passes it twice, a rank keeps the activations of two
            micro-batches, messages on one channel are taken in another order than sent, or all ranks wait.
    """
    _check_work(schedule)
    for rank, actions in enumerate(schedule.ranks):
        _check_live_bound(rank, actions)
    _check_rendezvous(schedule)


def draw(schedule: Schedule) -> str:
    """Draw a schedule for the terminal: a column per rank, a row per clock, every action one clock long.

    F and B carry their micro-batch, R and S their stage; a mark (') stands for the mirrored replica.

    Raises:
        ScheduleError: the schedule stalls.
    """
    rows = [["clock", *(f"rank {rank}" for rank in range(len(schedule.ranks)))]]
    for clock, actions in enumerate(_clocks(schedule)):
        rows.append([str(clock).rjust(5), *("." if action is None else _label(action) for action in actions)])
    width = max(len(cell) for row in rows for cell in row) + 2
    return "\n".join("".join(cell.ljust(7 if i == 0 else width) for i, cell in enumerate(row)).rstrip() for row in rows)


def _check_request(strategy: str, num_stages: int, num_microbatches: int) -> None:
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown strategy {strategy!r}; choose one of {', '.join(STRATEGIES)}")
    if num_microbatches < 1:
        raise ValueError(f"num_microbatches must be 1 or more, got {num_microbatches}")
    if strategy == "single" and num_stages != 1:
        raise ValueError(f"single has exactly one stage, got num_stages={num_stages}; for more use mp-basic or master")
    if strategy != "single" and num_stages < 2:
        raise ValueError(f"{strategy} needs 2 or more stages, got num_stages={num_stages}; for one stage use single")
    if strategy == "mast" and num_microbatches != 2:
        raise ValueError(f"mast has exactly 2 micro-batches, got {num_microbatches}; for more use master")
    if strategy == "master" and num_microbatches % 2:
        raise ValueError(
            f"master shares its micro-batches between two replicas, got the odd number {num_microbatches}; "
            f"use {num_microbatches + 1}, or mp-basic"
        )


def _mirrored_passes(num_microbatches: int) -> list[tuple[int, int]]:
    """(replica, microbatch) of each pass: the replicas take turns, each walking through its own half."""
    half = num_microbatches // 2
    return [(replica, replica * half + index) for index in range(half) for replica in (0, 1)]


def _compute_actions(rank: int, num_stages: int, passes: list[tuple[int, int]]) -> Iterator[Action]:
    for replica, microbatch in passes:
        stage = rank if replica == 0 else num_stages - 1 - rank
        yield Action(Op.F, replica, stage, microbatch)
        yield Action(Op.B, replica, stage, microbatch)


def _update_actions(rank: int, num_stages: int, num_replicas: int) -> Iterator[Action]:
    """Every rank takes the stages in the same order, so two ranks that share two stages never wait crosswise."""
    for stage in range(num_stages):
        is_owner = rank == rank_of(stage, replica=0, num_stages=num_stages)
        is_mirror = num_replicas == 2 and rank == rank_of(stage, replica=1, num_stages=num_stages)
        if is_mirror:
            yield Action(Op.REDUCE, 1, stage)
        if is_owner and num_replicas == 2:
            yield Action(Op.REDUCE, 0, stage)
        if is_owner:
            yield Action(Op.STEP, 0, stage)
        if is_mirror:
            yield Action(Op.STEP, 1, stage)


def _check_work(schedule: Schedule) -> None:
    for rank, actions in enumerate(schedule.ranks):
        expected = Counter(action for action in _all_work(schedule) if schedule.rank_of(action) == rank)
        missing, surplus = expected - Counter(actions), Counter(actions) - expected
        if missing or surplus:
            raise ScheduleError(
                f"rank {rank}: missing [{'; '.join(map(str, missing))}], too many [{'; '.join(map(str, surplus))}]"
            )
        for index, action in enumerate(actions):
            source = schedule.source(action)
            if source is not None and schedule.rank_of(source) == rank and source not in actions[:index]:
                raise ScheduleError(f"rank {rank}: {action} comes before {source}, whose result it needs")


def _all_work(schedule: Schedule) -> Iterator[Action]:
    for stage in range(schedule.num_stages):
        for microbatch in range(schedule.num_microbatches):
            yield Action(Op.F, schedule.replica_of(microbatch), stage, microbatch)
            yield Action(Op.B, schedule.replica_of(microbatch), stage, microbatch)
        for replica in range(schedule.num_replicas):
            yield Action(Op.STEP, replica, stage)
            if schedule.num_replicas == 2:
                yield Action(Op.REDUCE, replica, stage)


def _check_live_bound(rank: int, actions: tuple[Action, ...]) -> None:
    live: Action | None = None
    updated = False
    for action in actions:
        if action.op in (Op.F, Op.B) and updated:
            raise ScheduleError(f"rank {rank}: {action} comes after the first update")
        if action.op is Op.F:
            if live is not None:
                raise ScheduleError(f"rank {rank}: {action} starts while the activations of {live} are alive")
            live = action
        elif action.op is Op.B:
            if live != replace(action, op=Op.F):
                raise ScheduleError(f"rank {rank}: {action} has no activations; alive: {live or 'none'}")
            live = None
        else:
            updated = True


def _messages(schedule: Schedule, rank: int) -> list[tuple[Action, Action]]:
    """(source, target) of each message that `rank` takes or sends, in order."""
    messages = []
    for action in schedule.ranks[rank]:
        source, target = schedule.source(action), schedule.target(action)
        if source is not None and schedule.rank_of(source) != rank:
            messages.append((source, action))
        if target is not None and schedule.rank_of(target) != rank:
            messages.append((action, target))
    return messages


def _check_rendezvous(schedule: Schedule) -> None:
    """Exchange all messages with sends that block until taken: the strictest transport there is.

    Both sides must come to the same message, so another order on one channel is found as well.
    """
    waiting = {rank: deque(_messages(schedule, rank)) for rank in range(len(schedule.ranks))}
    moved = True
    while moved:
        moved = False
        for queue in waiting.values():
            peers = [waiting[schedule.rank_of(action)] for action in queue[0]] if queue else []
            if queue and all(peer and peer[0] == queue[0] for peer in peers):
                for peer in peers:
                    peer.popleft()
                moved = True
    stuck = {rank: queue[0] for rank, queue in waiting.items() if queue}
    if stuck:
        raise ScheduleError(
            "the ranks wait for each other: "
            + "; ".join(f"rank {rank} at ({source}) -> ({target})" for rank, (source, target) in stuck.items())
        )


def _clocks(schedule: Schedule) -> Iterator[list[Action | None]]:
    """What each rank starts at each clock, when every action takes one clock."""
    done: set[Action] = set()
    queues = [list(reversed(actions)) for actions in schedule.ranks]
    while any(queues):
        row: list[Action | None] = []
        for queue in queues:
            source = schedule.source(queue[-1]) if queue else None
            ready = bool(queue) and (source is None or source in done)
            row.append(queue.pop() if ready else None)
        started = {action for action in row if action is not None}
        if not started:
            raise ScheduleError("the schedule stalls; check_schedule says where")
        done |= started
        yield row


def _label(action: Action) -> str:
    number = action.stage if action.microbatch is None else action.microbatch
    return f"{action.op.value}{number}{chr(39) * action.replica}"
