"""Placement of each stage of each replica on ranks, known only here.

    group       the ranks that together hold the network; there are data_parallel of them
    replica     one full copy of the network over the ranks of a group. Where a group holds two, the odd one is
                mirrored: the group's first rank holds its last stage
    part        a share of a stage's work on every micro-batch (training/parallel); most stages have one

A placement is a table from (replica, stage) to the ranks of its parts: rank = (group · S + place) · P + part, where all
stages have P parts. Virtual parts are on one rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate

Held = tuple[int, int]
"""(replica, stage)"""


class Placement:
    """A table from (replica, stage) to the ranks of its parts, and back."""

    def __init__(self, ranks_of: Mapping[Held, tuple[int, ...]]) -> None:
        self.ranks_of = dict(ranks_of)
        self.num_ranks = 1 + max(rank for ranks in self.ranks_of.values() for rank in ranks)
        self.num_replicas = 1 + max(replica for replica, _ in self.ranks_of)
        self.num_stages = 1 + max(stage for _, stage in self.ranks_of)

    def rank_of(self, replica: int, stage: int, part: int = 0) -> int:
        """The rank of one part of a stage."""
        return self.ranks_of[replica, stage][part]

    def num_parts(self, stage: int) -> int:
        """Number of parts of a stage, on however many ranks."""
        return len(self.ranks_of[0, stage])

    def parts_on(self, rank: int, stage: int) -> tuple[int, ...]:
        """The parts of a stage that a rank holds: the same of every replica; several if they are virtual."""
        replica = self.first_held(rank, stage)
        return tuple(part for part, holder in enumerate(self.ranks_of[replica, stage]) if holder == rank)

    def held_by(self, rank: int) -> tuple[Held, ...]:
        """The stages that a rank holds, one per replica."""
        return self._held[rank]

    def holders(self, stage: int, part: int | None = None) -> tuple[int, ...]:
        """Ranks that hold a stage of any replica, or this part of it; each once, in order."""
        if part is None:
            return self._holders[stage]
        return tuple(sorted({ranks[part] for (_, own), ranks in self.ranks_of.items() if own == stage}))

    def first_held(self, rank: int, stage: int) -> int:
        """The first of the replicas whose `stage` is on a rank: it represents all of them."""
        return min(replica for replica, own in self.held_by(rank) if own == stage)

    @cached_property
    def _held(self) -> tuple[tuple[Held, ...], ...]:
        held: list[list[Held]] = [[] for _ in range(self.num_ranks)]
        for pair, ranks in sorted(self.ranks_of.items()):
            for rank in dict.fromkeys(ranks):
                held[rank].append(pair)
        return tuple(map(tuple, held))

    @cached_property
    def _holders(self) -> tuple[tuple[int, ...], ...]:
        holders: list[set[int]] = [set() for _ in range(self.num_stages)]
        for (_, stage), ranks in self.ranks_of.items():
            holders[stage].update(ranks)
        return tuple(tuple(sorted(ranks)) for ranks in holders)


def over_groups(
    *, num_stages: int, data_parallel: int, mirrored: bool, parts: Sequence[int] = (), virtual: bool = False
) -> Placement:
    """Groups of ranks, one for each part of each stage; each holds a replica in order and, if mirrored, one in reverse.

    Args:
        parts: of each stage; empty: one each.
        virtual: all parts of a stage are on one rank.
    """
    counts = list(parts) or [1] * num_stages
    sizes = [1 if virtual else count for count in counts]
    starts = list(accumulate(sizes, initial=0))
    num_directions = 2 if mirrored else 1
    table = {}
    for replica in range(num_directions * data_parallel):
        group, direction = divmod(replica, num_directions)
        for stage in range(num_stages):
            place = num_stages - 1 - stage if direction else stage
            first = group * starts[-1] + starts[place]
            table[replica, stage] = tuple(first + (0 if virtual else part) for part in range(counts[stage]))
    return Placement(table)


def overlapping(part: int, num_parts: int, others: int) -> range:
    """Parts of another stage, which is cut into `others`, with rows of a part of this one."""
    return range(part * others // num_parts, -(-(part + 1) * others // num_parts))
