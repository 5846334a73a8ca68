"""Check that an encoder's features of a slide do not depend on how the work is split."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from pipeline.batches.blocks import SlidePlan
from pipeline.batches.devices import OneDevice
from pipeline.batches.invariance import InvarianceReport, compare_ways
from pipeline.batches.slide_tiles import tissue_tiles
from pipeline.embedding.embed import encoder_grid, plan_embedding
from pipeline.embedding.encoder import TileEncoder
from pipeline.embedding.stage import encoder_run_on
from pipeline.settings.config import EmbedConfig
from pipeline.store.reading.reader import StoreReader
from training.foundation.progress import Advance, no_bar

TOLERANCE = {"fp32": 1e-3, "bf16": 2e-2}
"""Largest difference of a feature between ways to split the work, as a share of the largest absolute feature of the
tiles compared, where bits need not be equal."""


def check_encoder_invariance(
    row_path: Path,
    reader: StoreReader,
    config: EmbedConfig,
    devices: tuple[str, ...],
    *,
    max_tiles: int,
    advance: Advance = no_bar,
) -> InvarianceReport:
    """Embed some tiles of a slide in several ways and compare them with the way `embed` works.

    Args:
        devices: the first is compared with two processes on it, or with all devices if there are several.
        max_tiles: tiles to embed, spread over the slide.

    Raises:
        NoTissueError, BadRecipeError, UnreadableError: as for embedding the slide.
    """
    load = partial(TileEncoder.load, row_path)
    run_on = tuple(encoder_run_on(name, config) for name in devices)
    encoder = load(run_on[0])
    grid = encoder_grid(reader, encoder, config)
    _, chosen = tissue_tiles(reader, grid, config.min_tissue, section="embed")
    chosen = chosen[:: -(-len(chosen) // max_tiles)]
    plan = plan_embedding(reader, encoder, grid, chosen, config)
    tolerance = 0.0
    if not config.deterministic:
        tolerance = TOLERANCE[encoder.run_on.numerics.precision] * _largest(plan, encoder)
    return compare_ways(plan, encoder, load, run_on, tolerance=tolerance, advance=advance)


def _largest(plan: SlidePlan, encoder: TileEncoder) -> float:
    """The largest absolute feature of a plan's tiles."""
    return max(float(np.abs(result.values_nk).max()) for result in OneDevice(encoder).results(plan.blocks()))
