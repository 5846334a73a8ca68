"""Costs of the stages that a search looks at, each computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from training.engine.partition import BlockCost, partition, stage_ranges
from training.engine.recompute import Recompute
from training.engine.saved import Kept
from training.oracle.search.candidates import Cuts
from training.oracle.simulation.costs import StageCost, stage_cost
from training.parallel.division import WHOLE, Division


class StageTable:
    """Costs of runs of blocks, computed once."""

    def __init__(self, blocks: Sequence[BlockCost], divided: Mapping[Division, Sequence[BlockCost]] | None = None):
        self._blocks = blocks
        self._divided = {WHOLE: blocks, **(divided or {})}
        self._known: dict[object, StageCost] = {}
        self._balanced: dict[int, tuple[Cuts, ...]] = {}

    def balanced(self, num_stages: int) -> tuple[Cuts, ...]:
        """Cuts that balance time, and those that balance bytes."""
        if num_stages not in self._balanced:
            costs = [seconds_of(block) for block in self._blocks], [block.saved_bytes for block in self._blocks]
            self._balanced[num_stages] = tuple(dict.fromkeys(partition(own, num_stages) for own in costs))
        return self._balanced[num_stages]

    def costs(self, cuts: Cuts, recompute: Recompute, divisions: Sequence[Division]) -> list[StageCost]:
        """As `plan_stage_costs`.

        Args:
            divisions: of each stage.
        """
        ranges = stage_ranges(cuts, len(self._blocks))
        lengths = [len(blocks) for blocks in ranges] if recompute.prefix is None else recompute.prefix
        return [
            self.cost(blocks, recompute.every, length, recompute.rest, division)
            for blocks, length, division in zip(ranges, lengths, divisions, strict=True)
        ]

    def cost(self, blocks: range, every: int, length: int, rest: Kept, division: Division) -> StageCost:
        """Cost of a stage of these blocks, of which the first `length` are recomputed, `every` at a time."""
        key = (blocks, every, length, rest, division)
        if key not in self._known:
            own = [self._divided[division][index] for index in blocks]
            segments = Recompute(every, (length,) if every else None, rest).segments(0, len(own))
            self._known[key] = stage_cost(
                own,
                segments,
                is_first=blocks.start == 0,
                is_last=blocks.stop == len(self._blocks),
                division=division,
                taken=self._blocks[blocks.start],
            )
        return self._known[key]


def seconds_of(block: BlockCost) -> float:
    """Time of a block's forward and backward."""
    times = block.times
    return float(block.flops) if times is None else times.forward_s + times.backward_s


def least_seconds_of(block: BlockCost) -> float:
    """The same while no other rank computes."""
    return seconds_of(block) * (1.0 if block.times is None else block.times.alone)
