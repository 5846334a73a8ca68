"""The pipeline's adapter to trained models of tiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.batches.where import Numerics, RunOn, Seconds, default_device
from pipeline.settings.config import InferConfig
from training import inference
from training.foundation.errors import ImplausibleOutputError

SUM_TOLERANCE = 1e-3


def run_on_of(device: str, config: InferConfig) -> RunOn:
    """Device and numerics of a model's run, from the settings."""
    numerics = Numerics(config.precision, deterministic=config.deterministic, compile=config.compile)
    return RunOn(device, numerics, config.views)


class Predictor:
    """A model package that turns tiles into class probabilities, and rejects implausible ones."""

    def __init__(self, classifier: inference.Classifier) -> None:
        self._classifier = classifier
        self.run_on = classifier.run_on
        self.devices: tuple[str, ...] = (classifier.run_on.device,)
        """Devices that predict its tiles: this one, unless other processes do that for it."""
        self.model_id = classifier.model_id
        self.class_names = classifier.class_names
        self.tile_px = classifier.tile_px
        self.mpp = classifier.mpp
        self.split_sha256 = classifier.split_sha256
        self.identity: dict[str, object] = {
            "weights_sha256": classifier.weights_sha256,
            "class_names": list(classifier.class_names),
            "mean": classifier.mean,
            "std": classifier.std,
            **classifier.runs_as,
        }
        """Everything that determines the probabilities of a tile, as JSON."""
        self.stain = classifier.stain
        """Stain normalisation that tiles need first (`pipeline.stain.describe`); None: none."""
        self.read = classifier.read
        """Rule for the level that its training tiles were read from; None: not known."""
        self.knows_its_tiles = classifier.hues is not None or classifier.focus is not None
        """Whether the package records the colours or the sharpness of its training tiles."""

    @classmethod
    def load(cls, package: Path, run_on: RunOn | None = None) -> Predictor:
        """Open a model package.

        Args:
            run_on: where and how it runs; None: on a GPU if there is one.

        Raises:
            UnreadableError: not a package, or damaged. BadRecipeError: devices that it cannot run on.
        """
        return cls(inference.Classifier.load(package, run_on or RunOn(default_device())))

    @classmethod
    def untrained(cls, package: Path) -> Predictor:
        """The package's network with fresh random weights, as a baseline."""
        return cls(inference.Classifier.untrained(package, RunOn(default_device())))

    @property
    def seconds(self) -> Seconds:
        """Time breakdown of all results so far: transfer, compute."""
        return self._classifier.seconds

    def predict(self, tiles_nhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Class probabilities, float32 (tiles, classes), of uint8 tiles (tiles, tile_px, tile_px, 3).

        Raises:
            ImplausibleOutputError: the network outputs numbers that are not probabilities.
        """
        return self.start(tiles_nhwc)()

    def start(self, tiles_nhwc: NDArray[np.uint8]) -> Callable[[], NDArray[np.float32]]:
        """Start `predict` and return at once; on a GPU it runs meanwhile. The tiles must not change.

        Returns:
            a function that waits for the probabilities and returns them.
        """
        running = self._classifier.start(tiles_nhwc)
        return lambda: self._plausible(running.result())

    def _plausible(self, probabilities_nk: NDArray[np.float32]) -> NDArray[np.float32]:
        if not np.isfinite(probabilities_nk).all():
            raise ImplausibleOutputError(
                f"model {self.model_id} outputs probabilities that are not numbers. "
                "Its weights are damaged or training diverged: lower [optim] lr and train again."
            )
        furthest = float(np.abs(probabilities_nk.sum(1) - 1).max(initial=0))
        if probabilities_nk.min(initial=0) < 0 or furthest > SUM_TOLERANCE:
            raise ImplausibleOutputError(
                f"model {self.model_id} outputs values from {probabilities_nk.min():.3g} to "
                f"{probabilities_nk.max():.3g} whose sum misses 1 by up to {furthest:.3g}, not probabilities. Its "
                "package describes its outputs wrongly, or its weights are damaged."
            )
        return probabilities_nk

    def looks(self, tiles_nhwc: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Hue and focus of tiles as `predict` takes them; (0, 3) where the package does not record its own tiles'."""
        if not self.knows_its_tiles or not len(tiles_nhwc):
            return np.empty((0, 3))
        return np.column_stack([self._classifier.tile_hues(tiles_nhwc), self._classifier.tile_focus(tiles_nhwc)])

    def hue_distance(self, hues_n2: NDArray[np.float64]) -> float | None:
        """Distance of tiles' hue from that of the tiles the model was trained on, in spreads; None: not known."""
        return self._classifier.hue_distance(hues_n2)

    def focus_distance(self, focus_n: NDArray[np.float64]) -> float | None:
        """Distance of tiles' sharpness from that of the tiles it was trained on, in spreads; None: not known."""
        return self._classifier.focus_distance(focus_n)
