"""The plan of a slide-level recipe, as `training.tools.show_plan` reports it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from training.foundation.errors import BadRecipeError
from training.machine.devices import device_here
from training.oracle.clusters.cluster import load_cluster
from training.recipe.planned import on_cluster
from training.recipe.slides import SlideRecipe
from training.run.slides.planned import planned_bags
from training.tools.plan.report import report_of, svg_of


def show_bag_plan(
    recipe: SlideRecipe, project_dir: Path, *, refused: dict[str, object], svg: bool, cluster_name: Path | None
) -> dict[str, Any]:
    """Everything about a slide-level plan that can be known without running it, for bags of `max_tiles`.

    Args:
        refused: options of plans of tiles, by name; each must be None.
        svg: draw for a page as well.
        cluster_name: as for `show_plan`.

    Raises:
        GemslideError: a recipe that cannot be planned; or what the source of bags raises.
    """
    given = [name for name, value in refused.items() if value is not None]
    if given:
        raise BadRecipeError(
            f"{given[0]} is for recipes of tiles: bags differ in size from step to step, so nothing is searched for or "
            "measured. Leave it out."
        )
    device = torch.device("cpu") if cluster_name else device_here(recipe.parallel.world_size)[0]
    planned = planned_bags(recipe, project_dir, device)
    if cluster_name:
        planned = on_cluster(planned, load_cluster(cluster_name))
    model = recipe.model
    inside = f", {model.layers} layers, {model.heads} heads" if model.name == "transformer" else ""
    return {
        "named": recipe.parallel.strategy,
        "network": f"{model.name} of {planned.dims} features, hidden {model.hidden}{inside}",
        "bag": {"unit": recipe.data.unit, "max_tiles": recipe.data.max_tiles},
        **report_of(planned),
        "choice": None,
        **({"svg": svg_of(planned)} if svg else {}),
    }
