"""Two ways to start the ranks of a training run: as `gemslide train` does, and for less.

`gemslide train` checks in a process of its own, and torchrun starts every rank as a new Python: four seconds of a core
for each. Ranks that are forked from a server which has imported all that share the rest of the workflow.
"""

from pathlib import Path

import torch

from pipeline.launch import TrainingResult, train
from tests.distributed.launch import run_ranks
from training.engine.allocator import keep_freed_memory
from training.engine.ranks import Ranks, alone
from training.preflight import check_run
from training.threads import use_threads
from training.trainer import Trainer

__all__ = ["train", "train_forked"]


def train_forked(recipe: Path, project: Path, num_ranks: int) -> TrainingResult:
    """`pipeline.launch.train` without its processes."""
    return TrainingResult(**run_ranks(num_ranks, _train, recipe, project)[0])


def _train(ranks: Ranks, recipe: Path, project: Path) -> dict[str, str]:
    checked = check_run(recipe, project, ranks.num_ranks)
    keep_freed_memory()
    use_threads(checked.recipe.train.threads)
    return Trainer(checked, project, ranks if ranks.num_ranks > 1 else alone(), torch.device("cpu")).run()
