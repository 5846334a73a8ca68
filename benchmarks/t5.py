"""Layers of T5-Large's encoder, whose heads and shares of channels are branches.

Source: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer" (JMLR 2020).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from training.models.side_by_side import side_by_side, sum_of
from training.parallel.branches import Branches


class RMSNorm(nn.Module):
    """Root mean square of the channels, without a mean or bias, as in T5."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x_ntd: Tensor) -> Tensor:
        return nn.functional.rms_norm(x_ntd, self.weight.shape, self.weight, 1e-6)


class T5Heads(nn.Module):
    """Some heads of attention, without biases."""

    def __init__(self, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.to_qkv = nn.Linear(width, 3 * heads * head_dim, bias=False)
        self.out = nn.Linear(heads * head_dim, width, bias=False)


class T5Attention(nn.Module):
    """Pre-norm attention whose heads are shared out to branches. Relative position biases, which take no time to speak
    of, are left out."""

    def __init__(self, width: int, heads: int, head_dim: int, branches: int) -> None:
        super().__init__()
        self.norm, self.head_dim = RMSNorm(width), head_dim
        self.heads = Branches([T5Heads(width, heads // branches, head_dim) for _ in range(branches)])

    def forward(self, x_ntd: Tensor) -> Tensor:
        return x_ntd + self.heads.total(self._attended, self.norm(x_ntd))  # type: ignore[no-any-return]

    def _attended(self, heads: Mapping[int, T5Heads], x_ntd: Tensor) -> Tensor:
        return _attention(list(heads.values()), x_ntd, self.head_dim)


def _attention(own: Sequence[T5Heads], x_ntd: Tensor, head_dim: int) -> Tensor:
    qkv = side_by_side([heads.to_qkv for heads in own], x_ntd).reshape(*x_ntd.shape[:2], -1, 3, head_dim)
    query, key, value = qkv.permute(3, 0, 2, 1, 4).unbind(0)
    mixed = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
    return sum_of([heads.out for heads in own], mixed)


class T5Slice(nn.Module):
    """A share of the channels inside a feed-forward block."""

    def __init__(self, width: int, channels: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, channels, bias=False), nn.Linear(channels, width, bias=False)


class T5FeedForward(nn.Module):
    """Pre-norm feed-forward block, whose channels are shared out to branches."""

    def __init__(self, width: int, hidden: int, branches: int) -> None:
        super().__init__()
        self.norm = RMSNorm(width)
        self.slices = Branches([T5Slice(width, hidden // branches) for _ in range(branches)])

    def forward(self, x_ntd: Tensor) -> Tensor:
        return x_ntd + self.slices.total(_fed_forward, self.norm(x_ntd))  # type: ignore[no-any-return]


def _fed_forward(slices: Mapping[int, T5Slice], x_ntd: Tensor) -> Tensor:
    own = list(slices.values())
    return sum_of([each.down for each in own], side_by_side([each.up for each in own], x_ntd).relu())


class MeanOfTokens(nn.Module):
    """Classes from the mean of the tokens."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.norm, self.linear = RMSNorm(width), nn.Linear(width, num_classes)

    def forward(self, x_ntd: Tensor) -> Tensor:
        return self.linear(self.norm(x_ntd).mean(1))  # type: ignore[no-any-return]


def t5_large_encoder(layers: int, branches: int, num_classes: int = 2) -> list[nn.Module]:
    """Layers of 1,024 channels, with 16 heads of 64 and 4,096 channels inside, and a classifier.

    Args:
        branches: 1 for the usual layers, each of one matrix.
    """
    width, heads, head_dim, hidden = 1024, 16, 64, 4096
    blocks: list[nn.Module] = []
    for _ in range(layers):
        blocks += [T5Attention(width, heads, head_dim, branches), T5FeedForward(width, hidden, branches)]
    return [*blocks, MeanOfTokens(width, num_classes)]
