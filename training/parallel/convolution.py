"""A convolution of a tensor in rows.

It keeps a part's own rows and the halo apart from forward to backward: the own rows are often kept already, by the
ReLU before it, and a copy with the halo would count again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from training.parallel.halo import Transfer, Window
from training.parallel.link import Link


@dataclass(frozen=True)
class Settings:
    """Settings of a 2-D convolution, (height, width) each."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    @classmethod
    def of(
        cls,
        weight: Tensor,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> Settings:
        """As `functional.conv2d` takes them.

        Raises:
            ValueError: padding "same" with windows of an even size, which pads one side more than the other.
        """
        apart = pair(dilation)
        if padding == "valid":
            padding = 0
        elif isinstance(padding, str):
            spans = [by * (size - 1) for by, size in zip(apart, weight.shape[2:], strict=True)]
            if any(span % 2 for span in spans):
                raise ValueError('a convolution with padding "same" and a window of even size cannot be in parts')
            padding = [span // 2 for span in spans]
        return cls(pair(stride), pair(padding), apart, groups)

    def along_height(self, size: int) -> Window:
        """The way of a window of this size along the rows."""
        return Window(size, self.stride[0], self.padding[0], self.dilation[0])

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution of rows that have their padding already."""
        width = (0, self.padding[1])
        return functional.conv2d(x, weight, bias, self.stride, width, self.dilation, self.groups)

    def gradients(
        self, gradient: Tensor, x: Tensor, weight: Tensor, has_bias: bool, wanted: tuple[bool, bool, bool]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Gradients of the rows, the weight and the bias."""
        sizes = [weight.shape[0]] if has_bias else None
        width = [0, self.padding[1]]
        stride, dilation = list(self.stride), list(self.dilation)
        return torch.ops.aten.convolution_backward(  # type: ignore[no-any-return]
            gradient, x, weight, sizes, stride, width, dilation, False, [0, 0], self.groups, list(wanted)
        )


class _Convolution(torch.autograd.Function):
    """Arguments after the settings: for each part here its rows, then its weight, then perhaps its bias."""

    @staticmethod
    def forward(ctx: Any, transfer: Transfer, settings: Settings, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        here = transfer.link.here
        rows, weights, biases = _thirds(tensors)
        received = transfer.fetch(rows)
        outputs = [
            settings.convolve(transfer.assemble(part, x, halo), weight, bias)
            for part, x, halo, weight, bias in zip(here, rows, received, weights, biases, strict=True)
        ]
        ctx.transfer, ctx.settings, ctx.has_bias = transfer, settings, biases[0] is not None
        ctx.givers = [tuple(halo) for halo in received]
        halos = [packed for halo in received for packed in halo.values()]
        ctx.save_for_backward(*rows, *weights, *halos)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        transfer, settings = ctx.transfer, ctx.settings
        count = len(gradients)
        saved = ctx.saved_tensors
        rows, weights, halos = saved[:count], saved[count : 2 * count], list(saved[2 * count :])
        needs_input, needs_weight = ctx.needs_input_grad[2], ctx.needs_input_grad[2 + count]
        needs_bias = ctx.has_bias and ctx.needs_input_grad[2 + 2 * count]
        found = []
        for part, gradient, x, weight, givers in zip(
            transfer.link.here, gradients, rows, weights, ctx.givers, strict=True
        ):
            received = {giver: halos.pop(0) for giver in givers}
            extended = transfer.assemble(part, x, received)
            found.append(
                settings.gradients(gradient, extended, weight, ctx.has_bias, (needs_input, needs_weight, needs_bias))
            )
        of_rows: list[Tensor | None] = [None] * count
        if needs_input:
            of_rows = [*transfer.give_back([gradient for gradient, _, _ in found if gradient is not None])]
        return None, None, *of_rows, *(each[1] for each in found), *(each[2] for each in found)


def convolution(
    link: Link,
    rows: Sequence[Tensor],
    height: int,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    settings: Settings,
) -> tuple[list[Tensor], int]:
    """Each part's rows of a convolution, with a gradient.

    Args:
        rows: each part's own rows of the input.
        height: of the whole input.
        weights: each part's; the same numbers.

    Returns:
        each part's own rows of the output, and the height of the whole.
    """
    window = settings.along_height(weights[0].shape[2])
    height_out = window.outputs(height)
    transfer = Transfer(link, height, window.wanted(height_out, link.num_parts))
    if not transfer.is_needed:
        parts = zip(rows, weights, biases, strict=True)
        return [settings.convolve(x, weight, bias) for x, weight, bias in parts], height_out
    return list(_Convolution.apply(transfer, settings, *_cast([*rows, *weights, *biases]))), height_out  # type: ignore[no-untyped-call]


def _cast(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """In the type that autocast would give a convolution: it does not look into functions of our own."""
    kind = next(tensor.device.type for tensor in tensors if tensor is not None)
    if not torch.is_autocast_enabled(kind):
        return list(tensors)
    dtype = torch.get_autocast_dtype(kind)
    return [tensor if tensor is None else tensor.to(dtype) for tensor in tensors]


def _thirds(tensors: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    count = len(tensors) // 3
    return tensors[:count], tensors[count : 2 * count], tensors[2 * count :]


def pair(value: int | Sequence[int]) -> tuple[int, int]:
    """(height, width) from one number for both, or one each."""
    if isinstance(value, int):
        return value, value
    first, *rest = value
    return first, rest[0] if rest else first
