"""A bag of tiles as a network's input, and as what its blocks pass to each other.

    bag          float32 (n, dims + 2): features of n tiles, then x and y of their centres in µm
    tokens_nh    float32 (n, hidden)
    positions_um float32 (n, 2): x and y

A bag is a micro-batch of its own. The engine counts the first size of an input as samples and divides the loss by them:
a bag given as (1, n, dims + 2) is one sample, as (n, dims + 2) it is n.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

Tiles = tuple[Tensor, Tensor]
"""(tokens_nh, positions_um): what blocks pass to each other."""


class Pooling(nn.Module):
    """Base of the blocks whose result is a mixture of tiles."""

    def attention_n(self, tiles: Tiles) -> Tensor:
        """Share of each tile in the result: float32 (n,), at least 0, with sum 1."""
        raise NotImplementedError


class BagInput(nn.Module):
    """First block: (n, dims + 2) or (1, n, dims + 2) to tokens and positions, by one linear layer over the features.

    Tokens are float32 under autocast too, so that residual sums keep their bits.
    """

    def __init__(self, dims: int, hidden: int, *, has_relu: bool, is_sorted: bool = False):
        """Make the layer.

        Args:
            has_relu: whether a ReLU follows, as in the attention networks; a pre-norm transformer does without.
            is_sorted: whether to bring the tiles into the order of `position_order`, for networks that depend on it.
        """
        super().__init__()
        self.dims = dims
        self.is_sorted = is_sorted
        self.linear = nn.Linear(dims, hidden)
        self.activation = nn.ReLU() if has_relu else nn.Identity()

    def forward(self, bag: Tensor) -> Tiles:
        bag_nf = as_bag(bag, self.dims)
        if self.is_sorted:
            bag_nf = bag_nf[position_order(bag_nf)]
        tokens_nh: Tensor = self.activation(self.linear(bag_nf[:, :-2]))
        # A copy: a view would keep the features in memory as long as the positions.
        return tokens_nh.float(), bag_nf[:, -2:].clone()


class SlideHead(nn.Module):
    """Last block: a pooled (1, hidden) to outputs (1, num_outputs), float32 under autocast too."""

    def __init__(self, hidden: int, num_outputs: int):
        super().__init__()
        self.linear = nn.Linear(hidden, num_outputs)

    def forward(self, pooled_1h: Tensor) -> Tensor:
        with full_precision(pooled_1h):
            outputs_1o: Tensor = self.linear(pooled_1h.float())
        return outputs_1o


def as_bag(bag: Tensor, dims: int) -> Tensor:
    """The bag as (n, dims + 2).

    Raises:
        ValueError: it has another shape or type, or no tiles.
    """
    bag_nf = bag.squeeze(0) if bag.ndim == 3 else bag
    if bag_nf.ndim != 2 or bag_nf.shape[1] != dims + 2 or len(bag_nf) == 0 or bag_nf.dtype != torch.float32:
        raise ValueError(
            f"a bag must be float32 (n, {dims + 2}), {dims} features and x and y in µm of one tile or more, got "
            f"{bag.dtype} {tuple(bag.shape)}; convert it, and build the network for this number of features"
        )
    return bag_nf


def position_order(bag_nf: Tensor) -> Tensor:
    """Row by row over the slide: indices that sort tiles by y, then x.

    Tiles at one place, as of two slides of a patient, are sorted by the sum of their features, so that the order does
    not depend on the one in which they come.
    """
    order_n = torch.argsort(bag_nf[:, :-2].sum(dim=1), stable=True)
    for column in (-2, -1):
        order_n = order_n[torch.argsort(bag_nf[order_n, column], stable=True)]
    return order_n


def full_precision(tensor: Tensor) -> torch.autocast:
    """Context without autocast on the device of a tensor."""
    return torch.autocast(tensor.device.type, enabled=False)
