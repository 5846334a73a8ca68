"""Whether a slide has the colours that its model was trained on."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pipeline.inference.predictor import Predictor
from pipeline.store.overlays import Predictions

FAR = 3.5
"""Distance of hues from which on a slide is said to be stained otherwise.

Between the least distance of H&E and haematoxylin with DAB, whichever was trained on (4.1), and the greatest among H&E
of colon, skin and brain from several laboratories (2.9): tests/pipeline/inference/test_stain_check.py, real slides."""
COLOUR_DISTANCE = "colour_distance"
"""Key in predictions' attributes and in the run record."""
NOT_KNOWN = "not known"
"""In a run record."""


class StainCheck:
    """Looks at a slide's tiles as they are predicted."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._hues: list[NDArray[np.float64]] = []

    def add(self, tiles_nhwc: NDArray[np.uint8]) -> None:
        """Take tiles into account, as the model sees them: normalised, where it asks for that."""
        if self._predictor.knows_its_hues:
            self._hues.append(self._predictor.tile_hues(tiles_nhwc))

    def distance(self) -> float | None:
        """Of the slide's hue from the training tiles', in their spreads; None: the model's package does not say."""
        return self._predictor.hue_distance(np.concatenate(self._hues)) if self._hues else None


def stored_distance(predictions: Predictions) -> float | None:
    """What was measured when the predictions were made; None: nothing, or no number."""
    value = predictions.attributes.get(COLOUR_DISTANCE)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def warning_of(distance: float | None) -> str | None:
    """For a person, about a slide that is far from what its model was trained on; None: it is not, or not known."""
    if distance is None or distance < FAR:
        return None
    return (
        f"its colours are far from those of the model's training tiles (distance {distance:.1f}; {FAR:g} and more is "
        "far): another stain, scanner or tissue. Do not rely on these predictions before you have looked at them"
    )
