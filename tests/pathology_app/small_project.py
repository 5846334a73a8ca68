"""A project with one small slide: not square, every tile different, predictions with hotspots."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import tifffile
from skimage.filters import gaussian

from pipeline.inference.results.hotspots import Hotspots, find_hotspots, write_hotspots
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store.layers.overlays import Predictions, write_predictions
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.damage import damage_tiles

SLIDE_ID = "S-001"
MODEL_ID = "demo-0a1b2c3d"
CLASS_NAMES = ("negative", "positive")
WIDTH_PX0, HEIGHT_PX0 = 1800, 1300
MPP0 = 0.5
STRIDE_PX0 = 64
HOTSPOTS_XY_PX0 = ((480, 864), (1376, 352))
"""Centres of the strongest cells, in descending order of score."""

DAMAGED_TILES = {(1, 1), (1, 2), (2, 2), (5, 7)}
"""(row, column) of tiles of 256 px; the last extends beyond the slide's corner."""


def make_project(root: Path) -> Project:
    """Ingest the slide and store predictions and hotspots beside it."""
    project = Project(root)
    source = root / "source.tiff"
    write_tiff(source)
    ingest_slide(IngestRequest(source, SLIDE_ID), project, IngestConfig())
    predictions = small_predictions()
    write_predictions(project.store_path(SLIDE_ID), predictions, mpp0=MPP0)
    write_small_hotspots(project, predictions, 0.5)
    return project


def write_small_hotspots(project: Project, predictions: Predictions, threshold: float) -> None:
    """Write hotspots as inference with a threshold does."""
    spots = find_hotspots(predictions, ["positive"], mpp0=MPP0, threshold=threshold, most=10)
    write_hotspots(project.result_dir(SLIDE_ID, MODEL_ID) / "hotspots.json", Hotspots(threshold, spots))


def make_damaged_project(root: Path) -> Project:
    """Make the same slide with damaged tiles, masked, and the same predictions, as if made before the damage."""
    project = Project(root)
    write_tiff(root / "source.tiff")
    columns = -(-WIDTH_PX0 // 256)
    damage_tiles(root / "source.tiff", [row * columns + column for row, column in DAMAGED_TILES], "zeros")
    ingest_slide(IngestRequest(root / "source.tiff", SLIDE_ID), project, IngestConfig(damaged="mask"))
    write_predictions(project.store_path(SLIDE_ID), small_predictions(), mpp0=MPP0)
    return project


def flip_a_bit(project: Project, *, row: int, column: int) -> None:
    """Damage one chunk of the finest level: its shard exists, but its checksum does not match."""
    stream = StoreReader(project.store_path(SLIDE_ID)).chunk(0, row, column)
    assert stream
    for shard in (project.store_path(SLIDE_ID) / "0" / "0" / "c").rglob("*"):
        content = shard.read_bytes() if shard.is_file() else b""
        if (start := content.find(stream)) >= 0:
            at = start + len(stream) // 2
            shard.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            return
    raise AssertionError("no shard holds the chunk")


def write_tiff(path: Path) -> None:
    """Write a tiled TIFF of two levels with JPEG compression, and the resolution in the TIFF's own tags."""
    finest = slide_pixels()
    coarse = finest.reshape(HEIGHT_PX0 // 4, 4, WIDTH_PX0 // 4, 4, 3).mean((1, 3)).astype(np.uint8)
    with tifffile.TiffWriter(path) as writer:
        for level, pixels in enumerate((finest, coarse)):
            per_cm = 10_000 / (MPP0 * 4**level)
            writer.write(
                pixels,
                tile=(256, 256),
                photometric="rgb",
                compression="jpeg",
                compressionargs={"level": 92},
                resolution=(per_cm, per_cm),
                resolutionunit="CENTIMETER",
                subfiletype=1 if level else 0,
            )


@lru_cache(maxsize=1)  # its blurs take longer than anything else here
def slide_pixels() -> np.ndarray:
    """Pink tissue with purple nuclei on white glass, from a fixed seed."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[:HEIGHT_PX0, :WIDTH_PX0]
    wobble = gaussian(rng.normal(size=(HEIGHT_PX0, WIDTH_PX0)), 40) * 40
    inside = ((x - 900) / 800) ** 2 + ((y - 650) / 560) ** 2 + wobble < 1
    nuclei = gaussian(rng.normal(size=(HEIGHT_PX0, WIDTH_PX0)), 4) > 0.09
    pixels = np.full((HEIGHT_PX0, WIDTH_PX0, 3), 243, np.float32)
    fibres = gaussian(rng.normal(size=(HEIGHT_PX0, WIDTH_PX0)), (2, 12))[..., None] * 300
    pixels[inside] = (np.array([226, 160, 196]) + fibres)[inside]
    pixels[inside & nuclei] = (96, 64, 140)
    shown = np.clip(gaussian(pixels, 1, channel_axis=-1) + rng.normal(0, 2, pixels.shape), 0, 255).astype(np.uint8)
    shown.flags.writeable = False
    return shown


def small_predictions() -> Predictions:
    """Two blocks of high probability on a low ramp; the outer cells were not predicted."""
    rows, columns = HEIGHT_PX0 // STRIDE_PX0, WIDTH_PX0 // STRIDE_PX0
    positive = np.linspace(0.02, 0.45, rows * columns, dtype=np.float32).reshape(rows, columns)
    for (x_px0, y_px0), score in zip(HOTSPOTS_XY_PX0, (0.97, 0.81), strict=True):
        row, column = y_px0 // STRIDE_PX0, x_px0 // STRIDE_PX0
        positive[row - 1 : row + 2, column - 1 : column + 2] = score - 0.1
        positive[row, column] = score
    positive[:2] = positive[-2:] = positive[:, :3] = positive[:, -3:] = np.nan
    probabilities = np.stack([1 - positive, positive]).astype(np.float16)
    return Predictions(MODEL_ID, CLASS_NAMES, probabilities, float(STRIDE_PX0), float(STRIDE_PX0), {})
