"""Stages in parts: how their parts talk to each other, and what passes between stages with other numbers of parts.

What one stage gives another may be cut into rows on both sides, at other places: each part then gives each part of the
next stage the rows that both hold. A tensor that all parts have whole goes to each taker from one giver.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.engine.transport import Transport
from training.parallel.halo import format_of
from training.parallel.link import Piece, rows_of


class StageLink:
    """The link between the parts of a stage on several ranks."""

    def __init__(self, transport: Transport, ranks: Sequence[int]) -> None:
        self._transport, self._ranks = transport, ranks
        self.num_parts = len(ranks)
        self.here = (ranks.index(transport.rank),)

    def swap(
        self, gives: Sequence[Mapping[int, Tensor]], takes: Sequence[Mapping[int, Piece]]
    ) -> list[dict[int, Tensor]]:
        """See `training.parallel.link.Link`.

        Raises:
            LostPeerError: another part is gone or too slow.
        """
        (give,), (take,) = gives, takes
        as_bytes = {id(tensor): tensor.reshape(-1).view(torch.uint8) for tensor in give.values()}
        start_s = time.perf_counter()
        received = self._transport.swap(
            {self._ranks[part]: as_bytes[id(tensor)] for part, tensor in give.items()},
            {self._ranks[part]: piece.num_bytes for part, piece in take.items()},
            during=self._transport.during,
        )
        self._transport.between_parts_s += time.perf_counter() - start_s
        rows = {part: received[self._ranks[part]] for part in take}
        return [{part: rows[part].view(piece.dtype).view(piece.shape) for part, piece in take.items()}]


@dataclass(frozen=True)
class Boundaries:
    """What passes between a part of one stage and the parts of a neighbouring one."""

    part: int
    num_parts: int
    others: int
    """Parts of the neighbour."""

    @property
    def is_even(self) -> bool:
        """Whether each part has one counterpart, which has the same rows."""
        return self.num_parts == self.others

    def cut(self, tensor: Tensor | None, height: int | None, taker: int, *, forward: bool) -> Tensor | None:
        """What one part of the neighbour is given of a tensor, or of a gradient; None: nothing."""
        if tensor is None or self.is_even:
            return tensor
        if height is not None:
            own = rows_of(height, self.part, self.num_parts)
            theirs = rows_of(height, taker, self.others)
            start, stop = max(own.start, theirs.start), min(own.stop, theirs.stop)
            rows = tensor.detach()[:, :, start - own.start : max(start, stop) - own.start]
            return rows.clone(memory_format=format_of(tensor)).requires_grad_(tensor.requires_grad)
        if forward:
            return tensor if taker * self.num_parts // self.others == self.part else None
        is_source = self.part * self.others // self.num_parts == taker
        return tensor if is_source else torch.zeros_like(tensor)

    def join(self, pieces: Sequence[Tensor | None], height: int | None, *, forward: bool) -> Tensor | None:
        """A tensor or gradient from what the parts of the neighbour have given, in their order."""
        given = [piece for piece in pieces if piece is not None]
        if len(given) <= 1:
            return given[0] if given else None
        needs_gradient = given[0].requires_grad
        with torch.no_grad():
            if height is not None:
                filled = [piece for piece in given if piece.shape[2]] or given[:1]
                whole = torch.cat(filled, 2) if len(filled) > 1 else filled[0]
            else:
                assert not forward  # a whole tensor has one giver
                whole = given[0]
                for piece in given[1:]:
                    whole = whole + piece
        return whole.detach().requires_grad_(needs_gradient)
