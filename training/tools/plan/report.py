"""What a plan is made of and costs, beside other strategies: the report of `gemslide plan`, for recipes of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from training.engine.partition import stage_ranges
from training.engine.plan import Plan
from training.engine.recompute import Recompute
from training.engine.schedule import Schedule
from training.engine.strategies import STRATEGIES, build_schedule
from training.foundation.words.counts import counted
from training.oracle.predict import predict_step
from training.oracle.simulation.costs import Costs, StageCost, plan_stage_costs
from training.oracle.simulation.draw import draw_svg, draw_text
from training.oracle.simulation.simulate import simulate
from training.parallel.division import Division
from training.recipe.dividing import least_memory
from training.recipe.planned import PlannedRun, describe_recompute

MOST_DRAWN = 8
"""Most micro-batches of a group in the drawing for the terminal."""


def report_of(planned: PlannedRun) -> dict[str, Any]:
    """What is known of the plan itself."""
    recipe, plan = planned.recipe, planned.plan
    drawn = min(plan.num_microbatches, MOST_DRAWN)
    return {
        "num_blocks": len(planned.blocks),
        "strategy": plan.strategy,
        "num_stages": plan.num_stages,
        "parts": list(plan.parts),
        "split": [plan.split_of(stage) for stage in range(plan.num_stages)] if plan.is_in_parts else [],
        "num_microbatches": plan.num_microbatches,
        "data_parallel": plan.data_parallel,
        "microbatch_size": recipe.parallel.microbatch_size,
        "batch_size": recipe.parallel.batch_size,
        "world_size": plan.world_size,
        "recompute": describe_recompute(plan.recompute),
        "cuts": list(plan.cuts),
        "precision": plan.precision,
        "balance": None if recipe.parallel.cuts else recipe.parallel.balance,
        "machine": None if planned.machine is None else planned.machine.named,
        "step_s": _step_s(planned),
        "ranks": _ranks(planned),
        "comparison": compare(planned),
        "drawing": draw_text(planned.schedule(drawn), ranks=range(plan.group_size)),
        "drawn_microbatches": drawn,
    }


def _step_s(planned: PlannedRun) -> float | None:
    """Seconds of a step; None where they are not known."""
    if planned.machine is None:
        return None
    return predict_step(planned.plan, planned.divided, planned.machine).end_s


def svg_of(planned: PlannedRun) -> str:
    """Drawing of the whole step of the first group."""
    plan = planned.plan
    schedule = planned.schedule(plan.num_microbatches)
    groups = f", first of {plan.data_parallel} groups" if plan.data_parallel > 1 else ""
    stages = counted(plan.num_stages, "stage")
    batches = counted(plan.num_microbatches, "micro-batch", "micro-batches")
    title = f"{plan.strategy}: S = {stages}, N = {batches}{groups}"
    timeline = simulate(schedule, Costs(planned.stage_costs))
    return draw_svg(timeline, schedule, title=title, ranks=range(plan.group_size))


def _ranks(planned: PlannedRun) -> list[dict[str, Any]]:
    """Stages and memory of each rank of the first group."""
    ranges = stage_ranges(planned.plan.cuts, len(planned.blocks))
    memory = planned.predicted_ranks()
    return [
        {
            "rank": rank,
            "stages": [
                {
                    "stage": stage,
                    "is_mirrored": index == 1,
                    "blocks": [ranges[stage].start, ranges[stage].stop - 1],
                    "forward_flops": sum(planned.costs[i].flops for i in ranges[stage]),
                }
                for index, (_, stage) in enumerate(planned.plan.placement.held_by(rank))
            ],
            "weight_bytes": memory[rank].weight_bytes,
            "peak_live_bytes": memory[rank].peak_bytes,
        }
        for rank in range(planned.plan.group_size)
    ]


def compare(planned: PlannedRun) -> list[dict[str, Any]]:
    """One group's share of a step under every strategy that allows these numbers of stages and micro-batches.

    `single` does it on one rank, `ddp` with a whole network on each rank of the group; the last row recomputes if
    the recipe does not. Stages are in parts in the recipe's own row, and where sub-graphs were priced, each beside
    `ddp` on as many ranks. `time` is relative to `mp-basic`, which takes as long as `single`.
    """
    plan, stages = planned.plan, planned.undivided_stage_costs
    alone = [_on_one_rank(stages)]
    rows = [_row(planned, "single", alone, plan.recompute)]
    if plan.is_in_parts:
        rows.append(_row_in_parts(planned, plan))
    if plan.num_stages == 1 and plan.strategy != "single":
        rows.append(_row(planned, plan.strategy, stages, plan.recompute))
    if plan.num_stages > 1:
        fitting = [row.name for row in STRATEGIES.values() if row.refusal(plan.num_stages) is None]
        rows += [_row(planned, strategy, stages, plan.recompute) for strategy in fitting]
    if plan.group_size > 1:
        rows.append(_row(planned, "ddp", alone, plan.recompute))
    for division in _sub_graphs_of_others(planned):
        in_parts = replace(plan, parts=(division.parts,), split=(division.split,))
        rows += [_row_in_parts(planned, in_parts), _row(planned, "ddp", alone, plan.recompute, division.parts)]
    if not plan.recompute.every:
        recompute, cost = least_memory(planned.costs)
        rows.append(_row(planned, "ddp" if plan.group_size > 1 else "single", [cost], recompute))
    return rows


def _sub_graphs_of_others(planned: PlannedRun) -> list[Division]:
    """Numbers of sub-graphs that were priced, but are not the plan's."""
    divisions = (division for division in planned.divided if division.split == "branches" and division.parts > 1)
    return [division for division in divisions if division not in planned.plan.divisions]


def _row(
    planned: PlannedRun, strategy: str, costs: Sequence[StageCost], recompute: Recompute, num_ranks: int | None = None
) -> dict[str, Any]:
    """Args: num_ranks: of `ddp`; None for those of the plan."""
    of_ddp = num_ranks or planned.plan.group_size
    ranks = {"single": 1, "ddp": of_ddp}.get(strategy, planned.plan.num_stages)
    schedule = build_schedule(
        "single" if strategy == "ddp" else strategy,
        num_stages=len(costs),
        num_microbatches=planned.plan.num_microbatches,
        data_parallel=ranks // len(costs),
    )
    weights = _weight_bytes(planned, schedule)
    return {"strategy": strategy, "parts": [], "weight_bytes": weights, **_priced(planned, schedule, costs, recompute)}


def _row_in_parts(planned: PlannedRun, plan: Plan) -> dict[str, Any]:
    """A plan whose stages are in parts, of one group."""
    plan = replace(plan, data_parallel=1)
    schedule, costs = plan.schedule(plan.num_microbatches), plan_stage_costs(plan, planned.divided)
    priced = _priced(planned, schedule, costs, plan.recompute)
    weights = max(cost.weight_bytes for cost in costs)
    return {"strategy": plan.strategy, "parts": list(plan.parts), "weight_bytes": weights, **priced}


def _priced(
    planned: PlannedRun, schedule: Schedule, costs: Sequence[StageCost], recompute: Recompute
) -> dict[str, Any]:
    timeline = simulate(schedule, _costs_of_group(planned, costs, schedule))
    whole_s = sum(cost.forward_s + cost.backward_s for cost in planned.undivided_stage_costs)
    alone_s = planned.plan.num_microbatches * whole_s
    return {
        "recompute": describe_recompute(recompute),
        "num_ranks": schedule.placement.num_ranks,
        "time": timeline.end_s / alone_s if alone_s else 1.0,
        "seconds": None if planned.machine is None else timeline.end_s,
        "bubble": timeline.bubble,
        "kept_bytes": max(timeline.peak_bytes),
    }


def _costs_of_group(planned: PlannedRun, stages: Sequence[StageCost], schedule: Schedule) -> Costs:
    """Costs of one group, with messages, sums and updates if they have been measured."""
    machine = planned.machine
    if machine is None:
        return Costs(stages)
    return machine.costs(stages, schedule.placement)


def _on_one_rank(stages: Sequence[StageCost]) -> StageCost:
    """The cost of the stages, one after the other, as a single stage."""
    return StageCost(
        sum(cost.forward_s for cost in stages),
        sum(cost.backward_s for cost in stages),
        sum(cost.kept_bytes for cost in stages),
        max(cost.recomputed_bytes for cost in stages),
        weight_bytes=sum(cost.weight_bytes for cost in stages),
        at_once_s=stages[-1].at_once_s,
    )


def _weight_bytes(planned: PlannedRun, schedule: Schedule) -> int:
    """Weights and buffers of the rank that holds most of them."""
    cuts = planned.plan.cuts if schedule.num_stages > 1 else ()
    per_block = [
        sum(tensor.numel() * tensor.element_size() for tensor in (*block.parameters(), *block.buffers()))
        for block in planned.blocks
    ]
    stages = [sum(per_block[i] for i in blocks) for blocks in stage_ranges(cuts, len(per_block))]
    placement = schedule.placement
    held = ({stage for _, stage in placement.held_by(rank)} for rank in range(placement.num_ranks))
    return max(sum(stages[stage] for stage in own) for own in held)
