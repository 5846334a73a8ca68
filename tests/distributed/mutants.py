"""Engines with a planted fault: each shows that an equality test would notice it."""

from unittest import mock

import torch
from torch import Tensor

from tests.distributed.problem import Case, Outcome, train
from training.engine.ranks import Ranks
from training.engine.stage import StageCopy
from training.engine.transport import Boundary, Transport


def train_with_flipped_bit(ranks: Ranks, case: Case) -> Outcome:
    """One rank's gradient of one weight in the last micro-batch is off by its last bit."""
    backward = StageCopy.backward

    def flipping(self: StageCopy, microbatch: int, gradients: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        if ranks.rank == 1 and microbatch == case.num_microbatches - 1:
            add = self.gradient_sum.add
            with mock.patch.object(self.gradient_sum, "add", lambda tensors: add(_flip_last_bit(tensors))):
                return backward(self, microbatch, gradients)
        return backward(self, microbatch, gradients)

    with mock.patch.object(StageCopy, "backward", flipping):
        return train(ranks, case)


def _flip_last_bit(tensors: list[Tensor]) -> list[Tensor]:
    largest = tensors[0].abs().argmax()
    flipped = tensors[0].clone(memory_format=torch.contiguous_format)
    flipped.view(torch.int32).view(-1)[largest] ^= 1
    return [flipped, *tensors[1:]]


def train_with_contiguous_buffers(ranks: Ranks, case: Case) -> Outcome:
    """What comes from another rank is laid out row by row, whatever the sender's layout."""
    receive = Transport.receive

    def forgetful(self: Transport, *, peer: int, lane: int, during: object) -> Boundary:
        value = receive(self, peer=peer, lane=lane, during=during)
        if isinstance(value, Tensor):
            return value.detach().contiguous().requires_grad_(value.requires_grad)
        return tuple(tensor.contiguous() for tensor in value)

    with mock.patch.object(Transport, "receive", forgetful):
        return train(ranks, case)


def train_with_late_mirror(ranks: Ranks, case: Case) -> Outcome:
    """The mirror never takes the owner's new weights."""
    with mock.patch("training.engine.replica_sync._state", return_value=[]):
        return train(ranks, case)


def train_with_sequential_sum(ranks: Ranks, case: Case) -> Outcome:
    """Gradients are added one after the other instead of in the tree."""

    class RunningSum:
        total: list[Tensor] | None = None

        def add(self, tensors: list[Tensor]) -> None:
            self.total = tensors if self.total is None else [a + b for a, b in zip(self.total, tensors, strict=True)]

        def take_total(self) -> list[Tensor]:
            total, self.total = self.total, None
            return total or []

    with mock.patch("training.engine.stage.TreeSum", RunningSum):
        return train(ranks, case)
