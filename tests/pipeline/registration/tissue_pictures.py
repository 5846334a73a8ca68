"""Slides of made tissue with known transforms: not square, nowhere alike, in two stains."""

from __future__ import annotations

import math

import cv2
import numpy as np
import tifffile
from numpy.typing import NDArray

from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.registration import Affine
from pipeline.settings.config import IngestConfig
from pipeline.store.reading.reader import StoreReader

Pixels = NDArray[np.uint8]
WIDTH_PX, HEIGHT_PX, MPP = 720, 520, 10.0
GLASS = (240, 240, 240)
HE = ((0.65, 0.70, 0.29), (0.07, 0.99, 0.11))
DAB = ((0.65, 0.70, 0.29), (0.27, 0.57, 0.78))


def tissue(seed: int, *, is_symmetric: bool = False) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Amounts of two stains: structure of several sizes within a lobed outline; 0 on glass."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:HEIGHT_PX, :WIDTH_PX].astype(np.float32)
    angle = np.arctan2(y - HEIGHT_PX / 2, x - WIDTH_PX / 2)
    phases = random.uniform(0, 6, 3)
    lobes = 1 + sum(0.09 * np.cos((k + 2) * angle + phase) for k, phase in enumerate(phases))
    radius = np.hypot((x - WIDTH_PX / 2) / (0.42 * WIDTH_PX), (y - HEIGHT_PX / 2) / (0.42 * HEIGHT_PX))
    inside = (radius < (1.0 if is_symmetric else lobes)).astype(np.float32)
    planes = []
    for _ in range(2):
        plane = sum(_noise(random, size) for size in (6, 14, 40))
        if is_symmetric:
            plane = (plane + plane[::-1, ::-1]) / 2
        planes.append(np.clip(0.5 + 0.28 * plane, 0.05, 1.4).astype(np.float32) * inside)
    return planes[0], planes[1]


def _noise(random: np.random.Generator, size_px: int) -> NDArray[np.float32]:
    """Smooth random structure of one size, of standard deviation 1."""
    grid = random.normal(0, 1, (HEIGHT_PX // size_px + 3, WIDTH_PX // size_px + 3)).astype(np.float32)
    plane = cv2.resize(grid, (WIDTH_PX, HEIGHT_PX), interpolation=cv2.INTER_CUBIC)
    return np.asarray(plane / plane.std(), np.float32)


def stained(amounts: tuple[NDArray[np.float32], NDArray[np.float32]], vectors=HE, weights=(0.8, 0.6)) -> Pixels:
    density = sum(
        weight * amount[..., None] * np.asarray(vector, np.float32)
        for weight, amount, vector in zip(weights, amounts, vectors, strict=True)
    )
    return np.clip(240 * np.exp(-density), 0, 255).astype(np.uint8)


def transform(degrees: float, *, is_mirrored: bool = False, scale: float = 1.0, shift=(30.0, -18.0)) -> Affine:
    """A turn about the middle, in pixels."""
    cos, sin = scale * math.cos(math.radians(degrees)), scale * math.sin(math.radians(degrees))
    linear = np.array([[cos, -sin], [sin, cos]]) @ np.diag([-1.0 if is_mirrored else 1.0, 1.0])
    middle = np.array([WIDTH_PX / 2, HEIGHT_PX / 2])
    goal = np.array([CANVAS_PX[0] / 2, CANVAS_PX[1] / 2]) + shift
    return Affine.of_matrix(np.column_stack([linear, goal - linear @ middle]))


CANVAS_PX = (900, 840)


def warped(pixels: Pixels, affine: Affine) -> Pixels:
    """The image after a transform of pixel corners."""
    centre = Affine(1, 0, 0.5, 0, 1, 0.5)
    matrix = centre.inverse().after(affine).after(centre).matrix[:2]
    return np.asarray(cv2.warpAffine(pixels, matrix, CANVAS_PX, flags=cv2.INTER_LINEAR, borderValue=GLASS), np.uint8)


def ingested(project: Project, slide_id: str, pixels: Pixels, mpp: float = MPP) -> StoreReader:
    path = project.root / f"{slide_id}.tiff"
    path.parent.mkdir(parents=True, exist_ok=True)
    tifffile.imwrite(
        path, pixels, tile=(256, 256), photometric="rgb", compression="deflate", metadata=None,
        resolution=(1e4 / mpp, 1e4 / mpp), resolutionunit="CENTIMETER",
    )  # fmt: skip
    ingest_slide(IngestRequest(path, slide_id), project, IngestConfig())
    return StoreReader(project.store_path(slide_id))


def largest_error_um(found: Affine, truth: Affine, *, mpp_fixed: float) -> float:
    """Largest distance between two transforms over the middle of the moving slide; both in level-0 pixels."""
    at = np.array([(x, y) for x in (160.0, 360.0, 560.0) for y in (130.0, 260.0, 390.0)])
    return float(np.linalg.norm(found.moved(at) - truth.moved(at), axis=1).max()) * mpp_fixed
