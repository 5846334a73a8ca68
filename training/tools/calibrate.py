"""A rank that measures this machine for a recipe: `python -m training.local_ranks … -m training.tools.calibrate …`.

The first rank writes the outcome, as one JSON object, to `--outcome-json`, and what was measured to the project.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from training.data.tile_dataset import side_in_tile_set
from training.engine.ranks import Ranks
from training.foundation.errors import GemslideError
from training.foundation.recipe_file import find_recipe
from training.local_ranks import INTERRUPTED
from training.machine.allocator import keep_for_training
from training.machine.threads import use_threads
from training.oracle.calibration.calibrate import calibrate
from training.oracle.calibration.machine import machine_path, save_machine
from training.recipe.choice import on_one_rank
from training.recipe.config import Recipe, load_recipe
from training.recipe.optimisation import cross_entropy
from training.recipe.plan import EmptyBatch
from training.recipe.planned import identity_of, planned_of, setting_of
from training.run.joining import join_ranks
from training.run.preflight import dataset_error


def main() -> int:
    arguments = _arguments()
    outcome: dict[str, Any]
    try:
        outcome = {"ok": True, **_calibrate(arguments)}
    except KeyboardInterrupt:
        return INTERRUPTED
    except (GemslideError, dataset_error(arguments.recipe)) as error:
        outcome = {"ok": False, "code": getattr(error, "code", "bad_recipe"), "message": str(error)}
    if os.environ.get("RANK", "0") == "0":  # every rank found the same
        arguments.outcome_json.write_text(json.dumps(outcome), encoding="utf-8")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.tools.calibrate")
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--project", type=Path, default=Path())
    parser.add_argument("--tile-px", type=int)
    parser.add_argument("--outcome-json", type=Path, required=True)
    return parser.parse_args()


def _calibrate(arguments: argparse.Namespace) -> dict[str, Any]:
    recipe = load_recipe(find_recipe(arguments.recipe))
    side_px = arguments.tile_px or side_in_tile_set(recipe.data, arguments.project)
    keep_for_training()
    use_threads(recipe.train.threads)
    _pin(recipe.train.threads)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    ranks, device = join_ranks(world_size, timeout_s=recipe.parallel.timeout_s)
    try:
        return measure(recipe, side_px, ranks, device, arguments.project)
    finally:
        ranks.close()


def measure(recipe: Recipe, side_px: int, ranks: Ranks, device: torch.device, project_dir: Path) -> dict[str, Any]:
    """Measure on connected ranks; every rank calls it, and the first writes what was found.

    Raises:
        GemslideError: a network that cannot be built, or other programs had the cores.
    """
    start_s = time.perf_counter()
    planned = planned_of(on_one_rank(recipe), side_px, device)
    blocks, plan = planned.blocks, planned.plan
    plan.place_module(nn.Sequential(*blocks))
    setting = setting_of(recipe, side_px, device)
    backend = "nccl" if ranks.wire.type == "cuda" else "gloo"
    identity = identity_of(recipe, setting, num_ranks=ranks.num_ranks, backend=backend)
    targets = EmptyBatch(1, recipe.parallel.microbatch_size, side_px).targets(0).to(device)
    machine = calibrate(blocks, cross_entropy, targets, plan, setting, ranks, identity)
    path = machine_path(project_dir, identity)
    if ranks.rank == 0:
        path = save_machine(project_dir, machine)
    return {
        "machine": str(path),
        "identity": identity.model_dump(),
        "num_blocks": len(blocks),
        "num_measured": len(machine.blocks),
        "seconds": time.perf_counter() - start_s,
    }


def _pin(threads: int) -> None:
    """Keep this rank on cores of its own, if there are enough: ranks that change places measure each other."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    first = int(os.environ.get("LOCAL_RANK", "0")) * threads
    if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) * threads <= len(cores):
        os.sched_setaffinity(0, cores[first : first + threads])


if __name__ == "__main__":
    sys.exit(main())
