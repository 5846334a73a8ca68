"""Validation of slide-level models by the engine that trains, with all tiles of each bag."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.bag_batch import BagBatch
from training.data.bag_source import BagSource, with_targets
from training.data.tile_dataset import Indices
from training.engine.engine import Engine
from training.engine.executor import Loss
from training.foundation.words.counts import counted, first_of
from training.models.heads.predictions import predictions_of_targets
from training.models.heads.targets import Target, column_slices
from training.recipe.slides import SlideRecipe
from training.run.slides.cox import cox_terms, with_gradients

AT_ONCE = 64
"""Bags of a replica that are evaluated at once; outputs are small."""
SHOWN = 8
SURVIVAL = ("cox", "discrete")
"""Kinds of target with a risk."""


class BagValidation:
    """The validation units of a run, and its network's outputs for them."""

    def __init__(
        self, recipe: SlideRecipe, source: BagSource, targets: Sequence[Target], engine: Engine, loss: Loss
    ) -> None:
        self._recipe, self._source, self._targets = recipe, source, list(targets)
        self._engine, self._loss = engine, loss
        self.units = with_targets(source, "val")
        """Their indices in the source."""
        self._num_outputs = sum(target.num_outputs for target in targets)

    def outputs(self, units: Indices | None = None) -> NDArray[np.float32]:
        """Outputs for some units, float32 (units, columns), on every rank; every rank calls it.

        Args:
            units: indices in the source; None for those of the validation.
        """
        asked = self.units if units is None else units
        at_once = AT_ONCE * self._recipe.parallel.data_parallel
        parts = []
        for start in range(0, len(asked), at_once):
            units = asked[start : start + at_once]
            batch = BagBatch(self._source, units, self._source.values[units].astype(np.float32))
            parts += [output[:, : self._num_outputs].float() for output in self._engine.forward_only(batch)]
        return np.asarray(torch.cat(parts).numpy())

    def metrics(self, outputs_nk: NDArray[np.float32]) -> dict[str, float]:
        """The loss, as in training but over all units at once, and figures of each target under "name: figure"."""
        values_nc = self._source.values[self.units]
        rows = [torch.from_numpy(row[None]) for row in outputs_nk]
        given_nc, difference = with_gradients(cox_terms(self._targets), rows, values_nc)
        losses = [float(self._loss(row, torch.from_numpy(given_nc[k : k + 1]))) for k, row in enumerate(rows)]
        metrics = {"loss": float(np.mean(losses)) + difference}
        predicted = predictions_of_targets(self._targets, torch.from_numpy(outputs_nk))
        for target, columns in zip(self._targets, column_slices(self._targets), strict=True):
            values = values_nc[:, columns]
            known = np.isfinite(values).all(1)
            if known.any():
                figures = _figures(target, predicted[target.name].numpy()[known], values[known])
                metrics |= {f"{target.name}: {name}": value for name, value in figures.items()}
        return metrics

    def not_finite(self, outputs_nk: NDArray[np.float32]) -> str:
        """Name the units whose outputs are not finite, for people."""
        names = self._source.units[self.units[~np.isfinite(outputs_nk).all(1)]]
        shown = first_of(names.tolist(), SHOWN)
        return f"{len(names)} of {counted(len(self.units), f'validation {self._source.unit}')} ({shown})"


def _figures(target: Target, predicted: NDArray[np.float64], values_nc: NDArray[np.float64]) -> dict[str, float]:
    if target.kind in ("class", "ordinal"):
        from training.run.metrics import classification_metrics  # slow to import

        figures = classification_metrics(values_nc[:, 0].astype(np.int64), predicted.astype(np.float32))
        return {name: value for name, value in figures.items() if name != "loss"}
    if target.kind == "number":
        return {"mean absolute error": float(np.abs(predicted - values_nc[:, 0]).mean())}
    concordance = _concordance(_risks(target, predicted), values_nc[:, 0], values_nc[:, 1] == 1)
    return {} if concordance is None else {"concordance": concordance}


def _risks(target: Target, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Risks, higher for an earlier event: of intervals, less time without one."""
    return predicted if target.kind == "cox" else -predicted.sum(1)


def median_risks(targets: Sequence[Target], outputs_nk: NDArray[np.float32]) -> dict[str, float]:
    """Median risk over units, by target."""
    predicted = predictions_of_targets(targets, torch.from_numpy(outputs_nk))
    return {
        target.name: float(np.median(_risks(target, predicted[target.name].numpy())))
        for target in targets
        if target.kind in SURVIVAL
    }


def _concordance(risks: NDArray[np.float64], times: NDArray[np.float64], events: NDArray[np.bool_]) -> float | None:
    """Harrell's C: of pairs in which one is known to have lived less, the share in which it has more risk."""
    right, pairs = 0.0, 0
    for risk, time in zip(risks[events], times[events], strict=True):
        later = times > time
        right += float((risk > risks[later]).sum()) + 0.5 * float((risk == risks[later]).sum())
        pairs += int(later.sum())
    return right / pairs if pairs else None
