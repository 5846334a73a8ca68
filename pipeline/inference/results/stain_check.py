"""Whether a slide has the colours that its model was trained on."""

from __future__ import annotations

import math

from pipeline.store.layers.overlays import Predictions

FAR = 3.5
"""Distance of hues from which on a slide is said to be stained otherwise.

Between the least distance of H&E and haematoxylin with DAB, whichever was trained on (4.1), and the greatest among H&E
of colon, skin and brain from several laboratories (2.9): tests/pipeline/inference/test_stain_check.py, real slides."""
COLOUR_DISTANCE = "colour_distance"
"""Key in predictions' attributes and in the run record."""
NOT_KNOWN = "not known"
"""In a run record."""


def stored_distance(predictions: Predictions) -> float | None:
    """Colour distance measured when the predictions were made; None: nothing, or no number."""
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
