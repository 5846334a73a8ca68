"""Explanation of running out of memory: where, how much was requested, and which settings would have fitted."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from training.engine.engine import Engine
from training.engine.plan import Plan
from training.engine.recompute import Recompute
from training.foundation.errors import BadRecipeError, OutOfMemoryError
from training.machine.devices import ROOM, limit_bytes, local_ranks, sharing
from training.machine.memory_errors import is_out_of_memory
from training.recipe.config import Recipe
from training.recipe.plan import blocks_of
from training.recipe.planned import Planned, planned_of


@contextmanager
def explained(recipe: Recipe, tile_px: int, plan: Plan, engine: Engine | None = None) -> Iterator[None]:
    """Turn running out of memory inside the block into an error that says where, and what would fit.

    Args:
        engine: the engine at work; None if none is.

    Raises:
        OutOfMemoryError: memory ran out.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if not is_out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)  # they hold what filled the memory
        where = "" if engine is None or engine.at is None else f" in {engine.at}"
        raise OutOfMemoryError(
            f"memory ran out{where}: {_first_line(error)} This recipe keeps "
            f"{_gb(_needed_bytes(recipe, tile_px))} of activations and weights on its fullest rank; "
            f"{_fitting_settings(recipe, tile_px, plan)}"
        ) from error


def refuse_what_has_no_room(planned: Planned, num_local: int = 1) -> None:
    """Refuse a plan of which not even the fullest rank fits into the memory that is here.

    Args:
        num_local: ranks on this machine.

    Raises:
        OutOfMemoryError: with the settings that would fit.
    """
    device = planned.plan.device
    limit = limit_bytes(device, sharing(device, num_local))
    if planned.added_bytes() < ROOM * limit:  # within some percent of the prediction, which takes longer
        return
    needed = planned.predicted_bytes()
    if needed > limit:
        raise OutOfMemoryError(
            f"this recipe keeps {_gb(needed)} of activations and weights on its fullest rank, of {_gb(limit)} of "
            f"memory; {_fitting_settings(planned.recipe, planned.side_px, planned.plan)}"
        )


def _first_line(error: BaseException) -> str:
    text = " ".join(str(error).split()).replace("a primitive", "a primitive: oneDNN cannot allocate memory for it")
    request = re.search(r"[^.:\]]*(tried to allocate|allocate memory)[^.]*(\.\d[^.]*)?", text, re.IGNORECASE)
    return f"{(request[0] if request else text)[:200].strip()}."


def _fitting_settings(recipe: Recipe, tile_px: int, plan: Plan) -> str:
    """Settings that need less memory, those that change no result first."""
    parallel = recipe.parallel
    choices: dict[str, Recipe] = {}
    if not plan.compiled and plan.recompute == Recompute():
        choices['[parallel] recompute = "norm"'] = _with(recipe, recompute="norm")
        choices["[parallel] recompute = {every = 2}"] = _with(recipe, recompute={"every": 2})
    stages = 2 * parallel.num_stages
    if plan.strategy != "single" or parallel.data_parallel == 1:
        strategy = "mp-basic" if plan.strategy == "single" else parallel.strategy
        choices[f'[parallel] strategy = "{strategy}", num_stages = {stages}'] = _with(
            recipe, strategy=strategy, num_stages=stages, recompute="none"
        )
    if parallel.microbatch_size > 1:
        half = parallel.microbatch_size // 2
        choices[f"[parallel] microbatch_size = {half}, which changes the result"] = _with(recipe, microbatch_size=half)
    priced = [(choice, name, _needed_bytes(choice, tile_px)) for name, choice in choices.items()]
    fitting = [
        f"{name} ({_gb(needed)})"
        for choice, name, needed in priced
        if needed <= ROOM * limit_bytes(plan.device, ranks_sharing(choice, recipe, plan.device))
    ]
    limit = f"{_gb(limit_bytes(plan.device, ranks_sharing(recipe, recipe, plan.device)))} of memory for each rank"
    if fitting:
        return f"within {limit} these would fit: {'; '.join(fitting)}."
    tried = "; ".join(f"{name} ({_gb(needed)})" for _, name, needed in priced)
    return f"none of these would fit into {limit}: {tried}. Use smaller tiles, or more memory."


def ranks_sharing(choice: Recipe, recipe: Recipe, device: torch.device) -> float:
    """Number of ranks of a choice that share one memory, if spread over machines like those of the recipe."""
    return sharing(device, local_ranks() * choice.parallel.world_size / recipe.parallel.world_size)


def _with(recipe: Recipe, **changes: object) -> Recipe:
    changes = {"cuts": None, **changes} if "num_stages" in changes else changes
    given = recipe.parallel.model_dump(exclude_defaults=True)
    parallel = type(recipe.parallel).model_validate({**given, **changes})
    return recipe.model_copy(update={"parallel": parallel})


def _needed_bytes(recipe: Recipe, tile_px: int) -> int:
    """Bytes on the fullest rank of the first group, as predicted."""
    with torch.device("meta"):  # no memory is left
        blocks = blocks_of(recipe.model, tile_px)
    try:
        return planned_of(recipe, tile_px, torch.device("cpu"), blocks).predicted_bytes()
    except BadRecipeError:  # fewer blocks than stages
        return 2**62


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f} GB"
