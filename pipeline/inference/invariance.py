"""Check that a model's probabilities on a slide do not depend on how the work is split."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pipeline.batches.invariance import InvarianceReport, compare_ways
from pipeline.batches.slide_tiles import tissue_tiles
from pipeline.inference.infer import plan_tiles, slide_grid
from pipeline.inference.predictor import Predictor, run_on_of
from pipeline.settings.config import InferConfig
from pipeline.store.reading.reader import StoreReader
from training.foundation.progress import Advance, no_bar

TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}
"""Largest difference of a probability between ways to split the work, where bits need not be equal."""


def check_invariance(
    package: Path,
    reader: StoreReader,
    config: InferConfig,
    devices: tuple[str, ...],
    *,
    max_tiles: int,
    advance: Advance = no_bar,
) -> InvarianceReport:
    """Predict some tiles of a slide in several ways and compare them with the way `infer` works.

    Args:
        devices: the first is compared with two processes on it, or with all devices if there are several.
        max_tiles: tiles to predict, spread over the slide.

    Raises:
        NoTissueError, BadRecipeError, UnreadableError: as for inference on the slide.
    """
    predictor = Predictor.load(package, run_on_of(devices[0], config))
    grid = slide_grid(reader, predictor, overlap=config.overlap)
    _, chosen = tissue_tiles(reader, grid, config.min_tissue, section="infer")
    chosen = chosen[:: -(-len(chosen) // max_tiles)]
    return compare_ways(
        plan_tiles(reader, predictor, grid, chosen, config, glass=chosen[:0]),
        predictor,
        partial(Predictor.load, package),
        tuple(run_on_of(name, config) for name in devices),
        tolerance=0.0 if config.deterministic else TOLERANCE[config.precision],
        advance=advance,
    )
