"""Runs of both kinds, told apart by their recipe: on tiles, or on bags of features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from training.data.bag_source import find_bags
from training.engine.executor import Watch
from training.engine.ranks import Ranks, refuse_mixed
from training.foundation.errors import GemslideError
from training.foundation.recipe_file import find_recipe
from training.foundation.settings import replace
from training.recipe.slides import SlideRecipe, load_any_recipe
from training.run.joining import agree_on
from training.run.loop import Loop
from training.run.preflight import Checked, check_recipe_name, check_run, dataset_error
from training.run.slides.preflight import SlideChecked, check_slide_run
from training.run.slides.trainer import SlideTrainer
from training.run.trainer import Trainer


def check_any_run(
    recipe_name: Path, project_dir: Path, world_size: int, *, threads: int | None = None
) -> Checked | SlideChecked:
    """Check everything that can be checked before training.

    Args:
        threads: overrides the recipe's `[train] threads`.

    Raises:
        GemslideError: as `check_run` and `check_slide_run`.
    """
    path = find_recipe(recipe_name)
    recipe = load_any_recipe(path)
    if not isinstance(recipe, SlideRecipe):
        return check_run(recipe_name, project_dir, world_size, threads=threads)
    check_recipe_name(path)
    recipe = recipe.model_copy(update={"train": replace(recipe.train, threads=threads)})
    return check_slide_run(recipe, path, project_dir, world_size)


def make_trainer(
    checked: Checked | SlideChecked, project_dir: Path, ranks: Ranks, device: torch.device, watch: Watch
) -> Loop[Any]:
    """The trainer of a run, once all ranks have found that they check the same; every rank makes it.

    Raises:
        MixedRanksError: a setting or the data differ between ranks.
    """
    if isinstance(checked, SlideChecked):
        recipe = {f"[{table}]": settings for table, settings in checked.recipe.model_dump(mode="json").items()}
        mine = {**recipe, "torch": torch.__version__, "the features' fingerprint": checked.source.fingerprint}
        refuse_mixed(ranks.gather(mine))
        return SlideTrainer(checked, project_dir, ranks, device, watch=watch)
    return Trainer(agree_on(checked, ranks), project_dir, ranks, device, watch=watch)


def data_error(recipe_name: Path) -> type[Exception]:
    """Base of the user-facing errors of the recipe's data; GemslideError if the recipe itself is bad."""
    try:
        is_of_slides = isinstance(load_any_recipe(find_recipe(recipe_name)), SlideRecipe)
        return find_bags().Error if is_of_slides else dataset_error(recipe_name)
    except GemslideError:
        return GemslideError
