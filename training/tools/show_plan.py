"""A recipe's plan, without training: `python -m training.tools.show_plan RECIPE --project DIR [--tile-px N] [--svg]`.

Reports in one JSON line on standard output how the network is cut, what each rank does and keeps, and what the other
strategies would cost.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from training.data.tile_dataset import side_in_tile_set
from training.engine.partition import stage_ranges
from training.engine.recompute import Recompute
from training.engine.schedule import Schedule
from training.engine.strategies import STRATEGIES, build_schedule
from training.foundation.errors import BadRecipeError, GemslideError
from training.foundation.recipe_file import find_recipe
from training.foundation.words.counts import counted
from training.machine.devices import device_here, room_bytes
from training.oracle.clusters.cluster import Cluster, load_cluster
from training.oracle.predict import predict_step
from training.oracle.simulation.costs import Costs, StageCost
from training.oracle.simulation.draw import draw_svg, draw_text
from training.oracle.simulation.simulate import simulate
from training.recipe.choice import Choice, choose, on_one_rank
from training.recipe.config import Recipe
from training.recipe.dividing import least_memory, with_parts_to_choose
from training.recipe.planned import (
    Planned,
    describe_recompute,
    on_cluster,
    planned_of,
    with_seconds,
    with_seconds_if_measured,
)
from training.recipe.slides import load_tile_recipe
from training.run.out_of_memory import refuse_what_has_no_room
from training.run.preflight import dataset_error
from training.tools.search_rows import search_rows

MOST_DRAWN = 8
"""Most micro-batches of a group in the drawing for the terminal."""


def show_plan(
    recipe_name: Path,
    project_dir: Path,
    *,
    tile_px: int | None,
    svg: bool,
    num_ranks: int | None = None,
    cap_bytes: float | None = None,
    cluster_name: Path | None = None,
) -> dict[str, Any]:
    """Everything about a plan that can be known without running it.

    Args:
        num_ranks: also search for the fastest plans on so many ranks; None for the recipe's, if a cap is given.
        cap_bytes: also search for the fastest plans with this memory for each rank; None for no limit, if ranks are.
        cluster_name: plan for a cluster, by its file or the name of a shipped one, and not for this machine; its plans
            are searched as well.
        tile_px: side of a tile; None for that of the recipe's tile set in the project.
        svg: draw for a page as well.

    Raises:
        GemslideError: a recipe that cannot be planned; or what the dataset raises.
    """
    path = find_recipe(recipe_name)
    named = load_tile_recipe(path)
    side_px = tile_px or side_in_tile_set(named.data, project_dir)
    if cluster_name is None:
        planned, choice = plan_recipe(named, side_px, project_dir, num_ranks=num_ranks, cap_bytes=cap_bytes)
    else:
        cluster = load_cluster(cluster_name)
        cap_bytes = cap_bytes or cluster.gpu.memory_bytes
        planned, choice = plan_on_cluster(named, side_px, cluster, num_ranks=num_ranks, cap_bytes=cap_bytes)
    report = {"recipe": str(path.absolute()), "named": named.parallel.strategy, **_report(planned, choice)}
    if num_ranks is not None or cap_bytes is not None or choice is not None:
        cap = float("inf") if choice is None else choice.cap_bytes or float("inf")
        ranks = num_ranks or planned.plan.world_size
        report["search"] = search_rows(planned, num_ranks=ranks, cap_bytes=cap_bytes or cap)
    if svg:
        report["svg"] = _svg(planned)
    return report


def _report(planned: Planned, choice: Choice | None) -> dict[str, Any]:
    """What is known of the plan itself."""
    recipe, plan, model = planned.recipe, planned.plan, planned.recipe.model
    drawn = min(plan.num_microbatches, MOST_DRAWN)
    return {
        "network": f"{model.name} {model.variant}, depth {model.depth}, {model.norm} norm",
        "num_blocks": len(planned.blocks),
        "tile_px": planned.side_px,
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
        "choice": None if choice is None else choice.as_json(),
        "machine": None if planned.machine is None else planned.machine.named,
        "step_s": _step_s(planned),
        "ranks": _ranks(planned),
        "comparison": compare(planned),
        "drawing": draw_text(planned.schedule(drawn), ranks=range(plan.group_size)),
        "drawn_microbatches": drawn,
    }


def _step_s(planned: Planned) -> float | None:
    """Seconds of a step; None where they are not known."""
    if planned.machine is None:
        return None
    return predict_step(planned.plan, planned.divided, planned.machine).end_s


def plan_recipe(
    recipe: Recipe, side_px: int, project_dir: Path, *, num_ranks: int | None, cap_bytes: float | None
) -> tuple[Planned, Choice | None]:
    """A recipe's plan, with this machine's seconds if they are known; and what was chosen for `auto`.

    Args:
        num_ranks: for `auto`; other recipes name their ranks.
        cap_bytes: for `auto`: memory of a rank; None for that of this machine.

    Raises:
        GemslideError: a recipe that cannot be planned, or whose ranks have no room here.
    """
    is_auto, ranks = recipe.parallel.is_auto, recipe.parallel.world_size
    ranks = (num_ranks or 1) if is_auto else ranks
    device, backend = device_here(ranks)
    planned = planned_of(on_one_rank(recipe), side_px, device)
    if is_auto or num_ranks is not None or cap_bytes is not None:
        planned = with_parts_to_choose(planned, num_ranks or ranks, cap_bytes or room_bytes(device, ranks))
    if is_auto:
        planned = with_seconds(planned, project_dir, num_ranks=ranks, backend=backend)
        return choose(planned, ranks, cap_bytes or room_bytes(device, ranks))
    if num_ranks is None and cap_bytes is None:
        refuse_what_has_no_room(planned)
    return with_seconds_if_measured(planned, project_dir, num_ranks=ranks, backend=backend), None


def plan_on_cluster(
    recipe: Recipe, side_px: int, cluster: Cluster, *, num_ranks: int | None, cap_bytes: float
) -> tuple[Planned, Choice | None]:
    """As `plan_recipe`, on a cluster: `auto` needs a number of ranks there.

    Raises:
        GemslideError: a recipe that cannot be planned, or of which nothing fits.
    """
    planned = planned_of(on_one_rank(recipe), side_px, torch.device("cpu"))
    planned = with_parts_to_choose(planned, num_ranks or planned.plan.world_size, cap_bytes)
    planned = on_cluster(planned, cluster)
    if not recipe.parallel.is_auto:
        return planned, None
    if num_ranks is None:
        raise BadRecipeError('strategy = "auto" on a cluster needs its number of ranks: add `--world N`.')
    return choose(planned, num_ranks, cap_bytes)


def _svg(planned: Planned) -> str:
    """Drawing of the whole step of the first group."""
    plan = planned.plan
    schedule = planned.schedule(plan.num_microbatches)
    groups = f", first of {plan.data_parallel} groups" if plan.data_parallel > 1 else ""
    stages = counted(plan.num_stages, "stage")
    batches = counted(plan.num_microbatches, "micro-batch", "micro-batches")
    title = f"{plan.strategy}: S = {stages}, N = {batches}{groups}"
    timeline = simulate(schedule, Costs(planned.stage_costs))
    return draw_svg(timeline, schedule, title=title, ranks=range(plan.group_size))


def _ranks(planned: Planned) -> list[dict[str, Any]]:
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


def compare(planned: Planned) -> list[dict[str, Any]]:
    """One group's share of a step under every strategy that allows these numbers of stages and micro-batches.

    `single` does it on one rank, `ddp` with a whole network on each rank of the group; the last row recomputes if
    the recipe does not. Stages are in parts in the recipe's own row only. `time` is relative to `mp-basic`, which takes
    as long as `single`.
    """
    plan, stages = planned.plan, planned.undivided_stage_costs
    alone = [_on_one_rank(stages)]
    rows = [_row(planned, "single", alone, plan.recompute)]
    if plan.is_in_parts:
        rows.append(_row_in_parts(planned))
    if plan.num_stages == 1 and plan.strategy != "single":
        rows.append(_row(planned, plan.strategy, stages, plan.recompute))
    if plan.num_stages > 1:
        fitting = [row.name for row in STRATEGIES.values() if row.refusal(plan.num_stages) is None]
        rows += [_row(planned, strategy, stages, plan.recompute) for strategy in fitting]
    if plan.group_size > 1:
        rows.append(_row(planned, "ddp", alone, plan.recompute))
    if not plan.recompute.every:
        recompute, cost = least_memory(planned.costs)
        rows.append(_row(planned, "ddp" if plan.group_size > 1 else "single", [cost], recompute))
    return rows


def _row(planned: Planned, strategy: str, costs: Sequence[StageCost], recompute: Recompute) -> dict[str, Any]:
    num_ranks = {"single": 1, "ddp": planned.plan.group_size}.get(strategy, planned.plan.num_stages)
    schedule = build_schedule(
        "single" if strategy == "ddp" else strategy,
        num_stages=len(costs),
        num_microbatches=planned.plan.num_microbatches,
        data_parallel=num_ranks // len(costs),
    )
    return {"strategy": strategy, "parts": [], **_priced(planned, schedule, costs, recompute)}


def _row_in_parts(planned: Planned) -> dict[str, Any]:
    """The recipe's own plan, of one group."""
    plan = replace(planned.plan, data_parallel=1)
    schedule = plan.schedule(plan.num_microbatches)
    priced = _priced(planned, schedule, planned.stage_costs, plan.recompute)
    return {"strategy": plan.strategy, "parts": list(plan.parts), **priced}


def _priced(planned: Planned, schedule: Schedule, costs: Sequence[StageCost], recompute: Recompute) -> dict[str, Any]:
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
        "weight_bytes": _weight_bytes(planned, schedule),
    }


def _costs_of_group(planned: Planned, stages: Sequence[StageCost], schedule: Schedule) -> Costs:
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


def _weight_bytes(planned: Planned, schedule: Schedule) -> int:
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m training.tools.show_plan")
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--project", type=Path, default=Path())
    parser.add_argument("--tile-px", type=int)
    parser.add_argument("--svg", action="store_true")
    parser.add_argument("--world", type=int)
    parser.add_argument("--memory-bytes", type=float)
    parser.add_argument("--cluster", type=Path)
    arguments = parser.parse_args()
    report: dict[str, Any]
    try:
        planned = show_plan(
            arguments.recipe,
            arguments.project,
            tile_px=arguments.tile_px,
            svg=arguments.svg,
            num_ranks=arguments.world,
            cap_bytes=arguments.memory_bytes,
            cluster_name=arguments.cluster,
        )
    except (GemslideError, dataset_error(arguments.recipe)) as error:
        report = {"ok": False, "code": getattr(error, "code", "bad_recipe"), "message": str(error)}
    else:
        report = {"ok": True, **planned}
    sys.stdout.write(json.dumps(report) + "\n")
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
