"""Vision transformer for features: patches, class token and registers, pre-norm blocks, final normalisation.

    embed     patch x patch convolution, position embeddings, prefix tokens     (N, 1 + registers + patches, width)
    block i   x + scale1 · attention(norm1(x)); x + scale2 · mlp(norm2(x))      the same shape
    norm      layer normalisation                                               the same shape

The prefix is the class token, then the registers; what position embeddings a network adds to them is included in their
values. The scales are left out in networks without LayerScale. A gated MLP is SwiGLU: down(silu(a) · b), a and b the
halves of up(x); others are down(gelu(up(x))), with the exact GELU.

Sources: Dosovitskiy et al., "An Image is Worth 16x16 Words" (ICLR 2021); Touvron et al., "Going deeper with Image
Transformers" (ICCV 2021; LayerScale); Oquab et al., "DINOv2" (TMLR 2024); Darcet et al., "Vision Transformers Need
Registers" (ICLR 2024); Shazeer, "GLU Variants Improve Transformer" (2020).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class ViTSizes:
    """Sizes of a vision transformer.

    Raises:
        ValueError: the patches do not cover the image, or the heads do not divide the width.
    """

    side_px: int
    """Side of the images."""
    patch_px: int
    width: int
    """Numbers per token."""
    depth: int
    """Number of blocks."""
    heads: int
    hidden: int
    """Numbers inside the MLP, after the gate if it has one."""
    registers: int = 0
    is_gated: bool = False
    """Whether the MLP is SwiGLU."""
    has_scales: bool = False
    """Whether blocks have LayerScale."""
    qkv_bias: bool = True
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.side_px < self.patch_px or self.side_px % self.patch_px:
            raise ValueError(f"patches of {self.patch_px} px do not cover images of {self.side_px} px")
        if self.heads < 1 or self.width % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a width of {self.width}")

    @property
    def prefix_tokens(self) -> int:
        """Tokens before those of the patches."""
        return 1 + self.registers

    @property
    def patches_per_side(self) -> int:
        return self.side_px // self.patch_px


class Embed(nn.Module):
    """Images (N, 3, side, side) to tokens (N, prefix + patches, width)."""

    def __init__(self, sizes: ViTSizes) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, sizes.width, sizes.patch_px, stride=sizes.patch_px)
        self.prefix = nn.Parameter(torch.zeros(1, sizes.prefix_tokens, sizes.width))
        self.positions = nn.Parameter(torch.zeros(1, sizes.patches_per_side**2, sizes.width))

    def forward(self, images_nchw: Tensor) -> Tensor:
        patches = self.patch(images_nchw).flatten(2).transpose(1, 2) + self.positions
        return torch.cat([self.prefix.expand(patches.shape[0], -1, -1), patches], dim=1)


class Attention(nn.Module):
    """Multi-head self-attention: (N, tokens, width) to the same shape."""

    def __init__(self, sizes: ViTSizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.qkv = nn.Linear(sizes.width, 3 * sizes.width, bias=sizes.qkv_bias)
        self.out = nn.Linear(sizes.width, sizes.width)

    def forward(self, x_ntc: Tensor) -> Tensor:
        count, tokens, width = x_ntc.shape
        heads = (count, tokens, 3, self.heads, width // self.heads)
        query, key, value = self.qkv(x_ntc).view(heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(count, tokens, width))
        return result


class Mlp(nn.Module):
    """(N, tokens, width) to the same shape."""

    def __init__(self, sizes: ViTSizes) -> None:
        super().__init__()
        self.is_gated = sizes.is_gated
        self.up = nn.Linear(sizes.width, 2 * sizes.hidden if sizes.is_gated else sizes.hidden)
        self.down = nn.Linear(sizes.hidden, sizes.width)

    def forward(self, x_ntc: Tensor) -> Tensor:
        raised = self.up(x_ntc)
        if self.is_gated:
            gate, value = raised.chunk(2, dim=-1)
            raised = functional.silu(gate) * value
        else:
            raised = functional.gelu(raised)
        result: Tensor = self.down(raised)
        return result


class Block(nn.Module):
    """Pre-norm residual block: (N, tokens, width) to the same shape."""

    def __init__(self, sizes: ViTSizes) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(sizes.width, eps=sizes.norm_eps)
        self.attention = Attention(sizes)
        self.norm2 = nn.LayerNorm(sizes.width, eps=sizes.norm_eps)
        self.mlp = Mlp(sizes)
        self.scale1 = nn.Parameter(torch.ones(sizes.width)) if sizes.has_scales else None
        self.scale2 = nn.Parameter(torch.ones(sizes.width)) if sizes.has_scales else None

    def forward(self, x_ntc: Tensor) -> Tensor:
        attended = self.attention(self.norm1(x_ntc))
        x_ntc = x_ntc + (attended if self.scale1 is None else attended * self.scale1)
        raised = self.mlp(self.norm2(x_ntc))
        result: Tensor = x_ntc + (raised if self.scale2 is None else raised * self.scale2)
        return result


def vit(sizes: ViTSizes) -> nn.Sequential:
    """A chain of blocks, which can be spread over devices; its state names begin with embed, block0, …, norm."""
    blocks = [(f"block{index}", Block(sizes)) for index in range(sizes.depth)]
    norm = nn.LayerNorm(sizes.width, eps=sizes.norm_eps)
    return nn.Sequential(OrderedDict([("embed", Embed(sizes)), *blocks, ("norm", norm)]))


def resampled_positions(positions_1pc: Tensor, per_side: int, *, antialias: bool) -> Tensor:
    """Position embeddings of a square grid for a grid of `per_side` x `per_side` patches, by bicubic interpolation.

    Args:
        positions_1pc: float32 (1, patches, width), row by row.
        antialias: as `timm` interpolates; `transformers` does not.
    """
    old = round(positions_1pc.shape[1] ** 0.5)
    if old == per_side:
        return positions_1pc
    grid_1chw = positions_1pc.reshape(1, old, old, -1).permute(0, 3, 1, 2)
    size = (per_side, per_side)
    new_1chw = functional.interpolate(grid_1chw, size=size, mode="bicubic", align_corners=False, antialias=antialias)
    return new_1chw.permute(0, 2, 3, 1).reshape(1, per_side**2, -1)
