"""Engines with a planted fault, to show that an equality test would notice it."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from tests.distributed.problem import Case, Outcome, train
from training.engine.boundary import Boundary, Gradients
from training.engine.engine import Engine
from training.engine.executor import Executor, Step
from training.engine.layout import unpack
from training.engine.piece import Finish, Passed, Piece
from training.engine.random_numbers import Draws
from training.engine.ranks import Ranks
from training.engine.replica_sync import StageSync
from training.engine.schedule import Action, Schedule
from training.engine.stage import StageCopy
from training.engine.sums.tree_sum import GradientSet, Node, TreeSum
from training.engine.transport import Received, Route, Transport

Fault = Callable[[Ranks, Case], Outcome]
"""`problem.train` with a fault."""


def train_all_with_faults(ranks: Ranks, planted: list[tuple[Fault, Case]]) -> list[tuple[Outcome, Outcome]]:
    """Train each case without and with its fault; a task for `run_ranks`."""
    return [(train(ranks, case), fault(ranks, case)) for fault, case in planted]


def train_all_with_fault(ranks: Ranks, fault: Fault, cases: list[Case]) -> list[Outcome]:
    """Train all cases with the same fault; a task for `run_ranks`."""
    return [fault(ranks, case) for case in cases]


def train_with_flipped_bit(ranks: Ranks, case: Case) -> Outcome:
    """Flip the last bit of one rank's gradient of one weight in the last micro-batch."""
    backward = StageCopy.backward

    def flipping(self: StageCopy, microbatch: int, gradients: Gradients | None, *, of: int) -> Gradients:
        if ranks.rank != ranks.num_ranks - 1 or microbatch != len(case.batches[0]) - 1:
            return backward(self, microbatch, gradients, of=of)
        (group,) = self.groups
        add = group.gradient_sum.add
        with mock.patch.object(group.gradient_sum, "add", lambda node, given: add(node, _flip_last_bit(given))):
            return backward(self, microbatch, gradients, of=of)

    with mock.patch.object(StageCopy, "backward", flipping):
        return train(ranks, case)


def _flip_last_bit(gradients: GradientSet) -> GradientSet:
    largest = gradients[0].abs().argmax()
    flipped = gradients[0].clone(memory_format=torch.contiguous_format)
    flipped.view(torch.int32).view(-1)[largest] ^= 1
    return [flipped, *gradients[1:]]


def train_with_wrong_scale(ranks: Ranks, case: Case) -> Outcome:
    """Average the loss over each micro-batch's samples, so that the learning rate grows with their number."""

    def own_mean(self: Executor, step: Step, action: Action) -> Finish:
        assert step.loss is not None
        assert action.microbatch is not None
        microbatch = action.microbatch
        loss, targets = step.loss, step.batch.targets(microbatch)
        return lambda output: loss(output, targets) / step.batch.shapes[microbatch][0] * step.loss_scale

    with mock.patch.object(Executor, "_loss_of", own_mean):
        return train(ranks, case)


def train_with_dropped_microbatch(ranks: Ranks, case: Case) -> Outcome:
    """Lose the gradient of the last micro-batch on its way to the owners of the weights."""
    bring_together = StageSync.bring_together
    last = len(case.batches[0]) - 1

    def losing(self: StageSync, action: Action, schedule: Schedule) -> None:
        (group,) = self.copy.groups
        add = group.gradient_sum.add

        def add_others(node: Node, gradients: GradientSet) -> None:
            if last not in range(node[0], sum(node)):
                add(node, gradients)

        with mock.patch.object(group.gradient_sum, "add", add_others):
            bring_together(self, action, schedule)

    with mock.patch.object(StageSync, "bring_together", losing):
        return train(ranks, case)


def train_with_swapped_rows(ranks: Ranks, case: Case) -> Outcome:
    """Swap weights received from another rank."""
    hand_round = StageSync.hand_round

    def swapping(self: StageSync, action: Action) -> None:
        unpacked = unpack
        with mock.patch("training.engine.replica_sync.unpack", lambda row, like: unpacked(_flipped(row), like)):
            hand_round(self, action)

    with mock.patch.object(StageSync, "hand_round", swapping):
        return train(ranks, case)


def _flipped(row: Tensor) -> Tensor:
    """Tensor with its fp32 values in reverse order."""
    return row.view(torch.float32).flip(0).view(torch.uint8)


def train_with_random_numbers_of_the_rank(ranks: Ranks, case: Case) -> Outcome:
    """Draw dropout masks from a generator local to the rank."""
    start_block = Draws.start_block

    def own(self: Draws, block: int, device: torch.device) -> None:
        start_block(replace(self, seed=ranks.rank), block, device)

    with mock.patch.object(Draws, "start_block", own):
        return train(ranks, case)


def train_with_random_numbers_of_the_group(ranks: Ranks, case: Case) -> Outcome:
    """Count micro-batches within the group, so that all groups draw the same masks."""
    start_block = Draws.start_block

    def within(self: Draws, block: int, device: torch.device) -> None:
        start_block(replace(self, microbatch=self.microbatch % 2), block, device)

    with mock.patch.object(Draws, "start_block", within):
        return train(ranks, case)


def train_with_other_first_weights(ranks: Ranks, case: Case) -> Outcome:
    """Start the last rank with different weights, unnoticed."""

    def other() -> list[nn.Module]:
        blocks = case.network()
        if ranks.rank == ranks.num_ranks - 1:
            with torch.no_grad():
                for weight in nn.Sequential(*blocks).parameters():
                    weight.mul_(1.01)
        return blocks

    with mock.patch.object(Engine, "load_full_state_dict"):
        return train(ranks, replace(case, network=other))


def train_with_contiguous_buffers(ranks: Ranks, case: Case) -> Outcome:
    """Make tensors from another rank contiguous, whatever the sender's memory layout."""
    exchange = Transport.exchange

    def forgetful(self: Transport, gives: Sequence[Hashable], takes: Sequence[Route]) -> list[Received]:
        came: list[Received] = []
        for each in exchange(self, gives, takes):
            value = each.value
            if isinstance(value, Tensor):
                forgotten: Boundary = value.detach().contiguous().requires_grad_(value.requires_grad)
            else:
                forgotten = tuple(tensor.contiguous() for tensor in value)
            came.append(replace(each, value=forgotten))
        return came

    with mock.patch.object(Transport, "exchange", forgetful):
        return train(ranks, case)


def train_with_double_counting(ranks: Ranks, case: Case) -> Outcome:
    """Update BatchNorm's statistics again when a micro-batch's forward is recomputed."""
    again = Piece._again

    def counting(self: Piece, passed: Passed, gradients: Gradients) -> tuple[list[Any], Gradients]:
        result = again(self, passed, gradients)
        (group,) = self._owner.groups
        for recorded in group.statistics.values():
            recorded.add_(group.running.recorded())
        return result

    with mock.patch.object(Piece, "_again", counting):
        return train(ranks, case)


def train_with_late_mirror(ranks: Ranks, case: Case) -> Outcome:
    """Skip the copy of weights that other ranks have updated."""
    with mock.patch.object(StageSync, "hand_round", return_value=None):
        return train(ranks, case)


def train_with_sequential_sum(ranks: Ranks, case: Case) -> Outcome:
    """Add gradients one after the other instead of in the tree."""

    class RunningSum(TreeSum):
        def add(self, node: Node, gradients: GradientSet) -> None:
            total = self._nodes.get((0, 1))
            self._nodes[0, 1] = gradients if total is None else [a + b for a, b in zip(total, gradients, strict=True)]

    with mock.patch("training.engine.sums.weight_group.TreeSum", RunningSum):
        return train(ranks, case)
