"""Plans of one strategy on a number of stages and groups: cuts and recomputation, each played by the simulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heappush, heappushpop
from itertools import combinations
from math import comb

from training.engine.recompute import Recompute
from training.engine.saved import Kept
from training.engine.strategies import Strategy, build_schedule, place
from training.oracle.search.candidates import Candidate, Cuts, Request
from training.oracle.search.fit import Fit
from training.oracle.search.memory import RankMemory
from training.oracle.search.stage_table import StageTable
from training.oracle.simulation.costs import Costs, StageCost
from training.oracle.simulation.simulate import Timeline, simulate
from training.parallel.division import WHOLE, Division

EXHAUSTIVE = 40
"""Most ways to cut a network that are all tried."""
FEW_BLOCKS = 12
SPARSE_EVERY = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Blocks per recomputed segment that are tried in networks of more blocks."""
WANTED = 10
"""Plans that are surely the fastest; slower ones may be left out."""
SLOWER = "slower than the plans above"


class Fastest:
    """Times of the fastest plans so far."""

    def __init__(self) -> None:
        self._negated: list[float] = []

    def add(self, step_s: float) -> None:
        if len(self._negated) < WANTED:
            heappush(self._negated, -step_s)
        else:
            heappushpop(self._negated, -step_s)

    @property
    def limit_s(self) -> float:
        """A plan that takes longer is not wanted."""
        return -self._negated[0] if len(self._negated) == WANTED else float("inf")


class Shape:
    """One strategy on S stages and D groups."""

    def __init__(
        self,
        request: Request,
        strategy: Strategy,
        num_stages: int,
        data_parallel: int,
        stages: StageTable,
        fastest: Fastest,
        divisions: tuple[Division, ...] = (),
    ) -> None:
        """Prepare.

        Args:
            divisions: of each stage into parts; empty: one each.
        """
        self._request, self._name, self._stages, self._fastest = request, strategy.name, stages, fastest
        self._num_stages, self._data_parallel = num_stages, data_parallel
        self._num_microbatches = request.num_microbatches // data_parallel
        self._divided_as = divisions
        self._divisions = divisions or (WHOLE,) * num_stages
        parts = [division.parts for division in divisions]
        self._schedule = build_schedule(
            strategy.name, num_stages=num_stages, num_microbatches=self._num_microbatches, parts=parts
        )
        self._placement = place(strategy.name, num_stages=num_stages, data_parallel=data_parallel, parts=parts)
        placed = self._schedule.placement
        self._memory = RankMemory(self._schedule, self._placement, request.optimizer_slots)
        self._work = [
            [(stage, len(self._schedule.microbatches_of(replica))) for replica, stage in placed.held_by(rank)]
            for rank in range(placed.num_ranks)
        ]
        """(stage, micro-batches) of each rank."""
        self._is_small = comb(len(request.blocks) - 1, num_stages - 1) <= EXHAUSTIVE
        self._fit = Fit(self._memory, placed, stages, self._divisions, request.cap_bytes, every_way=self._is_small)

    def plans(self) -> Iterator[Candidate]:
        """The fastest plan of each policy."""
        for every, rest in self._policies():
            best: Candidate | None = None
            for cuts in self._cuts():
                best = self._faster(best, cuts, every, rest)
            if best is not None:
                self._fastest.add(best.step_s)
                yield best

    def why_none(self) -> str:
        """Reason why there is no plan."""
        cap_bytes, least_bytes = self._request.cap_bytes, self._fit.least_bytes
        if least_bytes > cap_bytes:
            return f"needs {least_bytes / 1e9:.3g} GB on a rank, of {cap_bytes / 1e9:.3g} GB"
        return SLOWER

    def _policies(self) -> Iterator[tuple[int, Kept]]:
        """(blocks per recomputed segment or 0, treatment of the other blocks)"""
        num_blocks = len(self._request.blocks)
        every = range(1, num_blocks + 1) if num_blocks <= FEW_BLOCKS else SPARSE_EVERY
        may = self._request.may_recompute
        for rest in ("keep", "norm", "offload") if may and not self._divided_as else ("keep", "offload"):
            yield 0, rest
            if may and rest != "offload":
                yield from ((k, rest) for k in every if k <= num_blocks)

    def _cuts(self) -> Iterator[Cuts]:
        blocks = self._request.blocks
        if self._is_small:
            yield from combinations(range(1, len(blocks)), self._num_stages - 1)
            return
        yield from self._stages.balanced(self._num_stages)

    def moved(self, best: Candidate) -> Candidate:
        """Move cuts by one block for as long as that helps; not where all cuts were tried."""
        every, rest = best.recompute.every, best.recompute.rest
        while not self._is_small:
            before, bounds = best, (0, *best.cuts, len(self._request.blocks))
            for index, cut in enumerate(before.cuts):
                for moved in (cut - 1, cut + 1):
                    if bounds[index] < moved < bounds[index + 2]:
                        cuts = (*before.cuts[:index], moved, *before.cuts[index + 1 :])
                        best = self._faster(best, cuts, every, rest) or best
            if best is before:
                break
        return best

    def _faster(self, best: Candidate | None, cuts: Cuts, every: int, rest: Kept) -> Candidate | None:
        """The faster of a plan and those with these cuts that fit."""
        if self._busiest_s(Costs(self._costs(cuts, Recompute(rest=rest)))) > self._limit_s(best):
            return best
        for recompute in self._fit.policies(cuts, len(self._request.blocks), every, rest):
            stages = self._costs(cuts, recompute)
            costs = self._request.price(stages, self._schedule, self._placement)
            if self._busiest_s(costs) > self._limit_s(best):
                continue
            timeline = simulate(self._schedule, costs)
            if best is None or timeline.end_s < best.step_s:
                best = self._candidate(cuts, recompute, stages, timeline)
        return best

    def recomputed(self) -> Candidate | None:
        """The plan that keeps least of a whole network on each rank, however slow: many users train like that.

        None if there are stages, if it does not fit, or if nothing can be recomputed.
        """
        if self._num_stages > 1 or self._divided_as or not self._request.may_recompute:
            return None
        policies = [Recompute(every) for every in range(1, len(self._request.blocks) + 1)]
        recompute = min(policies, key=lambda each: self._memory.most_bytes(self._costs((), each)))
        stages = self._costs((), recompute)
        if self._memory.most_bytes(stages) > self._request.cap_bytes:
            return None
        timeline = simulate(self._schedule, self._request.price(stages, self._schedule, self._placement))
        return self._candidate((), recompute, stages, timeline)

    def _candidate(
        self, cuts: Cuts, recompute: Recompute, stages: Sequence[StageCost], timeline: Timeline
    ) -> Candidate:
        return Candidate(
            self._name,
            self._num_stages,
            self._data_parallel,
            self._num_microbatches,
            recompute,
            cuts,
            timeline.end_s,
            self._memory.most_bytes(stages),
            timeline.bubble,
            self._divided_as,
        )

    def _costs(self, cuts: Cuts, recompute: Recompute) -> list[StageCost]:
        return self._stages.costs(cuts, recompute, self._divisions)

    def with_communication(self, plan: Candidate) -> Candidate:
        """Add the share of the step that messages cost."""
        price = self._request.price_without_messages
        if price is None:
            return plan
        stages = self._costs(plan.cuts, plan.recompute)
        free_s = simulate(self._schedule, price(stages, self._schedule, self._placement)).end_s
        return replace(plan, communication=1.0 - free_s / plan.step_s if plan.step_s else 0.0)

    def _limit_s(self, best: Candidate | None) -> float:
        """A plan that takes longer is not wanted."""
        return self._fastest.limit_s if best is None else min(self._fastest.limit_s, best.step_s)

    def _busiest_s(self, costs: Costs) -> float:
        """Time of the busiest rank, at least: no step is shorter."""
        return max(
            sum(
                number * cost.alone * (cost.forward_s + cost.backward_s - cost.at_once_s) + cost.reduce_s + cost.step_s
                for cost, number in ((costs.stages[stage], number) for stage, number in work)
            )
            for work in self._work
        )
