"""Execution of one rank's action list, with tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from training.engine.boundary import Boundary, Gradients, Heights, as_tuple, only_tensor
from training.engine.exchange import Exchange, Message, exchanges
from training.engine.feed import Feed
from training.engine.memory import LiveBytes
from training.engine.parts import Boundaries
from training.engine.piece import Finish
from training.engine.placement import Held
from training.engine.random_numbers import Draws
from training.engine.schedule import Action, Op, Schedule
from training.engine.stage import StageCopy
from training.engine.transport import Received, Route, Transport

T = TypeVar("T")


class Batch(Protocol):
    """The micro-batches of one step. Every rank has one; it asks only for what it needs, when it needs it."""

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Shape of the network's input for each micro-batch, equal on every rank; the first number counts samples."""

    def inputs(self, microbatch: int) -> Tensor:
        """Input of the network; called on the ranks that hold the first stage of the replica that owns the micro-batch.

        Each call returns its own tensor: one that is refilled while it waits or is in use is refused, unless two
        threads fill it at once. If the plan prefetches, it is called in advance, in threads: code that draws random
        numbers there needs its own generator. Otherwise torch's CPU generator is seeded by step and micro-batch.
        """

    def targets(self, microbatch: int) -> Any:
        """Targets of the loss; called on the ranks that hold the last stage."""


Loss = Callable[[Tensor, Any], Tensor]
"""(output of the network, targets of the micro-batch) -> scalar: the *sum* of the loss over its samples."""


class Meter(Protocol):
    """Times the computations of a rank, without its messages."""

    def __call__(self, action: Action, computation: Callable[..., T]) -> Callable[..., T]:
        """The same computation, timed. It keeps what is passed for as long as it runs: memory is another step's."""


Watch = Callable[[int, object], None]
"""Called with the number of the step and what comes next in it."""


def unwatched(step: int, what: object) -> None:
    """Do nothing."""


class Sync(Protocol):
    """The work of REDUCE and STEP on one stage on this rank."""

    def bring_together(self, action: Action, schedule: Schedule) -> None: ...

    def finish_sum(self, scale: float) -> None: ...

    def update(self, num_microbatches: int) -> None: ...

    def hand_round(self, action: Action) -> None: ...


@dataclass
class Step:
    """One step under way on one rank."""

    schedule: Schedule
    batch: Batch
    loss: Loss | None
    """None for forward only."""
    number: int
    """Number of the step since the start of the training: random numbers depend on it."""
    seed: int
    loss_scale: float
    actions: tuple[Action, ...]
    groups: list[list[Exchange]]
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the batch, read once."""
    results: dict[int, Tensor] = field(default_factory=dict)
    """Losses known on this rank, by micro-batch; with forward only, outputs."""

    @property
    def num_samples(self) -> int:
        return sum(shape[0] for shape in self.shapes)

    @property
    def first_update(self) -> int:
        """Index of the first STEP: everything that can fail comes before it."""
        return next((i for i, action in enumerate(self.actions) if action.op is Op.STEP), len(self.actions))

    def draws(self, microbatch: int) -> Draws:
        return Draws(self.seed, self.number, microbatch)


class Executor:
    """Runs one rank's actions. `copies` are the stages held here; `syncs` keep each equal to its other copies."""

    def __init__(
        self,
        *,
        copies: Mapping[Held, StageCopy],
        transport: Transport,
        syncs: Mapping[int, Sync],
        place: Callable[[Tensor], Tensor],
        feed: Feed,
        counter: LiveBytes,
        watch: Watch = unwatched,
    ):
        self._rank = transport.rank
        self._copies = copies
        self._transport = transport
        self._syncs = syncs
        self._place = place
        self._feed = feed
        self._counter = counter
        self._watch = watch
        self.meter: Meter | None = None
        """Times what this rank computes, if set."""
        self._busy: StageCopy | str | None = None
        """Current work: a stage, or a description."""

    @property
    def at(self) -> str | None:
        """The last thing begun, for people: a block of the network, its backward, or what follows; None if nothing."""
        return self._busy.at if isinstance(self._busy, StageCopy) else self._busy

    def begin(
        self,
        schedule: Schedule,
        batch: Batch,
        loss: Loss | None,
        *,
        number: int = 0,
        seed: int = 0,
        loss_scale: float = 1.0,
        upcoming: tuple[Schedule, Batch] | None = None,
    ) -> Step:
        """Prepare a step; inputs of this batch, and then of the upcoming one, are read ahead from now on."""
        self._counter.start()
        self._busy = None
        actions, groups = schedule.ranks[self._rank], exchanges(schedule, self._rank)
        shapes = tuple(map(tuple, batch.shapes))
        self._feed.follow(batch, _input_microbatches(schedule, self._rank))
        if upcoming is not None:
            self._feed.follow(upcoming[1], _input_microbatches(upcoming[0], self._rank))
        return Step(schedule, batch, loss, number, seed, loss_scale, actions, groups, shapes)

    def run(self, step: Step, indices: range) -> None:
        """Do some actions of a step.

        Raises:
            LostPeerError: another rank is gone or too slow.
        """
        for index in indices:
            self.do(step, index)

    def do(self, step: Step, index: int) -> None:
        """Do one action of a step; all must be done, in order."""
        action = step.actions[index]
        self._transport.during = action
        self._watch(step.number, action if step.loss is not None else f"{action}, forward only")
        match action.op:
            case Op.F:
                self._forward(step, index)
            case Op.B:
                self._backward(step, index)
            case Op.REDUCE:
                self._busy = "the sum of gradients"
                self._exchange(step, index)
                self._metered(action, self._syncs[action.stage].finish_sum)(1.0 / step.loss_scale)
            case Op.STEP:
                self._busy = "the optimizer's step"
                self._exchange(step, index)
                self._metered(action, self._syncs[action.stage].update)(len(step.shapes))

    def _metered(self, action: Action, computation: Callable[..., T]) -> Callable[..., T]:
        return computation if self.meter is None else self.meter(action, computation)

    def finish(self, step: Step) -> None:
        """Exchange the messages after the last action, then wait until other ranks have received all they need."""
        self._exchange(step, len(step.actions))
        self._transport.flush()

    def _exchange(self, step: Step, index: int) -> list[Received]:
        """Exchange the groups of messages before an action; return what the action takes, by giver."""
        received: list[Received] = []
        for group in step.groups[index]:
            if group.meets is None:
                takes = [self._route(step, message, peer_of=message[0]) for message in group.takes]
                received += self._transport.exchange(group.gives, takes)
            elif group.meets.op is Op.REDUCE:
                self._syncs[group.meets.stage].bring_together(group.meets, step.schedule)
            elif group.meets.op is Op.STEP:
                self._syncs[group.meets.stage].hand_round(group.meets)
        return received  # parts meet while they compute

    def _forward(self, step: Step, index: int) -> None:
        action = step.actions[index]
        microbatch = _microbatch(action)
        self._busy = copy = self._copies[action.replica, action.stage]
        targets, draws = step.schedule.targets(action), step.draws(microbatch)
        # Only the stage holds what comes in, and it releases that as soon as it can.
        with self._feed.in_use():
            if step.loss is None:
                output = copy.infer(self._incoming(step, index, copy), draws)
            else:
                finish = None if targets else self._loss_of(step, action)
                # Not where it goes to another rank: with a graph, different outputs may need a gradient than without.
                at_once = not targets and step.actions[index + 1] == action._replace(op=Op.B)
                forward = self._metered(action, copy.forward)
                output = forward(microbatch, self._incoming(step, index, copy), finish, draws, at_once=at_once)
        if targets:
            form = copy.cutting.form_after(microbatch, output)
            self._offer(step, action, as_tuple(output), form.heights, is_tuple=form.is_tuple)
        elif action.part == 0:
            result = only_tensor(output).detach()
            step.results[microbatch] = result if step.loss is None else result / step.loss_scale
        if step.loss is None:
            copy.cutting.forget(microbatch)

    def _backward(self, step: Step, index: int) -> None:
        action = step.actions[index]
        self._busy = copy = self._copies[action.replica, action.stage]
        microbatch = _microbatch(action)
        copy.fetch(microbatch)
        heights = copy.cutting.heights_before(microbatch)
        # Only the stage holds what comes in, as in forward.
        backward = self._metered(action, copy.backward)
        gradients = backward(microbatch, self._gradients(step, index), of=len(step.shapes))
        if step.schedule.targets(action):
            self._offer(step, action, gradients, heights, is_tuple=True)

    def _offer(self, step: Step, action: Action, value: Gradients, heights: Heights, *, is_tuple: bool) -> None:
        """Give each target what it needs: all of it, or the rows that its part has."""
        for target in step.schedule.targets(action):
            message = action, target
            between = self._between(step, action, target.stage)
            cut = [
                between.cut(tensor, height, target.part, forward=action.op is Op.F)
                for tensor, height in zip(value, heights, strict=True)
            ]
            given = _as_boundary(cut)
            self._transport.offer(
                message, given if is_tuple else given[0], self._route(step, message, peer_of=target), heights
            )

    def _between(self, step: Step, action: Action, other: int) -> Boundaries:
        placement = step.schedule.placement
        return Boundaries(action.part, placement.num_parts(action.stage), placement.num_parts(other))

    def _incoming(self, step: Step, index: int, copy: StageCopy) -> Boundary:
        """What a forward takes; the stage is told how it is cut."""
        action = step.actions[index]
        received = self._exchange(step, index)
        if not step.schedule.sources(action):
            return self._input(step, _microbatch(action))
        value, heights = self._joined(step, action, received)
        copy.cutting.arrives(_microbatch(action), heights)
        tensors = tuple(tensor for tensor in value if tensor is not None)
        return tensors if isinstance(received[0].value, tuple) else tensors[0]

    def _gradients(self, step: Step, index: int) -> Gradients | None:
        """The gradients that a backward takes; None where the stage ends in the loss."""
        received = self._exchange(step, index)
        return self._joined(step, step.actions[index], received)[0] if received else None

    def _joined(self, step: Step, action: Action, received: Sequence[Received]) -> tuple[Gradients, Heights]:
        between = self._between(step, action, action.stage + (-1 if action.op is Op.F else 1))
        by_giver = [_from_boundary(each.value) for each in received]
        heights = received[0].heights
        joined = tuple(
            between.join(pieces, height, forward=action.op is Op.F)
            for pieces, height in zip(zip(*by_giver, strict=True), heights, strict=True)
        )
        return joined, heights

    def _input(self, step: Step, microbatch: int) -> Boundary:
        step.draws(microbatch).start_input()
        value = self._place(self._feed.take(step.batch, microbatch))
        if tuple(value.shape) != step.shapes[microbatch]:
            raise ValueError(
                f"the input of micro-batch {microbatch} has shape {tuple(value.shape)}, but the batch says "
                f"{step.shapes[microbatch]}; every rank must know the shapes beforehand"
            )
        return value

    def _loss_of(self, step: Step, action: Action) -> Finish:
        assert step.loss is not None
        if action.part:  # the first part computes the loss
            return only_the_first
        loss, targets = step.loss, step.batch.targets(_microbatch(action))
        # Divided by the samples of the whole step: the learning rate then means the same for any N, S and D.
        return lambda output: _as_fp32(loss(output, targets)) / step.num_samples * step.loss_scale

    def _route(self, step: Step, message: Message, *, peer_of: Action) -> Route:
        giver, taker = message
        shape = step.shapes[_microbatch(giver)]
        return Route(
            step.schedule.rank_of(peer_of),
            kind=(giver.op, giver.stage, shape, step.loss is None),
            during=taker if peer_of is giver else giver,
        )


def _as_fp32(loss: Tensor) -> Tensor:
    """A loss that sixteen bits cannot hold once it is summed and scaled."""
    return loss.float() if loss.dtype in (torch.float16, torch.bfloat16) else loss


def only_the_first(_: Tensor) -> Tensor:
    """The loss of a part other than the first, which is not asked for it."""
    raise AssertionError("a part other than the first computes no loss")


def _as_boundary(value: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """Tensors or gradients as a message: an empty bool tensor of one axis stands for None."""
    return tuple(torch.empty(0, dtype=torch.bool) if tensor is None else tensor for tensor in value)


def _from_boundary(received: Boundary) -> Gradients:
    return tuple(None if _stands_for_none(tensor) else tensor for tensor in as_tuple(received))


def _stands_for_none(tensor: Tensor) -> bool:
    return tensor.dtype == torch.bool and tensor.shape == (0,)


def _input_microbatches(schedule: Schedule, rank: int) -> list[int]:
    """Micro-batches whose inputs a rank takes, in order."""
    return [_microbatch(a) for a in schedule.ranks[rank] if a.op is Op.F and a.stage == 0]


def _microbatch(action: Action) -> int:
    assert action.microbatch is not None
    return action.microbatch
