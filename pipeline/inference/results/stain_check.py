"""Check that a slide has the colours that its model was trained on."""

from __future__ import annotations

import math

from pipeline.store.layers.overlays import Predictions

FAR = 3.5
"""Hue distance from which a slide counts as stained differently.

It is between the smallest distance of H&E and haematoxylin-DAB, whichever was trained on (4.1), and the largest among
H&E of colon, skin and brain from several laboratories (2.9): tests/pipeline/inference/test_stain_check.py, real slides.
"""
COLOUR_DISTANCE = "colour_distance"
"""Key in predictions' attributes and in the run record."""
NOT_KNOWN = "not known"
"""Value in a run record."""


def stored_distance(predictions: Predictions) -> float | None:
    """Colour distance measured when the predictions were made; None: missing, or not a number."""
    value = predictions.attributes.get(COLOUR_DISTANCE)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def warning_of(distance: float | None) -> str | None:
    """Warning about a slide that is far from what its model was trained on; None: it is not, or not known."""
    if distance is None or distance < FAR:
        return None
    return (
        f"its colours are far from those of the model's training tiles (distance {distance:.1f}; {FAR:g} or more is "
        "far): a different stain, scanner or tissue. Review these predictions before relying on them"
    )
