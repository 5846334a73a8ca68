"""CLAM with a single attention branch: attention pooling whose extreme tiles also train a classifier of tiles.

The output is (1, num_outputs + num_classes * 2 * k), with k = `num_judged(n)` of n tiles:

    columns 0 .. num_outputs - 1   outputs of the slide; a prediction uses these only
    the rest, as (class, 2, k)     logits of "this tile is evidence for the class": [:, 0] for the k most attended
                                   tiles, from the most; [:, 1] for the k least attended, down to the least

The two sets of tiles never overlap; a bag of one tile has neither. One logistic output per class and tile stands for
the paper's two-way softmax. `training/models/heads/losses.py` turns the rest into the instance loss.

Source: Lu et al., "Data-efficient and weakly supervised computational pathology on whole-slide images" (Nature
Biomedical Engineering 5, 2021), methods.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.models.mil.abmil import GatedAttention, weighted_mean
from training.models.mil.bag import Pooling, SlideHead, Tiles

MAX_JUDGED = 8
"""Most tiles at either end of the attention that the instance loss judges; the paper's B."""


def num_judged(num_tiles: int) -> int:
    """k, the number of most and of least attended tiles that are judged."""
    return min(MAX_JUDGED, num_tiles // 2)


class ClamHead(Pooling):
    """Attention pooling, the slide's outputs and the instance classifiers: (n, hidden) to the row described above."""

    def __init__(self, hidden: int, num_outputs: int, num_classes: int):
        super().__init__()
        self.attention = GatedAttention(hidden)
        self.head = SlideHead(hidden, num_outputs)
        self.instances = SlideHead(hidden, num_classes)

    def forward(self, tiles: Tiles) -> Tensor:
        tokens_nh, _ = tiles
        weights_n = self.attention(tokens_nh)
        outputs_1o = self.head(weighted_mean(tokens_nh, weights_n))
        order_n = torch.argsort(weights_n.detach(), descending=True, stable=True)
        k = num_judged(len(order_n))
        judged_2k = torch.cat([order_n[:k], order_n[len(order_n) - k :]])
        logits_kc = self.instances(tokens_nh[judged_2k])
        return torch.cat([outputs_1o, logits_kc.T.reshape(1, -1)], dim=1)

    def attention_n(self, tiles: Tiles) -> Tensor:
        """The weights of the pooling."""
        weights_n: Tensor = self.attention(tiles[0])
        return weights_n
