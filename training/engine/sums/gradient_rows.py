"""The gradients of some weights, concatenated: they are summed, checked and sent as a row, not as a list."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor


class GradientRows:
    """Position of the gradient of each weight: one row for each dtype, in the order of the weights."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self._shapes = [weight.shape for weight in weights]
        self._dtypes = [weight.dtype for weight in weights]
        self._kinds = list(dict.fromkeys(self._dtypes))

    def join(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Concatenate copies: autograd may have given the same memory to two gradients, or keep it for itself."""
        return [torch.cat([gradients[i].reshape(-1) for i in self._rows_of_dtype(kind)]) for kind in self._kinds]

    def split(self, rows: Sequence[Tensor], weights: range) -> list[Tensor]:
        """Views of the gradient of each of these weights, contiguous; `rows` hold theirs and no others."""
        gradients: dict[int, Tensor] = {}
        for kind, row in zip(self._kinds, rows, strict=True):
            indices = [i for i in self._rows_of_dtype(kind) if i in weights]
            parts = torch.split(row, [self._shapes[i].numel() for i in indices])
            gradients |= {i: part.view(self._shapes[i]) for i, part in zip(indices, parts, strict=True)}
        return [gradients[i] for i in weights]

    def columns(self, weights: range) -> list[slice]:
        """Columns of the gradients of neighbouring weights in each row."""
        columns = []
        for kind in self._kinds:
            lengths = [shape.numel() * (own is kind) for shape, own in zip(self._shapes, self._dtypes, strict=True)]
            ends = list(accumulate(lengths, initial=0))
            columns.append(slice(ends[weights.start], ends[weights.stop]))
        return columns

    def cut(self, rows: Sequence[Tensor], weights: range) -> list[Tensor]:
        """Views of the parts of `rows` that belong to neighbouring weights."""
        return [row[columns] for row, columns in zip(rows, self.columns(weights), strict=True)]

    def like(self, weights: range) -> list[Tensor]:
        """Tensors shaped like those of `cut`, without memory."""
        lengths = [columns.stop - columns.start for columns in self.columns(weights)]
        return [torch.empty(n, dtype=kind, device="meta") for n, kind in zip(lengths, self._kinds, strict=True)]

    def _rows_of_dtype(self, kind: torch.dtype) -> list[int]:
        return [i for i, own in enumerate(self._dtypes) if own is kind]


def checksum(rows: Sequence[Tensor]) -> Tensor:
    """A float64 scalar that is not finite if any number in the rows is not."""
    sums = [row.sum(dtype=torch.promote_types(row.dtype, torch.float32)).abs().double() for row in rows]
    return torch.stack(sums).sum()
