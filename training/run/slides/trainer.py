"""Training of slide-level models: a micro-batch is all tiles of one patient or slide, as features."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.bag_batch import BagBatch
from training.data.bag_plan import BagPlan
from training.data.bag_source import units_by_split, with_targets
from training.engine.engine import Engine, StepResult
from training.engine.executor import Watch, unwatched
from training.engine.ranks import Ranks
from training.packages.slide_package import write_slide_packages
from training.recipe.slides import SlideRecipe, blocks_of_slides
from training.run.log import RunLog
from training.run.loop import Loop
from training.run.slides.content import SlideRunFacts, contents_of
from training.run.slides.cox import cox_terms, with_gradients
from training.run.slides.memory import explained
from training.run.slides.plan import slide_loss, slide_plan
from training.run.slides.preflight import SlideChecked
from training.run.slides.validation import SURVIVAL, BagValidation, median_risks
from training.run.state import Epoch, what_decides_of_slides


class SlideTrainer(Loop[BagBatch]):
    """A run on bags, on one rank. All ranks construct it in the same way and call `run`."""

    recipe: SlideRecipe

    def __init__(
        self, checked: SlideChecked, project_dir: Path, ranks: Ranks, device: torch.device, *, watch: Watch = unwatched
    ):
        self.recipe, self.source, self.targets = checked.recipe, checked.source, checked.targets
        parallel, train = self.recipe.parallel, self.recipe.train
        self._cox = cox_terms(self.targets)
        self._batches = BagPlan(
            self.source, batch_size=parallel.batch_size, seed=train.seed, balance=self.recipe.data.balance,
            event_column=self._cox[0].column + 1 if self._cox else None,
        )  # fmt: skip
        super().__init__(
            checked.recipe_path.stem, project_dir, ranks, device,
            steps_per_epoch=self._batches.steps_per_epoch, watch=watch,
        )  # fmt: skip
        torch.manual_seed(train.seed)  # the same fresh weights on every rank
        blocks = blocks_of_slides(self.recipe.model, self.source.dims, self.targets)
        self._loss = slide_loss(self.recipe, self.targets)
        self.plan = slide_plan(self.recipe, blocks, self.source.dims, device)
        decides = what_decides_of_slides(self.recipe, self.source.fingerprint)
        self._open(blocks, self.plan, ranks, decides, prepare=None)
        self._validation = BagValidation(self.recipe, self.source, self.targets, self._engine, self._loss)

    def _memory_explained(self, engine: Engine | None = None) -> AbstractContextManager[None]:
        return explained(self.recipe, engine)

    def _inputs(self) -> list[dict[str, str]]:
        return [{"id": str(self.source.encoder["encoder_id"]), "sha256": self.source.fingerprint}]

    def _record_extra(self) -> dict[str, Any]:
        return {"unit": self.source.unit, "units": units_by_split(self.source)}

    def _look_at_data(self, log: RunLog) -> None:
        unit = self.source.unit
        units = {f"data/{split}_{unit}s": number for split, number in units_by_split(self.source).items()}
        log.describe({**units, f"data/features/{self.source.encoder['encoder_id']}": self.source.dims})

    # --- steps and epochs ------------------------------------------------------------------------

    def batch(self, step: int) -> BagBatch:
        """The bags of one optimizer step."""
        units, (epoch, _) = self._batches.batch(step), self._batches.place(step)
        return BagBatch(
            self.source,
            units,
            self.source.values[units].astype(np.float32),
            max_tiles=self.recipe.data.max_tiles,
            seed=self.recipe.train.seed,
            epoch=epoch,
        )

    def _amount(self, batch: BagBatch) -> tuple[int, str]:
        return len(batch.units), self.source.unit

    def _train(self, batch: BagBatch, upcoming: BagBatch | None) -> StepResult:
        if not self._cox:
            return self._engine.train_step(batch, self._loss, upcoming=upcoming)
        outputs = self._engine.forward_only(batch)
        values_nc, difference = with_gradients(self._cox, outputs, self.source.values[batch.units])
        result = self._engine.train_step(replace(batch, values=values_nc), self._loss)
        return replace(result, loss=result.loss + difference)

    def _origin(self, batch: BagBatch, microbatch: int | None) -> str:
        return "" if microbatch is None else f" It is {self.source.unit} {self.source.units[batch.units[microbatch]]}."

    def _validated(self) -> tuple[NDArray[np.float32], dict[str, float]]:
        with self._memory_explained(self._engine), self._averaged():
            outputs_nk = self._validation.outputs()
        if not np.isfinite(outputs_nk).all():
            raise self._diverged(f"the network's outputs for {self._validation.not_finite(outputs_nk)}")
        return outputs_nk, self._validation.metrics(outputs_nk)

    # --- packages --------------------------------------------------------------------------------

    def _write_packages(self, log: RunLog | None, best: Epoch, last: Epoch) -> dict[str, str]:
        with self._memory_explained():
            states = [self._engine.share_state(epoch.own) for epoch in (best, last)]
            medians = {which: self._medians(state) for which, state in zip(("best", "last"), states, strict=True)}
        if log is None:
            return {}
        facts = SlideRunFacts(
            self.recipe, self._recipe_name, self.source, self.targets, self.plan, self._num_blocks, log.run_id
        )
        contents = contents_of(facts, {"best": best, "last": last}, medians)
        best_id, last_id = write_slide_packages(self._project_dir / "models", list(zip(states, contents, strict=True)))
        models = {"best": best_id, "last": last_id}
        log.finish(models, {"plan": contents[0].plan, "memory": self.peak_bytes})
        return models

    def _medians(self, state: dict[str, Tensor]) -> dict[str, float]:
        """Median risk of the training units under some weights, by target; every rank calls it."""
        if not any(target.kind in SURVIVAL for target in self.targets):
            return {}
        self._engine.load_full_state_dict(state)
        return median_risks(self.targets, self._validation.outputs(with_targets(self.source, "train")))
