"""Faults painted into real tissue at known positions."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray
from skimage import data

Pixels = NDArray[np.uint8]
Box = tuple[int, int, int, int]
"""left, top, right, bottom, in pixels."""

INKS = {"blue": (25, 45, 160), "green": (20, 120, 60), "black": (25, 25, 30), "red": (205, 30, 45)}


def real_tissue(width_px: int, height_px: int, *, margin_px: int = 0, seed: int = 0) -> Pixels:
    """Tissue from scikit-image's photograph, in differently rotated crops, with glass around."""
    photograph = np.asarray(data.immunohistochemistry(), np.uint8)
    random, side = np.random.default_rng(seed), 256
    pixels = np.full((height_px, width_px, 3), 243, np.uint8)
    for y in range(margin_px, height_px - margin_px, side):
        for x in range(margin_px, width_px - margin_px, side):
            top, left = random.integers(0, 512 - side, 2)
            crop = np.rot90(photograph[top : top + side, left : left + side], random.integers(4))
            bottom, right = min(y + side, height_px - margin_px), min(x + side, width_px - margin_px)
            pixels[y:bottom, x:right] = crop[: bottom - y, : right - x]
    return pixels


def blur(pixels: Pixels, box: Box, sigma_px: float) -> None:
    left, top, right, bottom = box
    pixels[top:bottom, left:right] = cv2.GaussianBlur(pixels[top:bottom, left:right], (0, 0), sigma_px)


def pen(pixels: Pixels, box: Box, ink: str, width_px: int) -> None:
    """Draw a wavy stroke through the box; some tissue shows through, as under real ink."""
    left, top, right, bottom = box
    x = np.arange(left, right, 4)
    y = (top + bottom) / 2 + 0.2 * (bottom - top) * np.sin((x - left) / (right - left) * 2 * np.pi)
    stroke = np.zeros(pixels.shape[:2], np.uint8)
    cv2.polylines(stroke, [np.stack([x, y], -1).astype(np.int32)], False, 255, width_px, cv2.LINE_AA)
    share = (cv2.GaussianBlur(stroke, (0, 0), 2).astype(np.float32) / 255)[..., None]
    inked = 0.9 * np.asarray(INKS[ink], np.float32) + 0.1 * pixels
    pixels[:] = np.rint(share * inked + (1 - share) * pixels).astype(np.uint8)


def fold(pixels: Pixels, box: Box, shift_px: int) -> None:
    """Put two more layers of tissue over the box: a fold has three."""
    left, top, right, bottom = box
    layer = pixels[top:bottom, left:right].astype(np.float32) / 255
    others = np.roll(layer, (shift_px, -shift_px), (0, 1)) * layer[::-1]
    pixels[top:bottom, left:right] = np.rint(255 * layer * others).astype(np.uint8)


def bubble(pixels: Pixels, centre_xy: tuple[int, int], radius_px: int, rim_px: int) -> None:
    """Draw a ring that transmits a third of the light, like the refracting rim of a bubble."""
    ring = np.zeros(pixels.shape[:2], np.uint8)
    cv2.circle(ring, centre_xy, radius_px, 255, rim_px, cv2.LINE_AA)
    share = (cv2.GaussianBlur(ring, (0, 0), 3).astype(np.float32) / 255)[..., None]
    pixels[:] = np.rint(pixels * (1 - 0.67 * share)).astype(np.uint8)
