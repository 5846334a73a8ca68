"""Walks the action list of one rank: what the schedule says, with tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from training.engine.memory import LiveBytes
from training.engine.ranks import lane_of
from training.engine.schedule import Action, Op, Schedule
from training.engine.stage import Boundary, Finish, StageCopy, only_tensor
from training.engine.transport import Route, Transport


class Batch(Protocol):
    """The micro-batches of one step. Every rank has one; it asks only for what it needs, when it needs it."""

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Of the input of each micro-batch, equal on every rank; the first number is its samples."""

    def inputs(self, microbatch: int) -> Tensor:
        """Asked for on the ranks that hold the first stage of the replica that owns the micro-batch."""

    def targets(self, microbatch: int) -> Any:
        """What the loss compares with; asked for where the last stage is."""


Loss = Callable[[Tensor, Any], Tensor]
"""(output of the network, targets of the micro-batch) -> scalar: the *sum* of the loss over its samples."""


class Sync(Protocol):
    """What REDUCE and STEP do."""

    def reduce(self, action: Action, schedule: Schedule) -> None: ...

    def step(self, action: Action, schedule: Schedule) -> None: ...


@dataclass
class Step:
    """One step under way on one rank."""

    schedule: Schedule
    batch: Batch
    loss: Loss | None
    """None for forward only."""
    actions: tuple[Action, ...]
    shapes: tuple[tuple[int, ...], ...]
    """The batch's, asked for once."""
    results: dict[int, Tensor] = field(default_factory=dict)
    """Losses known on this rank by micro-batch; outputs, for forward only."""

    @property
    def num_samples(self) -> int:
        return sum(shape[0] for shape in self.shapes)


class Executor:
    """Runs one rank's actions. `copies` are the stages held here, by replica."""

    def __init__(
        self,
        rank: int,
        *,
        copies: Mapping[int, StageCopy],
        transport: Transport,
        sync: Sync,
        place: Callable[[Tensor], Tensor],
        counter: LiveBytes,
    ):
        self._rank = rank
        self._copies = copies
        self._transport = transport
        self._sync = sync
        self._place = place
        self._counter = counter

    def begin(self, schedule: Schedule, batch: Batch, loss: Loss | None) -> Step:
        """Make ready for a step."""
        self._counter.start()
        return Step(schedule, batch, loss, schedule.ranks[self._rank], tuple(map(tuple, batch.shapes)))

    def do(self, step: Step, index: int) -> None:
        """Do one action of a step; all must be done, in order.

        Raises:
            LostPeerError: another rank is gone or too slow.
        """
        action = step.actions[index]
        match action.op:
            case Op.F:
                self._forward(step, index)
            case Op.B:
                self._backward(step, index)
            case Op.REDUCE:
                self._sync.reduce(action, step.schedule)
            case Op.STEP:
                self._sync.step(action, step.schedule)

    def finish(self) -> None:
        """Wait until other ranks have taken all they need of this one."""
        self._transport.flush()

    def _forward(self, step: Step, index: int) -> None:
        action = step.actions[index]
        microbatch, copy = _microbatch(action), self._copies[action.replica]
        target = self._target(step, action)
        # The stage alone holds what comes in, and releases it as soon as it can.
        if step.loss is None:
            output = copy.infer(self._incoming(step, index))
        else:
            finish = None if target else self._loss_of(step, microbatch)
            output = copy.forward(microbatch, self._incoming(step, index), finish)
        if target is not None:
            self._transport.send(output, target)
        else:
            step.results[microbatch] = only_tensor(output).detach()

    def _backward(self, step: Step, index: int) -> None:
        action = step.actions[index]
        target = self._target(step, action)
        found = self._copies[action.replica].backward(_microbatch(action), self._incoming(step, index))
        if target is not None:
            self._transport.send(found, target)

    def _incoming(self, step: Step, index: int) -> Any:
        """What the neighbour sends, or the input, or None for a backward that starts at the loss.

        The next boundary then comes in while this rank computes.
        """
        action = step.actions[index]
        source = self._source(step, action)
        if source is not None:
            value: Any = self._transport.receive(source)
        else:
            value = self._input(step, _microbatch(action)) if action.op is Op.F else None
        self._ask_ahead(step, index)
        return value

    def _input(self, step: Step, microbatch: int) -> Boundary:
        value = step.batch.inputs(microbatch)
        if tuple(value.shape) != step.shapes[microbatch]:
            raise ValueError(
                f"the input of micro-batch {microbatch} has shape {tuple(value.shape)}, but the batch says "
                f"{step.shapes[microbatch]}; every rank must know the shapes beforehand"
            )
        return self._place(value)

    def _loss_of(self, step: Step, microbatch: int) -> Finish:
        assert step.loss is not None
        loss, targets = step.loss, step.batch.targets(microbatch)
        # Divided by the samples of the whole step: the learning rate then means the same for any N, S and D.
        return lambda output: loss(output, targets) / step.num_samples

    def _ask_ahead(self, step: Step, index: int) -> None:
        """Let the next boundary come in while this rank computes."""
        for action in step.actions[index + 1 :]:
            if action.op not in (Op.F, Op.B):
                return
            source = self._source(step, action)
            if source is not None:
                self._transport.ask(source)
                return

    def _source(self, step: Step, action: Action) -> Route | None:
        sources = step.schedule.sources(action)
        return self._route(step, sources[0], peer_of=sources[0], during=action) if sources else None

    def _target(self, step: Step, action: Action) -> Route | None:
        targets = step.schedule.targets(action)
        return self._route(step, action, peer_of=targets[0], during=action) if targets else None

    def _route(self, step: Step, giver: Action, *, peer_of: Action, during: Action) -> Route:
        shape = step.shapes[_microbatch(giver)]
        return Route(
            step.schedule.rank_of(peer_of),
            lane_of(giver, num_directions=step.schedule.num_directions),
            kind=(giver.op, giver.stage, shape, step.loss is None),
            during=during,
        )


def _microbatch(action: Action) -> int:
    assert action.microbatch is not None
    return action.microbatch
