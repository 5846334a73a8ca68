"""Check that a model's results on a slide do not depend on how the work is split into batches, threads or devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.inference.blocks import SlidePlan
from pipeline.inference.devices import Devices, ManyDevices, OneDevice
from pipeline.inference.infer import plan_tiles, slide_grid, tissue_tiles
from pipeline.inference.predictor import Predictor, run_on_of
from pipeline.settings.config import InferConfig
from pipeline.store.reading.reader import StoreReader
from training.foundation.progress import Advance, no_bar

TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}
"""Largest difference of a probability between ways to split the work, where bits need not be equal."""


@dataclass(frozen=True)
class Variation:
    """The same tiles, predicted another way."""

    what: str
    largest_difference: float
    num_changed: int
    """Tiles with any bit changed."""


@dataclass(frozen=True)
class InvarianceReport:
    """Changes in a slide's probabilities."""

    num_tiles: int
    tolerance: float
    """0: bits must be equal."""
    variations: tuple[Variation, ...]

    @property
    def holds(self) -> bool:
        return all(variation.largest_difference <= self.tolerance for variation in self.variations)


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
    plan = _plan(reader, predictor, config, max_tiles)
    ways = _ways(plan, predictor, package, config, devices)
    advance.expect(len(plan.order) * (len(ways) + 1))
    usual_nk = _values(plan, OneDevice(predictor), advance)
    variations = []
    for what, other_plan, open_devices in ways:
        opened = open_devices()
        try:
            other_nk = _values(other_plan, opened, advance)
        finally:
            if isinstance(opened, ManyDevices):
                opened.end()
        changed = (other_nk != usual_nk).any(1)
        variations.append(Variation(what, float(np.abs(other_nk - usual_nk).max()), int(changed.sum())))
    tolerance = 0.0 if config.deterministic else TOLERANCE[config.precision]
    return InvarianceReport(len(plan.order), tolerance, tuple(variations))


def _plan(reader: StoreReader, predictor: Predictor, config: InferConfig, max_tiles: int) -> SlidePlan:
    grid = slide_grid(reader, predictor, overlap=config.overlap)
    _, chosen = tissue_tiles(reader, grid, config.min_tissue)
    chosen = chosen[:: -(-len(chosen) // max_tiles)]
    return plan_tiles(reader, predictor, grid, chosen, config, glass=chosen[:0])


Way = tuple[str, SlidePlan, Callable[[], Devices]]


def _ways(
    plan: SlidePlan, predictor: Predictor, package: Path, config: InferConfig, devices: tuple[str, ...]
) -> list[Way]:
    def here() -> Devices:
        return OneDevice(predictor)

    usual = plan.batch_size
    sizes = sorted({1, max(1, usual // 2), usual + 1} - {usual})
    ways: list[Way] = [(f"batches of {size}", replace(plan, batch_size=size), here) for size in sizes]
    ways.append(("one batch to a block", replace(plan, max_block_tiles=usual), here))
    ways.append(("one reading thread", plan, lambda: OneDevice(predictor, threads=1)))
    several = devices if len(devices) > 1 else devices * 2
    run_on = tuple(run_on_of(name, config) for name in several)
    ways.append((f"{len(several)} processes ({', '.join(several)})", plan, lambda: ManyDevices(package, run_on)))
    return ways


def _values(plan: SlidePlan, devices: Devices, advance: Advance) -> NDArray[np.float32]:
    """Probabilities in the order of the plan's tiles."""
    values: dict[int, NDArray[np.float32]] = {}
    for result in devices.results(plan.blocks()):
        values[result.number] = result.probabilities_nk
        advance(len(result.probabilities_nk))
    return np.concatenate([values[number] for number in sorted(values)])
