"""The loop: batches through the engine, validation, the log, and the packages at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.augment import augment, to_input
from training.config import OptimConfig
from training.engine.engine import Engine, make_plan
from training.engine.partition import block_costs, stage_ranges
from training.engine.ranks import Ranks
from training.errors import DivergedError
from training.metrics import classification_metrics, confusion_picture, tile_picture
from training.models.resnet_v2 import resnet_v2_blocks
from training.package import PackageContent, write_package
from training.preflight import Checked
from training.run_log import RunLog
from training.tile_dataset import BatchPlan, channel_statistics, labelled, read_tiles

State = dict[str, Tensor]
VALIDATION_BATCH = 16
PICTURED_TILES = 8


@dataclass
class _Best:
    """The epoch with the lowest validation loss so far."""

    loss: float = math.inf
    epoch: int = 0
    state: State | None = None
    metrics: dict[str, float] | None = None


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
        self._engine, self._whole = self._build()

    def _build(self) -> tuple[Engine, nn.Sequential]:
        recipe = self.recipe
        blocks, whole = self._blocks(), nn.Sequential(*self._blocks())
        parallel, side = recipe.parallel, self.source.tile_px
        costs = block_costs(blocks, (parallel.microbatch_size, 3, side, side))
        self.plan = make_plan(
            "master" if parallel.strategy == "mast" else parallel.strategy,
            num_stages=parallel.num_stages,
            num_microbatches=parallel.num_microbatches,
            costs=[cost.flops if parallel.balance == "flops" else cost.saved_bytes for cost in costs],
        )
        engine = Engine(
            blocks,
            plan=self.plan,
            make_optimizer=lambda weights: make_optimizer(weights, recipe.optim),
            device=self._device,
            precision=recipe.train.precision,
            channels_last=recipe.train.channels_last,
            ranks=self._ranks,
        )
        whole = whole.to(self._device).eval()
        whole = whole.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
        return engine, whole

    def _blocks(self) -> list[nn.Module]:
        """The network with the weights that the seed gives, the same on every rank."""
        model = self.recipe.model
        torch.manual_seed(self.recipe.train.seed)
        return resnet_v2_blocks(depth=model.depth, num_classes=model.num_classes, norm=model.norm)

    # --- one step --------------------------------------------------------------------------------

    def step(self, step: int) -> float:
        """One optimizer step; returns the mean loss over its tiles, the same on every rank."""
        indices = self._batches.batch(step)
        size = self.recipe.parallel.microbatch_size

        def of_microbatch(microbatch: int) -> NDArray[np.int64]:
            return indices[microbatch * size : (microbatch + 1) * size]

        def inputs(microbatch: int) -> Tensor:
            chosen = of_microbatch(microbatch)
            tiles = read_tiles(self.source, chosen, self._pool)
            tiles = augment(tiles, chosen, step=step, seed=self.recipe.train.seed, config=self.recipe.augment)
            return to_input(tiles, self.mean, self.std)

        def loss(logits: Tensor, microbatch: int) -> Tensor:
            labels = torch.from_numpy(self.source.labels[of_microbatch(microbatch)]).to(logits.device)
            # Divided by the tiles of the whole step: the learning rate then means the same for any N.
            return nn.functional.cross_entropy(logits.float(), labels, reduction="sum") / len(indices)

        self._engine.set_lr(learning_rate(step, self.num_steps, self.recipe.optim))
        return self._engine.train_step(inputs, loss)

    # --- validation ------------------------------------------------------------------------------

    def validate(self, state: State) -> NDArray[np.float32]:
        """Probabilities of all validation tiles, float32 (tiles, classes): each rank takes every n-th batch."""
        self._whole.load_state_dict(state)
        batches = np.array_split(self._val, range(VALIDATION_BATCH, len(self._val), VALIDATION_BATCH))
        result = torch.zeros(len(self._val), self.recipe.model.num_classes)
        start = 0
        for number, indices in enumerate(batches):
            if number % self._ranks.num_ranks == self._ranks.rank:
                result[start : start + len(indices)] = self._predict(indices)
            start += len(indices)
        if self._ranks.sync_group is not None:
            shared = result.to(self._ranks.wire)
            torch.distributed.all_reduce(shared, group=self._ranks.sync_group)
            result = shared.cpu()
        return np.asarray(result.numpy())

    def _predict(self, indices: NDArray[np.int64]) -> Tensor:
        with torch.inference_mode():
            images = to_input(read_tiles(self.source, indices, self._pool), self.mean, self.std)
            return torch.softmax(self._whole(images.to(self._device)), dim=1).cpu()

    # --- the run ---------------------------------------------------------------------------------

    def run(self) -> dict[str, str]:
        """Train to the end and write the packages. Returns {"best": model id, "last": model id} on rank 0."""
        if self._ranks.rank == 0:
            settings = self.recipe.model_dump(mode="json")
            inputs = [{"id": self.recipe.data.tile_set, "sha256": self.source.fingerprint}]
            with RunLog(self._project_dir, settings=settings, inputs=inputs, num_steps=self.num_steps) as log:
                return self._epochs(log)
        return self._epochs(None)

    def _epochs(self, log: RunLog | None) -> dict[str, str]:
        best, losses = _Best(), []
        state: State = {}
        metrics: dict[str, float] = {}
        epoch = 0
        for step in range(self.num_steps):
            start = time.perf_counter()
            losses.append(self.step(step))
            if not math.isfinite(losses[-1]):
                raise DivergedError(
                    f"training diverged: the loss of step {step + 1} is {losses[-1]}. Lower [optim] lr (now "
                    f"{self.recipe.optim.lr}) or raise warmup_steps. No model package was written."
                )
            if log:
                log.step(
                    step,
                    loss=losses[-1],
                    lr=learning_rate(step, self.num_steps, self.recipe.optim),
                    num_tiles=self.recipe.parallel.batch_size,
                    seconds=time.perf_counter() - start,
                )
            if (step + 1) % self._steps_per_epoch == 0:
                epoch += 1
                state, metrics = self._end_epoch(epoch, step, float(np.mean(losses)), best, log)
                losses.clear()
        return self._write_packages(log, best, state, metrics, epoch) if log else {}

    def _end_epoch(
        self, epoch: int, step: int, train_loss: float, best: _Best, log: RunLog | None
    ) -> tuple[State, dict[str, float]]:
        start = time.perf_counter()
        state = self._engine.full_state_dict()
        probabilities_nk = self.validate(state)
        labels = self.source.labels[self._val]
        metrics = classification_metrics(labels, probabilities_nk)
        if metrics["loss"] < best.loss:
            best.loss, best.epoch, best.state, best.metrics = metrics["loss"], epoch, state, metrics
        if log:
            pictures = self._pictures(labels, probabilities_nk)
            seconds = time.perf_counter() - start
            log.epoch(epoch, step, train_loss=train_loss, metrics=metrics, seconds=seconds, pictures=pictures)
        return state, metrics

    def _pictures(
        self, labels: NDArray[np.int64], probabilities_nk: NDArray[np.float32]
    ) -> dict[str, NDArray[np.uint8]]:
        shown = np.linspace(0, len(self._val) - 1, min(PICTURED_TILES, len(self._val))).astype(int)
        tiles = read_tiles(self.source, self._val[shown], self._pool)
        return {
            "confusion": confusion_picture(labels, probabilities_nk, self.source.classes),
            "tiles": tile_picture(tiles, labels[shown], probabilities_nk[shown], self.source.classes),
        }

    def _write_packages(
        self, log: RunLog, best: _Best, state: State, metrics: dict[str, float], epoch: int
    ) -> dict[str, str]:
        assert best.state is not None
        assert best.metrics is not None
        models_dir = self._project_dir / "models"
        last = write_package(models_dir, state, self._content(log.run_id, "last", epoch, metrics))
        top = write_package(models_dir, best.state, self._content(log.run_id, "best", best.epoch, best.metrics))
        models = {"best": top.name, "last": last.name}
        log.finish(models, {"plan": self._plan_in_words()})
        return models

    def _content(self, run_id: str, which: str, epoch: int, metrics: dict[str, float]) -> PackageContent:
        return PackageContent(
            recipe=self.recipe,
            recipe_name=self._recipe_name,
            classes=self.source.classes,
            tile_px=self.source.tile_px,
            mpp=self.source.mpp,
            mean=self.mean,
            std=self.std,
            split_fingerprint=self.source.fingerprint,
            run_id=run_id,
            plan=self._plan_in_words(),
            which=which,
            epoch=epoch,
            metrics=metrics,
        )

    def _plan_in_words(self) -> dict[str, Any]:
        num_blocks = len(self._whole)
        return {
            "strategy": self.plan.schedule.strategy,
            "num_stages": self.plan.schedule.num_stages,
            "num_microbatches": self.plan.schedule.num_microbatches,
            "data_parallel": self.recipe.parallel.data_parallel,
            "blocks_per_stage": [len(r) for r in stage_ranges(self.plan.cuts, num_blocks)],
        }


def make_optimizer(weights: Iterable[nn.Parameter], config: OptimConfig) -> torch.optim.Optimizer:
    """The optimizer of one stage."""
    if config.name == "sgd":
        return torch.optim.SGD(
            weights,
            lr=config.lr,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            nesterov=config.momentum > 0,
        )
    return torch.optim.AdamW(weights, lr=config.lr, weight_decay=config.weight_decay)


def learning_rate(step: int, num_steps: int, config: OptimConfig) -> float:
    """Learning rate of a step: linear warm-up, then constant or a half cosine down to zero."""
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    done = (step - config.warmup_steps) / max(1, num_steps - config.warmup_steps)
    return config.lr * 0.5 * (1 + math.cos(math.pi * done))
