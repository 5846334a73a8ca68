"""Walks the action list of one rank: what the schedule says, with tensors."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from training.engine.ranks import Ranks
from training.engine.replica_sync import ReplicaSync
from training.engine.schedule import Action, Op, Schedule
from training.engine.stage import Loss, StageCopy
from training.engine.transport import Boundary, Transport

Inputs = Callable[[int], Tensor]
"""micro-batch -> its input of the first stage."""


class Executor:
    """Runs one rank's part of a step. `copies` are the stages held here, by replica."""

    def __init__(
        self,
        schedule: Schedule,
        *,
        ranks: Ranks,
        copies: Mapping[int, StageCopy],
        transport: Transport,
        sync: ReplicaSync,
    ):
        self._schedule = schedule
        self._actions = schedule.ranks[ranks.rank]
        self._copies = copies
        self._transport = transport
        self._sync = sync

    def run(self, inputs: Inputs, loss: Loss) -> dict[int, float]:
        """Do all actions of one step.

        Returns:
            the losses known on this rank, by micro-batch.
        """
        losses: dict[int, float] = {}
        for action in self._actions:
            match action.op:
                case Op.F:
                    self._forward(action, inputs, loss, losses)
                case Op.B:
                    self._backward(action)
                case Op.REDUCE:
                    self._sync.reduce(action)
                case Op.STEP:
                    self._sync.step(action)
        self._transport.flush()
        return losses

    def _forward(self, action: Action, inputs: Inputs, loss: Loss, losses: dict[int, float]) -> None:
        microbatch = _microbatch(action)
        source, target = self._schedule.source(action), self._schedule.target(action)
        value: Boundary
        if source is None:
            value = inputs(microbatch)
        else:
            value = self._transport.receive(peer=self._schedule.rank_of(source), lane=action.replica, during=action)
        output = self._copies[action.replica].forward(microbatch, value, loss if target is None else None)
        if target is not None:
            self._transport.send(output, peer=self._schedule.rank_of(target), lane=action.replica, during=action)
        else:
            assert isinstance(output, Tensor)
            losses[microbatch] = output.item()

    def _backward(self, action: Action) -> None:
        source, target = self._schedule.source(action), self._schedule.target(action)
        gradients: tuple[Tensor, ...] | None = None
        if source is not None:
            received = self._transport.receive(peer=self._schedule.rank_of(source), lane=action.replica, during=action)
            assert isinstance(received, tuple)
            gradients = received
        found = self._copies[action.replica].backward(_microbatch(action), gradients)
        if target is not None:
            self._transport.send(found, peer=self._schedule.rank_of(target), lane=action.replica, during=action)


def share_losses(losses: Mapping[int, float], *, num_microbatches: int, ranks: Ranks, transport: Transport) -> float:
    """Total loss of a step, summed in the order of the micro-batches: the same number on every rank."""
    by_microbatch = torch.zeros(num_microbatches, dtype=torch.float64)
    for microbatch, loss in losses.items():
        by_microbatch[microbatch] = loss
    if ranks.num_ranks > 1:
        by_microbatch = transport.sum_over_ranks(by_microbatch, during="sharing the losses")
    return float(sum(by_microbatch.tolist()))


def _microbatch(action: Action) -> int:
    assert action.microbatch is not None
    return action.microbatch
