"""Rows that a part needs beyond its own: halos of convolutions and windows, and whole tensors.

What a part needs follows from the rows of the output that it makes, so rows, strides and windows need not divide
evenly. The gradient takes the same way back: what a part has computed of another part's rows is sent there and added,
in the order of the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from training.parallel.link import Link, Piece, others_of, rows_of

Wanted = tuple[range, ...]
"""Rows that each part needs, by part; they may begin above the tensor and end below it, where there is padding."""


@dataclass(frozen=True)
class Window:
    """A convolution's or a pool's way along one axis."""

    size: int
    stride: int
    padding: int
    dilation: int = 1

    def outputs(self, length: int, *, ceil_mode: bool = False) -> int:
        """Number of outputs along an axis of this length, as torch counts them."""
        span = length + 2 * self.padding - self.dilation * (self.size - 1) - 1
        count = -(-span // self.stride) + 1 if ceil_mode else span // self.stride + 1
        # torch leaves out a last window that would begin in the padding after the end.
        return count - 1 if ceil_mode and (count - 1) * self.stride >= length + self.padding else count

    def inputs(self, outputs: range) -> range:
        """Rows that some rows of the output are made of."""
        if not outputs:
            return range(0)
        first = outputs.start * self.stride - self.padding
        last = (outputs.stop - 1) * self.stride - self.padding + self.dilation * (self.size - 1)
        return range(first, last + 1)

    def wanted(self, height_out: int, num_parts: int) -> Wanted:
        """Rows of the input that each part's rows of the output are made of."""
        return tuple(self.inputs(rows_of(height_out, part, num_parts)) for part in range(num_parts))


@dataclass(frozen=True)
class Transfer:
    """Which rows of a tensor each part gives to each other one."""

    link: Link
    height: int
    wanted: Wanted

    @cached_property
    def is_needed(self) -> bool:
        """Whether any part needs other rows than its own: all parts answer the same."""
        return any(rows != self._own(part) for part, rows in enumerate(self.wanted))

    @cached_property
    def crosses(self) -> bool:
        """Whether any part needs another part's rows."""
        takers = range(self.link.num_parts)
        return any(self.rows(giver, taker) for taker in takers for giver in others_of(self.link, taker))

    def rows(self, giver: int, taker: int) -> range:
        """Rows of the giver's own that a taker needs."""
        own, needed = self._own(giver), self.wanted[taker]
        start, stop = max(own.start, needed.start), min(own.stop, needed.stop)
        return range(start, max(start, stop))

    def fetch(self, tensors: Sequence[Tensor]) -> list[dict[int, Tensor]]:
        """For each part in this process the other parts' rows that it needs, (N, rows, W, C), by part."""
        return self._swap(tensors, back=False)

    def _swap(self, tensors: Sequence[Tensor], *, back: bool) -> list[dict[int, Tensor]]:
        """Move rows from those who have them to those who need them, or back.

        Args:
            tensors: for each part in this process its own rows; on the way back those that it needed.
        """
        if not self.crosses:
            return [{} for _ in tensors]
        gives, takes = [], []
        for part, tensor in zip(self.link.here, tensors, strict=True):
            others = others_of(self.link, part)
            give, take = (
                {peer: self.rows(part, peer) for peer in others},
                {peer: self.rows(peer, part) for peer in others},
            )
            start = self._own(part).start
            if back:
                give, take, start = take, give, self.wanted[part].start
            gives.append({peer: _packed(tensor, _moved(rows, -start)) for peer, rows in give.items() if rows})
            takes.append({peer: _piece(tensor, len(rows)) for peer, rows in take.items() if rows})
        return self.link.swap(gives, takes)

    def assemble(self, part: int, tensor: Tensor, received: dict[int, Tensor], fill: float = 0.0) -> Tensor:
        """The rows that a part needs, from its own and what `fetch` returned; padding is filled."""
        needed = self.wanted[part]
        shape = (*tensor.shape[:2], len(needed), tensor.shape[3])
        whole = torch.empty(shape, dtype=tensor.dtype, device=tensor.device, memory_format=format_of(tensor))
        for rows in (range(needed.start, min(0, needed.stop)), range(max(self.height, needed.start), needed.stop)):
            if rows:
                _at(whole, _moved(rows, -needed.start)).fill_(fill)
        own = self.rows(part, part)
        if own:
            inside = _at(tensor, _moved(own, -self._own(part).start))
            _at(whole, _moved(own, -needed.start)).copy_(inside)
        for giver, packed in received.items():
            _at(whole, _moved(self.rows(giver, part), -needed.start)).copy_(packed.permute(0, 3, 1, 2))
        return whole

    def give_back(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients of all parts' own rows, from those of what they assembled."""
        received = self._swap(gradients, back=True)
        parts = zip(self.link.here, gradients, received, strict=True)
        return [self._own_gradient(part, gradient, back) for part, gradient, back in parts]

    def _own_gradient(self, part: int, gradient: Tensor, received: dict[int, Tensor]) -> Tensor:
        own, needed, kept = self._own(part), self.wanted[part], self.rows(part, part)
        shape = (*gradient.shape[:2], len(own), gradient.shape[3])
        make = torch.empty if kept == own else torch.zeros
        result = make(shape, dtype=gradient.dtype, device=gradient.device).to(memory_format=format_of(gradient))
        if kept:
            _at(result, _moved(kept, -own.start)).copy_(_at(gradient, _moved(kept, -needed.start)))
        for taker, packed in sorted(received.items()):
            _at(result, _moved(self.rows(part, taker), -own.start)).add_(packed.permute(0, 3, 1, 2))
        return result

    def _own(self, part: int) -> range:
        return rows_of(self.height, part, self.link.num_parts)


class _Fetch(torch.autograd.Function):
    """Rows from other parts, with a gradient."""

    @staticmethod
    def forward(ctx: Any, transfer: Transfer, fill: float, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.transfer = transfer
        received = transfer.fetch(tensors)
        parts = zip(transfer.link.here, tensors, received, strict=True)
        return tuple(transfer.assemble(part, tensor, rows, fill) for part, tensor, rows in parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *ctx.transfer.give_back(gradients)


def with_rows(link: Link, tensors: Sequence[Tensor], height: int, wanted: Wanted, fill: float = 0.0) -> list[Tensor]:
    """The rows that each part in this process needs, with a gradient.

    Args:
        tensors: each part's own rows.
        height: of the whole tensor.
    """
    transfer = Transfer(link, height, wanted)
    return list(_Fetch.apply(transfer, fill, *tensors)) if transfer.is_needed else list(tensors)  # type: ignore[no-untyped-call]


def whole(link: Link, tensors: Sequence[Tensor], height: int) -> list[Tensor]:
    """The whole tensor on every part."""
    return with_rows(link, tensors, height, (range(height),) * link.num_parts)


def format_of(tensor: Tensor) -> torch.memory_format:
    """The memory format of a 4-D tensor: channels_last only where it is not also contiguous."""
    last = tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format


def _at(tensor: Tensor, rows: range) -> Tensor:
    return tensor[:, :, rows.start : rows.stop]


def _moved(rows: range, by: int) -> range:
    return range(rows.start + by, rows.stop + by)


def _packed(tensor: Tensor, rows: range) -> Tensor:
    """Some rows as contiguous memory, (N, rows, W, C): gloo sends no strided tensor, and layouts may differ."""
    return _at(tensor, rows).permute(0, 2, 3, 1).contiguous()


def _piece(like: Tensor, num_rows: int) -> Piece:
    images, channels, _, width = like.shape
    return Piece((images, num_rows, width, channels), like.dtype, like.device)
