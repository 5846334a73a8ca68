"""Placement of each stage of each replica on a rank, known only here.

    group       num_stages ranks that together hold the network; there are data_parallel of them
    replica     one full copy of the network over the ranks of a group. Where a group holds two, the odd one is
                mirrored: the group's first rank holds its last stage

A placement is a table from (replica, stage) to ranks. Several ranks would be a stage in parts, all with the same list
of actions; only `over_groups` requires that a rank hold a single stage of a replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

Held = tuple[int, int]
"""(replica, stage)"""


class Placement:
    """A table from (replica, stage) to the ranks of its parts, and back."""

    def __init__(self, ranks_of: Mapping[Held, tuple[int, ...]]) -> None:
        self.ranks_of = dict(ranks_of)
        self.num_ranks = 1 + max(rank for ranks in self.ranks_of.values() for rank in ranks)
        self.num_replicas = 1 + max(replica for replica, _ in self.ranks_of)
        self.num_stages = 1 + max(stage for _, stage in self.ranks_of)

    def rank_of(self, replica: int, stage: int) -> int:
        """The rank of a stage that is in one part."""
        (rank,) = self.ranks_of[replica, stage]
        return rank

    def held_by(self, rank: int) -> tuple[Held, ...]:
        """The stages that a rank holds, one per replica."""
        return self._held[rank]

    def holders(self, stage: int) -> tuple[int, ...]:
        """Ranks that hold a stage of any replica; each once, in order."""
        return self._holders[stage]

    def first_held(self, rank: int, stage: int) -> int:
        """The first of the replicas whose `stage` is on a rank: it represents all of them."""
        return min(replica for replica, own in self.held_by(rank) if own == stage)

    @cached_property
    def _held(self) -> tuple[tuple[Held, ...], ...]:
        held: list[list[Held]] = [[] for _ in range(self.num_ranks)]
        for pair, ranks in sorted(self.ranks_of.items()):
            for rank in ranks:
                held[rank].append(pair)
        return tuple(map(tuple, held))

    @cached_property
    def _holders(self) -> tuple[tuple[int, ...], ...]:
        holders: list[set[int]] = [set() for _ in range(self.num_stages)]
        for (_, stage), ranks in self.ranks_of.items():
            holders[stage].update(ranks)
        return tuple(tuple(sorted(ranks)) for ranks in holders)


def over_groups(*, num_stages: int, data_parallel: int, mirrored: bool) -> Placement:
    """Groups of `num_stages` ranks; each holds a replica in rank order and, if mirrored, one in reverse."""
    num_directions = 2 if mirrored else 1
    table = {}
    for replica in range(num_directions * data_parallel):
        group, direction = divmod(replica, num_directions)
        for stage in range(num_stages):
            place = num_stages - 1 - stage if direction else stage
            table[replica, stage] = (group * num_stages + place,)
    return Placement(table)
