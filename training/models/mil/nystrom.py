"""Nyström attention: softmax attention approximated through landmarks, linear in the length of the sequence.

    softmax(Q Kᵀ) V  ≈  softmax(Q K̃ᵀ) · pinv(softmax(Q̃ K̃ᵀ)) · (softmax(Q̃ Kᵀ) V)

Q̃ and K̃, the landmarks, are means over m consecutive segments. A depthwise convolution of V along the sequence is added.
All but the linear layers is computed in fp32: in bf16 the iterations of the inverse do not converge.

Sources: Xiong et al., "Nyströmformer: A Nyström-based Algorithm for Approximating Self-Attention" (AAAI 2021); Razavi
et al., "A new iterative method for finding approximate inverses of complex matrices" (Abstract and Applied Analysis,
2014), for the inverse.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.mil.bag import full_precision

_CONVOLVED = 33
"""Tokens under the depthwise convolution."""
_INVERSE_STEPS = 6
"""Iterations of the inverse, as in the paper."""


class NystromAttention(nn.Module):
    """Multi-head attention over a sequence: (l, hidden) to (l, hidden). Half as many landmarks as `hidden`."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.num_landmarks = max(1, hidden // 2)
        self.to_qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.skip = nn.Conv2d(heads, heads, (_CONVOLVED, 1), padding=(_CONVOLVED // 2, 0), groups=heads, bias=False)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x_lh: Tensor) -> Tensor:
        query_eld, key_eld, value_eld = self._heads(x_lh)
        with full_precision(x_lh):
            left_elm, inverse_emm, right_eml = self._factors(query_eld, key_eld)
            mixed_eld = left_elm @ (inverse_emm @ (right_eml @ value_eld)) + self.skip(value_eld[None])[0]
        mixed: Tensor = self.out(mixed_eld.transpose(0, 1).flatten(1))
        return mixed

    def first_row(self, x_lh: Tensor) -> Tensor:
        """Attention of the first token to all, averaged over heads: (l,). The approximation may leave [0, 1]."""
        query_eld, key_eld, _ = self._heads(x_lh)
        with full_precision(x_lh):
            left_elm, inverse_emm, right_eml = self._factors(query_eld, key_eld)
            return (left_elm[:, :1] @ inverse_emm @ right_eml).mean(dim=0)[0]

    def _heads(self, x_lh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, fp32 (heads, l, hidden / heads)."""
        qkv_3eld = self.to_qkv(x_lh).float().view(len(x_lh), 3, self.heads, -1).permute(1, 2, 0, 3)
        query_eld, key_eld, value_eld = qkv_3eld.unbind(0)
        return query_eld * query_eld.shape[2] ** -0.5, key_eld, value_eld

    def _factors(self, query_eld: Tensor, key_eld: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query_emd, key_emd = (segment_means(x_eld, self.num_landmarks) for x_eld in (query_eld, key_eld))
        left_elm = torch.softmax(query_eld @ key_emd.mT, dim=2)
        middle_emm = torch.softmax(query_emd @ key_emd.mT, dim=2)
        right_eml = torch.softmax(query_emd @ key_eld.mT, dim=2)
        return left_elm, pseudo_inverse(middle_emm), right_eml


def segment_means(x_eld: Tensor, most: int) -> Tensor:
    """Means over consecutive segments of equal length, at most `most` of them; the last one may be shorter."""
    heads, length, dim = x_eld.shape
    size = -(-length // most)
    whole = length // size * size
    means_emd = x_eld[:, :whole].reshape(heads, -1, size, dim).mean(dim=2)
    if whole == length:
        return means_emd
    return torch.cat([means_emd, x_eld[:, whole:].mean(dim=1, keepdim=True)], dim=1)


def pseudo_inverse(matrix_emm: Tensor) -> Tensor:
    """Approximate Moore–Penrose inverse of matrices whose rows sum to 1, by iterations of the third order."""
    # The start is Aᵀ / (‖A‖₁ ‖A‖∞), and ‖A‖∞ is 1. The limit does not depend on it, so it needs no gradient.
    largest_e = matrix_emm.detach().sum(dim=1).amax(dim=1)
    inverse_emm = matrix_emm.mT / largest_e[:, None, None]
    identity_mm = torch.eye(matrix_emm.shape[2], dtype=matrix_emm.dtype, device=matrix_emm.device)
    for _ in range(_INVERSE_STEPS):
        product_emm = matrix_emm @ inverse_emm
        inner_emm = 15 * identity_mm - product_emm @ (7 * identity_mm - product_emm)
        inverse_emm = 0.25 * inverse_emm @ (13 * identity_mm - product_emm @ inner_emm)
    return inverse_emm
