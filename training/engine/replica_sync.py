"""Keeping the copies of a stage equal: gradients to their owners, one update there, weights to all.

Each rank that holds weights of a stage owns a share of them, and of their running statistics. In REDUCE it gives every
other rank that rank's share of its own sums, and takes its share from all; in STEP it updates its share, and all ranks
exchange their shares. That moves no more bytes than a ring all-reduce; adds the gradients of each weight in one place
and one fixed tree over parts and micro-batches (sums/tree_sum.py), so with the same bits for any number of ranks; keeps
one optimizer state of each weight over all ranks; and leaves the copies identical by construction.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from training.engine.layout import pack, packed_bytes, unpack
from training.engine.schedule import Action, Schedule
from training.engine.stage import StageCopy
from training.engine.sums.tree_sum import Node, nodes_of
from training.engine.sums.weight_group import WeightGroup
from training.engine.transport import Transport

MakeOptimizer = Callable[[list[tuple[str, nn.Parameter]]], torch.optim.Optimizer]
"""(names in the whole network, weights) -> their optimizer; the rule must treat each weight separately."""


class StageSync:
    """REDUCE and STEP of one stage on one rank."""

    def __init__(
        self,
        copy: StageCopy,
        *,
        rank: int,
        holders: Callable[[int | None], tuple[int, ...]],
        transport: Transport,
        make: MakeOptimizer,
    ) -> None:
        """Share out the weights.

        Args:
            holders: (part) -> the ranks that have its own weights, in order; None: those of all parts.
        """
        self.copy = copy
        self._groups = [GroupSync(group, rank, holders(group.part), transport) for group in copy.groups]
        self.owned = {name: weight for group in self._groups for name, weight in group.owned.items()}
        """Weights that this rank updates, by name."""
        self._make = make
        self.optimizer = make(list(self.owned.items())) if self.owned else None

    # --- REDUCE ------------------------------------------------------------------------------------

    def bring_together(self, action: Action, schedule: Schedule) -> None:
        """Give the others their shares of the sums and take this rank's from them."""
        for group in self._groups:
            group.bring_together(action, schedule)

    def finish_sum(self, scale: float) -> None:
        """Give the owned weights their gradients, each `scale` times the sum of the step."""
        for group in self._groups:
            group.finish_sum(scale)

    # --- STEP --------------------------------------------------------------------------------------

    def update(self, num_microbatches: int) -> None:
        """Update the owned weights and this rank's share of the running statistics."""
        if self.optimizer is not None:
            self.optimizer.step()
        for group in self._groups:
            group.replay(num_microbatches)
        self.forget()

    def hand_round(self, action: Action) -> None:
        """Give the others what this rank has updated and take what they have."""
        for group in self._groups:
            group.hand_round(action)

    def slots(self) -> dict[str, dict[str, torch.Size]]:
        """Shapes of the optimizer's state for each owned weight, found by a step on copies of them."""
        copies = {name: nn.Parameter(weight.detach().clone()) for name, weight in self.owned.items()}
        if not copies:
            return {}
        for weight in copies.values():
            weight.grad = torch.zeros_like(weight)
        probe = self._make(list(copies.items()))
        probe.step()
        return {
            name: {slot: kept.shape for slot, kept in probe.state.get(weight, {}).items() if isinstance(kept, Tensor)}
            for name, weight in copies.items()
        }

    def forget(self) -> None:
        """Drop gradients and sums: the next step starts without them."""
        for weight in self.owned.values():
            weight.grad = None
        self.copy.forget()

    # --- agreement ---------------------------------------------------------------------------------

    def squared_norms(self) -> dict[str, Tensor]:
        """Squared norms of the owned weights' gradients, by name: float64 scalars on the device."""
        owned = [_grad(weight) for weight in self.owned.values()]
        norms = torch._foreach_norm(owned, 2, dtype=torch.float64) if owned else []
        return {name: norm.square() for name, norm in zip(self.owned, norms, strict=True)}

    def scale_gradients(self, factor: float) -> None:
        """Multiply the gradients of the owned weights."""
        if self.owned:
            torch._foreach_mul_([_grad(weight) for weight in self.owned.values()], factor)


class GroupSync:
    """The same for the weights that some ranks hold, without the update itself."""

    def __init__(self, group: WeightGroup, rank: int, holders: tuple[int, ...], transport: Transport) -> None:
        self._group, self._rank, self._transport = group, rank, transport
        self._others = [holder for holder in holders if holder != rank]
        sizes = [weight.numel() for weight in group.weights]
        self._weights_of = dict(zip(holders, shares(sizes, len(holders)), strict=True))
        self._columns_of = dict(zip(holders, shares([1] * len(group.running), len(holders)), strict=True))
        self.owned = {group.names[i]: group.weights[i] for i in self._weights_of[rank]}

    def bring_together(self, action: Action, schedule: Schedule) -> None:
        """See `StageSync`."""
        if not self._others:
            return
        group, mine, columns = self._group, self._weights_of[self._rank], _slice(self._columns_of[self._rank])
        nodes = group.gradient_sum.take_nodes()
        recorded = [row for _, row in sorted(group.statistics.items())]
        rows = {}
        for peer in self._others:
            own = [part for _, sums in nodes for part in group.rows.cut(sums, self._weights_of[peer])]
            rows[peer] = pack([*own, *(row[_slice(self._columns_of[peer])] for row in recorded)])
        for node, sums in nodes:
            group.gradient_sum.add(node, group.rows.cut(sums, mine))
        statistics = {k: row[columns] for k, row in group.statistics.items()}
        like = {peer: self._message_like(schedule, peer, action.stage) for peer in self._others}
        incoming = self._transport.swap(
            rows, {peer: packed_bytes(tensors) for peer, tensors in like.items()}, during=action
        )
        for peer, row in incoming.items():
            received = unpack(row, like[peer])
            for node in self._nodes_on(schedule, peer, action.stage):
                group.gradient_sum.add(node, [received.pop(0) for _ in group.rows.like(mine)])
            # The parts of a stage record the same.
            statistics |= {k: received.pop(0) for k in schedule.microbatches_on(peer, action.stage)}
        group.statistics = statistics

    def finish_sum(self, scale: float) -> None:
        """See `StageSync`."""
        owned = list(self.owned.values())
        total = self._group.rows.split(self._group.gradient_sum.take_total(), self._weights_of[self._rank])
        for weight in owned:
            # One layout for all strategies: what comes from another rank is contiguous.
            weight.grad = torch.empty_like(weight)
        if owned:
            torch._foreach_copy_([_grad(weight) for weight in owned], total)
            if scale != 1.0:
                torch._foreach_mul_([_grad(weight) for weight in owned], scale)

    def replay(self, num_microbatches: int) -> None:
        """Update this rank's share of the running statistics."""
        running, statistics = self._group.running, sorted(self._group.statistics.items())
        running.replay([row for _, row in statistics], _slice(self._columns_of[self._rank]))
        running.count(num_microbatches)

    def hand_round(self, action: Action) -> None:
        """See `StageSync`."""
        if not self._others:
            return
        with torch.no_grad():
            mine = pack(self._state_of(self._rank))
            lengths = {peer: packed_bytes(self._state_of(peer)) for peer in self._others}
            received = self._transport.swap(dict.fromkeys(self._others, mine), lengths, during=action)
            for peer, row in received.items():
                state = self._state_of(peer)
                if state:
                    torch._foreach_copy_(state, unpack(row, state))

    def _state_of(self, rank: int) -> list[Tensor]:
        weights: list[Tensor] = [self._group.weights[i].detach() for i in self._weights_of[rank]]
        columns = self._group.running.row[_slice(self._columns_of[rank])]
        return [*weights, columns] if len(columns) else weights

    def _message_like(self, schedule: Schedule, peer: int, stage: int) -> list[Tensor]:
        """Tensors of the shapes that a peer sends this rank in REDUCE."""
        microbatches = schedule.microbatches_on(peer, stage)
        rows = self._group.rows.like(self._weights_of[self._rank])
        columns = self._group.running.row[_slice(self._columns_of[self._rank])]
        return [*rows * len(self._nodes_on(schedule, peer, stage)), *[columns] * len(microbatches)]

    def _nodes_on(self, schedule: Schedule, rank: int, stage: int) -> list[Node]:
        """The nodes of the gradient sum that a rank is left with, in order."""
        alone = self._group.part is not None
        leaves = [schedule.microbatches_on(rank, stage)] if alone else schedule.leaves_on(rank, stage)
        return [node for own in leaves for node in nodes_of(own)]


def shares(sizes: list[int], count: int) -> list[range]:
    """Cut a list into `count` runs of about the same total size; some may be empty."""
    total = sum(sizes)
    middles = [end - size / 2 for end, size in zip(accumulate(sizes), sizes, strict=True)]
    owners = [min(int(middle * count / total), count - 1) if total else 0 for middle in middles]
    starts = [sum(owner < share for owner in owners) for share in range(count + 1)]
    return [range(start, stop) for start, stop in pairwise(starts)]


def clip_factor(norm: float, max_norm: float) -> float:
    """Factor that scales gradients of this norm down to `max_norm`; 1.0 if they are not above it."""
    return max_norm / norm if norm > max_norm else 1.0


def _slice(indices: range) -> slice:
    return slice(indices.start, indices.stop)


def _grad(weight: Tensor) -> Tensor:
    assert weight.grad is not None  # set by finish_sum
    return weight.grad
