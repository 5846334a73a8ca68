"""The mean and the maximum of tokens: pooling that learns nothing of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from training.models.mil.bag import Pooling, Tiles


class MeanPool(Pooling):
    """Mean over tiles: (n, hidden) to (1, hidden)."""

    def forward(self, tiles: Tiles) -> Tensor:
        tokens_nh, _ = tiles
        return tokens_nh.mean(dim=0, keepdim=True)

    def attention_n(self, tiles: Tiles) -> Tensor:
        """The same share for every tile."""
        tokens_nh, _ = tiles
        return torch.full_like(tokens_nh[:, 0], 1 / len(tokens_nh))


class MaxPool(Pooling):
    """Maximum over tiles, channel by channel: (n, hidden) to (1, hidden)."""

    def forward(self, tiles: Tiles) -> Tensor:
        tokens_nh, _ = tiles
        # Not amax, which would keep all tokens for backward instead of one index per channel.
        return tokens_nh.max(dim=0, keepdim=True).values

    def attention_n(self, tiles: Tiles) -> Tensor:
        """Share of the channels in which a tile is the maximum; tiles that tie divide a channel among themselves."""
        tokens_nh, _ = tiles
        is_largest_nh = (tokens_nh == tokens_nh.amax(dim=0)).float()
        return (is_largest_nh / is_largest_nh.sum(dim=0)).mean(dim=1)
