"""Training on tiles: their batches, their validation, and packages of what classifies them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.augment import normalised
from training.data.tile_batch import TileBatch
from training.data.tile_dataset import BatchPlan, channel_statistics, labelled
from training.engine.engine import Engine, StepResult
from training.engine.executor import Watch, unwatched
from training.engine.ranks import Ranks
from training.machine.rank_log import BEFORE_STEPS
from training.packages.write import write_packages
from training.recipe.config import Recipe
from training.recipe.optimisation import loss_of
from training.recipe.plan import blocks_of, plan_of
from training.run.log import RunLog
from training.run.loop import Loop
from training.run.out_of_memory import explained
from training.run.package_content import AppearanceStatistics, RunFacts, content_of, describe_plan, measure_appearance
from training.run.preflight import Checked
from training.run.state import Epoch, what_decides
from training.run.validation import Validation


class Trainer(Loop[TileBatch]):
    """A run on tiles, on one rank. All ranks construct it in the same way and call `run`."""

    recipe: Recipe

    def __init__(
        self, checked: Checked, project_dir: Path, ranks: Ranks, device: torch.device, *, watch: Watch = unwatched
    ):
        self.recipe, self.source, self.start = checked.recipe, checked.source, checked.start
        parallel, train = self.recipe.parallel, self.recipe.train
        self._batches = BatchPlan(
            self.source, batch_size=parallel.batch_size, seed=train.seed, balance=self.recipe.data.balance
        )
        super().__init__(
            checked.recipe_path.stem, project_dir, ranks, device,
            steps_per_epoch=self._batches.steps_per_epoch, watch=watch,
        )  # fmt: skip
        watch(BEFORE_STEPS, "the mean of each channel")
        self.mean, self.std = ranks.broadcast_from_first(self._channel_statistics() if ranks.rank == 0 else None)
        self._pool = ThreadPoolExecutor(2)
        self._loss = loss_of(self.recipe.optim)
        torch.manual_seed(train.seed)  # the same fresh weights on every rank
        blocks = blocks_of(self.recipe.model, self.source.tile_px)
        if self.start:
            self.start.put_into(blocks)
        self.plan = plan_of(self.recipe, blocks, self.source.tile_px, device, checked.costs)
        self._choice = checked.choice
        decides = what_decides(self.recipe, self.source.fingerprint, self.start.sha256 if self.start else None)
        self._open(blocks, self.plan, ranks, decides, prepare=partial(normalised, mean=self.mean, std=self.std))
        self._validation = Validation(self.recipe, self.source, self._engine, self._pool)
        self._looks: AppearanceStatistics | None = None

    def _channel_statistics(self) -> tuple[list[float], list[float]]:
        return channel_statistics(self.source, labelled(self.source, "train"))

    def _memory_explained(self, engine: Engine | None = None) -> AbstractContextManager[None]:
        return explained(self.recipe, self.source.tile_px, self.plan, engine)

    def _inputs(self) -> list[dict[str, str]]:
        start = [{"id": self.start.name, "sha256": self.start.sha256}] if self.start else []
        return [{"id": self.recipe.data.tile_set, "sha256": self.source.fingerprint}, *start]

    def _settings(self) -> dict[str, Any]:
        settings = super()._settings()
        if self.start:
            settings["finetune"]["weights"] = self.start.name  # a record contains no path
        return settings

    def _record_extra(self) -> dict[str, Any]:
        return {"choice": self._choice.as_json()} if self._choice else {}

    def _look_at_data(self, log: RunLog) -> None:
        self._looks = measure_appearance(self.source, self._pool)

    # --- steps and epochs ------------------------------------------------------------------------

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

    def _amount(self, batch: TileBatch) -> tuple[int, str]:
        return len(batch.indices), "tile"

    def _train(self, batch: TileBatch, upcoming: TileBatch | None) -> StepResult:
        return self._engine.train_step(batch, self._loss, upcoming=upcoming)

    def _origin(self, batch: TileBatch, microbatch: int | None) -> str:
        """Name rows of the tile table and their slides, for people."""
        if microbatch is None:
            return ""
        tiles = batch.part(microbatch)
        slides = getattr(self.source, "slides", None)
        origin = "" if slides is None else f", of {', '.join(sorted({str(slides[tile]) for tile in tiles}))}"
        return f" Its tiles are rows {', '.join(map(str, tiles))} of the tile table{origin}."

    def _validated(self) -> tuple[NDArray[np.float32], dict[str, float]]:
        with self._memory_explained(self._engine), self._averaged():
            probabilities_nk = self._validation.probabilities()
        if not np.isfinite(probabilities_nk).all():
            raise self._diverged(f"the network's probabilities for {self._validation.not_finite(probabilities_nk)}")
        return probabilities_nk, self._validation.metrics(probabilities_nk)

    def _images(self, outputs_nk: NDArray[np.float32]) -> dict[str, NDArray[np.uint8]]:
        return self._validation.images(outputs_nk)

    # --- packages --------------------------------------------------------------------------------

    def _write_packages(self, log: RunLog | None, best: Epoch, last: Epoch) -> dict[str, str]:
        with self._memory_explained():
            states = [self._engine.share_state(epoch.own) for epoch in (best, last)]
        if log is None or self._looks is None:
            return {}
        facts = RunFacts(
            self.recipe, self._recipe_name, self.source, self.mean, self.std, self._looks, log.run_id,
            describe_plan(self.recipe, self.plan, self._num_blocks, self._choice), self.start,
        )  # fmt: skip
        contents = [content_of(facts, which, epoch) for which, epoch in (("best", best), ("last", last))]
        best_id, last_id = write_packages(self._project_dir / "models", list(zip(states, contents, strict=True)))
        models = {"best": best_id, "last": last_id}
        log.finish(models, {"plan": facts.plan, "memory": self.peak_bytes})
        return models
