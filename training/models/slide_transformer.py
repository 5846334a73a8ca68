"""A transformer over all tiles of a slide, as blocks: exact attention, pre-norm, with rotary positions in µm.

    input      one linear layer                                 (n, hidden)
    layer      attention, then an MLP, each with a residual     (n, hidden), two blocks, `layers` times
    pooling    LayerNorm, gated attention                       (1, hidden)
    head       linear                                           (1, num_outputs)

Attention and MLP are blocks of their own, so that recomputing every block keeps one tensor (n, hidden) for each. The
attention never holds an (n, n) matrix: the kernels of `scaled_dot_product_attention` work through it in tiles.

Half of the channels of a head turn with x and half with y, in pairs of channels whose wavelengths rise geometrically
from 500 µm to 100 mm. 500 µm is about two tiles of 256 µm: shorter waves would alias. 100 mm is more than the long side
of a slide: the slowest pair never turns once around, so that near and far stay distinct. Scores depend on differences
of positions only, and no order of the tiles enters.

Sources: Vaswani et al., "Attention Is All You Need" (NeurIPS 2017); Xiong et al., "On Layer Normalization in the
Transformer Architecture" (ICML 2020); Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding"
(Neurocomputing 568, 2024); Ilse et al. (ICML 2018) for the pooling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from training.models.mil.abmil import AttentionPool
from training.models.mil.bag import BagInput, SlideHead, Tiles
from training.models.side_by_side import linear_of, side_by_side, sum_of
from training.parallel.branches import Branches

SHORTEST_UM, LONGEST_UM = 500.0, 100_000.0
"""Wavelengths of the fastest and of the slowest pair of channels."""
_MLP_FACTOR = 4
"""Width of an MLP's hidden layer by that of the tokens."""
Turn = tuple[Tensor, Tensor]
"""Cosine and sine of every pair's angle, fp32 (n, 1, 2, p): axes x and y, p pairs each."""
Rows = tuple[Tensor, Tensor]
"""Some rows of a linear layer: its weights (rows, inputs) and bias (rows,)."""


class RotaryPositions(nn.Module):
    """Rotation of a head's channels by the tile's position. Head dimension d = 4 p: p pairs of channels per axis."""

    wavenumbers_p: Tensor

    def __init__(self, head_dim: int):
        super().__init__()
        pairs = head_dim // 4
        wavelengths_um = [
            SHORTEST_UM * (LONGEST_UM / SHORTEST_UM) ** (pair / max(1, pairs - 1)) for pair in range(pairs)
        ]
        # Constants of the architecture, not of the training: they stay out of the weights' file.
        wavenumbers_p = torch.tensor([2 * math.pi / wavelength_um for wavelength_um in wavelengths_um])
        self.register_buffer("wavenumbers_p", wavenumbers_p, persistent=False)

    def forward(self, positions_um: Tensor) -> Turn:
        # Where a block before this one is recomputed, its outputs all ask for a gradient; positions have none.
        angles_n12p = positions_um.detach()[:, None, :, None] * self.wavenumbers_p
        return angles_n12p.cos(), angles_n12p.sin()


def rotate(x_ned: Tensor, turn: Turn) -> Tensor:
    """Turn the channels of (n, heads, d) by `RotaryPositions`, in fp32."""
    cos, sin = turn
    first, second = x_ned.reshape(*x_ned.shape[:2], 2, 2, -1).unbind(3)
    return torch.stack([first * cos - second * sin, first * sin + second * cos], dim=3).flatten(2)


class Head(nn.Module):
    """One head of attention: what it takes from each token, and what it adds to it."""

    def __init__(self, to_query: Rows, to_key: Rows, to_value: Rows, out_hd: Tensor):
        super().__init__()
        # Values apart, so that backward keeps them but not the queries and keys from before their rotation.
        self.to_qk = linear_of(*(torch.cat(pair) for pair in zip(to_query, to_key, strict=True)))
        self.to_value = linear_of(*to_value)
        self.out = linear_of(out_hd)


class AttentionBlock(nn.Module):
    """Pre-norm multi-head attention over all tiles, with a residual: (n, hidden) to the same. Heads are branches."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.rotary = RotaryPositions(hidden // heads)
        to_qk, to_value, out = nn.Linear(hidden, 2 * hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        queries_and_keys = _rows(to_qk, 2 * heads)
        queries, keys = queries_and_keys[:heads], queries_and_keys[heads:]
        self.heads = Branches(list(map(Head, queries, keys, _rows(to_value, heads), out.weight.chunk(heads, dim=1))))
        self.bias = nn.Parameter(out.bias.detach().clone())

    def forward(self, tiles: Tiles) -> Tiles:
        tokens_nh, positions_um = tiles
        mixed_nh = self.heads.total(_mixed, self.norm(tokens_nh), self.rotary(positions_um))
        return tokens_nh + (mixed_nh + self.bias), positions_um


def _mixed(heads: Mapping[int, Head], normed_nh: Tensor, turn: Turn) -> Tensor:
    """Sum of what some heads add to each token, without the bias."""
    own = list(heads.values())
    num_tiles, num_heads = len(normed_nh), len(own)
    value_ned = side_by_side([head.to_value for head in own], normed_nh).reshape(num_tiles, num_heads, -1)
    qk_ne2d = side_by_side([head.to_qk for head in own], normed_nh).reshape(num_tiles, num_heads, 2, -1)
    query_ned, key_ned = (rotate(x_ned, turn).to(value_ned.dtype) for x_ned in qk_ne2d.unbind(2))
    query, key, value = (x_ned.transpose(0, 1)[None] for x_ned in (query_ned, key_ned, value_ned))
    mixed_nd = scaled_dot_product_attention(query, key, value)[0].transpose(0, 1).flatten(1)
    return sum_of([head.out for head in own], mixed_nd)


class Slice(nn.Module):
    """A share of the channels inside an MLP."""

    def __init__(self, up: Rows, down_hc: Tensor):
        super().__init__()
        self.up, self.down = linear_of(*up), linear_of(down_hc)


class MlpBlock(nn.Module):
    """Pre-norm MLP of each tile, with a residual: (n, hidden) to the same. Shares of its channels are branches."""

    def __init__(self, hidden: int, num_slices: int):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        up, down = nn.Linear(hidden, _MLP_FACTOR * hidden), nn.Linear(_MLP_FACTOR * hidden, hidden)
        self.slices = Branches(list(map(Slice, _rows(up, num_slices), down.weight.chunk(num_slices, dim=1))))
        self.bias = nn.Parameter(down.bias.detach().clone())

    def forward(self, tiles: Tiles) -> Tiles:
        tokens_nh, positions_um = tiles
        return tokens_nh + (self.slices.total(_raised, self.norm(tokens_nh)) + self.bias), positions_um


def _raised(slices: Mapping[int, Slice], normed_nh: Tensor) -> Tensor:
    own = list(slices.values())
    inside_nc = gelu(side_by_side([each.up for each in own], normed_nh))
    return sum_of([each.down for each in own], inside_nc)


def _rows(layer: nn.Linear, count: int) -> list[Rows]:
    """The rows of a layer in equal shares. One layer is made, so that initial weights do not depend on their number."""
    return list(zip(layer.weight.chunk(count), layer.bias.chunk(count), strict=True))


def slide_transformer_blocks(*, dims: int, num_outputs: int, hidden: int, layers: int, heads: int) -> list[nn.Module]:
    """Make the blocks: 2 * layers + 3 modules from a bag (n, dims + 2) to (1, num_outputs).

    Raises:
        ValueError: `hidden` is not a multiple of 4 * heads: a head needs pairs of channels for x and for y.
    """
    if hidden % (4 * heads):
        below = hidden // (4 * heads) * 4 * heads
        nearest = f"{below} or {below + 4 * heads}" if below else f"{4 * heads}"
        raise ValueError(
            f"hidden of a slide transformer must be a multiple of 4 * heads = {4 * heads}, got {hidden}; use {nearest}"
        )
    layer_blocks = [block for _ in range(layers) for block in (AttentionBlock(hidden, heads), MlpBlock(hidden, heads))]
    return [
        BagInput(dims, hidden, has_relu=False),
        *layer_blocks,
        AttentionPool(hidden, has_norm=True),
        SlideHead(hidden, num_outputs),
    ]
