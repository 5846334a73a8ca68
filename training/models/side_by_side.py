"""Linear layers of several branches, computed as one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


def linear_of(weight_oi: Tensor, bias_o: Tensor | None = None) -> nn.Linear:
    """A layer with a copy of these weights."""
    rows, columns = weight_oi.shape
    layer = nn.Linear(columns, rows, bias=bias_o is not None, device="meta")
    layer.weight = nn.Parameter(weight_oi.detach().clone())
    if bias_o is not None:
        layer.bias = nn.Parameter(bias_o.detach().clone())
    return layer


def side_by_side(layers: Sequence[nn.Linear], x_ni: Tensor) -> Tensor:
    """Outputs of layers of one input, one after the other along the last axis. All or none have a bias."""
    if len(layers) == 1:
        return layers[0](x_ni)  # type: ignore[no-any-return]
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    return linear(x_ni, torch.cat([layer.weight for layer in layers]), torch.cat(biases) if biases else None)


def sum_of(layers: Sequence[nn.Linear], x_ni: Tensor) -> Tensor:
    """The sum of the outputs of layers without a bias, each of its own channels of the last axis."""
    if len(layers) == 1:
        return layers[0](x_ni)  # type: ignore[no-any-return]
    return linear(x_ni, torch.cat([layer.weight for layer in layers], dim=1))
