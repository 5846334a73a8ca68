"""A slide-level recipe with its plan and the costs of its blocks, for bags as large as the recipe allows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from training.data.bag_source import POSITION_COLUMNS, open_bags
from training.engine.executor import Batch, Loss
from training.foundation.errors import BadRecipeError
from training.models.heads.targets import Target, total_columns
from training.oracle.simulation.divided import divided_costs
from training.parallel.division import WHOLE, Division
from training.recipe.plan import plan_of_costs
from training.recipe.planned import PlannedRun
from training.recipe.slides import SlideRecipe, blocks_of_slides
from training.run.slides.plan import EmptyBags, slide_loss
from training.run.slides.targets import targets_of


@dataclass(frozen=True, kw_only=True)
class PlannedBags(PlannedRun):
    """A slide-level recipe with its costs."""

    recipe: SlideRecipe
    dims: int
    """Features of a tile."""
    targets: list[Target]

    def empty_batch(self) -> tuple[Batch, Loss]:
        columns = total_columns(self.targets)
        bags = EmptyBags(self.plan.num_microbatches, self.recipe.data.max_tiles, self.dims, columns)
        return bags, slide_loss(self.recipe, self.targets)


def planned_bags(recipe: SlideRecipe, project_dir: Path, device: torch.device) -> PlannedBags:
    """Plan a slide-level recipe for its project's features, with costs in operations.

    A transformer is also priced in 2, 4, … sub-graphs, if all of it is on one rank.

    Raises:
        BadRecipeError: a recipe that cannot be planned; or what the source of bags raises.
    """
    source = open_bags(recipe, project_dir)
    targets = targets_of(recipe, source)
    shape = (1, recipe.data.max_tiles, source.dims + POSITION_COLUMNS)
    try:
        with torch.device("meta"):
            blocks = blocks_of_slides(recipe.model, source.dims, targets)
        costs = divided_costs(blocks, shape, [WHOLE], precision=recipe.train.precision, device=device)
        plan = plan_of_costs(recipe, costs[WHOLE], device, channels_last=False)
        others = [division for division in (*plan.divisions, *_sub_graphs(recipe)) if division != WHOLE]
        costs |= divided_costs(blocks, shape, others, precision=recipe.train.precision, device=device)
    except ValueError as error:  # more stages than blocks, sizes that do not fit together
        raise BadRecipeError(f"{error}.") from error
    return PlannedBags(recipe=recipe, blocks=blocks, divided=costs, plan=plan, dims=source.dims, targets=targets)


def _sub_graphs(recipe: SlideRecipe) -> list[Division]:
    if recipe.model.name != "transformer" or recipe.parallel.num_stages > 1:
        return []
    return [Division(2**power, "branches") for power in range(1, recipe.model.heads.bit_length())]
