"""The colours of probabilities and of classes: one definition for the browser, images and napari.

`pathology_app/viewer/frontend/src/layers/palettes.ts` has the same stops; tests/contracts compares them. Viridis and
Cividis are matplotlib's (CC0), Turbo is Google's (Apache-2.0). "Signal" runs from blue through cyan to yellow-green,
which neither haematoxylin and eosin nor DAB have: Turbo's red end cannot be distinguished from brown stain.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

PALETTES: Mapping[str, tuple[str, ...]] = {
    "Signal": ("0066ff", "00c8ff", "00ffb0", "c8ff00"),
    "Viridis": ("440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"),
    "Cividis": ("00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"),
    "Turbo": (
        *("30123b", "4145ab", "4675ed", "39a2fc", "1bcfd4", "24eca6", "61fc6c", "a4fc3b"),
        *("d1e834", "f3c63a", "fe9b2d", "f36315", "d93806", "b11901", "7a0402"),
    ),
    "Green": ("00ff40", "00ff40"),
}
"""Equidistant stops, RRGGBB; between them colours are interpolated linearly."""
DEFAULT_PALETTE = "Signal"

CLASS_COLOURS = ("0072b2", "e69f00", "009e73", "cc79a7", "56b4e9", "d55e00", "f0e442", "000000")
"""Colours of classes, in order: Okabe and Ito's eight, which colour-blind people can tell apart."""


def colours(palette: str, steps: int) -> NDArray[np.float32]:
    """A palette at equal steps from 0 to 1: float32 (steps, 3), 0 to 1, sRGB. Raises KeyError: no such palette."""
    stops = np.array([rgb_of(stop) for stop in PALETTES[palette]], np.float32) / 255
    steps_at, stops_at = np.linspace(0, 1, steps), np.linspace(0, 1, len(stops))
    return np.stack([np.interp(steps_at, stops_at, channel) for channel in stops.T], axis=1).astype(np.float32)


def rgb_of(stop: str) -> tuple[int, int, int]:
    """The bytes of "RRGGBB"."""
    red, green, blue = bytes.fromhex(stop)
    return red, green, blue
