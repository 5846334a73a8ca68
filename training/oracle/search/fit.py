"""The least recomputation with which a rank has room for its stages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from training.engine.partition import stage_ranges
from training.engine.placement import Placement
from training.engine.recompute import Recompute
from training.engine.saved import Kept
from training.oracle.search.candidates import Cuts
from training.oracle.search.memory import RankMemory
from training.oracle.search.stage_table import StageTable
from training.oracle.simulation.costs import StageCost
from training.parallel.division import Division

FEW_STEPS = 8
"""Lengths of a recomputed prefix that are tried for each stage, unless every way is."""


class Fit:
    """Recomputation that fits one strategy on a number of stages and groups."""

    def __init__(
        self,
        memory: RankMemory,
        placement: Placement,
        stages: StageTable,
        divisions: Sequence[Division],
        cap_bytes: float,
        *,
        every_way: bool,
    ) -> None:
        """Prepare.

        Args:
            placement: of one group.
            divisions: of each stage.
            every_way: find all choices of which none can do with less, and not only the first.
        """
        self._memory, self._stages, self._cap_bytes, self._every_way = memory, stages, cap_bytes, every_way
        self._divisions = divisions
        sharing: dict[tuple[int, ...], list[int]] = {}
        for rank in range(placement.num_ranks):
            sharing.setdefault(tuple(sorted({stage for _, stage in placement.held_by(rank)})), []).append(rank)
        self._sharing = sharing
        """Stages that share a rank, and the ranks that hold them."""
        self.least_bytes = float("inf")
        """Of the fullest rank, of all that was tried."""

    def policies(self, cuts: Cuts, num_blocks: int, every: int, rest: Kept) -> list[Recompute]:
        """Recomputation in segments of `every` blocks, of as little as possible of each stage; none if nothing fits."""
        ranges = stage_ranges(cuts, num_blocks)
        options = [self._least_prefixes(own, ranks, ranges, every, rest) for own, ranks in self._sharing.items()]
        self.least_bytes = min(self.least_bytes, max(needed for _, needed in options))
        lengths = [len(blocks) for blocks in ranges]
        found = []
        for chosen in product(*(fitting for fitting, _ in options)):
            prefix = [0] * len(ranges)
            for own, own_lengths in zip(self._sharing, chosen, strict=True):
                for stage, length in zip(own, own_lengths, strict=True):
                    prefix[stage] = length
            if not every or prefix == lengths:
                found.append(Recompute(every, rest=rest))
            elif any(prefix):  # without, it is the policy of the rest
                found.append(Recompute(every, tuple(prefix), rest))
        return found

    def _least_prefixes(
        self, own: tuple[int, ...], ranks: Sequence[int], ranges: Sequence[range], every: int, rest: Kept
    ) -> tuple[list[tuple[int, ...]], int]:
        """Numbers of blocks to recompute in stages that share ranks, and the least bytes of all that was tried.

        None of the numbers can be lowered by itself without more time. It can where a backward right after its forward
        repeats one segment less, so that all of a stage takes less time than a part.
        """

        def cost(stage: int, length: int) -> StageCost:
            return self._stages.cost(ranges[stage], every, length, rest, self._divisions[stage])

        def is_no_slower(stage: int, fewer: int, more: int) -> bool:
            one, other = (cost(stage, length) for length in (fewer, more))
            return one.backward_s <= other.backward_s and (
                one.backward_s - one.at_once_s <= other.backward_s - other.at_once_s
            )

        stages = [cost(stage, 0) for stage in range(len(ranges))]
        choices = [self._steps(len(ranges[stage]), every) for stage in own]
        fitting: list[tuple[int, ...]] = []
        least: int | None = None
        for lengths in sorted(product(*choices), key=sum):
            if any(
                all(
                    a == b or (a < b and is_no_slower(stage, a, b))
                    for stage, a, b in zip(own, other, lengths, strict=True)
                )
                for other in fitting
            ):
                continue
            for stage, length in zip(own, lengths, strict=True):
                stages[stage] = cost(stage, length)
            needed = max(self._memory.rank_bytes(rank, stages) for rank in ranks)
            least = needed if least is None else min(least, needed)
            if needed <= self._cap_bytes:
                fitting.append(lengths)
                if not self._every_way:
                    break
        assert least is not None
        return fitting, least

    def _steps(self, length: int, every: int) -> list[int]:
        """Lengths of a prefix that end with a whole segment, and the whole stage."""
        if not every:
            return [0]
        whole = range(0, length, every)
        apart = 1 if self._every_way else max(len(whole) // FEW_STEPS, 1)
        return sorted({*whole[::apart], length})
