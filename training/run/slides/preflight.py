"""Checks that a slide-level run can start, made by every rank before any communicates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from training.data.bag_source import BagSource, check_enough_bags, open_bags
from training.foundation.errors import BadRecipeError
from training.machine.devices import device_here, local_ranks
from training.models.heads.targets import Target
from training.recipe.elastic import check_world_size, spread_over
from training.recipe.slides import SlideRecipe, blocks_of_slides
from training.run.slides.memory import refuse_what_has_no_room
from training.run.slides.plan import predicted_bytes, slide_plan
from training.run.slides.targets import targets_of


@dataclass(frozen=True)
class SlideChecked:
    """A slide-level recipe that fits its bags and its ranks."""

    recipe: SlideRecipe
    recipe_path: Path
    source: BagSource
    targets: list[Target]


def check_slide_run(recipe: SlideRecipe, path: Path, project_dir: Path, world_size: int) -> SlideChecked:
    """Check everything that can be checked before training.

    Raises:
        GemslideError: a recipe, world size or bags that cannot be trained; or what the source raises.
    """
    source = open_bags(recipe, project_dir)
    targets = targets_of(recipe, source)
    device, _ = device_here()
    try:
        with torch.device("meta"):
            blocks = blocks_of_slides(recipe.model, source.dims, targets)
        if recipe.parallel.elastic:
            parallel = spread_over(recipe.parallel, world_size, most_stages=len(blocks))
            recipe = recipe.model_copy(update={"parallel": parallel})
        check_world_size(recipe.parallel, path.name, world_size)
        check_enough_bags(source, recipe.parallel.batch_size)
        plan = slide_plan(recipe, blocks, source.dims, device)
        needed = predicted_bytes(recipe, blocks, source.dims, targets, plan)
    except ValueError as error:
        raise BadRecipeError(f"{path.name}: {error}.") from error
    refuse_what_has_no_room(recipe, needed, device, local_ranks())
    return SlideChecked(recipe, path, source, targets)
