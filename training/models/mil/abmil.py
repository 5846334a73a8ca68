"""Gated attention pooling.

Source: Ilse, Tomczak and Welling, "Attention-based Deep Multiple Instance Learning" (ICML 2018), equation 9.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.mil.bag import Pooling, Tiles, full_precision


class GatedAttention(nn.Module):
    """Weights of tiles: the softmax over the bag of wᵀ(tanh(V h) ⊙ sigmoid(U h)), from (n, hidden) to float32 (n,)."""

    def __init__(self, hidden: int):
        super().__init__()
        width = max(1, hidden // 2)
        self.content = nn.Linear(hidden, width)
        self.gate = nn.Linear(hidden, width)
        # A bias would shift all scores alike, which the softmax undoes.
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, tokens_nh: Tensor) -> Tensor:
        gated_nw = torch.tanh(self.content(tokens_nh)) * torch.sigmoid(self.gate(tokens_nh))
        scores_n: Tensor = self.score(gated_nw).squeeze(1)
        return torch.softmax(scores_n.float(), dim=0)


class AttentionPool(Pooling):
    """Mean of the tokens, weighted by gated attention: (n, hidden) to (1, hidden)."""

    def __init__(self, hidden: int, *, has_norm: bool = False):
        """Make the layers.

        Args:
            has_norm: whether a LayerNorm comes first, as at the end of a pre-norm transformer.
        """
        super().__init__()
        self.norm = nn.LayerNorm(hidden) if has_norm else nn.Identity()
        self.attention = GatedAttention(hidden)

    def forward(self, tiles: Tiles) -> Tensor:
        tokens_nh = self.norm(tiles[0])
        return weighted_mean(tokens_nh, self.attention(tokens_nh))

    def attention_n(self, tiles: Tiles) -> Tensor:
        """The weights of the mean."""
        weights_n: Tensor = self.attention(self.norm(tiles[0]))
        return weights_n


def weighted_mean(tokens_nh: Tensor, weights_n: Tensor) -> Tensor:
    """Sum of tokens times weights in fp32, (1, hidden): under autocast a copy of the tokens in bf16 would be kept."""
    with full_precision(tokens_nh):
        return weights_n[None] @ tokens_nh.float()
