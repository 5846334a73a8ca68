"""Pairs of slides with a known transform, made from real ones: turned, re-stained, mirrored, bent and torn.

The second slide of a pair is the first, resampled: its pixel at y shows the first one's at `source_of(y)`. Stains are
changed in optical density: haematoxylin and eosin are separated with Ruifrok's vectors and mixed in other colours and
amounts, the counterstain by a smooth random field, as an antibody stains some tissue and leaves other tissue pale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import tifffile
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Plane = NDArray[np.float32]

KINDS = ("turned", "re-stained", "re-stained and turned", "mirrored", "bent", "torn")
LIGHT = 242.0
_H_E = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11]])
"""Haematoxylin and eosin (Ruifrok and Johnston, 2001): optical density of red, green and blue."""
_STAINS = {
    "DAB": (np.array([[0.65, 0.70, 0.29], [0.27, 0.57, 0.78]]), (0.7, 1.3)),
    "PAS": (np.array([[0.60, 0.72, 0.35], [0.18, 0.95, 0.25]]), (0.6, 1.1)),
    "trichrome": (np.array([[0.75, 0.55, 0.37], [0.80, 0.30, 0.20]]), (0.9, 0.8)),
}


@dataclass(frozen=True)
class Picture:
    """A real slide, or a part of one.

    Attributes:
        mpp: µm per pixel.
        glass: its background's colour.
    """

    name: str
    pixels: Pixels
    mpp: float
    glass: tuple[int, int, int]


@dataclass(frozen=True)
class Pair:
    """A made slide, and where each of its pixels is on the slide it was made from."""

    kind: str
    pixels: Pixels
    source_x: Plane
    source_y: Plane


def make_pair(picture: Picture, kind: str, seed: int) -> Pair:
    """A second slide of the kind. The same seed makes the same pair."""
    random = np.random.default_rng([seed, KINDS.index(kind)])
    height, width = picture.pixels.shape[:2]
    turned = kind != "re-stained"
    degrees = float(random.uniform(0, 360)) if turned else 0.0
    side_x, side_y = _canvas(width, height, degrees)
    y, x = (plane.astype(np.float32) for plane in np.mgrid[:side_y, :side_x])
    if kind == "torn":
        x, y = _torn(x, y, random, picture.mpp)
    if kind in ("bent", "torn"):
        x, y = _bent(x, y, random, picture.mpp)
    shift = random.uniform(-0.04, 0.04, 2) * (side_x, side_y) if turned else (0.0, 0.0)
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    dx, dy = x - side_x / 2 - np.float32(shift[0]), y - side_y / 2 - np.float32(shift[1])
    source_x, source_y = cos * dx + sin * dy + width / 2, -sin * dx + cos * dy + height / 2
    if kind == "mirrored":
        source_x = width - 1 - source_x
    pixels = cv2.remap(
        picture.pixels, source_x, source_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=picture.glass
    )
    if kind == "torn":
        pixels[np.isnan(source_x) | (source_x < -1e5)] = picture.glass
    if kind not in ("turned", "mirrored"):
        pixels = restained(pixels, str(random.choice(list(_STAINS))), random)
    return Pair(kind, pixels, source_x, source_y)


def restained(pixels: Pixels, stain: str, random: np.random.Generator) -> Pixels:
    """The image in another stain, with its own noise."""
    density = np.log(LIGHT) - np.log(pixels.astype(np.float32) + 1)
    amounts = np.maximum(density.reshape(-1, 3) @ np.linalg.pinv(_unit(_H_E)).astype(np.float32), 0)
    vectors, gains = _STAINS[stain]
    uneven = _smooth(pixels.shape[:2], random, max(pixels.shape) / 12)
    amounts[:, 0] *= gains[0]
    amounts[:, 1] *= gains[1] * np.clip(1 + 0.6 * uneven, 0.1, 2.2).ravel()
    mixed = (amounts @ _unit(vectors).astype(np.float32)).reshape(pixels.shape)
    mixed += random.normal(0, 0.02, pixels.shape).astype(np.float32)
    return np.clip(LIGHT * np.exp(-mixed) - 1, 0, 255).astype(np.uint8)


def write_slide(path: Path, pixels: Pixels, mpp: float) -> None:
    """Write an image as a tiled TIFF that states its scale."""
    tifffile.imwrite(
        path, pixels, tile=(256, 256), photometric="rgb", compression="deflate", metadata=None,
        resolution=(1e4 / mpp, 1e4 / mpp), resolutionunit="CENTIMETER",
    )  # fmt: skip


def _canvas(width: int, height: int, degrees: float) -> tuple[int, int]:
    cos, sin = abs(math.cos(math.radians(degrees))), abs(math.sin(math.radians(degrees)))
    return round(1.1 * (cos * width + sin * height)), round(1.1 * (sin * width + cos * height))


def _bent(x: Plane, y: Plane, random: np.random.Generator, mpp: float) -> tuple[Plane, Plane]:
    """Smooth random offsets of up to about 60 µm, and of 2 % of a small slide."""
    most_px = min(60.0 / mpp, 0.02 * max(x.shape)) / 2.5
    correlation = max(x.shape) / 8
    return tuple(plane + np.float32(most_px) * _smooth(x.shape, random, correlation) for plane in (x, y))  # type: ignore[return-value]


def _torn(x: Plane, y: Plane, random: np.random.Generator, mpp: float) -> tuple[Plane, Plane]:
    """A part of about a third, turned by a few degrees and moved away from the rest; the gap shows nothing."""
    height, width = x.shape
    angle = random.uniform(0, 2 * math.pi)
    across = (x - width / 2) * math.cos(angle) + (y - height / 2) * math.sin(angle)
    tear = across + 0.01 * max(x.shape) * _smooth(x.shape, random, max(x.shape) / 30)
    at = 0.12 * min(width, height)
    gap = min(400.0 / mpp, 0.06 * max(x.shape))
    moved = tear > at + gap
    turn = math.radians(random.uniform(-6, 6))
    cos, sin = math.cos(turn), math.sin(turn)
    px, py = x - gap * math.cos(angle) - width / 2, y - gap * math.sin(angle) - height / 2
    x_moved, y_moved = cos * px - sin * py + width / 2, sin * px + cos * py + height / 2
    lost = (tear > at) & ~moved
    x_new = np.where(moved, x_moved, x)
    return np.where(lost, np.float32(-1e6), x_new).astype(np.float32), np.where(moved, y_moved, y).astype(np.float32)


def _smooth(shape: tuple[int, ...], random: np.random.Generator, sigma_px: float) -> Plane:
    """A smooth random field of standard deviation 1."""
    small = max(4, round(shape[0] / sigma_px * 2)), max(4, round(shape[1] / sigma_px * 2))
    field = random.normal(0, 1, small).astype(np.float32)
    field = cv2.resize(field, (shape[1], shape[0]), interpolation=cv2.INTER_CUBIC)
    return np.asarray(field / max(float(field.std()), 1e-6), np.float32)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
