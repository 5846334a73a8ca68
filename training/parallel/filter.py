"""Convolutions and linear layers whose filters, or whose input channels, are shared out between the parts.

    filter   each part computes some channels of the output; then all parts are given all of them. Backward, each part
             is given the whole gradient of its channels
    channel  each part computes the whole output from some channels of the input; the sum over parts is the output

Everything else, such as a normalisation, every part computes by itself on the whole tensor. A layer with fewer filters
(or channels) than parts stays whole. Weights and their optimizer are shared out as in any other stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from training.parallel.convolution import Settings
from training.parallel.halo import format_of
from training.parallel.link import Link, Piece, in_order, others_of, rows_of
from training.parallel.sums import summed

Layer = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""(input, weight, bias) -> output, whose second axis is that of the filters."""


class _Gather(torch.autograd.Function):
    """All parts' channels on each part."""

    @staticmethod
    def forward(
        ctx: Any, link: Link, num_channels: int, layout: torch.memory_format, *own: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.link, ctx.num_channels = link, num_channels
        pieces = [tensor.contiguous() for tensor in own]
        gives = [dict.fromkeys(others_of(link, part), piece) for part, piece in zip(link.here, pieces, strict=True)]
        takes = [
            {giver: _piece(piece, len(rows_of(num_channels, giver, link.num_parts))) for giver in others_of(link, part)}
            for part, piece in zip(link.here, pieces, strict=True)
        ]
        received = link.swap(gives, takes)
        return tuple(
            torch.cat(in_order(link, part, piece, others), 1).contiguous(memory_format=layout)
            for part, piece, others in zip(link.here, pieces, received, strict=True)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        link, count = ctx.link, ctx.num_channels
        channels = [rows_of(count, part, link.num_parts) for part in range(link.num_parts)]
        cut = [[_channels(gradient, own).contiguous() for own in channels] for gradient in gradients]
        received = link.swap(
            [
                {taker: each[taker] for taker in others_of(link, part)}
                for part, each in zip(link.here, cut, strict=True)
            ],
            [
                dict.fromkeys(others_of(link, part), _piece(each[part], each[part].shape[1]))
                for part, each in zip(link.here, cut, strict=True)
            ],
        )
        parts = zip(link.here, cut, received, strict=True)
        found = [reduce(torch.add, in_order(link, part, each[part], others)) for part, each, others in parts]
        return None, None, None, *found


def by_filters(
    link: Link, inputs: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor | None], layer: Layer
) -> list[Tensor]:
    """The whole output on each part in this process, with a gradient."""
    count = weights[0].shape[0]
    own = []
    for part, x, weight, bias in zip(link.here, inputs, weights, biases, strict=True):
        rows = rows_of(count, part, link.num_parts)
        own.append(layer(x, _rows(weight, rows), None if bias is None else _rows(bias, rows)))
    return list(_Gather.apply(link, count, layout_of(inputs[0]), *own))  # type: ignore[no-untyped-call]


def by_channels(
    link: Link, inputs: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor | None], layer: Layer
) -> list[Tensor]:
    """The same, where each part takes its channels of the input. The first part adds the bias."""
    count = weights[0].shape[1]
    terms = []
    for part, x, weight, bias in zip(link.here, inputs, weights, biases, strict=True):
        own = rows_of(count, part, link.num_parts)
        # Used on each part, as every weight must be, but added once.
        once = None if bias is None else bias * float(part == 0)
        terms.append(layer(_channels(x, own), _channels(weight, own), once))
    return [total.contiguous(memory_format=layout_of(inputs[0])) for total in summed(link, terms)]


def by_groups(
    link: Link,
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    settings: Settings,
) -> list[Tensor]:
    """A convolution in groups, some of which each part computes; both ways of cutting are this one."""
    outputs_each, inputs_each = weights[0].shape[0] // settings.groups, weights[0].shape[1]
    own = []
    for part, x, weight, bias in zip(link.here, inputs, weights, biases, strict=True):
        groups = rows_of(settings.groups, part, link.num_parts)
        rows = range(groups.start * outputs_each, groups.stop * outputs_each)
        channels = range(groups.start * inputs_each, groups.stop * inputs_each)
        few = replace(settings, groups=len(groups))
        own.append(
            convolve_whole(few)(
                _channels(x, channels), _rows(weight, rows), None if bias is None else _rows(bias, rows)
            )
        )
    whole = _gather_groups(link, own, weights[0].shape[0], outputs_each)
    return [each.contiguous(memory_format=layout_of(inputs[0])) for each in whole]


def _gather_groups(link: Link, own: Sequence[Tensor], num_filters: int, each: int) -> list[Tensor]:
    """Gather what is cut by whole groups: each group of channels counts as one."""
    folded = [x.reshape(x.shape[0], -1, each * x.shape[2], x.shape[3]) for x in own]
    whole = _Gather.apply(link, num_filters // each, torch.contiguous_format, *folded)  # type: ignore[no-untyped-call]
    return [x.reshape(x.shape[0], num_filters, *own[0].shape[2:]) for x in whole]


def convolve_whole(settings: Settings) -> Layer:
    """A convolution of a whole tensor."""
    rest = (settings.stride, settings.padding, settings.dilation, settings.groups)
    return lambda x, weight, bias: functional.conv2d(x, weight, bias, *rest)


def _piece(like: Tensor, num_channels: int) -> Piece:
    return Piece((like.shape[0], num_channels, *like.shape[2:]), like.dtype, like.device)


def _rows(tensor: Tensor, rows: range) -> Tensor:
    return tensor[rows.start : rows.stop]


def _channels(tensor: Tensor, channels: range) -> Tensor:
    return tensor[:, channels.start : channels.stop]


def layout_of(tensor: Tensor) -> torch.memory_format:
    """The memory format of a tensor of any number of axes."""
    return format_of(tensor) if tensor.dim() == 4 else torch.contiguous_format
