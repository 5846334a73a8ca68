"""Search of the plan that takes the least time within the memory of a rank.

The number of ranks, the batch and the micro-batch size are given. What is chosen: strategy, stages S and groups D
(S · D ranks), recomputation, and cuts. A candidate is one group played by the simulator, since the groups are alike and
meet only at the end; it is not played if it does not fit, or if a lower bound of its time exceeds the plans found so
far. Where there are few ways to cut, all are tried; otherwise those that balance time or bytes, and the best of these
are moved by one block at a time for as long as that helps.
"""

from __future__ import annotations

from collections.abc import Iterator

from training.engine.strategies import STRATEGIES, Strategy
from training.oracle.search.candidates import Candidate, Excluded, Found, Request
from training.oracle.search.shape import SLOWER, WANTED, Fastest, Shape
from training.oracle.search.stage_table import StageTable, least_seconds_of
from training.parallel.division import WHOLE, Division

EQUAL = 0.01
"""Difference in time, relative to the fastest plan, below which predictions do not tell plans apart."""


def search(request: Request) -> Found:
    """Find the fastest plans that fit."""
    fastest, stages = Fastest(), StageTable(request.blocks, request.divided)
    plans: list[tuple[Candidate, Shape]] = []
    excluded: list[Excluded] = []
    for strategy, num_stages, data_parallel, divisions in _shapes(request):
        reason = _refusal(request, strategy, num_stages, data_parallel)
        if reason is None and least_s(request, strategy, num_stages, data_parallel, divisions) > fastest.limit_s:
            reason = SLOWER
        if reason is None:
            shape = Shape(request, strategy, num_stages, data_parallel, stages, fastest, divisions)
            own = list(shape.plans())
            always = shape.recomputed()
            own += [always] if always and always.recompute not in {plan.recompute for plan in own} else []
            plans += ((plan, shape) for plan in own)
            reason = None if own else shape.why_none()
        if reason is not None:
            excluded.append(Excluded(strategy.name, num_stages, data_parallel, reason, divisions))
    plans.sort(key=lambda pair: pair[0].step_s)
    plans[: 2 * WANTED] = [(shape.moved(plan), shape) for plan, shape in plans[: 2 * WANTED]]
    plans = _in_order(plans)
    plans[:WANTED] = [(shape.with_communication(plan), shape) for plan, shape in plans[:WANTED]]
    return Found(tuple(plan for plan, _ in plans), tuple(excluded))


def _in_order(plans: list[tuple[Candidate, Shape]]) -> list[tuple[Candidate, Shape]]:
    """The fastest first; of those that are as good as equally fast, the one that needs least memory."""
    limit_s = (1.0 + EQUAL) * min((plan.step_s for plan, _ in plans), default=0.0)
    return sorted(plans, key=lambda pair: (max(pair[0].step_s, limit_s), pair[0].rank_bytes, pair[0].step_s))


def _shapes(request: Request) -> Iterator[tuple[Strategy, int, int, tuple[Division, ...]]]:
    """Strategies on numbers of stages, groups and parts; first on many groups, which are mostly the fastest."""
    for num_stages in range(1, min(request.num_ranks, len(request.blocks)) + 1):
        for divisions in _divisions(request, num_stages):
            group_size = sum(division.parts for division in divisions) or num_stages
            if request.num_ranks % group_size:
                continue
            for name in request.strategies:
                is_uneven = STRATEGIES[name].is_mirrored and divisions != divisions[::-1]
                if (num_stages == 1) == (name == "single") and not is_uneven:
                    yield STRATEGIES[name], num_stages, request.num_ranks // group_size, divisions


def _divisions(request: Request, num_stages: int) -> Iterator[tuple[Division, ...]]:
    """Ways to divide the stages: none of them, all alike, or only the first, where images are large."""
    yield ()
    for division in request.divided:
        yield (division,) * num_stages
        if num_stages > 1:
            yield division, *(WHOLE,) * (num_stages - 1)


def _refusal(request: Request, strategy: Strategy, num_stages: int, data_parallel: int) -> str | None:
    if (refused := strategy.refusal(num_stages)) is not None:
        return refused
    if request.num_microbatches % data_parallel:
        return f"{request.num_microbatches} micro-batches do not divide among {data_parallel} groups"
    return None


def least_s(
    request: Request,
    strategy: Strategy,
    num_stages: int,
    data_parallel: int,
    divisions: tuple[Division, ...] = (),
) -> float:
    """A time that no step is shorter than, whatever the cuts and policies; messages, sums and updates left out."""
    used = [request.blocks if d == WHOLE else request.divided[d] for d in dict.fromkeys(divisions or (WHOLE,))]
    total_s = sum(min(map(least_seconds_of, alike)) for alike in zip(*used, strict=True))
    number = request.num_microbatches // data_parallel
    # A rank that does its part of all micro-batches; its part may be the smallest only if another's is larger.
    bounds = [number * total_s / num_stages]
    per_replica = -(-number // 2) if strategy.is_mirrored else number
    # The first stage has at most so many micro-batches on their way, and each takes all stages down and up.
    live = min(strategy.live_bound(0, num_stages, per_replica), per_replica)
    bounds.append(per_replica * total_s / live)
    if not strategy.is_mirrored:
        # Stage s waits for those before it, twice, and does its own part: c_0 + ... + c_(s-1) + N c_s for every s.
        bounds.append(total_s / (1 - (1 - 1 / number) ** num_stages))
    return max(bounds)
