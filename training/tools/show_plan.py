"""A recipe's plan, without training: `python -m training.tools.show_plan RECIPE --project DIR [--tile-px N] [--svg]`.

Reports in one JSON line on standard output how the network is cut, what each rank does and keeps, and what the other
strategies would cost.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from training.data.tile_dataset import side_in_tile_set
from training.foundation.errors import BadRecipeError, GemslideError
from training.foundation.recipe_file import find_recipe
from training.machine.devices import device_here, room_bytes
from training.oracle.clusters.cluster import Cluster, load_cluster
from training.recipe.choice import Choice, choose, on_one_rank
from training.recipe.config import Recipe
from training.recipe.dividing import with_parts_to_choose
from training.recipe.planned import (
    Planned,
    on_cluster,
    planned_of,
    with_seconds,
    with_seconds_if_measured,
)
from training.recipe.slides import SlideRecipe, load_any_recipe
from training.run.out_of_memory import refuse_what_has_no_room
from training.run.preflight import dataset_error
from training.tools.plan.bags import show_bag_plan
from training.tools.plan.report import report_of, svg_of
from training.tools.plan.search_rows import search_rows


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
    named = load_any_recipe(path)
    if isinstance(named, SlideRecipe):
        refused: dict[str, object] = {"--tile-px": tile_px, "--world": num_ranks, "--memory": cap_bytes}
        own = show_bag_plan(named, project_dir, refused=refused, svg=svg, cluster_name=cluster_name)
        return {"recipe": str(path.absolute()), **own}
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
        report["svg"] = svg_of(planned)
    return report


def _report(planned: Planned, choice: Choice | None) -> dict[str, Any]:
    """What is known of a plan of tiles."""
    model = planned.recipe.model
    return {
        "network": f"{model.name} {model.variant}, depth {model.depth}, {model.norm} norm",
        "tile_px": planned.side_px,
        **report_of(planned),
        "choice": None if choice is None else choice.as_json(),
    }


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
