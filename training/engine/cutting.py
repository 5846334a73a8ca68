"""How a stage's values are cut into parts, from its input to its output, by micro-batch.

A stage that is not in parts needs to know that only where its neighbours are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.engine.boundary import Boundary, Heights, as_tuple, only_tensor
from training.engine.piece import Block, Finish
from training.parallel.division import Division
from training.parallel.parted import NotSplittableError
from training.parallel.wrap import Form, Parts


class Cutting:
    """The parts of one stage in this process, and the forms of what passes through them."""

    def __init__(self, blocks: range, parts: Parts | None = None, cut_after: int = 1) -> None:
        """Begin without any micro-batch.

        Args:
            blocks: indices in the whole network.
            parts: those of the stage that are here; None if it has one.
            cut_after: into how many parts of rows the next stage cuts what it is given.
        """
        self._blocks, self._parts, self._cut_after = blocks, parts, cut_after
        self._forms: dict[int, dict[int, Form]] = {}
        """By micro-batch and block: how what the block takes is cut."""
        self._arriving: dict[int, Heights] = {}
        self._needing: dict[int, Heights] = {}
        """By micro-batch: how those inputs of the stage are cut that need a gradient."""

    @property
    def is_in_parts(self) -> bool:
        """Whether the stage has several parts."""
        return self._parts is not None

    @property
    def part_numbers(self) -> Sequence[int]:
        """The parts here."""
        return (0,) if self._parts is None else self._parts.link.here

    @property
    def num_sub_graphs(self) -> int:
        """See `Division`."""
        return 1 if self._parts is None else Division(self._parts.link.num_parts, self._parts.split).num_sub_graphs

    def stand_ins(self, weights: Sequence[Tensor]) -> list[list[Tensor]]:
        """For each part here, what stands for each weight."""
        if self._parts is None:
            return [list(weights)]
        return [[self._parts.of_part(w, index) for w in weights] for index in range(len(self._parts.link.here))]

    def arrives(self, microbatch: int, heights: Heights) -> None:
        """Be told how the boundary is cut that the next forward of a micro-batch takes; the network's input is not."""
        self._arriving[microbatch] = heights

    def begin(self, microbatch: int, value: Boundary) -> Boundary:
        """What the first block takes: of the network's input the rows of the parts here."""
        heights = self._arriving.pop(microbatch, None)
        known = heights or (None,) * len(as_tuple(value))
        self._needing[microbatch] = tuple(h for t, h in zip(as_tuple(value), known, strict=True) if t.requires_grad)
        if self._parts is None:
            return value
        if heights is None:
            cut, form = self._parts.cut_input(only_tensor(value))
        else:
            cut, form = as_tuple(value), Form(heights, isinstance(value, tuple))
        self._forms[microbatch] = {self._blocks.start: form}
        return cut

    def call(self, index: int, block: Block, value: Boundary, microbatch: int) -> Boundary:
        """Run a block of the network; in parts, a value is the tensors of all parts here.

        Raises:
            ValueError: the block cannot be computed in parts.
        """
        if self._parts is None:
            whole: Boundary = block(value)
            return whole
        forms = self._forms[microbatch]
        try:
            output, forms[index + 1] = self._parts.call(block, as_tuple(value), forms[index])
        except NotSplittableError as error:
            raise ValueError(
                f"block {index} of the network cannot be computed in parts (split = {self._parts.split!r}): {error}. "
                "Put it into a stage of one part, or write it with operations that can be split"
            ) from error
        return output

    def form_before(self, index: int, microbatch: int) -> Form | None:
        """How what a block takes is cut; None if the stage is not in parts."""
        return None if self._parts is None else self._forms[microbatch][index]

    def form_after(self, microbatch: int, output: Boundary) -> Form:
        """How the output of a forward is cut, or is to be for the next stage."""
        if self._parts is None:
            return Form(tuple(map(self._rows_to_cut, as_tuple(output))), isinstance(output, tuple))
        return self._forms[microbatch][self._blocks.stop]

    def _rows_to_cut(self, tensor: Tensor) -> int | None:
        is_cut = self._cut_after > 1 and tensor.dim() == 4 and tensor.shape[2] >= self._cut_after
        return tensor.shape[2] if is_cut else None

    def heights_before(self, microbatch: int) -> Heights:
        """How the gradients of the stage's inputs are cut."""
        return self._needing[microbatch]

    def forget(self, microbatch: int) -> None:
        """Drop what is known of a micro-batch."""
        self._forms.pop(microbatch, None)
        self._needing.pop(microbatch, None)

    def whole_outputs(self, output: Boundary, microbatch: int) -> list[Tensor]:
        """The output of the network, for each part here.

        Raises:
            TypeError: it is a tuple.
        """
        if self._parts is None:
            return [only_tensor(output)]
        form = self.form_after(microbatch, output)
        if form.is_tuple:
            raise TypeError(f"the last block must return one tensor for the loss, got a tuple of {len(form.heights)}")
        return self._parts.whole_tensors(as_tuple(output), form)

    def loss_of(self, output: Boundary, finish: Finish, microbatch: int) -> Tensor:
        """The loss. The parts' losses add up to it: that of the first is the whole one, that of the others is 0."""
        losses = [
            _nothing(tensor) if part else _scalar(finish(tensor))
            for part, tensor in zip(self.part_numbers, self.whole_outputs(output, microbatch), strict=True)
        ]
        return losses[0] if len(losses) == 1 else torch.stack([loss.to(losses[0].dtype) for loss in losses]).sum()


def _nothing(output: Tensor) -> Tensor:
    """0, with a gradient of zeros, whatever the output is."""
    return output.masked_fill(torch.ones_like(output, dtype=torch.bool), 0).sum()


def _scalar(loss: Tensor) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        given = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise TypeError(f"the loss function must return a scalar tensor, the sum over the samples; got {given}")
    return loss
