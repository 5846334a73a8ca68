"""The loop: batches through the engine, validation, the log, and the packages at the end."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.augment import normalised, to_input
from training.colour_statistics import HueStatistics
from training.config import OptimConfig
from training.data_facts import data_facts
from training.engine.agreement import NonFiniteError
from training.engine.engine import Engine, StepResult
from training.engine.partition import stage_ranges
from training.engine.ranks import Ranks
from training.errors import ImplausibleOutputError
from training.focus_statistics import FocusStatistics
from training.intervals import Intervals, bootstrap_intervals
from training.metrics import classification_metrics, confusion_image, tile_image
from training.models.build import outputs_of, probabilities
from training.package import PackageContent, write_packages
from training.parallel_plan import blocks_of, cross_entropy, plan_of
from training.preflight import Checked
from training.run_log import RunLog, run_log
from training.threads import instruction_set
from training.tile_batch import TileBatch
from training.tile_dataset import BatchPlan, channel_statistics, labelled, read_tiles, sample_looks, stain_of

State = dict[str, Tensor]
SHOWN_TILES = 8


@dataclass(frozen=True)
class _Epoch:
    """What an epoch ended with."""

    number: int
    state: State
    metrics: dict[str, float]
    probabilities_nk: NDArray[np.float32]
    """Of the validation tiles."""


class Trainer:
    """One run on one rank. All ranks construct it alike and call `run`."""

    def __init__(self, checked: Checked, project_dir: Path, ranks: Ranks, device: torch.device):
        self.recipe, self.source = checked.recipe, checked.source
        self._recipe_name = checked.recipe_path.stem
        self._project_dir, self._ranks = project_dir, ranks
        parallel, train = self.recipe.parallel, self.recipe.train
        self._batches = BatchPlan(
            self.source, batch_size=parallel.batch_size, seed=train.seed, balance=self.recipe.data.balance
        )
        self.num_steps = train.steps or self._batches.steps_per_epoch * (train.epochs or 0)
        self._steps_per_epoch = train.steps or self._batches.steps_per_epoch
        self._val = labelled(self.source, "val")
        self.mean, self.std = channel_statistics(self.source, labelled(self.source, "train"))
        self._pool = ThreadPoolExecutor(2)
        self._device = device
        self._hues: HueStatistics | None = None
        self._focus: FocusStatistics | None = None
        self.peak_bytes: dict[str, Any] = {}
        self._engine, self._whole = self._build()

    def _build(self) -> tuple[Engine, nn.Sequential]:
        blocks, whole = self._blocks(), nn.Sequential(*self._blocks())
        self.plan = plan_of(self.recipe, blocks, self.source.tile_px, self._device)
        prepare = partial(normalised, mean=self.mean, std=self.std)
        engine = Engine(blocks, self.plan, ranks=self._ranks, prepare=prepare)
        whole = whole.to(self._device).eval()
        whole = whole.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
        return engine, whole

    def _blocks(self) -> list[nn.Module]:
        """The network with the weights that the seed gives, the same on every rank."""
        torch.manual_seed(self.recipe.train.seed)
        return blocks_of(self.recipe.model, self.source.tile_px)

    # --- one step --------------------------------------------------------------------------------

    def batch(self, step: int) -> TileBatch:
        """The tiles of one optimizer step."""
        return TileBatch(
            self.source,
            self._batches.batch(step),
            microbatch_size=self.recipe.parallel.microbatch_size,
            step=step,
            seed=self.recipe.train.seed,
            augmentation=self.recipe.augment,
            pool=self._pool,
        )

    def step(self, batch: TileBatch, upcoming: TileBatch | None) -> StepResult:
        """One optimizer step; the first tiles of the upcoming one are read meanwhile.

        Raises:
            ImplausibleOutputError: a loss or a gradient is not finite.
        """
        step = batch.step
        self._engine.scale_lr(rate(step, self.num_steps, self.recipe.optim))
        # The first step of a shape tells the ranks how messages lie; the second is like all that follow.
        self._engine.live_bytes.enabled = step <= 1
        try:
            result = self._engine.train_step(batch, cross_entropy, upcoming=upcoming)
        except NonFiniteError as error:
            raise ImplausibleOutputError(
                f"training diverged: {error} Lower [optim] lr (now {self.recipe.optim.lr}) or raise "
                "warmup_steps. No model package was written."
            ) from error
        if step <= 1:
            self.peak_bytes = self._engine.peak_bytes()
        return result

    # --- validation ------------------------------------------------------------------------------

    def validate(self, state: State) -> NDArray[np.float32]:
        """Probabilities of all validation tiles, float32 (tiles, classes): each rank takes every n-th batch."""
        self._whole.load_state_dict(state)
        size = self.recipe.parallel.microbatch_size  # what fits in training fits here
        batches = np.array_split(self._val, range(size, len(self._val), size))
        result = torch.zeros(len(self._val), self.recipe.model.num_classes)
        start = 0
        for number, indices in enumerate(batches):
            if number % self._ranks.num_ranks == self._ranks.rank:
                result[start : start + len(indices)] = self._predict(indices)
            start += len(indices)
        return np.asarray(self._engine.sum_over_ranks(result, during="sharing the validation").numpy())

    def _predict(self, indices: NDArray[np.int64]) -> Tensor:
        with torch.inference_mode():
            images = to_input(read_tiles(self.source, indices, self._pool), self.mean, self.std)
            return probabilities(self._whole(images.to(self._device)), outputs_of(self.recipe.model.variant)).cpu()

    # --- the run ---------------------------------------------------------------------------------

    def run(self) -> dict[str, str]:
        """Train to the end and write the packages. Returns {"best": model id, "last": model id} on rank 0."""
        if self._ranks.rank == 0:
            settings = self.recipe.model_dump(mode="json")
            inputs = [{"id": self.recipe.data.tile_set, "sha256": self.source.fingerprint}]
            with run_log(
                self._project_dir, settings=settings, inputs=inputs, num_steps=self.num_steps,
                threads=self.recipe.train.threads, isa=instruction_set(),
            ) as log:  # fmt: skip
                train_tiles = labelled(self.source, "train")
                self._hues, self._focus = sample_looks(self.source, train_tiles, self._pool)
                return self._epochs(log)
        return self._epochs(None)

    def _epochs(self, log: RunLog | None) -> dict[str, str]:
        losses: list[float] = []
        best: _Epoch | None = None
        last: _Epoch | None = None
        batch = self.batch(0)
        for step in range(self.num_steps):
            start = time.perf_counter()
            upcoming = self.batch(step + 1) if step + 1 < self.num_steps else None
            result = self.step(batch, upcoming)
            losses.append(result.loss)
            if log:
                log.step(
                    step,
                    loss=losses[-1],
                    lr=self.recipe.optim.lr * rate(step, self.num_steps, self.recipe.optim),
                    gradient_norm=result.gradient_norm,
                    num_tiles=len(batch.indices),
                    seconds=time.perf_counter() - start,
                )
            if upcoming is not None:
                batch = upcoming
            if (step + 1) % self._steps_per_epoch == 0:
                last = self._end_epoch(last.number + 1 if last else 1, step, float(np.mean(losses)), log)
                if best is None or last.metrics["loss"] < best.metrics["loss"]:
                    best = last
                losses.clear()
        if log is None:
            return {}
        assert best is not None
        assert last is not None
        return self._write_packages(log, best, last)

    def _end_epoch(self, number: int, step: int, train_loss: float, log: RunLog | None) -> _Epoch:
        start = time.perf_counter()
        state = self._engine.full_state_dict()
        probabilities_nk = self.validate(state)
        labels = self.source.labels[self._val]
        metrics = classification_metrics(labels, probabilities_nk)
        if log:
            images = self._images(labels, probabilities_nk)
            seconds = time.perf_counter() - start
            log.epoch(number, step, train_loss=train_loss, metrics=metrics, seconds=seconds, images=images)
        return _Epoch(number, state, metrics, probabilities_nk)

    def _images(self, labels: NDArray[np.int64], probabilities_nk: NDArray[np.float32]) -> dict[str, NDArray[np.uint8]]:
        shown = np.linspace(0, len(self._val) - 1, min(SHOWN_TILES, len(self._val))).astype(int)
        tiles = read_tiles(self.source, self._val[shown], self._pool)
        return {
            "confusion": confusion_image(labels, probabilities_nk, self.source.classes),
            "tiles": tile_image(tiles, labels[shown], probabilities_nk[shown], self.source.classes),
        }

    def _write_packages(self, log: RunLog, best: _Epoch, last: _Epoch) -> dict[str, str]:
        best_id, last_id = write_packages(
            self._project_dir / "models",
            [
                (best.state, self._content(log.run_id, "best", best)),
                (last.state, self._content(log.run_id, "last", last)),
            ],
        )
        models = {"best": best_id, "last": last_id}
        log.finish(models, {"plan": self._describe_plan(), "memory": self.peak_bytes})
        return models

    def _intervals(self, probabilities_nk: NDArray[np.float32]) -> Intervals | None:
        """None where the dataset does not say whose its tiles are."""
        groups: NDArray[np.str_] | None = getattr(self.source, "groups", None)
        if groups is None:
            return None
        by = getattr(self.source, "grouped_by", "patient")
        return bootstrap_intervals(self.source.labels[self._val], probabilities_nk, groups[self._val], by=by)

    def _content(self, run_id: str, which: str, epoch: _Epoch) -> PackageContent:
        return PackageContent(
            recipe=self.recipe,
            recipe_name=self._recipe_name,
            classes=self.source.classes,
            tile_px=self.source.tile_px,
            mpp=self.source.mpp,
            mean=self.mean,
            std=self.std,
            stain=stain_of(self.source),
            split_fingerprint=self.source.fingerprint,
            run_id=run_id,
            plan=self._describe_plan(),
            which=which,
            epoch=epoch.number,
            metrics=epoch.metrics,
            isa=instruction_set(),
            hues=self._hues,
            focus=self._focus,
            data=data_facts(self.source, self.recipe.data.tile_set),
            intervals=self._intervals(epoch.probabilities_nk),
        )

    def _describe_plan(self) -> dict[str, Any]:
        parallel = self.recipe.parallel
        return {
            "strategy": self.plan.strategy,
            "named": parallel.strategy,
            "num_stages": self.plan.num_stages,
            "num_microbatches": self.plan.num_microbatches,
            "data_parallel": self.plan.data_parallel,
            "recompute": parallel.model_dump(mode="json")["recompute"],
            "blocks_per_stage": [len(r) for r in stage_ranges(self.plan.cuts, len(self._whole))],
        }


def rate(step: int, num_steps: int, config: OptimConfig) -> float:
    """Of the full learning rate, in a step: linear warm-up, then constant or a half cosine down to zero."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return 1.0
    done = (step - config.warmup_steps) / max(1, num_steps - config.warmup_steps)
    return 0.5 * (1 + math.cos(math.pi * done))
