"""The loop: batches through the engine, validation, checkpoints, the log, and the packages at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from training.data.augment import normalised
from training.data.tile_batch import TileBatch
from training.data.tile_dataset import BatchPlan, channel_statistics, labelled
from training.engine.agreement import NonFiniteError
from training.engine.engine import Engine, StepResult
from training.engine.executor import Watch, unwatched
from training.engine.ranks import Ranks
from training.foundation.errors import ImplausibleOutputError
from training.machine.allocator import give_back_if_scarce
from training.machine.rank_log import BEFORE_STEPS
from training.machine.threads import instruction_set
from training.packages.write import write_packages
from training.recipe.optimisation import loss_of, rate_at
from training.recipe.plan import blocks_of, plan_of
from training.run.averaging import WeightAverage
from training.run.log import RunLog, run_log
from training.run.out_of_memory import explained
from training.run.package_content import AppearanceStatistics, RunFacts, content_of, describe_plan, measure_appearance
from training.run.preflight import Checked
from training.run.resuming import Resuming
from training.run.state import Epoch, RunState
from training.run.validation import Validation

MOST_SKIPPED = 20
"""Most steps in a row that may be lost to numbers that are not finite."""


class Trainer:
    """One run on one rank. All ranks construct it in the same way and call `run`."""

    def __init__(
        self, checked: Checked, project_dir: Path, ranks: Ranks, device: torch.device, *, watch: Watch = unwatched
    ):
        self.recipe, self.source, self.start = checked.recipe, checked.source, checked.start
        self._recipe_name = checked.recipe_path.stem
        self._project_dir, self._rank, self._device, self._watch = project_dir, ranks.rank, device, watch
        parallel, train = self.recipe.parallel, self.recipe.train
        self._batches = BatchPlan(
            self.source, batch_size=parallel.batch_size, seed=train.seed, balance=self.recipe.data.balance
        )
        self.num_steps = train.steps or self._batches.steps_per_epoch * (train.epochs or 0)
        self._steps_per_epoch = train.steps or self._batches.steps_per_epoch
        watch(BEFORE_STEPS, "the mean of each channel")
        self.mean, self.std = ranks.broadcast_from_first(self._channel_statistics() if ranks.rank == 0 else None)
        self._pool = ThreadPoolExecutor(2)
        self._loss = loss_of(self.recipe.optim)
        self.peak_bytes: dict[str, Any] = {}
        torch.manual_seed(train.seed)  # the same fresh weights on every rank
        blocks = blocks_of(self.recipe.model, self.source.tile_px)
        if self.start:
            self.start.put_into(blocks)
        self._num_blocks = len(blocks)
        self.plan = plan_of(self.recipe, blocks, self.source.tile_px, device, checked.costs)
        self._choice = checked.choice
        prepare = partial(normalised, mean=self.mean, std=self.std)
        decay = self.recipe.optim.ema_decay
        with self._memory_explained():
            self._engine = Engine(blocks, self.plan, ranks=ranks, prepare=prepare, watch=watch)
            self._average = WeightAverage(self._engine.own_state(), decay) if decay else None
        self._validation = Validation(self.recipe, self.source, self._engine, self._pool)
        self._resuming = Resuming(
            self.recipe, self._recipe_name, project_dir, self._engine,
            tiles_sha256=self.source.fingerprint, start=self.start, average=self._average,
        )  # fmt: skip
        self._process = psutil.Process()
        self._state = RunState()
        self._best: Epoch | None = None

    def _channel_statistics(self) -> tuple[list[float], list[float]]:
        return channel_statistics(self.source, labelled(self.source, "train"))

    def _memory_explained(self, engine: Engine | None = None) -> AbstractContextManager[None]:
        """Explain running out of memory inside the block; `engine` names the network's block."""
        return explained(self.recipe, self.source.tile_px, self.plan, engine)

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
            looks = measure_appearance(self.source, self._pool) if log else None
            models = self._write_packages(log, self._epochs(log), looks)
            if log:
                self._resuming.forget()
            return models

    @contextmanager
    def _log(self, run_id: str | None) -> Iterator[RunLog | None]:
        if self._rank:
            yield None
            return
        inputs = [{"id": self.recipe.data.tile_set, "sha256": self.source.fingerprint}]
        settings = self.recipe.model_dump(mode="json")
        if self.start:
            inputs.append({"id": self.start.name, "sha256": self.start.sha256})
            settings["finetune"]["weights"] = self.start.name  # a record contains no path
        with run_log(
            self._project_dir, run_id=run_id, settings=settings, inputs=inputs,
            num_steps=self.num_steps, threads=self.recipe.train.threads, isa=instruction_set(),
            **({"choice": self._choice.as_json()} if self._choice else {}),
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
                seconds = time.perf_counter() - start
                log.step(step, result, lr=lr, num_tiles=len(batch.indices), seconds=seconds, memory=self._memory())
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

    def batch(self, step: int) -> TileBatch:
        """The tiles of one optimizer step."""
        epoch, first = self._batches.place(step)
        return TileBatch(
            self.source,
            self._batches.batch(step),
            self.recipe.parallel.microbatch_size,
            self._pool,
            augmentation=self.recipe.augment,
            seed=self.recipe.train.seed,
            epoch=epoch,
            first_sample=first,
        )

    def step(self, batch: TileBatch, upcoming: TileBatch | None) -> StepResult | None:
        """Run one optimizer step; the first tiles of the upcoming one are read meanwhile.

        Returns:
            None if the step was skipped: it was not finite and the recipe allows that, or it overflowed in fp16.

        Raises:
            ImplausibleOutputError: a loss or a gradient is not finite. OutOfMemoryError: it did not fit.
        """
        self._engine.scale_lr(rate_at(self._state.steps_done, self.num_steps, self.recipe.optim))
        result: StepResult | None
        try:
            with self._memory_explained(self._engine):
                result = self._engine.train_step(batch, self._loss, upcoming=upcoming)
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

    def _check_may_skip(self, batch: TileBatch, error: NonFiniteError) -> None:
        if self.recipe.train.non_finite == "skip" and self._state.skipped < MOST_SKIPPED:
            return
        in_a_row = f" {MOST_SKIPPED} steps before it were skipped." if self._state.skipped else ""
        raise ImplausibleOutputError(
            f"training diverged: {error}{self._tiles_in(batch, error.microbatch)}{in_a_row} Lower [optim] lr (now "
            f"{self.recipe.optim.lr}), raise warmup_steps or set clip_norm. No model package was written. "
            f"{self._resuming.last_good()}"
        ) from error

    def _tiles_in(self, batch: TileBatch, microbatch: int | None) -> str:
        """Name rows of the tile table and their slides, for people."""
        if microbatch is None:
            return ""
        tiles = batch.part(microbatch)
        slides = getattr(self.source, "slides", None)
        origin = "" if slides is None else f", of {', '.join(sorted({str(slides[tile]) for tile in tiles}))}"
        return f" Its tiles are rows {', '.join(map(str, tiles))} of the tile table{origin}."

    # --- epochs ----------------------------------------------------------------------------------

    def _end_epoch(self, log: RunLog | None) -> Epoch:
        start = time.perf_counter()
        probabilities_nk, metrics = self._validated()
        self._state = self._state.after_epoch(metrics)
        epoch = self._epoch(metrics, probabilities_nk)
        if self._state.waited == 0:
            self._best = epoch
        if log:
            images = self._validation.images(probabilities_nk)
            log.epoch(self._state.epochs[-1], metrics, seconds=time.perf_counter() - start, images=images)
        return epoch

    def _end_of_resumed(self) -> Epoch:
        """The last epoch of a run that died after it: its weights are those of the checkpoint."""
        probabilities_nk, metrics = self._validated()
        return self._epoch(metrics, probabilities_nk)

    def _validated(self) -> tuple[NDArray[np.float32], dict[str, float]]:
        """Probabilities of the validation tiles, and their metrics.

        Raises:
            ImplausibleOutputError: a probability is not finite.
        """
        with self._memory_explained(self._engine):
            probabilities_nk = self._validation.probabilities(self._average)
        if not np.isfinite(probabilities_nk).all():
            raise ImplausibleOutputError(
                f"training diverged: after step {self._state.steps_done - 1} the network's probabilities for "
                f"{self._validation.not_finite(probabilities_nk)} are not finite. Lower [optim] lr (now "
                f"{self.recipe.optim.lr}), or set clip_norm. No model package was written. {self._resuming.last_good()}"
            )
        return probabilities_nk, self._validation.metrics(probabilities_nk)

    def _epoch(self, metrics: dict[str, float], probabilities_nk: NDArray[np.float32]) -> Epoch:
        own = self._average.own() if self._average else self._engine.own_state()
        kept = {name: tensor.detach().cpu().clone() for name, tensor in own.items()}
        return Epoch(len(self._state.epochs), kept, metrics, probabilities_nk)

    # --- packages --------------------------------------------------------------------------------

    def _write_packages(self, log: RunLog | None, last: Epoch, looks: AppearanceStatistics | None) -> dict[str, str]:
        best = self._best or last
        self._watch(self._state.steps_done - 1, "making the packages")
        with self._memory_explained():
            states = [self._engine.share_state(epoch.own) for epoch in (best, last)]
        if log is None or looks is None:
            return {}
        facts = RunFacts(
            self.recipe, self._recipe_name, self.source, self.mean, self.std, looks, log.run_id,
            describe_plan(self.recipe, self.plan, self._num_blocks, self._choice), self.start,
        )  # fmt: skip
        contents = [content_of(facts, which, epoch) for which, epoch in (("best", best), ("last", last))]
        best_id, last_id = write_packages(self._project_dir / "models", list(zip(states, contents, strict=True)))
        models = {"best": best_id, "last": last_id}
        log.finish(models, {"plan": facts.plan, "memory": self.peak_bytes})
        return models
