"""The loop of any training run: batches through the engine, validation, checkpoints, the log, packages at the end."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.engine.agreement import NonFiniteError
from training.engine.engine import Engine, StepResult
from training.engine.executor import Batch, Watch
from training.engine.plan import Plan
from training.engine.ranks import Ranks
from training.foundation.errors import ImplausibleOutputError
from training.machine.allocator import give_back_if_scarce
from training.machine.rank_log import BEFORE_STEPS
from training.machine.threads import instruction_set
from training.recipe.config import RunRecipe
from training.recipe.optimisation import rate_at
from training.run.averaging import WeightAverage
from training.run.log import RunLog, run_log
from training.run.resuming import Resuming
from training.run.start_weights import StartWeights
from training.run.state import Epoch, RunState

MOST_SKIPPED = 20
"""Most steps in a row that may be lost to numbers that are not finite."""

OneBatch = TypeVar("OneBatch", bound=Batch)


class Loop(ABC, Generic[OneBatch]):
    """One run on one rank. All ranks construct it in the same way and call `run`.

    A kind of run says what a batch is, how it is validated and what a package holds.
    """

    recipe: RunRecipe
    start: StartWeights | None = None

    def __init__(
        self, recipe_name: str, project_dir: Path, ranks: Ranks, device: torch.device, *, steps_per_epoch: int,
        watch: Watch,
    ) -> None:  # fmt: skip
        self._recipe_name, self._project_dir = recipe_name, project_dir
        self._rank, self._device, self._watch = ranks.rank, device, watch
        train = self.recipe.train
        self.num_steps = train.steps or steps_per_epoch * (train.epochs or 0)
        self._steps_per_epoch = train.steps or steps_per_epoch
        self.peak_bytes: dict[str, Any] = {}
        self._process = psutil.Process()
        self._state = RunState()
        self._best: Epoch | None = None

    def _open(
        self, blocks: Sequence[nn.Module], plan: Plan, ranks: Ranks, decides: Mapping[str, Any], *,
        prepare: Callable[[Tensor], Tensor] | None,
    ) -> None:  # fmt: skip
        """Make the engine, the average of its weights, and the run's checkpoints."""
        self.plan, self._num_blocks = plan, len(blocks)
        decay = self.recipe.optim.ema_decay
        with self._memory_explained():
            self._engine = Engine(blocks, plan, ranks=ranks, prepare=prepare, watch=self._watch)
            self._average = WeightAverage(self._engine.own_state(), decay) if decay else None
        self._resuming = Resuming(
            self.recipe, self._recipe_name, self._project_dir, self._engine, decides=decides, average=self._average
        )

    # --- what a kind of run adds -------------------------------------------------------------------

    @abstractmethod
    def batch(self, step: int) -> OneBatch:
        """The batch of one optimizer step."""

    @abstractmethod
    def _amount(self, batch: OneBatch) -> tuple[int, str]:
        """What a batch holds, for the log: 64, "tile"."""

    @abstractmethod
    def _train(self, batch: OneBatch, upcoming: OneBatch | None) -> StepResult:
        """One step of the engine."""

    @abstractmethod
    def _origin(self, batch: OneBatch, microbatch: int | None) -> str:
        """A sentence that names what a micro-batch holds, beginning with a space; empty if it is not known."""

    @abstractmethod
    def _validated(self) -> tuple[NDArray[np.float32], dict[str, float]]:
        """Outputs for the validation, and their metrics, with the key "loss".

        Raises:
            ImplausibleOutputError: an output is not finite.
        """

    def _images(self, outputs_nk: NDArray[np.float32]) -> Mapping[str, NDArray[np.uint8]]:
        """Images of a validation for the log."""
        return {}

    @abstractmethod
    def _memory_explained(self, engine: Engine | None = None) -> AbstractContextManager[None]:
        """Explain running out of memory inside the block; `engine` names the network's block."""

    @abstractmethod
    def _inputs(self) -> list[dict[str, str]]:
        """Inputs of the run for its record: `id` and `sha256` of each."""

    def _settings(self) -> dict[str, Any]:
        """The recipe, for the record."""
        return self.recipe.model_dump(mode="json")

    def _record_extra(self) -> dict[str, Any]:
        """Further entries of the record."""
        return {}

    def _look_at_data(self, log: RunLog) -> None:
        """Measure what packages or the log say of the training data; the first rank calls it, before the first step."""

    @abstractmethod
    def _write_packages(self, log: RunLog | None, best: Epoch, last: Epoch) -> dict[str, str]:
        """Write the packages of the best and the last epoch; every rank calls it. {} on all but the first."""

    # --- the run ---------------------------------------------------------------------------------

    def run(self, run_id: str | None = None, *, fresh: bool = False) -> dict[str, str]:
        """Train to the end and write the packages. Returns {"best": model id, "last": model id} on rank 0.

        Args:
            run_id: name of the run's record; None for a new one.
            fresh: start from scratch even if there are checkpoints of the run.
        """
        with self._log(run_id) as log:
            self._watch(BEFORE_STEPS, "looking for a checkpoint")
            resumed = self._resuming.resume(fresh=fresh)
            self._state, self._best = resumed.state, resumed.best
            if log:
                log.begin(resumed, self.start)
                self._look_at_data(log)
            last = self._epochs(log)
            self._watch(self._state.steps_done - 1, "making the packages")
            models = self._write_packages(log, self._best or last, last)
            if log:
                self._resuming.forget()
            return models

    @contextmanager
    def _log(self, run_id: str | None) -> Iterator[RunLog | None]:
        if self._rank:
            yield None
            return
        with run_log(
            self._project_dir, run_id=run_id, settings=self._settings(), inputs=self._inputs(),
            num_steps=self.num_steps, threads=self.recipe.train.threads, isa=instruction_set(), **self._record_extra(),
        ) as log:  # fmt: skip
            yield log

    def _epochs(self, log: RunLog | None) -> Epoch:
        """Run steps and epochs to the end of the run; return the last epoch."""
        first, last = self._state.steps_done, None
        batch = self.batch(first)
        while (step := self._state.steps_done) < self.num_steps and not self._is_patience_over():
            start = time.perf_counter()
            ends_epoch = (step + 1) % self._steps_per_epoch == 0
            following = self.batch(step + 1) if step + 1 < self.num_steps else batch
            # In the first step of a shape ranks learn the layout of messages; the second is like all that follow.
            self._engine.live_bytes.enabled = step - first <= 1
            # Validation reads in between: nothing is read ahead across it.
            result = self.step(batch, None if ends_epoch else following)
            if step - first <= 1:
                self.peak_bytes = self._engine.peak_bytes()
            if log:
                lr = self.recipe.optim.lr * rate_at(step, self.num_steps, self.recipe.optim)
                seconds, (amount, unit) = time.perf_counter() - start, self._amount(batch)
                log.step(step, result, lr=lr, amount=amount, unit=unit, seconds=seconds, memory=self._memory())
            if ends_epoch:
                last = self._end_epoch(log)
            if ends_epoch or self._state.steps_done % self.recipe.checkpoint.every_steps == 0:
                self._save(log)
            batch = following
        return last or self._end_of_resumed()

    def _memory(self) -> int:
        """Bytes that this process holds now, on its device."""
        is_gpu = self._device.type == "cuda"
        return torch.cuda.memory_allocated(self._device) if is_gpu else int(self._process.memory_info().rss)

    def _is_patience_over(self) -> bool:
        patience = self.recipe.train.patience
        return patience is not None and self._state.waited >= patience

    def _save(self, log: RunLog | None) -> None:
        start = time.perf_counter()
        self._watch(self._state.steps_done - 1, "writing a checkpoint")
        with self._memory_explained():
            self._resuming.save(self._state, self._best)
        if log:
            log.checkpoint(time.perf_counter() - start)

    # --- one step --------------------------------------------------------------------------------

    def step(self, batch: OneBatch, upcoming: OneBatch | None) -> StepResult | None:
        """Run one optimizer step; the first inputs of the upcoming one are read meanwhile.

        Returns:
            None if the step was skipped: it was not finite and the recipe allows that, or it overflowed in fp16.

        Raises:
            ImplausibleOutputError: a loss or a gradient is not finite. OutOfMemoryError: it did not fit.
        """
        self._engine.scale_lr(rate_at(self._state.steps_done, self.num_steps, self.recipe.optim))
        result: StepResult | None
        try:
            with self._memory_explained(self._engine):
                result = self._train(batch, upcoming)
        except NonFiniteError as error:
            self._check_may_skip(batch, error)
            result = None
        give_back_if_scarce()
        scale = self._engine.loss_scale
        if result is not None and result.skipped:
            result = None
        self._state = self._state.after_step(
            None if result is None else result.loss, loss_scale=scale.value, good_steps=scale.good_steps
        )
        if self._average and result is not None:
            self._average.update(self._state.steps_done)
        return result

    def _check_may_skip(self, batch: OneBatch, error: NonFiniteError) -> None:
        if self.recipe.train.non_finite == "skip" and self._state.skipped < MOST_SKIPPED:
            return
        in_a_row = f" {MOST_SKIPPED} steps before it were skipped." if self._state.skipped else ""
        raise ImplausibleOutputError(
            f"training diverged: {error}{self._origin(batch, error.microbatch)}{in_a_row} Lower [optim] lr (now "
            f"{self.recipe.optim.lr}), raise warmup_steps or set clip_norm. No model package was written. "
            f"{self._resuming.last_good()}"
        ) from error

    def _diverged(self, what: str) -> ImplausibleOutputError:
        """The error of a validation with outputs that are not finite, named by `what`."""
        return ImplausibleOutputError(
            f"training diverged: after step {self._state.steps_done - 1} {what} are not finite. Lower [optim] lr (now "
            f"{self.recipe.optim.lr}), or set clip_norm. No model package was written. {self._resuming.last_good()}"
        )

    # --- epochs ----------------------------------------------------------------------------------

    def _end_epoch(self, log: RunLog | None) -> Epoch:
        start = time.perf_counter()
        outputs_nk, metrics = self._validated()
        self._state = self._state.after_epoch(metrics)
        epoch = self._epoch(metrics, outputs_nk)
        if self._state.waited == 0:
            self._best = epoch
        if log:
            images = self._images(outputs_nk)
            log.epoch(self._state.epochs[-1], metrics, seconds=time.perf_counter() - start, images=images)
        return epoch

    def _end_of_resumed(self) -> Epoch:
        """The last epoch of a run that died after it: its weights are those of the checkpoint."""
        outputs_nk, metrics = self._validated()
        return self._epoch(metrics, outputs_nk)

    def _epoch(self, metrics: dict[str, float], outputs_nk: NDArray[np.float32]) -> Epoch:
        own = self._average.own() if self._average else self._engine.own_state()
        kept = {name: tensor.detach().cpu().clone() for name, tensor in own.items()}
        return Epoch(len(self._state.epochs), kept, metrics, outputs_nk)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The average of the weights in their place for as long as the block lasts, if the recipe keeps one."""
        if self._average is None:
            yield
            return
        own = self._engine.full_state_dict()
        self._engine.load_full_state_dict(self._engine.share_state(self._average.own()))
        yield
        self._engine.load_full_state_dict(own)
