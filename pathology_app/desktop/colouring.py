"""Colours of layers, as arguments of a napari colormap; no napari here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pathology_app.html.attention import PALETTE as ATTENTION_PALETTE
from pipeline.palettes import DEFAULT_PALETTE, colours, rgb_of
from pipeline.store import DAMAGED_COLOUR

CLEAR = (0.0, 0.0, 0.0, 0.0)
_FINE, _STEPS = 1025, 256
_GOOD = 0.1
"""Scores up to this value are clear: every slide has some."""


def share_text(share: float) -> str:
    """Two decimals, or up to four where it has more."""
    exact = f"{round(share, 4):g}"
    return exact if len(exact) > 4 else f"{share:.2f}"


def prediction_colours(palette: str, threshold: float) -> dict[str, Any]:
    """`colormap` and `contrast_limits` of probabilities: a probability has the same colour at any threshold, and none
    below it. Raises KeyError: no such palette."""
    first = np.clip(threshold, 0, 1)
    at = np.rint(np.linspace(first * (_FINE - 1), _FINE - 1, _STEPS)).astype(int)
    # napari clears values at or below the lower limit, but the threshold itself must be shown.
    lowest = float(np.nextafter(np.float32(first), np.float32(-1)))
    return {
        "colormap": {"colors": _opaque(colours(palette, _FINE)[at]), "low_color": CLEAR, "nan_color": CLEAR},
        "contrast_limits": (lowest, max(1.0, lowest + 1e-6)),
    }


def quality_colours() -> dict[str, Any]:
    """Colours of QC scores: clear where a cell is good, more opaque the worse it is."""
    rgba = _opaque(colours(DEFAULT_PALETTE, _STEPS))
    rgba[:, 3] = np.clip((np.linspace(0, 1, _STEPS) - _GOOD) / (1 - _GOOD), 0, 1)
    return {"colormap": {"colors": rgba, "nan_color": CLEAR}, "contrast_limits": (0.0, 1.0)}


def attention_colours(limit: float) -> dict[str, Any]:
    """Colours of attention from 0 to the end of its range; clear where there is no tile."""
    rgba = _opaque(colours(ATTENTION_PALETTE, _STEPS))
    return {"colormap": {"colors": rgba, "nan_color": CLEAR}, "contrast_limits": (0.0, limit)}


def mask_colours(colour: str = DAMAGED_COLOUR) -> dict[str, Any]:
    """One colour ("#rrggbb") where a mask is set, clear elsewhere."""
    red, green, blue = (part / 255 for part in rgb_of(colour.removeprefix("#")))
    return {"colormap": {"colors": [CLEAR, (red, green, blue, 1.0)]}, "contrast_limits": (0.0, 1.0)}


def _opaque(rgb: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.column_stack([rgb, np.ones(len(rgb), np.float32)])
