"""Explanation of running out of memory in a slide-level run, and refusal of what cannot fit."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from training.engine.engine import Engine
from training.foundation.errors import OutOfMemoryError
from training.machine.devices import limit_bytes, sharing
from training.machine.memory_errors import is_out_of_memory
from training.recipe.slides import SlideRecipe


@contextmanager
def explained(recipe: SlideRecipe, engine: Engine | None = None) -> Iterator[None]:
    """Turn running out of memory inside the block into an error that says where, and what needs less.

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
        first_line = " ".join(str(error).split())[:200]
        raise OutOfMemoryError(f"memory ran out{where}: {first_line}. {what_needs_less(recipe)}") from error


def refuse_what_has_no_room(recipe: SlideRecipe, needed_bytes: int, device: torch.device, num_local: int) -> None:
    """Refuse a recipe whose largest step does not fit into the memory that is here.

    Args:
        needed_bytes: of the fullest rank.
        num_local: ranks on this machine.

    Raises:
        OutOfMemoryError: with the settings that need less.
    """
    limit = limit_bytes(device, sharing(device, num_local))
    if needed_bytes > limit:
        raise OutOfMemoryError(
            f"a step with {recipe.data.max_tiles} tiles in each bag keeps {needed_bytes / 1e9:.1f} GB on its fullest "
            f"rank, of {limit / 1e9:.1f} GB of memory. {what_needs_less(recipe)}"
        )


def what_needs_less(recipe: SlideRecipe) -> str:
    """Settings that need less memory, for people."""
    fewer = f"lower [data] max_tiles (now {recipe.data.max_tiles}), which changes the result"
    if recipe.parallel.recompute == "none":
        return f"Set [parallel] recompute = {{every = 1}}, which changes no result, or {fewer}."
    return f"{fewer[0].upper()}{fewer[1:]}, or spread the model over more ranks ([parallel] num_stages)."
