"""Blocks of a network, run one after the other as one rank runs a stage, with the time of each.

They are one stage, so that nothing is done between them that a step does not do. The clock is read where a block
begins, and in backward where all gradients of its output have come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from training.engine.boundary import Boundary, Gradients, as_tuple, needing_gradient
from training.engine.partition import part_alone
from training.engine.piece import Block, Finish
from training.engine.random_numbers import Draws
from training.engine.recompute import Segment
from training.engine.saved import Kept
from training.engine.stage import StageCopy
from training.oracle.calibration.block_inputs import BlockInput, Setting
from training.parallel.parted import Parted

CACHE_BYTES = 2**26
"""Caches hold no more."""
MICROBATCHES = 2
"""Of one run: the gradients of every second one are added to a sum."""
Seconds = list[tuple[float, float]]
"""(forward, backward) of each block."""


class Chain:
    """Consecutive blocks under one policy."""

    def __init__(
        self,
        blocks: Sequence[nn.Module],
        taken: BlockInput,
        finish: Finish | None,
        policy: Kept,
        setting: Setting,
        clock: Callable[[], float],
        *,
        left_out_bytes: int = 0,
    ) -> None:
        """Prepare.

        Args:
            taken: what the first block takes.
            setting: which part is at work, among others; it does not wait for other parts.
            finish: the loss behind the last block; None if the network goes on.
            clock: seconds, once the device has done its work.
            left_out_bytes: kept by the blocks of the network that are not run here.
        """
        self.device, self._finish, self._clock = setting.device, finish, clock
        self._copy = StageCopy(
            nn.Sequential(*blocks),
            stage=0,
            first_block=0,
            device=setting.device,
            precision=setting.precision,
            segments=[Segment(range(len(blocks)), policy)],
            is_last=finish is not None,
            blocks=[self._timed(index, block) for index, block in enumerate(blocks)],
            cutting=part_alone(blocks, setting.division, setting.part),
        )
        self._heights = taken.heights
        own = [[weight for weight in block.parameters() if weight.requires_grad] for block in blocks]
        weight_bytes = [sum(weight.nbytes for weight in weights) for weights in own]
        self._weight_shares = [count / (sum(weight_bytes) or 1) for count in weight_bytes]
        self._input = taken.make(setting.device)
        inputs = needing_gradient(self._input)
        self._first = 0 if inputs else next((index for index, weights in enumerate(own) if weights), 0)
        """The block at which backward ends."""
        self._ends_with = [*inputs, *own[self._first]]
        self._began_s: list[float] = []
        self._gradient_came_s: dict[int, float] = {}
        self._hooks: list[RemovableHandle] = []
        self._gradients: tuple[Tensor, ...] | None = None
        flushed = min(left_out_bytes, CACHE_BYTES) if setting.device.type == "cpu" else 0
        self._elsewhere = torch.empty(flushed, dtype=torch.uint8)

    def run(self) -> Seconds:
        """Run forward and backward of all blocks.

        As in a step, the first input has just been written, and memory that other blocks use was touched in between.

        Returns:
            means over the micro-batches.
        """
        runs = []
        with self._copy.recording():
            for microbatch in range(MICROBATCHES):
                output, forward_s = self._forward(microbatch)
                gradients = self._gradients_for(output)
                del output
                runs.append(list(zip(forward_s, self._backward(microbatch, gradients), strict=True)))
        self._copy.forget()
        return [
            (sum(f for f, _ in own) / MICROBATCHES, sum(b for _, b in own) / MICROBATCHES)
            for own in zip(*runs, strict=True)
        ]

    def _timed(self, index: int, block: Block) -> Block:
        """The block, with the clock read before it, and whenever a gradient of its output has come."""

        def run(value: Boundary) -> Boundary:
            self._began_s.append(self._clock())
            output: Boundary = block(value)
            self._watch(index, [tensor for tensor in _tensors_of(output) if tensor.requires_grad])
            return output

        return run

    def _watch(self, index: int, tensors: Sequence[Tensor]) -> None:
        """Note when the last gradient of some tensors has come, as those of the output of a block; -1 is the input."""

        def came(_: Tensor) -> None:
            self._gradient_came_s[index] = self._clock()

        # torch's stubs do not type hooks.
        self._hooks += [tensor.register_hook(came) for tensor in tensors]  # type: ignore[no-untyped-call]

    def _forward(self, microbatch: int) -> tuple[Boundary, list[float]]:
        self._elsewhere.zero_()
        _rewrite(as_tuple(self._input))
        self._began_s.clear()
        if self._heights is not None:
            self._copy.cutting.arrives(microbatch, self._heights)
        start_s = self._clock()
        output = self._copy.forward(microbatch, self._input, self._finish, Draws(0, 0, microbatch))
        ends_s = [*self._began_s[1:], self._clock()]
        return output, [end_s - begin_s for begin_s, end_s in zip([start_s, *ends_s], ends_s, strict=False)]

    def _backward(self, microbatch: int, gradients: Gradients | None) -> list[float]:
        """Seconds of each block. What is done for all gradients in the end is divided by the size of the weights."""
        self._elsewhere.zero_()
        self._watch(self._first - 1, self._ends_with)
        begin_s = self._clock()
        self._copy.fetch(microbatch)
        self._copy.backward(microbatch, gradients)
        end_s = self._clock()
        seconds = [0.0] * len(self._weight_shares)
        for index in reversed(range(len(seconds))):
            # Blocks that no gradient reaches, since neither they nor those before them learn, take no time.
            ended_s = self._gradient_came_s.get(index - 1, begin_s)
            seconds[index], begin_s = ended_s - begin_s, ended_s
        self._forget_watches()
        return [own + share * (end_s - begin_s) for own, share in zip(seconds, self._weight_shares, strict=True)]

    def _forget_watches(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._gradient_came_s.clear()

    def _gradients_for(self, output: Boundary) -> Gradients | None:
        """Gradients that the next block would give, just written; None behind the loss."""
        if self._finish is not None:
            return None
        if self._gradients is None:
            self._gradients = tuple(torch.randn_like(tensor.detach()) for tensor in needing_gradient(output))
        _rewrite(self._gradients)
        return self._gradients


def _tensors_of(output: Any) -> list[Tensor]:
    """The tensors of what a block returns; of a value in parts those that are here."""
    values = output if isinstance(output, tuple) else (output,)
    return [tensor for value in values for tensor in (value.tensors if isinstance(value, Parted) else (value,))]


def _rewrite(tensors: Sequence[Tensor]) -> None:
    """Overwrite tensors with their own values."""
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(tensor.clone())
