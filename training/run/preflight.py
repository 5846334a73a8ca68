"""Checks that a run can start, made by every rank before any communicates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from training.data.bag_source import find_bags
from training.data.tile_dataset import TileSource, check_enough, find_source, open_source
from training.engine.partition import BlockCost
from training.foundation.errors import BadRecipeError, GemslideError
from training.foundation.recipe_file import find_recipe
from training.foundation.settings import replace
from training.machine.devices import device_here, local_ranks, room_bytes
from training.recipe.choice import Choice, choose, on_one_rank
from training.recipe.config import Recipe
from training.recipe.dividing import with_parts_to_choose
from training.recipe.elastic import check_world_size, spread_over
from training.recipe.plan import blocks_of
from training.recipe.planned import Planned, planned_of, with_seconds
from training.recipe.slides import SlideRecipe, load_any_recipe, load_tile_recipe
from training.run.out_of_memory import refuse_what_has_no_room
from training.run.start_weights import StartWeights, find_start

RECIPE_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,54}"
"""With 9 characters of hash this gives a model id of at most 64."""


@dataclass(frozen=True)
class Checked:
    """A recipe that fits its tiles and its ranks."""

    recipe: Recipe
    recipe_path: Path
    source: TileSource
    costs: list[BlockCost]
    """Of a micro-batch in each block."""
    start: StartWeights | None = None
    """None for fresh weights."""
    choice: Choice | None = None
    """What the oracle chose for `auto`; it is part of the recipe already."""


def check_recipe_name(path: Path) -> None:
    """Refuse a recipe whose name cannot be part of a model's. Raises BadRecipeError."""
    if not re.fullmatch(RECIPE_NAME, path.stem):
        raise BadRecipeError(
            f"{path.name}: the recipe's name becomes part of the model's. Rename the file, using 1 to 55 letters, "
            "digits, dots, underscores or hyphens, not starting with a dot."
        )


def check_run(recipe_name: Path, project_dir: Path, world_size: int, *, threads: int | None = None) -> Checked:
    """Check everything that can be checked before training on tiles.

    Args:
        threads: overrides the recipe's `[train] threads`.

    Raises:
        GemslideError: a recipe, world size or tile set that cannot be trained; or what the dataset raises.
    """
    path = find_recipe(recipe_name)
    recipe = load_tile_recipe(path)
    recipe = recipe.model_copy(update={"train": replace(recipe.train, threads=threads)})
    check_recipe_name(path)
    source = open_source(recipe.data, project_dir)
    blocks = _blocks_without_memory(recipe, path.name, source)
    device, backend = device_here()
    planned, choice = None, None
    if recipe.parallel.is_auto:
        planned = _planned(on_one_rank(recipe), path.name, source, device, blocks)
        cap_bytes = room_bytes(device, local_ranks())
        planned = with_parts_to_choose(planned, world_size, cap_bytes)
        planned = with_seconds(planned, project_dir, num_ranks=world_size, backend=backend)
        planned, choice = choose(planned, world_size, cap_bytes)
        recipe = planned.recipe
    elif recipe.parallel.elastic:
        parallel = spread_over(recipe.parallel, world_size, most_stages=len(blocks))
        recipe = recipe.model_copy(update={"parallel": parallel})
    parallel = recipe.parallel
    check_world_size(parallel, path.name, world_size)
    check_enough(source, parallel.batch_size, recipe.model.num_classes, recipe.data.tile_set)
    if planned is None or choice is None:  # what was chosen is planned, and fits
        planned = _planned(recipe, path.name, source, device, blocks)
        refuse_what_has_no_room(planned, local_ranks())
    start = find_start(recipe.finetune, blocks, source.classes, project_dir)
    return Checked(recipe, path, source, planned.costs, start, choice)


def _planned(
    recipe: Recipe, name: str, source: TileSource, device: torch.device, blocks: Sequence[nn.Module]
) -> Planned:
    try:
        return planned_of(recipe, source.tile_px, device, blocks)
    except BadRecipeError as error:
        raise BadRecipeError(f"{name}, tile set {recipe.data.tile_set!r}: {error}") from error


def _blocks_without_memory(recipe: Recipe, name: str, source: TileSource) -> list[nn.Module]:
    """The network, to check that it exists and count its blocks."""
    try:
        with torch.device("meta"):
            return blocks_of(recipe.model, source.tile_px)
    except ValueError as error:
        raise _misfit(name, recipe, error) from error


def _misfit(name: str, recipe: Recipe, error: ValueError) -> BadRecipeError:
    return BadRecipeError(f"{name}, tile set {recipe.data.tile_set!r}: {error}.")


def dataset_error(recipe_name: Path) -> type[Exception]:
    """Base of the user-facing errors of the recipe's dataset; GemslideError if the recipe itself is bad."""
    try:
        recipe = load_any_recipe(find_recipe(recipe_name))
        return find_bags().Error if isinstance(recipe, SlideRecipe) else find_source(recipe.data.source).Error
    except GemslideError:
        return GemslideError
