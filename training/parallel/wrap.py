"""A block of the network on values in parts: its own forward, called with `Parted` in place of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from training.parallel.halo import format_of
from training.parallel.link import Link, rows_of
from training.parallel.operations import apply
from training.parallel.parted import NotSplittableError, Parted, Split
from training.parallel.whole import gathered


@dataclass(frozen=True)
class Form:
    """How a value between two blocks is cut: what its tensors alone do not tell."""

    heights: tuple[int | None, ...]
    """Of each tensor: rows of the whole; None where each part has all of it."""
    is_tuple: bool


@dataclass(frozen=True)
class Parts:
    """The parts of one stage in this process, and how they share its weights."""

    link: Link
    split: Split
    weights: Mapping[int, Sequence[Tensor]]
    """By identity of a weight: what stands for it in each part here, each with a gradient of its own."""

    def of_part(self, value: Any, index: int) -> Any:
        """See `Splitting`."""
        own = self.weights.get(id(value)) if isinstance(value, Tensor) else None
        if own is not None:
            return own[index]
        if isinstance(value, Tensor) and value.requires_grad and len(self.link.here) > 1:
            raise NotSplittableError(f"a tensor {tuple(value.shape)} that a block computes from its weights")
        return value

    def apply(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """See `Splitting`."""
        return apply(self, function, args, kwargs)

    def call(
        self, block: Callable[[Any], Any], tensors: Sequence[Tensor], form: Form
    ) -> tuple[tuple[Tensor, ...], Form]:
        """Run a block.

        Args:
            tensors: for each tensor of its input those of the parts here.
            form: of the input.

        Returns:
            the same of its output.

        Raises:
            NotSplittableError: it cannot be computed in parts.
            TypeError: it returns something other than tensors.
        """
        count = len(self.link.here)
        values = [
            self._in_rows(Parted(self, tuple(tensors[count * i : count * (i + 1)]), height))
            for i, height in enumerate(form.heights)
        ]
        output = block(tuple(values) if form.is_tuple else values[0])
        outputs = output if isinstance(output, tuple) else (output,)
        if not all(isinstance(value, Parted) for value in outputs):
            raise TypeError(f"in parts, a block must return what it made of its input, got {type(output).__name__}")
        flat = tuple(tensor for value in outputs for tensor in value.tensors)
        return flat, Form(tuple(value.height for value in outputs), isinstance(output, tuple))

    def cut_input(self, value: Tensor) -> tuple[tuple[Tensor, ...], Form]:
        """The parts here of the network's input, and its form. Rows are copies: the whole is not kept for them."""
        own = self._rows_here(value)
        if own is None:
            return (value,) * len(self.link.here), Form((None,), False)
        cut = tuple(
            value[:, :, rows.start : rows.stop]
            .clone(memory_format=format_of(value))
            .requires_grad_(value.requires_grad)
            for rows in own
        )
        return cut, Form((value.shape[2],), False)

    def whole_tensors(self, tensors: Sequence[Tensor], form: Form) -> list[Tensor]:
        """The whole of a value that is one tensor, for each part here."""
        (height,) = form.heights
        return list(gathered(Parted(self, tuple(tensors), height)).tensors)

    def _in_rows(self, value: Parted) -> Parted:
        """Take a part's rows of an image that it has whole, as after a stage that is not cut into rows."""
        own = self._rows_here(value.tensors[0]) if value.height is None else None
        if own is None:
            return value
        cut = [tensor[:, :, rows.start : rows.stop] for tensor, rows in zip(value.tensors, own, strict=True)]
        return value.like(cut, value.shape[2])

    def _rows_here(self, whole: Tensor) -> list[range] | None:
        """The rows of a whole image that each part here takes; None for a tensor that is not cut into rows."""
        if self.split != "rows" or whole.dim() != 4 or whole.shape[2] < self.link.num_parts:
            return None
        return [rows_of(whole.shape[2], part, self.link.num_parts) for part in self.link.here]


def aliases(module: nn.Module, count: int) -> dict[int, list[Tensor]]:
    """For each weight of a module `count` tensors with its memory and a gradient of their own; itself for one part."""
    weights = list(module.parameters())
    if count == 1:
        return {id(weight): [weight] for weight in weights}
    return {
        id(weight): [nn.Parameter(weight.detach(), weight.requires_grad) for _ in range(count)] for weight in weights
    }
