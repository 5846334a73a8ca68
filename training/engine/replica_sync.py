"""Keeping the two copies of a stage equal: gradients to the owner, one update there, weights back to the mirror.

Floating-point sums depend on their order, so the gradients of a step are always added in one fixed tree over the
micro-batch index, whichever rank or replica computed them. For a number of micro-batches that is a power of two, the
tree of each replica's half is a subtree of it, and every strategy gives gradients equal, bit for bit, to one process.

GEMS (SC20) all-reduces and updates both copies. Updating at the owner and sending weights back costs the same bytes,
keeps one optimizer state instead of two, and leaves the copies identical by construction.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from training.engine.batchnorm import Statistics, replay_statistics, statistics_like, tracking_layers
from training.engine.schedule import Action, Schedule
from training.engine.stage import StageCopy
from training.engine.transport import SYNC, Transport
from training.engine.tree_sum import add_sets

_ALIGN_BYTES = 16


class ReplicaSync:
    """REDUCE and STEP on one rank. `copies` are this rank's stages by replica; `optimizer` belongs to its own stage."""

    def __init__(
        self,
        schedule: Schedule,
        copies: Mapping[int, StageCopy],
        optimizer: torch.optim.Optimizer | None,
        transport: Transport,
    ):
        self._schedule = schedule
        self._copies = copies
        self._optimizer = optimizer
        self._transport = transport
        self._statistics: dict[int, Statistics] = {}
        self._total: list[Tensor] = []

    def reduce(self, action: Action) -> None:
        """Bring the gradients and BatchNorm statistics of both copies of a stage together at its owner."""
        copy = self._copies[action.replica]
        partner = self._partner(action)
        if action.replica == 1:
            if partner is not None:
                self._send(action, [*copy.gradient_sum.take_total(), *_in_order(copy.take_statistics())])
            return
        self._total = copy.gradient_sum.take_total()
        self._statistics = copy.take_statistics()
        if partner is None:
            mirror = self._copies[1]
            self._total = add_sets(self._total, mirror.gradient_sum.take_total())
            self._statistics |= mirror.take_statistics()
            return
        self._receive_half(action, copy)

    def step(self, action: Action) -> None:
        """Update a stage at its owner and give the mirror the new weights and buffers."""
        copy = self._copies[action.replica]
        partner = self._partner(action)
        if action.replica == 0:
            self._update(copy)
            if partner is not None:
                self._send(action, _state(copy))
            return
        source = _state(self._copies[0]) if partner is None else self._receive(action, _state(copy))
        with torch.no_grad():
            for mine, new in zip(_state(copy), source, strict=True):
                mine.copy_(new)

    def _receive_half(self, action: Action, copy: StageCopy) -> None:
        layers = tracking_layers(copy.module)
        theirs = [k for k in range(self._schedule.num_microbatches) if self._schedule.replica_of(k) == 1]
        per_microbatch = statistics_like(layers)
        received = self._receive(action, [*self._total, *per_microbatch * len(theirs)])
        statistics = received[len(self._total) :]
        self._total = add_sets(self._total, received[: len(self._total)])
        size = len(per_microbatch)
        for index, microbatch in enumerate(theirs):
            self._statistics[microbatch] = statistics[index * size : (index + 1) * size]

    def _update(self, copy: StageCopy) -> None:
        if self._schedule.num_replicas == 1:
            self._total = copy.gradient_sum.take_total()
            self._statistics = copy.take_statistics()
        for weight, gradient in zip(copy.weights, self._total, strict=bool(self._total)):
            # One layout for all strategies: what came from the other rank is contiguous.
            weight.grad = torch.empty_like(weight).copy_(gradient)
        self._total = []
        if self._optimizer is not None:
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
        replay_statistics(tracking_layers(copy.module), self._statistics)
        self._statistics = {}

    def _partner(self, action: Action) -> int | None:
        """Rank of the stage's other copy; None if it lies on this rank too, or there is none."""
        other = self._schedule.target(action) or self._schedule.source(action)
        if other is None or self._schedule.rank_of(other) == self._schedule.rank_of(action):
            return None
        return self._schedule.rank_of(other)

    def _send(self, action: Action, tensors: Sequence[Tensor]) -> None:
        peer = self._partner(action)
        assert peer is not None
        self._transport.send(pack(tensors), peer=peer, lane=SYNC, during=action)

    def _receive(self, action: Action, like: Sequence[Tensor]) -> list[Tensor]:
        peer = self._partner(action)
        assert peer is not None
        packed = self._transport.receive(peer=peer, lane=SYNC, during=action)
        assert isinstance(packed, Tensor)
        return unpack(packed, like)


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """All tensors as one flat row of bytes; each starts at a multiple of 16, so it can be viewed in place."""
    rows = []
    for tensor in tensors:
        row = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        rows += [row, row.new_zeros(-len(row) % _ALIGN_BYTES)]
    return torch.cat(rows) if rows else torch.empty(0, dtype=torch.uint8)


def unpack(packed: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of what `pack` made, with the types and shapes of `like`, contiguous."""
    views = []
    start = 0
    for tensor in like:
        num_bytes = tensor.numel() * tensor.element_size()
        views.append(packed[start : start + num_bytes].view(tensor.dtype).reshape(tensor.shape))
        start += num_bytes + -num_bytes % _ALIGN_BYTES
    return views


def packed_bytes(like: Sequence[Tensor]) -> int:
    """Length of what `pack` makes of such tensors."""
    return sum(-(-tensor.numel() * tensor.element_size() // _ALIGN_BYTES) * _ALIGN_BYTES for tensor in like)


def _in_order(statistics: dict[int, Statistics]) -> list[Tensor]:
    return [tensor for _, tensors in sorted(statistics.items()) for tensor in tensors]


def _state(copy: StageCopy) -> list[Tensor]:
    return [*copy.module.parameters(), *copy.module.buffers()]
