"""Sums over all parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from training.parallel.link import Link, Piece, gather_small, in_order, others_of, rows_of

LARGE_BYTES = 1 << 16
"""From here on bytes cost more than another group of messages."""


class _Sum(torch.autograd.Function):
    """The sum over parts, on each. Each part's summand of its gradient counts for every part's term."""

    @staticmethod
    def forward(ctx: Any, link: Link, *terms: Tensor) -> tuple[Tensor, ...]:
        ctx.link = link
        return tuple(sums_of(link, terms))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *sums_of(ctx.link, gradients)


def summed(link: Link, terms: Sequence[Tensor]) -> list[Tensor]:
    """The sum of all parts' terms on each part in this process, with a gradient."""
    return list(_Sum.apply(link, *terms))  # type: ignore[no-untyped-call]


def sums_of(link: Link, terms: Sequence[Tensor]) -> list[Tensor]:
    """The same without a gradient: added in the order of the parts, so with the same bits everywhere."""
    contiguous = [term.contiguous() for term in terms]
    if terms[0].nbytes < LARGE_BYTES:
        return [reduce(torch.add, rows) for rows in gather_small(link, contiguous)]
    return _sums_by_shares(link, contiguous)


def _sums_by_shares(link: Link, terms: Sequence[Tensor]) -> list[Tensor]:
    """Each part adds a share of the numbers and gives it to the others: fewest bytes, two groups of messages."""
    shares = [rows_of(terms[0].numel(), part, link.num_parts) for part in range(link.num_parts)]
    flat = [term.view(-1) for term in terms]
    kind, device = terms[0].dtype, terms[0].device
    others = [others_of(link, own) for own in link.here]
    taken = link.swap(
        [{p: row[shares[p].start : shares[p].stop] for p in peers} for row, peers in zip(flat, others, strict=True)],
        [
            dict.fromkeys(peers, Piece((len(shares[own]),), kind, device))
            for own, peers in zip(link.here, others, strict=True)
        ],
    )
    added = []
    for own, row, received in zip(link.here, flat, taken, strict=True):
        mine = row[shares[own].start : shares[own].stop]
        added.append(reduce(torch.add, in_order(link, own, mine, received)))
    back = link.swap(
        [dict.fromkeys(peers, total) for total, peers in zip(added, others, strict=True)],
        [{p: Piece((len(shares[p]),), kind, device) for p in peers} for peers in others],
    )
    results = []
    for own, total, received in zip(link.here, added, back, strict=True):
        result = torch.empty_like(terms[0])  # no view: blocks may change it in place
        torch.cat(in_order(link, own, total, received), out=result.view(-1))
        results.append(result)
    return results
