"""Interface of training for the pipeline: a slide-level model, from bags of features to predictions and attention."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from training.foundation.errors import BadRecipeError, ImplausibleOutputError
from training.machine.allocator import keep_for_prediction
from training.machine.memory_errors import is_out_of_memory
from training.models.heads.predictions import predictions_of_targets
from training.models.slide_models import outputs_and_attention
from training.packages.slide_package import PackagedTarget, SlideModelPart, load_slide_network, read_slide_config

SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class SlidePrediction:
    """Predictions for one bag."""

    values: dict[str, NDArray[np.float64]]
    """By target. Classes and ordered classes: probabilities (classes,); a number: (1,); Cox: the log of the relative
    risk (1,); intervals: the probability of no event by the end of each (intervals,)."""
    attention_n: NDArray[np.float32]
    """Share of each tile in the result, (tiles,); they sum to 1."""


@dataclass(frozen=True)
class SlideModel:
    """A trained slide-level model with what it needs to know about its input."""

    model_id: str
    config: SlideModelPart
    device: torch.device
    blocks: list[nn.Module]

    @classmethod
    def load(cls, package: Path, device: str = "cpu") -> Self:
        """Open a model package.

        Raises:
            UnreadableError: files are missing, damaged, of a model of tiles, or not the weights that the id names.
        """
        keep_for_prediction()
        package = package.resolve()
        config = read_slide_config(package)
        blocks, _ = load_slide_network(package, config)
        on_device = torch.device(device)
        return cls(package.name, config, on_device, [block.to(on_device).requires_grad_(False) for block in blocks])

    @property
    def targets(self) -> list[dict[str, Any]]:
        """The targets, as JSON: `name`, `kind`, `classes`, `bounds`, `columns`, `median_risk`."""
        return [target.model_dump(mode="json") for target in self.config.targets]

    def predict(self, bag_nd: NDArray[np.float32]) -> SlidePrediction:
        """Predictions for all tiles of a patient or slide.

        Args:
            bag_nd: float32 (tiles, dims + 2): features, then the tile's centre in µm.

        Raises:
            BadRecipeError: features of another width, or a bag that does not fit into the device's memory.
            ImplausibleOutputError: outputs that are not finite.
        """
        if bag_nd.ndim != 2 or bag_nd.shape[1] != self.config.dims + 2 or not len(bag_nd):
            raise BadRecipeError(
                f"model {self.model_id} takes bags of {self.config.dims} features and two coordinates for each tile, "
                f"got {bag_nd.shape}."
            )
        bag = torch.from_numpy(np.ascontiguousarray(bag_nd))[None].to(self.device)
        try:
            with torch.inference_mode():
                outputs, attention = outputs_and_attention(self.blocks, bag)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise BadRecipeError(
                f"a bag of {len(bag_nd)} tiles does not fit into the memory of {self.device} ({error!s:.200})."
            ) from error
        return SlidePrediction(self._values(outputs.float().cpu()), attention.float().cpu().numpy())

    def _values(self, outputs_1k: torch.Tensor) -> dict[str, NDArray[np.float64]]:
        predicted = predictions_of_targets([target.target() for target in self.config.targets], outputs_1k)
        return {
            target.name: self._checked(target, np.atleast_1d(predicted[target.name][0].numpy()))
            for target in self.config.targets
        }

    def _checked(self, target: PackagedTarget, values: NDArray[np.float64]) -> NDArray[np.float64]:
        is_off = target.kind in ("class", "ordinal") and abs(values.sum() - 1) > SUM_TOLERANCE
        if not np.isfinite(values).all() or is_off:
            raise ImplausibleOutputError(
                f"model {self.model_id}: gives {values.tolist()[:5]} for target {target.name!r}. Its weights are "
                "damaged or training diverged: train again."
            )
        return values
