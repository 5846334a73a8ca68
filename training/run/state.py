"""State of a training run between two steps: everything besides tensors that the next step depends on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from training.foundation.settings import Section
from training.parallel.division import Division
from training.recipe.config import Recipe
from training.recipe.parallel import ParallelConfig
from training.recipe.slides import SlideRecipe

CHECKPOINTS = "checkpoints"
"""Folder of a project for checkpoints."""
ARITHMETIC = ("threads", "precision", "compiled", "deterministic", "channels_last")
"""Keys of `[train]` that affect bits but not meaning: a run may resume with others, and reports it."""


class BestEpoch(Section):
    """The epoch with the lowest validation loss so far. Its weights are stored beside it."""

    number: int = Field(ge=1)
    metrics: dict[str, float]


class RunState(Section):
    """State after some steps of a run."""

    steps_done: int = Field(0, ge=0)
    loss_sum: float = 0.0
    num_losses: int = Field(0, ge=0)
    """Number of steps since the last validation, without skipped ones."""
    epochs: tuple[dict[str, int | float], ...] = ()
    """Entry of the run record for each validation."""
    best: BestEpoch | None = None
    waited: int = Field(0, ge=0)
    """Epochs since the best one."""
    skipped: int = Field(0, ge=0)
    """Steps in a row that were not finite."""
    loss_scale: float = Field(1.0, gt=0)
    good_steps: int = Field(0, ge=0)

    def after_step(self, loss: float | None, *, loss_scale: float, good_steps: int) -> RunState:
        """Return the state after one more step; `loss` is None if it was skipped."""
        lost = loss is None
        return self.model_copy(
            update={
                "steps_done": self.steps_done + 1,
                "loss_sum": self.loss_sum + (loss or 0.0),
                "num_losses": self.num_losses + (not lost),
                "skipped": self.skipped + 1 if lost else 0,
                "loss_scale": loss_scale,
                "good_steps": good_steps,
            }
        )

    def after_epoch(self, metrics: dict[str, float]) -> RunState:
        """Return the state after a validation; the lowest loss so far makes it the best."""
        number = len(self.epochs) + 1
        train_loss = {"train_loss": self.loss_sum / self.num_losses} if self.num_losses else {}
        line = {"epoch": number, "step": self.steps_done - 1, **train_loss, **metrics}
        is_best = self.best is None or metrics["loss"] < self.best.metrics["loss"]
        return self.model_copy(
            update={
                "loss_sum": 0.0,
                "num_losses": 0,
                "epochs": (*self.epochs, line),
                "best": BestEpoch(number=number, metrics=metrics) if is_best else self.best,
                "waited": 0 if is_best else self.waited + 1,
            }
        )


@dataclass(frozen=True)
class Epoch:
    """Results of an epoch on one rank."""

    number: int
    own: dict[str, Tensor]
    """Weights and buffers that this rank provides, in CPU memory."""
    metrics: dict[str, float]
    outputs_nk: NDArray[np.float32]
    """Of the validation, float32: probabilities (tiles, classes), or what a slide model gives (patients, columns)."""


def what_decides(recipe: Recipe, tiles_sha256: str, start_sha256: str | None) -> dict[str, Any]:
    """Values that two runs must share to have the same weights after the same steps: one can then continue the other.

    The spread of a step over ranks is not included, nor the way numbers are computed (`ARITHMETIC`).

    Args:
        tiles_sha256: of tiles, labels and split.
        start_sha256: of the starting weights; None for fresh ones.
    """
    return {
        **_settings(recipe),
        "microbatch_size": recipe.parallel.microbatch_size,
        "freeze_blocks": recipe.finetune.freeze_blocks,
        "start_sha256": start_sha256,
        "tiles_sha256": tiles_sha256,
    }


def what_decides_of_slides(recipe: SlideRecipe, bags_sha256: str) -> dict[str, Any]:
    """As `what_decides`, for a slide-level run.

    Args:
        bags_sha256: of units, splits, targets and features.
    """
    return {**_settings(recipe), "bags_sha256": bags_sha256}


def _settings(recipe: Recipe | SlideRecipe) -> dict[str, Any]:
    """A recipe without what decides nothing, and the number of tiles or bags in a step."""
    settings = recipe.model_dump(mode="json", exclude={"parallel", "checkpoint", "finetune"})
    settings["train"] = {key: value for key, value in settings["train"].items() if key not in ARITHMETIC}
    return {**settings, **_parts(recipe.parallel), "batch_size": recipe.parallel.batch_size}


def _parts(parallel: ParallelConfig) -> dict[str, Any]:
    """Parts decide the order of sums: alike in all stages only their number, else also where the stages are.

    Sub-graphs do, too, but a transformer's next steps may be computed by another number of them, as on other hardware.
    """
    if not parallel.is_in_parts or set(parallel.split_of_stages) == {"branches"}:
        return {}
    kinds = set(zip(parallel.parts_of_stages, parallel.split_of_stages, strict=True))
    if len(kinds) == 1:
        return {"parts": [list(kind) for kind in kinds]}
    of_stages = [list(kind) for kind in zip(parallel.parts_of_stages, parallel.split_of_stages, strict=True)]
    return {"parts": of_stages, "balance": parallel.balance, "cuts": parallel.cuts}


def sub_graphs_of(parallel: ParallelConfig) -> int:
    """Sub-graphs of each stage; 1 where there are none."""
    divisions = map(Division, parallel.parts_of_stages, parallel.split_of_stages)
    return max(division.num_sub_graphs for division in divisions)


def run_name(recipe_name: str, decides: dict[str, Any]) -> str:
    """Name of the folder of a run's checkpoints."""
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return f"{recipe_name}-{digest[:8]}"
