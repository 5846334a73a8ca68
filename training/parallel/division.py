"""Into how many parts a stage is divided, and what they send each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from training.parallel.link import Piece, VirtualLink
from training.parallel.parted import Split


class Division(NamedTuple):
    """How the work of a stage on one micro-batch is shared out."""

    parts: int = 1
    split: Split = "rows"

    @property
    def num_sub_graphs(self) -> int:
        """Parts of which each has branches of its own; 1 where they share out something else."""
        return self.parts if self.split == "branches" else 1


WHOLE = Division()
"""One part has all of it."""


@dataclass(frozen=True)
class Swaps:
    """Groups of messages between the parts of a stage."""

    count: int = 0
    num_bytes: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """By (giver, taker), of all groups together."""

    def __add__(self, other: Swaps) -> Swaps:
        return Swaps(self.count + other.count, Counter(self.num_bytes) + Counter(other.num_bytes))

    def __sub__(self, other: Swaps) -> Swaps:
        return Swaps(self.count - other.count, Counter(self.num_bytes) - Counter(other.num_bytes))


NO_SWAPS = Swaps()


class CountingLink(VirtualLink):
    """All parts in this process; it counts what they would send."""

    def __init__(self, num_parts: int) -> None:
        super().__init__(num_parts)
        self._counted = NO_SWAPS

    def swap(
        self, gives: Sequence[Mapping[int, Tensor]], takes: Sequence[Mapping[int, Piece]]
    ) -> list[dict[int, Tensor]]:
        """See `Link`."""
        num_bytes = {(giver, taker): tensor.nbytes for giver in self.here for taker, tensor in gives[giver].items()}
        self._counted += Swaps(1, num_bytes)
        return super().swap(gives, takes)

    def counted(self) -> Swaps:
        """What was swapped since the last call."""
        counted, self._counted = self._counted, NO_SWAPS
        return counted


class SilentLink:
    """One part by itself, to count or time what it computes: what it takes comes at once, with any values."""

    def __init__(self, num_parts: int, part: int) -> None:
        self.num_parts, self.here = num_parts, (part,)

    def swap(
        self, gives: Sequence[Mapping[int, Tensor]], takes: Sequence[Mapping[int, Piece]]
    ) -> list[dict[int, Tensor]]:
        """See `Link`."""
        return [
            {part: torch.ones(piece.shape, dtype=piece.dtype, device=piece.device) for part, piece in take.items()}
            for take in takes
        ]
