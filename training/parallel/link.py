"""The parts of one stage and what passes between them while they compute.

    part     a share of a stage's work on each micro-batch, on one rank; all parts of a stage do the same list of
             operations in the same order
    virtual  several parts in one process: for tests, and for continuing a run in parts on fewer ranks, bit for bit

A tensor (N, C, H, W) in parts is cut into rows: part p of P holds rows floor(p·H/P) to floor((p+1)·H/P). What every
part holds whole, such as a pooled tensor, is a copy on each. Of a copy's gradient each part has a summand: the loss
is that of the first part, and zero on the others, so that the sum over parts is the gradient everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Piece:
    """A tensor that will come from another part: all that is known beforehand."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def num_bytes(self) -> int:
        """Its length on the wire."""
        return self.dtype.itemsize * torch.Size(self.shape).numel()


class Link(Protocol):
    """The connection between the parts of a stage."""

    @property
    def num_parts(self) -> int:
        """P"""

    @property
    def here(self) -> Sequence[int]:
        """Parts in this process, in order; one of them on each rank of a real run."""

    def swap(
        self, gives: Sequence[Mapping[int, Tensor]], takes: Sequence[Mapping[int, Piece]]
    ) -> list[dict[int, Tensor]]:
        """Give each other part what is for it and take what it has, in one group of messages.

        Every part of the stage calls it at the same point of its work. What is empty is not sent.

        Args:
            gives: for each part in this process, contiguous tensors by the part that takes them.
            takes: for each part in this process, by the part that gives.

        Returns:
            for each part in this process what it has taken, not to be changed.
        """


class VirtualLink:
    """All parts in this process."""

    def __init__(self, num_parts: int) -> None:
        self.num_parts = num_parts
        self.here = range(num_parts)

    def swap(
        self, gives: Sequence[Mapping[int, Tensor]], takes: Sequence[Mapping[int, Piece]]
    ) -> list[dict[int, Tensor]]:
        """See `Link`."""
        return [{giver: gives[giver][taker] for giver in takes[taker]} for taker in self.here]


def rows_of(height: int, part: int, num_parts: int) -> range:
    """The rows that a part holds."""
    return range(part * height // num_parts, (part + 1) * height // num_parts)


def others_of(link: Link, part: int) -> list[int]:
    """The other parts of a stage."""
    return [other for other in range(link.num_parts) if other != part]


def in_order(link: Link, part: int, own: Tensor, received: Mapping[int, Tensor]) -> list[Tensor]:
    """What all parts have, by part: a part's own and what it has taken."""
    return [own if other == part else received[other] for other in range(link.num_parts)]


def gather_small(link: Link, rows: Sequence[Tensor]) -> list[list[Tensor]]:
    """Every part's row of numbers, such as sums: for each part in this process, by part.

    Args:
        rows: for each part in this process; alike in shape and type on all.
    """
    like = Piece(tuple(rows[0].shape), rows[0].dtype, rows[0].device)
    others = [others_of(link, own) for own in link.here]
    taken = link.swap(
        [dict.fromkeys(peers, row) for peers, row in zip(others, rows, strict=True)],
        [dict.fromkeys(peers, like) for peers in others],
    )
    return [in_order(link, own, row, received) for own, row, received in zip(link.here, rows, taken, strict=True)]
