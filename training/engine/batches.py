"""Batches held in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class TensorBatch:
    """A batch held in memory, cut into micro-batches along the first dimension."""

    parts: tuple[tuple[Tensor, Any], ...]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(inputs.shape) for inputs, _ in self.parts]

    def inputs(self, microbatch: int) -> Tensor:
        return self.parts[microbatch][0]

    def targets(self, microbatch: int) -> Any:
        return self.parts[microbatch][1]


def split(inputs: Tensor, targets: Tensor, *, microbatch_size: int) -> TensorBatch:
    """Copy a batch into micro-batches; the last may be smaller. Any class with the methods of `Batch` will do too.

    Raises:
        ValueError: there are no samples, some have no target, or the size is less than 1.
    """
    if not 0 < len(inputs) == len(targets) or microbatch_size < 1:
        raise ValueError(
            f"got {len(inputs)} inputs, {len(targets)} targets and microbatch_size = {microbatch_size}; give one or "
            "more samples, a target for each, and micro-batches of 1 or more"
        )
    parts = zip(torch.split(inputs, microbatch_size), torch.split(targets, microbatch_size), strict=True)
    return TensorBatch(tuple((x.clone(), y.clone()) for x, y in parts))
