"""Measurements on connected ranks of this machine, started by `training.local_ranks`.

The first rank writes the outcome, as one JSON object, to `--outcome-json`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from training.data.tile_dataset import side_in_tile_set
from training.engine.ranks import Ranks
from training.foundation.errors import GemslideError
from training.foundation.recipe_file import find_recipe
from training.local_ranks import INTERRUPTED
from training.machine.allocator import keep_for_training
from training.machine.devices import LOCAL_RANK, local_ranks
from training.machine.threads import use_threads
from training.recipe.config import Recipe
from training.recipe.slides import load_tile_recipe
from training.run.joining import join_ranks
from training.run.preflight import dataset_error


@dataclass(frozen=True)
class Measuring:
    """What a measurement works with."""

    recipe: Recipe
    side_px: int
    ranks: Ranks
    device: torch.device
    project_dir: Path


def parser_of(prog: str) -> argparse.ArgumentParser:
    """Arguments that all measurements have."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--project", type=Path, default=Path())
    parser.add_argument("--tile-px", type=int)
    parser.add_argument("--outcome-json", type=Path, required=True)
    return parser


def run_on_ranks(arguments: argparse.Namespace, measure: Callable[[Measuring], dict[str, Any]]) -> int:
    """Connect this rank, measure, and leave. Every rank finds the same outcome. Returns the exit code."""
    outcome: dict[str, Any]
    try:
        outcome = {"ok": True, **_measured(arguments, measure)}
    except KeyboardInterrupt:
        return INTERRUPTED
    except (GemslideError, dataset_error(arguments.recipe)) as error:
        outcome = {"ok": False, "code": getattr(error, "code", "bad_recipe"), "message": str(error)}
    if os.environ.get("RANK", "0") == "0":
        arguments.outcome_json.write_text(json.dumps(outcome), encoding="utf-8")
    return 0


def _measured(arguments: argparse.Namespace, measure: Callable[[Measuring], dict[str, Any]]) -> dict[str, Any]:
    recipe = load_tile_recipe(find_recipe(arguments.recipe))
    side_px = arguments.tile_px or side_in_tile_set(recipe.data, arguments.project)
    keep_for_training()
    use_threads(recipe.train.threads)
    _pin(recipe.train.threads)
    ranks, device = join_ranks(int(os.environ.get("WORLD_SIZE", "1")), timeout_s=recipe.parallel.timeout_s)
    try:
        return measure(Measuring(recipe, side_px, ranks, device, arguments.project))
    finally:
        ranks.close()


def _pin(threads: int) -> None:
    """Keep this rank on cores of its own, if there are enough: ranks that change places measure each other."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    first = int(os.environ.get(LOCAL_RANK, "0")) * threads
    if local_ranks() * threads <= len(cores):
        os.sched_setaffinity(0, cores[first : first + threads])
