"""A cohort of small real slides and some unusable files, to cover every terminal state of a slide.

Real stained tissue (scikit-image's photograph); slides differ in size and in their rotated and mirrored crops.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from skimage import data

from tests.pipeline.make import halved, write_jpeg_pyramid

GLASS_RGB = 243
TILE_PX = 128
WAYS = ("truncated", "no slide", "no mpp", "glass", "blurred", "excluded")
"""Ways in which a slide can be bad; the first two share a terminal state, the others have one each."""
MOST_GOOD = 12
"""Maximum number of good slides per bad one."""

Pixels = NDArray[np.uint8]


def write_cohort(folder: Path, count: int, seed: int) -> Path:
    """Write slides and their manifest. Return the manifest."""
    photograph = np.asarray(data.immunohistochemistry(), np.uint8)
    every = max(2, min(MOST_GOOD, count // len(WAYS)))
    rows = ["path,slide_id,patient_id,site,exclude"]
    for number in range(count):
        way = WAYS[number // every % len(WAYS)] if number % every == every - 1 else ""
        path = folder / f"S{number:04}.tiff"
        _write_slide(path, photograph, np.random.default_rng([seed, number]), way)
        excluded = "broken glass" if way == "excluded" else ""
        rows.append(f"{path.name},{path.stem},patient-{number},site {number % 3},{excluded}")
    manifest = folder / "cohort.csv"
    manifest.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return manifest


def _write_slide(path: Path, photograph: Pixels, random: np.random.Generator, way: str) -> None:
    if way == "no slide":
        path.write_bytes(b"a letter, by mistake " * int(random.integers(10, 1000)))
        return
    pixels = _pixels(photograph, random, has_tissue=way != "glass")
    if way == "blurred":
        pixels = np.asarray(cv2.GaussianBlur(pixels, (0, 0), 9.0), np.uint8)
    write_jpeg_pyramid(path, halved(pixels, 1), tile_px=TILE_PX, mpp=None if way == "no mpp" else 0.5)
    if way == "truncated":
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])


def _pixels(photograph: Pixels, random: np.random.Generator, *, has_tissue: bool) -> Pixels:
    """Slide, uint8 (height, width, 3): a crop of the photograph with glass around. Flat, to keep images small."""
    width, height = int(random.integers(760, 960)), int(random.integers(230, 280))
    pixels = np.full((height, width, 3), GLASS_RGB, np.uint8)
    if has_tissue:
        left, top = random.integers(24, 48, 2)
        right, bottom = width - random.integers(24, 48), height - random.integers(24, 48)
        crop = np.rot90(photograph, random.integers(4))[:, :: random.choice([1, -1])]
        wide = np.concatenate([crop, crop[:, ::-1]], 1)
        y, x = random.integers(0, len(wide) - (bottom - top)), random.integers(0, wide.shape[1] - (right - left))
        pixels[top:bottom, left:right] = wide[y : y + bottom - top, x : x + right - left]
    return pixels
