"""Seconds of each block of a network on this machine, measured as the executor runs it.

Every rank measures the same blocks at the same time, so that caches and memory are as busy as in a step. A round counts
if every rank had its core: CPU time at least 0.97 of the wall clock. Equal blocks are measured once.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from training.engine.executor import Loss
from training.engine.partition import BlockTimes, fake_tensors, on_device, without_memory
from training.engine.random_numbers import Draws
from training.engine.recompute import Segment
from training.engine.saved import Kept
from training.engine.stage import AUTOCAST, Boundary, Precision, StageCopy, as_tuple, needing_gradient
from training.foundation.errors import BusyMachineError
from training.oracle.calibration.rounds import WARM_UPS, now_s

LEAST_SHARE = 0.97
"""Least CPU time per wall-clock time of a round that counts."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 15
BUDGET_S = 40.0
"""Time for all blocks together, if a block's fewest rounds allow it."""
CACHE_BYTES = 2**26
"""Memory that other work touches between two uses of the same tensors; caches hold no more."""
POLICIES: tuple[Kept, ...] = ("keep", "norm", "offload")


class Shape(NamedTuple):
    """A tensor without values."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    def make(self, device: torch.device) -> Tensor:
        """A tensor of this shape with any finite values; a leaf, as one that came from another rank."""
        tensor = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=device)
        if self.dtype.is_floating_point:
            tensor.normal_()
        else:
            tensor.zero_()
        return tensor.requires_grad_(self.requires_grad)


@dataclass(frozen=True)
class BlockInput:
    """What a block takes from the one before it."""

    shapes: tuple[Shape, ...]
    is_tuple: bool

    def make(self, device: torch.device) -> Boundary:
        """Tensors of these shapes."""
        tensors = tuple(shape.make(device) for shape in self.shapes)
        return tensors if self.is_tuple else tensors[0]


@dataclass(frozen=True)
class Setting:
    """What the seconds of a block depend on, apart from block and machine."""

    input_shape: tuple[int, ...]
    """Of one micro-batch."""
    precision: Precision = "fp32"
    channels_last: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


Together = Callable[[float], list[float]]
"""A number of this rank -> those of all ranks, by rank; every rank calls it and waits for the others."""


def block_inputs(blocks: Sequence[nn.Module], setting: Setting) -> list[BlockInput]:
    """What each block takes, found on tensors without storage."""
    device, dtype = setting.device, AUTOCAST.get(setting.precision, torch.float32)
    shells = without_memory(blocks, channels_last=setting.channels_last)
    inputs = []
    with fake_tensors():
        is_image = len(setting.input_shape) == 4
        memory_format = torch.channels_last if setting.channels_last and is_image else torch.contiguous_format
        value: Boundary = torch.empty(setting.input_shape, device=device, memory_format=memory_format)
        with torch.autocast(device.type, dtype=dtype, enabled=setting.precision in AUTOCAST):
            for block in on_device(shells, device).train():
                shapes = tuple(Shape(tuple(t.shape), t.stride(), t.dtype, t.requires_grad) for t in as_tuple(value))
                inputs.append(BlockInput(shapes, isinstance(value, tuple)))
                value = block(value)
    return inputs


def fingerprints(blocks: Sequence[nn.Module], setting: Setting) -> list[str]:
    """Names under which the blocks of a network are measured: equal for blocks that take the same time."""
    return _named(blocks, block_inputs(blocks, setting))


def _named(blocks: Sequence[nn.Module], inputs: Sequence[BlockInput]) -> list[str]:
    last = len(blocks) - 1
    return [
        _fingerprint(block, taken, is_last=index == last)
        for index, (block, taken) in enumerate(zip(blocks, inputs, strict=True))
    ]


def _fingerprint(block: nn.Module, taken: BlockInput, *, is_last: bool) -> str:
    weights = tuple(
        (name, tuple(weight.shape), weight.dtype, weight.requires_grad) for name, weight in block.named_parameters()
    )
    named = type(block).__qualname__, repr(block), weights, taken, is_last
    return hashlib.sha256(repr(named).encode()).hexdigest()[:16]


def measure_blocks(
    blocks: Sequence[nn.Module], loss: Loss, targets: object, setting: Setting, together: Together
) -> list[BlockTimes]:
    """Measure each block; every rank calls it.

    Args:
        blocks: in training mode; their gradients and running statistics stay as they are.
        targets: of one micro-batch, for the loss behind the last block.

    Raises:
        BusyMachineError: most rounds did not count.
    """
    inputs = block_inputs(blocks, setting)
    names, last = _named(blocks, inputs), len(blocks) - 1
    budget_s = BUDGET_S / (len(POLICIES) * len(set(names)))
    rounds = _Rounds(together)
    times: dict[str, BlockTimes] = {}
    for index, name in enumerate(names):
        if name in times:
            continue
        finish = (lambda output: loss(output, targets)) if index == last else None
        by_policy = {}
        for policy in POLICIES:
            contender = _Contender(blocks[index], inputs[index], finish, policy, setting)
            by_policy[policy] = rounds.run(contender, budget_s)
        times[name] = _block_times(by_policy)
    rounds.check()
    return [times[name] for name in names]


def _block_times(by_policy: dict[Kept, list[tuple[float, float]]]) -> BlockTimes:
    medians = {
        policy: tuple(statistics.median(column) for column in zip(*rounds, strict=True))
        for policy, rounds in by_policy.items()
    }
    forward_s, backward_s = medians["keep"]
    more = {policy: max(sum(medians[policy]) - forward_s - backward_s, 0.0) for policy in POLICIES}
    return BlockTimes(forward_s, backward_s, norm_s=more["norm"], offload_s=more["offload"])


class _Contender:
    """One block under one policy."""

    def __init__(
        self,
        block: nn.Module,
        taken: BlockInput,
        finish: Callable[[Tensor], Tensor] | None,
        policy: Kept,
        setting: Setting,
    ) -> None:
        self.device, self._finish = setting.device, finish
        self._copy = StageCopy(
            nn.Sequential(block),
            stage=0,
            first_block=0,
            device=setting.device,
            precision=setting.precision,
            segments=[Segment(range(1), policy)],
            is_last=finish is not None,
        )
        self._input = taken.make(setting.device)
        self._gradients: tuple[Tensor, ...] | None = None
        self._elsewhere = torch.empty(CACHE_BYTES if setting.device.type == "cpu" else 0, dtype=torch.uint8)

    def run(self, clock: Callable[[], float]) -> tuple[float, float]:
        """Seconds of a forward and of a backward, each the mean of two micro-batches, whose gradients are added.

        As in a step, what comes in has just been written, and what was kept was not touched for a while.
        """
        forward_s = backward_s = 0.0
        with self._copy.running.recording():
            for microbatch in range(2):
                self._elsewhere.zero_()
                _rewrite(as_tuple(self._input))
                start_s = clock()
                output = self._copy.forward(microbatch, self._input, self._finish, Draws(0, 0, microbatch))
                end_s = clock()
                gradients = self._gradients_for(output)
                del output
                self._elsewhere.zero_()
                _rewrite(gradients or ())
                backward_start_s = clock()
                self._copy.backward(microbatch, gradients)
                forward_s, backward_s = forward_s + end_s - start_s, backward_s + clock() - backward_start_s
        self._copy.forget()
        return forward_s / 2, backward_s / 2

    def _gradients_for(self, output: Boundary) -> tuple[Tensor, ...] | None:
        if self._finish is not None:
            return None
        if self._gradients is None:
            self._gradients = tuple(torch.randn_like(tensor.detach()) for tensor in needing_gradient(output))
        return self._gradients


def _rewrite(tensors: Sequence[Tensor]) -> None:
    """Write tensors anew, with the same values."""
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(tensor.clone())


class _Rounds:
    """Rounds on all ranks at once, and how many of them counted."""

    def __init__(self, together: Together):
        self._together = together
        self._good = self._all = 0

    def run(self, contender: _Contender, budget_s: float) -> list[tuple[float, float]]:
        """(forward, backward) seconds of each good round, means over the ranks; of all rounds if none is good."""
        end_s = time.perf_counter() + budget_s
        good, every = [], []
        for index in self._indices(end_s):
            self._together(0.0)
            wall_s, cpu_s = time.perf_counter(), time.thread_time()
            forward_s, backward_s = contender.run(lambda: now_s(contender.device))
            share = (time.thread_time() - cpu_s) / (time.perf_counter() - wall_s)
            means = statistics.fmean(self._together(forward_s)), statistics.fmean(self._together(backward_s))
            if index < 0:
                continue
            every.append(means)
            if contender.device.type != "cpu" or min(self._together(share)) >= LEAST_SHARE:
                good.append(means)
        self._good, self._all = self._good + len(good), self._all + len(every)
        return good or every

    def _indices(self, end_s: float) -> Iterator[int]:
        """Warm-ups below 0, then rounds, until the first rank's time is up; at least a warm-up and a few rounds."""
        for index in range(-WARM_UPS, MOST_ROUNDS):
            is_late = self._together(time.perf_counter())[0] > self._together(end_s)[0]
            if is_late and index >= LEAST_ROUNDS:
                return
            if is_late and -WARM_UPS < index < 0:
                continue
            yield index

    def check(self) -> None:
        """Raise BusyMachineError if most rounds did not count."""
        if 2 * self._good < self._all:
            raise BusyMachineError(
                f"only {self._good} of {self._all} rounds had the cores to themselves (CPU time of at least "
                f"{LEAST_SHARE:.0%} of the wall clock); nothing was written. End other programs, or give the ranks "
                "fewer threads, and calibrate again."
            )
