"""Keeping the copies of a stage equal: gradients to the owner, one update there, weights back to the others.

A step's gradients are always added in one fixed tree over the micro-batch index (tree_sum.py), and what a replica sends
on is exactly the nodes of that tree which it can complete. So the sum has the same bits for any number of ranks.

GEMS (SC20) all-reduces and updates both copies. Updating at the owner and sending weights back costs the same bytes,
keeps one optimizer state instead of one per copy, and leaves the copies identical by construction.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from training.engine.batchnorm import Statistics, replay_statistics, statistics_like, tracking_layers
from training.engine.layout import pack, packed_bytes, unpack
from training.engine.schedule import Action, Schedule, subtree_size
from training.engine.stage import StageCopy
from training.engine.transport import Transport
from training.engine.tree_sum import nodes_of


class ReplicaSync:
    """REDUCE and STEP on one rank. `copies` are this rank's stages by replica; `optimizer` updates those owned here."""

    def __init__(
        self, copies: Mapping[int, StageCopy], optimizer: torch.optim.Optimizer | None, transport: Transport
    ) -> None:
        self._copies = copies
        self._optimizer = optimizer
        self._transport = transport

    def reduce(self, action: Action, schedule: Schedule) -> None:
        """Bring what the replicas below this one have summed up together, and pass it on.

        At the owner the weights get their gradients, and BatchNorm its running statistics.
        """
        copy = self._copies[action.replica]
        for child in schedule.sources(action):
            self._take_in(copy, child, action, schedule)
        for parent in schedule.targets(action):
            self._pass_on(copy, parent, action, schedule)
        if action.replica == 0:
            _finish(copy)

    def step(self, action: Action, schedule: Schedule) -> None:
        """Take the new weights and buffers over, from the optimizer at the owner, and give them to others."""
        copy = self._copies[action.replica]
        if action.replica == 0 and self._optimizer is not None:
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
        for parent in schedule.sources(action):
            rank = schedule.rank_of(parent)
            if rank == schedule.rank_of(action):
                _copy_state(_state(self._copies[parent.replica]), copy)
            elif num_bytes := packed_bytes(_state(copy)):
                row = self._transport.receive_row(num_bytes, peer=rank, during=action)
                _copy_state(unpack(row, _state(copy)), copy)
        for child in schedule.targets(action):
            rank = schedule.rank_of(child)
            if rank != schedule.rank_of(action) and packed_bytes(_state(copy)):
                self._transport.send_row(pack(_state(copy)), peer=rank, during=action)

    def squared_norms(self) -> list[float]:
        """Of the gradient of each weight owned here; float64, so that their sum hardly depends on its order."""
        return [float(gradient.double().square().sum()) for gradient in self._own_gradients()]

    def scale_gradients(self, factor: float) -> None:
        """Multiply the gradients of the weights owned here."""
        for gradient in self._own_gradients():
            gradient.mul_(factor)

    def _own_gradients(self) -> list[Tensor]:
        owned = self._copies.get(0)
        return [weight.grad for weight in owned.weights if weight.grad is not None] if owned else []

    def _take_in(self, copy: StageCopy, child: Action, action: Action, schedule: Schedule) -> None:
        rank = schedule.rank_of(child)
        if rank == schedule.rank_of(action):
            other = self._copies[child.replica]
            for node, gradients in other.gradient_sum.take_nodes():
                copy.gradient_sum.add(node, gradients)
            copy.statistics |= other.take_statistics()
            return
        microbatches = _below(child, schedule)
        like, statistics = _message_like(copy, microbatches)
        if not packed_bytes(like):
            return
        row = self._transport.receive_row(packed_bytes(like), peer=rank, during=action)
        received = unpack(row, like)
        for node in nodes_of(microbatches):
            copy.gradient_sum.add(node, [received.pop(0) for _ in copy.weights])
        for microbatch in microbatches:
            copy.statistics[microbatch] = [received.pop(0) for _ in statistics]

    def _pass_on(self, copy: StageCopy, parent: Action, action: Action, schedule: Schedule) -> None:
        rank = schedule.rank_of(parent)
        if rank == schedule.rank_of(action):
            return  # the parent takes it in itself
        tensors = [tensor for _, gradients in copy.gradient_sum.take_nodes() for tensor in gradients]
        tensors += [tensor for _, recorded in sorted(copy.take_statistics().items()) for tensor in recorded]
        if packed_bytes(tensors):
            self._transport.send_row(pack(tensors), peer=rank, during=action)


def clip_factor(squared_norms: list[float], max_norm: float) -> tuple[float, float]:
    """Global norm of the gradients and the factor that brings it down to `max_norm`, 1.0 if it is below.

    Args:
        squared_norms: of each weight, in the order of the network: always the same sum.
    """
    norm = math.sqrt(math.fsum(squared_norms))
    return norm, min(1.0, max_norm / norm) if norm > 0 else 1.0


def _finish(copy: StageCopy) -> None:
    """Give the weights their gradients, and replay the statistics of all micro-batches in order."""
    for weight, gradient in zip(copy.weights, copy.gradient_sum.take_total(), strict=True):
        # One layout for all strategies: what came from another rank is contiguous.
        weight.grad = torch.empty_like(weight).copy_(gradient)
    replay_statistics(tracking_layers(copy.module), copy.take_statistics())


def _below(child: Action, schedule: Schedule) -> range:
    return schedule.microbatches_below(child.replica, subtree_size(child.replica, schedule.num_replicas))


def _message_like(copy: StageCopy, microbatches: range) -> tuple[list[Tensor], Statistics]:
    """Tensors of the shapes that a replica sends for these micro-batches, and those of one micro-batch's statistics."""
    statistics = statistics_like(tracking_layers(copy.module))
    return [*copy.weights * len(nodes_of(microbatches)), *statistics * len(microbatches)], statistics


def _state(copy: StageCopy) -> list[Tensor]:
    return [*copy.module.parameters(), *copy.module.buffers()]


def _copy_state(source: list[Tensor], copy: StageCopy) -> None:
    with torch.no_grad():
        for mine, new in zip(_state(copy), source, strict=True):
            mine.copy_(new)
