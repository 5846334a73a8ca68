"""Saving a run's checkpoints, finding them and resuming from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.engine.engine import Engine
from training.foundation.errors import UnreadableError
from training.machine.threads import instruction_set
from training.recipe.config import RunRecipe
from training.run.averaging import WeightAverage
from training.run.checkpoint import AVERAGE, BEST, SLOT, WEIGHT, Checkpoint, Checkpoints, forget, latest, named, unnamed
from training.run.state import ARITHMETIC, CHECKPOINTS, Epoch, RunState, run_name, sub_graphs_of

OUTPUTS = "best_outputs"
"""Outputs of the validation in the best epoch, in the first rank's part."""


@dataclass(frozen=True)
class Resumed:
    """State from which a run continues."""

    state: RunState
    best: Epoch | None
    record: dict[str, Any] = field(default_factory=dict)
    """Entry of the run record; empty for a new run."""


class Resuming:
    """The checkpoints of one run, on one rank."""

    def __init__(
        self, recipe: RunRecipe, recipe_name: str, project_dir: Path, engine: Engine, *, decides: Mapping[str, Any],
        average: WeightAverage | None,
    ) -> None:  # fmt: skip
        self._engine, self._average, self._rank = engine, average, engine.rank
        self._decides = dict(decides)
        train = recipe.train.model_dump(mode="json")
        self._arithmetic = {key: train[key] for key in ARITHMETIC} | {
            "sub_graphs": sub_graphs_of(recipe.parallel),
            "isa": instruction_set(), "device": _device_name(engine.plan.device), "torch": torch.__version__,
        }  # fmt: skip
        self.folder = project_dir / CHECKPOINTS / run_name(recipe_name, self._decides)
        self._checkpoints = Checkpoints(self.folder, rank=engine.rank, ranks=engine, keep=recipe.checkpoint.keep)

    def save(self, state: RunState, best: Epoch | None) -> None:
        """Write a checkpoint; every rank calls it after the same step.

        Raises:
            DiskFullError: no space, or not writable; earlier ones are kept.
        """
        own = named(WEIGHT, self._engine.own_state()) | named(SLOT, self._engine.own_optimizer_state())
        if self._average:
            own |= named(AVERAGE, self._average.own())
        if best:
            own |= named(BEST, best.own)
            if self._rank == 0:
                own[OUTPUTS] = torch.from_numpy(best.outputs_nk)
        self._checkpoints.write(own, state, decides=self._decides, arithmetic=self._arithmetic)

    def resume(self, *, fresh: bool) -> Resumed:
        """Resume from the newest complete checkpoint; every rank calls it.

        Args:
            fresh: start from scratch instead; earlier checkpoints are removed.

        Raises:
            UnreadableError: it is not of this network.
        """
        checkpoint, complaints = self._engine.share(self._newest(fresh), during="looking for a checkpoint")[0]
        record = {"complaints": complaints} if complaints else {}
        if checkpoint is None:
            return Resumed(RunState(), None, record)
        best = self._restore(checkpoint)
        before = checkpoint.manifest.arithmetic
        differs = {key: [before.get(key), now] for key, now in self._arithmetic.items() if before.get(key) != now}
        state = checkpoint.manifest.state
        record |= {"step": state.steps_done, "checkpoint": checkpoint.folder.name, "differs": differs}
        return Resumed(state, best, record)

    def _newest(self, fresh: bool) -> tuple[Checkpoint | None, list[str]]:
        if self._rank:
            return None, []
        if fresh:
            self.forget()
        return latest(self.folder, self._decides)

    def _restore(self, checkpoint: Checkpoint) -> Epoch | None:
        tensors, state = checkpoint.tensors(), checkpoint.manifest.state
        try:
            self._engine.load_full_state_dict(unnamed(WEIGHT, tensors))
            self._engine.load_full_optimizer_state(unnamed(SLOT, tensors))
            if self._average:
                self._average.load(unnamed(AVERAGE, tensors))
            best = self._best(state, tensors)
        except (ValueError, KeyError) as error:
            raise UnreadableError(
                f"{checkpoint.folder}: not a checkpoint of this run ({error}). Remove it, or start with --fresh."
            ) from error
        self._engine.steps_done = self._checkpoints.went_on_after = state.steps_done
        if checkpoint.manifest.arithmetic.get("precision") == self._arithmetic["precision"]:  # else it starts again
            self._engine.loss_scale.value, self._engine.loss_scale.good_steps = state.loss_scale, state.good_steps
        return best

    def _best(self, state: RunState, tensors: dict[str, Tensor]) -> Epoch | None:
        if state.best is None:
            return None
        saved = unnamed(BEST, tensors)
        own = {name: saved[name] for name in self._engine.own_state()}
        outputs_nk = np.asarray(tensors[OUTPUTS].numpy())
        return Epoch(state.best.number, own, state.best.metrics, outputs_nk)

    def forget(self) -> None:
        """Remove the run's checkpoints; the first rank calls it.

        Raises:
            DiskFullError: the folder is not writable.
        """
        forget(self.folder)

    def last_good(self) -> str:
        """Location of the newest checkpoint, for people."""
        checkpoint, _ = latest(self.folder, self._decides)
        return f"The last checkpoint is {checkpoint.folder}." if checkpoint else "There was no checkpoint yet."


def _device_name(device: torch.device) -> str:
    """Name of a device's model: the same for two GPUs of one model."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
