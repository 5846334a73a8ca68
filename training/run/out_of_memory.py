"""Explanation of running out of memory: where, how much was requested, and which settings would have fitted."""

from __future__ import annotations

import os
import re
import resource
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import psutil
import torch

from training.engine.engine import Engine
from training.engine.plan import Plan
from training.engine.predict import predict_memory
from training.engine.recompute import Recompute
from training.foundation.errors import OutOfMemoryError
from training.machine.memory_errors import is_out_of_memory
from training.recipe.config import Recipe
from training.recipe.optimisation import cross_entropy
from training.recipe.plan import EmptyBatch, blocks_of, plan_of

_ROOM = 0.9
"""Fraction of the memory for live bytes, weights, gradients and optimizer together; workspaces take the rest."""
_COPIES = 4
"""Copies of the weights: themselves, gradients, a sum in progress, the optimizer's state."""


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
        if needed <= _ROOM * limit_bytes(plan.device, ranks_sharing(choice, recipe, plan.device))
    ]
    limit = f"{_gb(limit_bytes(plan.device, ranks_sharing(recipe, recipe, plan.device)))} of memory for each rank"
    if fitting:
        return f"within {limit} these would fit: {'; '.join(fitting)}."
    tried = "; ".join(f"{name} ({_gb(needed)})" for _, name, needed in priced)
    return f"none of these would fit into {limit}: {tried}. Use smaller tiles, or more memory."


def ranks_sharing(choice: Recipe, recipe: Recipe, device: torch.device) -> float:
    """Number of ranks of a choice that share one memory, if spread over machines like those of the recipe."""
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    memories = torch.cuda.device_count() if device.type == "cuda" else 1
    return max(1.0, ranks_here * choice.parallel.world_size / recipe.parallel.world_size / memories)


def _with(recipe: Recipe, **changes: object) -> Recipe:
    parallel = type(recipe.parallel).model_validate({**recipe.parallel.model_dump(), **changes})
    return recipe.model_copy(update={"parallel": parallel})


def _needed_bytes(recipe: Recipe, tile_px: int) -> int:
    """Bytes on the fullest rank of the first group: live ones as predicted, and some copies of the weights."""
    with torch.device("meta"):  # no memory is left
        blocks = blocks_of(recipe.model, tile_px)
    try:
        plan = replace(plan_of(recipe, blocks, tile_px, torch.device("cpu")), data_parallel=1)
    except ValueError:  # fewer blocks than stages
        return 2**62
    parallel = recipe.parallel
    batch = EmptyBatch(parallel.num_microbatches, parallel.microbatch_size, tile_px)
    ranks = predict_memory(blocks, cross_entropy, batch, plan)
    return max(rank.peak_bytes + _COPIES * rank.weight_bytes for rank in ranks)


def limit_bytes(device: torch.device, sharing: float = 1.0) -> int:
    """Most memory that this process may take if this many share it."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory / sharing)
    limits = [int(psutil.virtual_memory().total / sharing)]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        limits += [soft] if soft != resource.RLIM_INFINITY else []
    return min(limits)


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f} GB"
