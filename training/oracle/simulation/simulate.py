"""Time and kept activations of a schedule, from the costs of its stages and links; no tensors.

Each rank does its actions in order, and between them exchanges messages in the groups of exchange.py, as the executor
does: it begins a group when all messages of its previous one have arrived, and an action when what it takes has. A
message starts when both sides are in its group.

For stages of equal cost, and messages that take no time, the time agrees with the closed form of each strategy
(strategies.py). docs/explanation/engine.md compares it with real steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from training.engine.exchange import Message, exchanges
from training.engine.schedule import Action, Op, Schedule, ScheduleError
from training.engine.sums.tree_sum import nodes_of
from training.oracle.simulation.clock import Clock, Computing, Moment, Traffic
from training.oracle.simulation.costs import Costs
from training.oracle.simulation.links import swap_s

SAME_TIME_S = 2e-4
"""Ranks that come to a message within this time come at the same time: to begin one takes about as long."""


@dataclass(frozen=True)
class Span:
    """One action in time."""

    action: Action
    start_s: float
    end_s: float
    live_bytes: int
    """Peak of the rank's activations while it lasts."""


@dataclass(frozen=True)
class Sent:
    """One boundary in time."""

    message: Message
    sender: int
    receiver: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """A whole step."""

    ranks: tuple[tuple[Span, ...], ...]
    messages: tuple[Sent, ...]
    """In the order of their arrival."""
    end_s: float
    """When the last rank has ended, with the weights distributed."""

    @property
    def bubble(self) -> float:
        """Fraction of the ranks' time in which they do not compute."""
        busy = sum(span.end_s - span.start_s for spans in self.ranks for span in spans)
        return 1.0 - busy / (self.end_s * len(self.ranks)) if self.end_s else 0.0

    @property
    def peak_bytes(self) -> tuple[int, ...]:
        """Kept by autograd and recomputation, by rank; predict.py also counts what is in transit between ranks."""
        return tuple(max((span.live_bytes for span in spans), default=0) for spans in self.ranks)


def simulate(schedule: Schedule, costs: Costs) -> Timeline:
    """Play a schedule.

    Raises:
        ScheduleError: the schedule stalls.
    """
    simulation = _Simulation(schedule, costs)
    return simulation.run()


class _Simulation:
    """A step under way."""

    def __init__(self, schedule: Schedule, costs: Costs):
        self._schedule, self._costs = schedule, costs
        self._clock = Clock()
        self._traffic = Traffic(self._clock, costs.network)
        self._computing = Computing(self._clock, len(schedule.ranks), costs.groups)
        self._is_slowed = any(stage.alone != 1.0 for stage in costs.stages)
        self._spans: list[list[Span]] = [[] for _ in schedule.ranks]
        self._sent: list[Sent] = []
        self._posted: dict[Message, tuple[Moment, float]] = {}
        """One side of messages: when they will have arrived, and since when that side has been there."""
        self._meetings: dict[object, tuple[list[int], Moment]] = {}
        self._running = len(schedule.ranks)
        self._end_s = 0.0

    def run(self) -> Timeline:
        for rank in range(len(self._schedule.ranks)):
            self._clock.start(self._play(rank))
        self._clock.run()
        if self._running:
            raise ScheduleError("the schedule stalls; check_schedule says where")
        return Timeline(tuple(map(tuple, self._spans)), tuple(self._sent), self._end_s)

    def _play(self, rank: int) -> Iterator[Moment]:
        """One rank's step, as executor.py does it."""
        actions, groups = self._schedule.ranks[rank], exchanges(self._schedule, rank)
        first_update = next((index for index, action in enumerate(actions) if action.op is Op.STEP), None)
        on_their_way: list[Moment] = []
        live_bytes = 0
        for index, action in enumerate((*actions, None)):
            if index == first_update:
                yield self._meet("agreement", rank, range(len(self._schedule.ranks)), self._costs.agree_s)
            for group in groups[index]:
                yield from on_their_way
                on_their_way = []
                if group.meets is not None:
                    yield self._meet_for(group.meets, rank)
                    continue
                on_their_way = [self._post(message) for message in group.gives]
                yield from [self._post(message) for message in group.takes]
            if action is not None:
                before = actions[index - 1] if index else None
                start_s, seconds = self._clock.now_s, self._costs.seconds(action, rank, before)
                cost = self._costs.stages[action.stage]
                if seconds:
                    yield self._compute(seconds, cost.alone if action.op in (Op.F, Op.B) else 1.0)
                ranks = self._ranks_of_parts(action)
                if swaps_s := self._costs.swaps_s(action, ranks, before):
                    yield self._meet(("swaps", action._replace(part=0)), rank, ranks, swaps_s)
                peak_bytes = live_bytes + {Op.F: cost.kept_bytes, Op.B: cost.recomputed_bytes}.get(action.op, 0)
                live_bytes += {Op.F: cost.kept_bytes, Op.B: -cost.kept_bytes}.get(action.op, 0)
                self._spans[rank].append(Span(action, start_s, self._clock.now_s, peak_bytes))
        yield from on_their_way
        self._running -= 1
        self._end_s = self._clock.now_s

    def _compute(self, seconds: float, alone: float) -> Moment:
        return self._computing.compute(seconds, alone) if self._is_slowed else self._clock.after(seconds)

    def _post(self, message: Message) -> Moment:
        """One side of a message is there; it starts with the other."""
        if message not in self._posted:
            moment = Moment()
            self._posted[message] = moment, self._clock.now_s
            return moment
        arrived, since_s = self._posted.pop(message)
        meeting_s = self._costs.meeting_s if self._clock.now_s - since_s <= SAME_TIME_S else 0.0
        self._clock.start(self._send(message, arrived, meeting_s))
        return arrived

    def _send(self, message: Message, arrived: Moment, meeting_s: float) -> Iterator[Moment]:
        giver, taker = message
        sender, receiver = self._schedule.rank_of(giver), self._schedule.rank_of(taker)
        start_s = self._clock.now_s
        if meeting_s:
            yield self._clock.after(meeting_s)
        yield self._traffic.send(sender, receiver, self._costs.message_bytes(giver, taker))
        self._sent.append(Sent(message, sender, receiver, start_s, self._clock.now_s))
        self._clock.come(arrived)

    def _ranks_of_parts(self, action: Action) -> tuple[int, ...]:
        return self._schedule.placement.ranks_of[action.replica, action.stage]

    def _meet_for(self, action: Action, rank: int) -> Moment:
        """Meet all parts of a stage that begin an action, or exchange gradients or weights with all who hold it."""
        if action.op in (Op.F, Op.B):
            ranks = self._ranks_of_parts(action)
            return self._meet(action._replace(part=0), rank, ranks, 0.0)
        return self._swap(action, rank)

    def _swap(self, action: Action, rank: int) -> Moment:
        """Meet all ranks that hold a stage and exchange the shares of its gradients or weights."""
        stage = action.stage
        placement, cost = self._schedule.placement, self._costs.stages[stage]
        seconds = 0.0
        for held_bytes, holders in cost.held(placement, stage, action.part):
            share_bytes = held_bytes / len(holders)
            num_bytes = {
                (sender, receiver): share_bytes * (self._gradient_sets(sender, stage) if action.op is Op.REDUCE else 1)
                for sender, receiver in permutations(holders, 2)
            }
            seconds += swap_s(self._costs.network, num_bytes)
        return self._meet((action.op, stage), rank, placement.holders(stage), seconds)

    def _gradient_sets(self, rank: int, stage: int) -> int:
        """Sums of gradients that a rank has to give: one for a power of two of micro-batches."""
        return len(nodes_of(self._schedule.microbatches_on(rank, stage)))

    def _meet(self, what: object, rank: int, ranks: Sequence[int], seconds: float) -> Moment:
        """The moment some time after all ranks have come."""
        present, moment = self._meetings.setdefault(what, ([], Moment()))
        present.append(rank)
        if len(present) == len(ranks):
            self._clock.call_at(self._clock.now_s + seconds, lambda: self._clock.come(moment))
        return moment
