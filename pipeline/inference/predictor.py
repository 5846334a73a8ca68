"""The pipeline's adapter to trained models: the only file that imports more of training than its foundation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.errors import ImplausibleOutputError
from training import inference


class Predictor:
    """A model package that turns tiles into class probabilities, and refuses to pass on nonsense."""

    def __init__(self, classifier: inference.Classifier) -> None:
        self._classifier = classifier
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
        }
        """What decides the probabilities of a tile, as JSON."""
        self.stain = classifier.stain
        """How tiles must be normalised first (`pipeline.stain.describe`); None: not at all."""

        self.knows_its_hues = classifier.hues is not None
        """Whether the package says what colours it was trained on."""

    @classmethod
    def load(cls, package: Path) -> Predictor:
        """Open a model package.

        Raises:
            UnreadableError: not a package, or damaged.
        """
        return cls._open(package, inference.Classifier.load)

    @classmethod
    def untrained(cls, package: Path) -> Predictor:
        """The package's network with fresh random weights, as a baseline."""
        return cls._open(package, inference.Classifier.untrained)

    @classmethod
    def _open(cls, package: Path, opener: Callable[..., inference.Classifier]) -> Predictor:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return cls(opener(package, device=device))

    def predict(self, tiles_nhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Class probabilities, float32 (tiles, classes), of uint8 tiles (tiles, tile_px, tile_px, 3).

        Raises:
            ImplausibleOutputError: the network gives numbers that are not finite.
        """
        probabilities_nk = self._classifier.predict(tiles_nhwc)
        if not np.isfinite(probabilities_nk).all():
            raise ImplausibleOutputError(
                f"model {self.model_id} gives probabilities that are not numbers. "
                "Its weights are damaged or training diverged: lower [optim] lr and train again."
            )
        return probabilities_nk

    def tile_hues(self, tiles_nhwc: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Hues of tiles as `predict` takes them, float64 (tiles, 2)."""
        return self._classifier.tile_hues(tiles_nhwc)

    def hue_distance(self, hues_n2: NDArray[np.float64]) -> float | None:
        """How far tiles are from those that the model was trained on, in spreads; None: not known."""
        return self._classifier.hue_distance(hues_n2)
