"""Stain normalisation: a tile's colours as if its slide had been stained and scanned like the reference.

Fitted per slide (`gemslide qc`), applied when a tile is read, never stored. Glass keeps its colour: the change
fades out between stained tissue and pixels that absorb nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.types import Pixels

Method = Literal["macenko", "reinhard"]
METHODS: tuple[Method, ...] = ("macenko", "reinhard")

LIGHT = 240.0
"""Grey value taken for unabsorbed light (Macenko et al., ISBI 2009, and its public implementations)."""
MIN_DENSITY = 0.15
"""Optical density below which a pixel counts as transparent (the same source's beta)."""


class Fit(Protocol):
    """A slide's own colours, or the reference's."""

    def change(self, pixels: Pixels, target: Any) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class MacenkoFit:
    """Two stains as directions in optical density, and the amount of each."""

    stain_matrix: tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
    """Rows red, green, blue; columns haematoxylin, eosin; each column of length 1."""
    max_concentration: tuple[float, float]
    """99th percentile of each stain's concentration."""

    def change(self, pixels: Pixels, target: MacenkoFit) -> NDArray[np.float32]:
        """Concentrations by least squares, scaled to the target's, mixed with the target's stains: a 3 × 3 matrix."""
        scale = np.divide(target.max_concentration, self.max_concentration)
        change = np.asarray(target.stain_matrix) @ np.diag(scale) @ np.linalg.pinv(self.stain_matrix)
        density = cv2.transform(density_of(pixels), change.astype(np.float32))
        return np.asarray(LIGHT * cv2.exp(-density), np.float32)


@dataclass(frozen=True)
class ReinhardFit:
    """Mean and standard deviation of the tissue in CIELAB (D65)."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def change(self, pixels: Pixels, target: ReinhardFit) -> NDArray[np.float32]:
        """Each channel moved and stretched to the target's mean and deviation (Reinhard et al., 2001)."""
        gain = np.divide(target.std, self.std).astype(np.float32)
        shift = (np.asarray(target.mean) - gain * np.asarray(self.mean)).astype(np.float32)
        return np.asarray(255 * cv2.cvtColor(lab_of(pixels) * gain + shift, cv2.COLOR_LAB2RGB), np.float32)


MACENKO_REFERENCE = MacenkoFit(
    stain_matrix=((0.5626, 0.2159), (0.7201, 0.8012), (0.4062, 0.5581)), max_concentration=(1.9705, 1.0308)
)
"""The reference published with the method's first open implementation, and used by most since."""
REINHARD_REFERENCE = ReinhardFit(mean=(68.45, 16.99, -6.79), std=(20.37, 10.14, 5.73))
"""Tissue of OpenSlide's CMU-1-Small-Region.svs (CC0) after Macenko normalisation to the reference above, so that both
methods aim at the same appearance."""


def density_of(pixels: Pixels) -> NDArray[np.float32]:
    """Optical density -ln((I + 1) / 240) of each channel."""
    table = -np.log((np.arange(256) + 1) / LIGHT)
    return np.asarray(table.astype(np.float32)[pixels], np.float32)


def lab_of(pixels: Pixels) -> NDArray[np.float32]:
    """CIELAB (D65): L 0 to 100, a and b around 0."""
    return np.asarray(cv2.cvtColor(pixels.astype(np.float32) / 255, cv2.COLOR_RGB2LAB), np.float32)


class Normaliser:
    """Changes tiles of one slide. Thread-safe; the same pixels in give the same pixels out."""

    def __init__(self, fit: Fit, target: Fit) -> None:
        self._fit, self._target = fit, target

    def __call__(self, pixels: Pixels) -> Pixels:
        """Args: pixels: uint8 (height, width, 3). White stays white; no value is ever NaN."""
        if not pixels.size:
            return pixels
        stained = np.clip(density_of(pixels).max(-1, keepdims=True) / MIN_DENSITY, 0, 1)
        changed = np.clip(self._fit.change(pixels, self._target), 0, 255)
        return np.asarray(np.rint(stained * changed + (1 - stained) * pixels), np.uint8)


def describe(method: Method) -> dict[str, Any]:
    """Method and target as numbers, which a model package records so that they never change."""
    target = MACENKO_REFERENCE if method == "macenko" else REINHARD_REFERENCE
    return {"method": method, "target": as_lists(target)}


def as_lists(fit: MacenkoFit | ReinhardFit) -> dict[str, Any]:
    """A fit as plain JSON."""
    return {key: _lists(value) for key, value in asdict(fit).items()}


def _lists(value: Any) -> Any:
    return [_lists(v) for v in value] if isinstance(value, Sequence) else value


def fit_of(method: str, numbers: Mapping[str, Any]) -> MacenkoFit | ReinhardFit:
    """Read back what `as_lists` returned.

    Raises:
        ValueError: another method, other shapes, or invalid numbers.
    """
    shapes: dict[str, dict[str, tuple[int, ...]]] = {
        "macenko": {"stain_matrix": (3, 2), "max_concentration": (2,)},
        "reinhard": {"mean": (3,), "std": (3,)},
    }
    if method not in shapes:
        raise ValueError(f"stain method {method!r}: expected one of {', '.join(METHODS)}")
    arrays = {key: np.asarray(numbers.get(key), np.float64) for key in shapes[method]}
    for key, shape in shapes[method].items():
        if arrays[key].shape != shape or not np.isfinite(arrays[key]).all():
            raise ValueError(f"stain {method}: {key} is not {shape} finite numbers: {numbers.get(key)}")
    if method == "macenko":
        (r, g, b), (h, e) = arrays["stain_matrix"].tolist(), arrays["max_concentration"].tolist()
        if min(h, e) <= 0:
            raise ValueError(f"stain macenko: max_concentration {[h, e]} must be above 0")
        return MacenkoFit((tuple(r), tuple(g), tuple(b)), (h, e))
    mean, std = arrays["mean"].tolist(), arrays["std"].tolist()
    if min(std) <= 0:
        raise ValueError(f"stain reinhard: std {std} must be above 0")
    return ReinhardFit(tuple(mean), tuple(std))
