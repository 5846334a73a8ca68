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

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from training.models.mil.abmil import AttentionPool
from training.models.mil.bag import BagInput, SlideHead, Tiles

SHORTEST_UM, LONGEST_UM = 500.0, 100_000.0
"""Wavelengths of the fastest and of the slowest pair of channels."""
_MLP_FACTOR = 4
"""Width of an MLP's hidden layer by that of the tokens."""
Turn = tuple[Tensor, Tensor]
"""Cosine and sine of every pair's angle, fp32 (n, 1, 2, p): axes x and y, p pairs each."""


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


class AttentionBlock(nn.Module):
    """Pre-norm multi-head attention over all tiles, with a residual: (n, hidden) to the same."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(hidden)
        # Apart, so that backward keeps the values but not the queries and keys from before their rotation.
        self.to_qk = nn.Linear(hidden, 2 * hidden)
        self.to_value = nn.Linear(hidden, hidden)
        self.rotary = RotaryPositions(hidden // heads)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, tiles: Tiles) -> Tiles:
        tokens_nh, positions_um = tiles
        normed_nh = self.norm(tokens_nh)
        value_ned = self._heads(self.to_value(normed_nh))
        turn = self.rotary(positions_um)
        query_ned, key_ned = (
            rotate(self._heads(x_nh), turn).to(value_ned.dtype) for x_nh in self.to_qk(normed_nh).chunk(2, dim=1)
        )
        query, key, value = (x_ned.transpose(0, 1)[None] for x_ned in (query_ned, key_ned, value_ned))
        mixed_nh = scaled_dot_product_attention(query, key, value)[0].transpose(0, 1).flatten(1)
        return tokens_nh + self.out(mixed_nh), positions_um

    def _heads(self, x_nh: Tensor) -> Tensor:
        return x_nh.reshape(len(x_nh), self.heads, -1)


class MlpBlock(nn.Module):
    """Pre-norm MLP of each tile, with a residual: (n, hidden) to the same."""

    def __init__(self, hidden: int):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.LayerNorm(hidden),
            nn.Linear(hidden, _MLP_FACTOR * hidden),
            nn.GELU(),
            nn.Linear(_MLP_FACTOR * hidden, hidden),
        )

    def forward(self, tiles: Tiles) -> Tiles:
        tokens_nh, positions_um = tiles
        return tokens_nh + self.mlp(tokens_nh), positions_um


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
    layer_blocks = [block for _ in range(layers) for block in (AttentionBlock(hidden, heads), MlpBlock(hidden))]
    return [
        BagInput(dims, hidden, has_relu=False),
        *layer_blocks,
        AttentionPool(hidden, has_norm=True),
        SlideHead(hidden, num_outputs),
    ]
