"""Seconds of each block of a network on this machine, measured as the executor runs it.

Blocks run one after the other, forward and then backward, so that caches are as in a step: every rank the same ones at
the same time, and then the first rank while the others wait. A round counts if every rank had its core: CPU time at
least 0.97 of the wall clock. Equal blocks are measured once, where those between them can be left out.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import psutil
import torch
from torch import nn

from training.engine.executor import Loss
from training.engine.partition import BlockTimes, block_costs
from training.engine.saved import Kept
from training.foundation.errors import BusyMachineError
from training.oracle.calibration.block_inputs import BlockInput, Setting, block_inputs, fingerprints
from training.oracle.calibration.chain import Chain, Seconds
from training.oracle.calibration.rounds import WARM_UPS, now_s

LEAST_SHARE = 0.97
"""Least CPU time per wall-clock time of a round that counts."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 15
BUDGET_S = 40.0
"""Time for all blocks together, if their fewest rounds allow it."""
POLICIES: tuple[Kept, ...] = ("keep", "norm", "offload")
IN_PARTS: tuple[Kept, ...] = ("keep", "offload")
ROOM = 0.25
"""Part of the free memory that blocks may fill while they are measured."""
Together = Callable[[Any], list[Any]]
"""An object of this rank -> those of all ranks, by rank; every rank calls it and waits for the others."""


def measure_blocks(
    blocks: Sequence[nn.Module],
    loss: Loss,
    targets: object,
    setting: Setting,
    together: Together,
    *,
    rank: int = 0,
) -> list[BlockTimes]:
    """Measure each block, or a part of it; every rank calls it.

    Args:
        blocks: in training mode; their gradients and running statistics stay as they are.
        targets: of one micro-batch, for the loss behind the last block.
        setting: with a division, each rank measures one of the parts, without messages; seconds are the slowest part's.

    Raises:
        BusyMachineError: most rounds did not count.
        ValueError: a block cannot be divided so.
    """
    division = setting.division
    setting = replace(setting, part=rank % division.parts)
    inputs, names = block_inputs(blocks, setting), fingerprints(blocks, setting)
    costs = block_costs(
        blocks, setting.input_shape, precision=setting.precision, device=setting.device, division=division
    )
    kept_bytes = [cost.saved_bytes for cost in costs]
    rounds = _Rounds(together, rank, division.parts)
    room_bytes = min(together(_room_bytes(setting.device))) / rounds.num_ranks
    stretches = list(_stretches(_chosen(names, inputs), kept_bytes, room_bytes))
    policies = POLICIES if division.parts == 1 else IN_PARTS
    budget_s = BUDGET_S / (len(stretches) * (len(policies) + 1))
    found: dict[str, list[BlockTimes]] = defaultdict(list)
    for stretch in stretches:
        finish = (lambda output: loss(output, targets)) if stretch[-1] == len(blocks) - 1 else None
        left_out_bytes = sum(kept_bytes) - sum(kept_bytes[index] for index in stretch)
        taken: dict[Kept, _Taken] = {}
        for policy in policies:
            chain = Chain(
                [blocks[index] for index in stretch],
                inputs[stretch[0]],
                finish,
                policy,
                setting,
                lambda: now_s(setting.device),
                left_out_bytes=left_out_bytes,
            )
            taken[policy] = rounds.run(chain, budget_s, also_alone=policy == "keep")
        for position, index in enumerate(stretch):
            found[names[index]].append(_block_times({policy: own.of(position) for policy, own in taken.items()}))
    rounds.check()
    medians = {name: _median(times) for name, times in found.items()}
    return [medians[name] for name in names]


def _chosen(names: Sequence[str], inputs: Sequence[BlockInput]) -> list[int]:
    """Blocks to measure, in order: without those whose equal is among them and that pass on what they take."""
    chosen, seen = [], set[str]()
    for index, name in enumerate(names):
        if name not in seen or inputs[index + 1] != inputs[index]:
            chosen.append(index)
        seen.add(name)
    return chosen


def _stretches(chosen: Sequence[int], kept_bytes: Sequence[int], room_bytes: float) -> Iterator[list[int]]:
    """Blocks that are measured together: as many as there is room for."""
    stretch: list[int] = []
    for index in chosen:
        if stretch and sum(kept_bytes[other] for other in (*stretch, index)) > room_bytes:
            yield stretch
            stretch = []
        stretch.append(index)
    yield stretch


def _room_bytes(device: torch.device) -> float:
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    return ROOM * free


class _BlockSeconds(NamedTuple):
    """Medians of one block."""

    forward_s: float
    backward_s: float
    alone: float
    """Time without other ranks, as part of that with them."""


@dataclass
class _Taken:
    """Rounds of a chain."""

    num_ranks: int
    num_parts: int
    together: list[Seconds] = field(default_factory=list)
    """Means over the ranks; in parts, of the slowest part's."""
    alone: list[Seconds] = field(default_factory=list)
    """Of the first rank, right after each of these; empty if not asked for."""

    def add(self, by_rank: Sequence[_Timed], alone: Sequence[_Timed]) -> None:
        """Another round."""
        blocks = zip(*(one.seconds for one in by_rank), strict=True)
        self.together.append([self._mean(own) for own in blocks])
        self.alone.extend(one.seconds for one in alone)

    def _mean(self, by_rank: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """Of one block. All parts wait for the slowest, in forward and in backward."""
        parts = [by_rank[part :: self.num_parts] for part in range(min(self.num_parts, len(by_rank)))]
        forward_s, backward_s = (
            max(statistics.fmean(seconds[column] for seconds in own) for own in parts) for column in (0, 1)
        )
        return forward_s, backward_s

    def of(self, position: int) -> _BlockSeconds:
        """One block of the chain."""
        own = [seconds[position] for seconds in self.together]
        forward_s, backward_s = (statistics.median(column) for column in zip(*own, strict=True))
        pairs = zip(self.alone, own, strict=False)
        ratios = [sum(alone[position]) / sum(beside) for alone, beside in pairs if sum(beside)]
        # Ranks that get in each other's way are not slower than one after the other.
        alone = min(max(statistics.median(ratios), 1 / self.num_ranks), 1.0) if ratios else 1.0
        return _BlockSeconds(forward_s, backward_s, alone)


def _block_times(by_policy: dict[Kept, _BlockSeconds]) -> BlockTimes:
    forward_s, backward_s, alone = by_policy["keep"]

    def more_s(policy: Kept) -> float:
        if (own := by_policy.get(policy)) is None:  # not offered in parts
            return 0.0
        return max(own.forward_s + own.backward_s - forward_s - backward_s, 0.0)

    return BlockTimes(forward_s, backward_s, norm_s=more_s("norm"), offload_s=more_s("offload"), alone=alone)


def _median(times: Sequence[BlockTimes]) -> BlockTimes:
    """Of equal blocks."""
    columns = {name: statistics.median(getattr(each, name) for each in times) for name in vars(times[0])}
    return BlockTimes(**columns)


class _Rounds:
    """Rounds on all ranks at once, and how many of them counted."""

    def __init__(self, together: Together, rank: int, num_parts: int):
        self._together, self._rank, self._num_parts = together, rank, num_parts
        self.num_ranks = len(together(None))
        self._good = self._all = 0

    def run(self, chain: Chain, budget_s: float, *, also_alone: bool) -> _Taken:
        """Seconds of each good round; of all rounds if none is good."""
        end_s = time.perf_counter() + budget_s * (2 if also_alone else 1)
        good, every = (_Taken(self.num_ranks, self._num_parts) for _ in range(2))
        for index in self._indices(end_s):
            self._together(None)
            by_rank = self._together(_timed(chain))
            alone = self._alone(chain) if also_alone and self.num_ranks > 1 else []
            if index < 0:
                continue
            every.add(by_rank, alone)
            if chain.device.type != "cpu" or min(one.share for one in (*by_rank, *alone)) >= LEAST_SHARE:
                good.add(by_rank, alone)
        self._good, self._all = self._good + len(good.together), self._all + len(every.together)
        return good if good.together else every

    def _alone(self, chain: Chain) -> list[_Timed]:
        """The first rank's, while the others wait."""
        self._together(None)
        return [self._together(_timed(chain) if self._rank == 0 else None)[0]]

    def _indices(self, end_s: float) -> Iterator[int]:
        """Warm-ups below 0, then rounds, until the first rank's time is up; at least a warm-up and a few rounds."""
        for index in range(-WARM_UPS, MOST_ROUNDS):
            is_late = self._together(time.perf_counter() > end_s)[0]
            if is_late and index >= LEAST_ROUNDS:
                return
            if is_late and -WARM_UPS < index < 0:
                continue
            yield index

    def check(self) -> None:
        """Raise BusyMachineError if most rounds did not count."""
        if 2 * self._good < self._all:
            raise BusyMachineError(
                f"only {self._good} of {self._all} rounds had the cores to themselves (CPU time of at least "
                f"{LEAST_SHARE:.0%} of the wall clock); nothing was written. End other programs, or give the ranks "
                "fewer threads, and calibrate again."
            )


class _Timed(NamedTuple):
    """One run of a chain on one rank."""

    seconds: Seconds
    share: float
    """CPU time per wall-clock time."""


def _timed(chain: Chain) -> _Timed:
    wall_s, cpu_s = time.perf_counter(), time.thread_time()
    seconds = chain.run()
    return _Timed(seconds, (time.thread_time() - cpu_s) / (time.perf_counter() - wall_s))
