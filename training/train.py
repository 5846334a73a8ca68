"""Start of a training run: `torchrun --nproc-per-node N -m training.train RECIPE.toml --project DIR`.

Every rank checks the same recipe against the same tiles before any of them talks to another, so that a mistake is
one message and not a hang.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

import torch

from training.engine.allocator import keep_freed_memory
from training.engine.ranks import alone, connect_ranks
from training.foundation.errors import GemslideError
from training.foundation.leftovers import recover_folder
from training.foundation.process import die_with_parent
from training.preflight import Checked, check_run, dataset_error
from training.threads import use_threads
from training.trainer import Trainer

INTERRUPTED = 130


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m training.train")
    parser.add_argument("recipe", type=Path, help="recipe file, or the name of a shipped one")
    parser.add_argument("--project", type=Path, default=Path(), help="project folder (default: this one)")
    parser.add_argument("--threads", type=int, help="of each rank, within an operation (default: the recipe's)")
    parser.add_argument("--models-json", type=Path, help="write {best, last} model ids here")
    arguments = parser.parse_args()
    rank = int(os.environ.get("RANK", "0"))
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    _stop_on_request()
    for_people = (GemslideError, dataset_error(arguments.recipe))
    try:
        checked = check_run(arguments.recipe, arguments.project, world_size, threads=arguments.threads)
    except for_people as error:
        if rank == 0:  # every rank found the same
            _say(error)
        return 1
    try:
        if rank == 0:
            for folder in ("models", "runs"):
                recover_folder(arguments.project / folder)
        models = _train(checked, arguments.project, world_size)
    except for_people as error:
        _say(error)
        return 1
    except OSError as error:  # a disk that fails or goes away
        where = error.filename or arguments.project
        sys.stderr.write(f"error [unreadable]: {where}: {error.strerror or error}. No model package was written.\n")
        return 1
    except KeyboardInterrupt:
        if rank == 0:
            sys.stderr.write("interrupted; no model package was written\n")
        return INTERRUPTED
    if rank == 0 and arguments.models_json:
        arguments.models_json.write_text(json.dumps(models), encoding="utf-8")
    return 0


def _stop_on_request() -> None:
    """Take SIGTERM for Ctrl+C, and under torchrun end with it: ranks must not go on alone."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()


def _say(error: Exception) -> None:
    sys.stderr.write(f"error [{getattr(error, 'code', 'bad_recipe')}]: {error}\n")


def _train(checked: Checked, project_dir: Path, world_size: int) -> dict[str, str]:
    keep_freed_memory()
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    use_threads(checked.recipe.train.threads)
    device, is_shared = _device(local_ranks)
    ranks = alone()
    if world_size > 1:
        # NCCL takes no two ranks on one GPU.
        timeout_s = checked.recipe.parallel.timeout_s
        ranks = connect_ranks(timeout_s=timeout_s, device=device, backend="gloo" if is_shared else None)
    try:
        return Trainer(checked, project_dir, ranks, device).run()
    finally:
        ranks.close()


def _device(local_ranks: int) -> tuple[torch.device, bool]:
    """The GPU of this rank, and whether others share it; the CPU where there is no GPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu"), False
    num_gpus, local_rank = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", local_rank % num_gpus), num_gpus < local_ranks


if __name__ == "__main__":
    sys.exit(main())
