"""TransMIL: two layers of Nyström attention with a convolutional position encoding between them, read by a class token.

    input      tiles, row by row over the slide, through a linear layer and ReLU      (n, hidden)
    squaring   the class token, the tiles, and the first tiles again up to a square   (1 + side², hidden)
    layer      pre-norm Nyström attention, residual
    PPEG       the square through depthwise convolutions of 7, 5 and 3, residual
    layer      as above
    class      the normalised class token                                             (1, hidden)

The encoding sees neighbours in the sequence as neighbours on the square: the input sorts the tiles by position, so that
the order in which they come does not matter.

Source: Shao et al., "TransMIL: Transformer based Correlated Multiple Instance Learning for Whole Slide Image
Classification" (NeurIPS 2021), without its dropout.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from training.models.mil.bag import Pooling, Tiles
from training.models.mil.nystrom import NystromAttention


class Squaring(nn.Module):
    """Put the class token first, and repeat the first tiles until the others fill a square."""

    def __init__(self, hidden: int):
        super().__init__()
        self.class_token = nn.Parameter(0.02 * torch.randn(1, hidden))

    def forward(self, tiles: Tiles) -> Tiles:
        tokens_nh, positions_um = tiles
        side = math.isqrt(len(tokens_nh) - 1) + 1
        repeated_nh = tokens_nh[: side**2 - len(tokens_nh)]
        return torch.cat([self.class_token, tokens_nh, repeated_nh]), positions_um


class TransMilLayer(Pooling):
    """Pre-norm Nyström attention with a residual: (1 + side², hidden) to the same."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.attention = NystromAttention(hidden, heads)

    def forward(self, tiles: Tiles) -> Tiles:
        tokens_lh, positions_um = tiles
        return tokens_lh + self.attention(self.norm(tokens_lh)), positions_um

    def attention_n(self, tiles: Tiles) -> Tensor:
        """The class token's attention to the tiles alone; a repeated tile has its share at both places.

        What the approximation makes negative counts as 0. If nothing is left, all tiles have the same share.
        """
        tokens_lh, positions_um = tiles
        row_l = self.attention.first_row(self.norm(tokens_lh)).clamp_min(0)
        num_tiles = len(positions_um)
        shares_n, repeated = row_l[1 : 1 + num_tiles].clone(), row_l[1 + num_tiles :]
        shares_n[: len(repeated)] += repeated
        total = shares_n.sum()
        return torch.where(total > 0, shares_n / total, torch.full_like(shares_n, 1 / num_tiles))


class PyramidEncoding(nn.Module):
    """PPEG: depthwise convolutions of three sizes over the square of tiles, added to it; the class token passes by."""

    def __init__(self, hidden: int):
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(hidden, hidden, size, padding=size // 2, groups=hidden) for size in (7, 5, 3)
        )

    def forward(self, tiles: Tiles) -> Tiles:
        tokens_lh, positions_um = tiles
        side = math.isqrt(len(tokens_lh) - 1)
        square_1hss = tokens_lh[1:].T.reshape(1, -1, side, side)
        encoded_1hss = square_1hss
        for convolution in self.convolutions:
            encoded_1hss = encoded_1hss + convolution(square_1hss)
        return torch.cat([tokens_lh[:1], encoded_1hss.flatten(2)[0].T]), positions_um


class ClassToken(nn.Module):
    """The normalised class token: (1 + side², hidden) to (1, hidden)."""

    def __init__(self, hidden: int):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)

    def forward(self, tiles: Tiles) -> Tensor:
        tokens_lh, _ = tiles
        pooled_1h: Tensor = self.norm(tokens_lh[:1])
        return pooled_1h
