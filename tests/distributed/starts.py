"""Two ways to start the ranks of a training run: as `gemslide train` does, and a cheaper one.

`gemslide train` starts every rank as a new Python, at four seconds of a core per rank. Ranks forked from a server that
has already imported everything share the rest of the workflow.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from pipeline.models.launch import TrainingResult, train
from tests.distributed.launch import run_ranks
from training.engine.ranks import LostPeerError, Ranks, alone
from training.machine.allocator import keep_for_training
from training.machine.threads import use_threads
from training.run.checkpoint import Checkpoints, Manifest
from training.run.preflight import check_run
from training.run.trainer import Trainer

__all__ = ["Death", "train", "train_forked", "train_until_death"]


@dataclass(frozen=True)
class Death:
    """Sudden exit of all ranks at once, when rank 0 begins its n-th action from a given step on."""

    step: int
    action: int = 0
    in_checkpoint: bool = False
    """Exit instead when the first checkpoint from that step on is written but not yet named."""

    def watch(self) -> Watcher:
        return Watcher(self)


class Watcher:
    """Callback for the engine's `watch`."""

    def __init__(self, death: Death) -> None:
        self._death, self._seen = death, 0

    def __call__(self, step: int, what: object) -> None:
        if step >= self._death.step and not self._death.in_checkpoint:
            self._seen += 1
            if self._seen > self._death.action:
                os._exit(0)


def train_forked(recipe: Path, project: Path, num_ranks: int, *, fresh: bool = False) -> TrainingResult:
    """`pipeline.models.launch.train` without its processes."""
    return TrainingResult(**run_ranks(num_ranks, _train, recipe, project, None, fresh)[0])


def train_until_death(recipe: Path, project: Path, num_ranks: int, death: Death) -> None:
    """Run until all ranks die, each at the same position in its own list of actions."""
    results = run_ranks(num_ranks, _train, recipe, project, death)
    assert results == [None] * num_ranks, results


def _train(
    ranks: Ranks, recipe: Path, project: Path, death: Death | None, fresh: bool = False
) -> dict[str, str] | None:
    checked = check_run(recipe, project, ranks.num_ranks)
    keep_for_training()
    use_threads(checked.recipe.train.threads)
    watch = {"watch": death.watch()} if death else {}
    if death and death.in_checkpoint:
        _die_in_checkpoint(death.step)
    ranks = ranks if ranks.num_ranks > 1 else alone()
    try:
        return Trainer(checked, project, ranks, torch.device("cpu"), **watch).run(fresh=fresh)
    except LostPeerError:
        if death is None:
            raise
        return None  # this rank's peer died first


def _die_in_checkpoint(step: int) -> None:
    """Make this process, which belongs to one rank, die in a checkpoint."""
    publish = Checkpoints._publish

    def dying(self: Checkpoints, stack: ExitStack, partial: Path, manifest: Manifest, final: Path) -> None:
        if manifest.state.steps_done >= step:
            os._exit(0)
        publish(self, stack, partial, manifest, final)

    Checkpoints._publish = dying  # type: ignore[method-assign]
