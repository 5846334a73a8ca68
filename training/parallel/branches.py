"""Branches of a block, such as the heads of attention: terms of a sum, each with weights of its own.

    sub-graph   what one part of a stage computes: everything outside branches, as every part does, and its branches

A block declares its branches by keeping them in `Branches`, and computes their sum by `Branches.total`. A part has the
weights of its own branches and no others. Forward, the parts add their terms; backward, the gradients of the sum: two
sums for each block with branches. Outside branches each part works on a whole copy of every value, whose gradient is
the sum over the parts (link.py), so a weight that all have counts once.

Branch b of B belongs to part p of P where floor(p·B/P) <= b < floor((p+1)·B/P): P need not divide B.

Source: Jain, Moon, Benson, Subramoni, Jacobs, Panda and Van Essen, "SUPER: SUb-Graph Parallelism for TransformERs"
(IPDPS 2021).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from struct import pack
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from training.foundation.words.counts import counted
from training.parallel.link import rows_of
from training.parallel.parted import Parted, parted_in
from training.parallel.sums import summed

Term = Callable[..., Tensor]
"""(branches by number in the block, inputs) -> the sum of their terms"""


class Branches(nn.ModuleDict):
    """The branches of one block that are here, by number: all of them, or those of a part."""

    def __init__(self, branches: Sequence[nn.Module]) -> None:
        super().__init__({str(number): branch for number, branch in enumerate(branches)})
        self.count = len(branches)
        """Of the whole block."""

    def total(self, term: Term, *inputs: Any) -> Any:
        """The sum of all branches' terms, in the order of the branches.

        Args:
            term: (branches by number, *inputs) -> Tensor; it must use no weights but theirs, and draw random numbers
                only in `branch_dropout`.
            inputs: tensors, or tuples of them.

        Raises:
            ValueError: more parts than branches, or random numbers that are not those of a branch.
        """
        first = next(parted_in(inputs), None)
        with _drawing():
            if first is None or first.splitting.split != "branches":
                return term(self.of(range(self.count)), *inputs)
            link = first.splitting.link
            self.check(link.num_parts)
            terms = [
                term(self.of_part(part, link.num_parts), *(_of_part(value, index) for value in inputs))
                for index, part in enumerate(link.here)
            ]
        return first.like(summed(link, terms), None)

    def of(self, numbers: range) -> Mapping[int, nn.Module]:
        """Some of the branches, by number."""
        return {number: self[str(number)] for number in numbers}

    def of_part(self, part: int, num_parts: int) -> Mapping[int, nn.Module]:
        """The branches of a part, by number."""
        return self.of(rows_of(self.count, part, num_parts))

    def part_of(self, number: int, num_parts: int) -> int:
        """The part that a branch belongs to."""
        return ((number + 1) * num_parts - 1) // self.count

    def keep(self, part: int, num_parts: int) -> None:
        """Release the branches of the other parts."""
        for number in [number for number in self if self.part_of(int(number), num_parts) != part]:
            del self[number]

    def check(self, num_parts: int) -> None:
        """Raise ValueError for more parts than branches."""
        if num_parts > self.count:
            raise ValueError(
                f"a block has {counted(self.count, 'branch', 'branches')}, too few for {num_parts} sub-graphs; use "
                f"num_subgraphs of at most {self.count}"
            )


def branches_in(module: nn.Module) -> list[Branches]:
    """All branches of a module's blocks."""
    return [each for each in module.modules() if isinstance(each, Branches)]


def keep_branches(module: nn.Module, part: int, num_parts: int) -> None:
    """Release the branches of all other parts, in all blocks of a module. Raises ValueError if they are too few."""
    for branches in branches_in(module):
        branches.check(num_parts)
        branches.keep(part, num_parts)


def branch_dropout(x_c: Tensor, p: float, numbers: Iterable[int], *, training: bool) -> Tensor:
    """Dropout of values whose last axis holds the same number of channels for each branch; for terms of a total.

    Each branch draws by itself, from the seed of its block, its number, and how often it has drawn there: the mask does
    not depend on which other branches are computed here.

    Args:
        x_c: float (..., channels), the branches one after the other.
        numbers: of the branches, in that order.
    """
    if not training or p == 0.0:
        return x_c
    seeds = [_DRAWING.get().next_seed(number) for number in numbers]
    like = x_c.new_ones((*x_c.shape[:-1], x_c.shape[-1] // len(seeds)))
    generator = torch.Generator(x_c.device)
    masks = []
    for seed in seeds:
        generator.manual_seed(seed)
        masks.append(like.bernoulli(1 - p, generator=generator).div_(1 - p))
    return x_c * (masks[0] if len(masks) == 1 else torch.cat(masks, -1))


class _Drawing:
    """The random numbers of the branches of one total."""

    def __init__(self, place: bytes) -> None:
        self._place = place
        self._drawn: Counter[int] = Counter()

    def next_seed(self, number: int) -> int:
        """A seed that is used once in a step."""
        self._drawn[number] += 1
        key = self._place + pack("<2q", number, self._drawn[number])
        return int.from_bytes(blake2b(key, digest_size=8).digest(), "little")


_DRAWING: ContextVar[_Drawing] = ContextVar("drawing")


@contextmanager
def _drawing() -> Iterator[None]:
    """Give the branches inside their random numbers, and move on in those of the block, by one whatever they draw."""
    with _disable_current_modes():
        place = torch.default_generator.get_state().numpy().tobytes()
    token = _DRAWING.set(_Drawing(place))
    try:
        yield
    finally:
        _DRAWING.reset(token)
    with _disable_current_modes():
        if torch.default_generator.get_state().numpy().tobytes() != place:
            raise ValueError("a branch draws random numbers by itself; use branch_dropout in place of dropout")
        torch.rand(1)


def _of_part(value: Any, index: int) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_of_part(each, index) for each in value)
    return value.tensors[index] if isinstance(value, Parted) else value
