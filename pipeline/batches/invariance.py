"""Check that a network's results on a slide do not depend on how work is split into batches, threads or devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.batches.blocks import SlidePlan
from pipeline.batches.devices import Devices, ManyDevices, OneDevice
from pipeline.batches.network import Load, TileNetwork
from pipeline.batches.where import RunOn
from training.foundation.progress import Advance, no_bar


@dataclass(frozen=True)
class Variation:
    """The same tiles, computed another way."""

    what: str
    largest_difference: float
    num_changed: int
    """Tiles with any bit changed; of a slide-level model, values of its answer."""


@dataclass(frozen=True)
class InvarianceReport:
    """Changes in the values of a slide, or in a slide-level model's answer."""

    num_tiles: int
    tolerance: float
    """0: bits must be equal."""
    variations: tuple[Variation, ...]
    counts: str = "tile"
    """What `num_changed` counts."""
    note: str = ""
    """A clause on what could not be varied."""

    @property
    def holds(self) -> bool:
        return all(variation.largest_difference <= self.tolerance for variation in self.variations)


def compare_ways(
    plan: SlidePlan,
    network: TileNetwork,
    load: Load,
    run_on: tuple[RunOn, ...],
    *,
    tolerance: float,
    advance: Advance = no_bar,
) -> InvarianceReport:
    """Compute a plan's tiles in several ways and compare them with the usual one.

    Args:
        network: opened on the first of `run_on`.
        run_on: the first is compared with two processes on it, or with all if there are several.
        tolerance: largest difference allowed.

    Raises:
        UnreadableError, ImplausibleOutputError: as for a run over the slide.
    """
    ways = _ways(plan, network, load, run_on)
    advance.expect(len(plan.order) * (len(ways) + 1))
    usual_nk = values_of_plan(plan, OneDevice(network), advance)
    variations = []
    for what, other_plan, open_devices in ways:
        opened = open_devices()
        try:
            other_nk = values_of_plan(other_plan, opened, advance)
        finally:
            if isinstance(opened, ManyDevices):
                opened.end()
        changed = (other_nk != usual_nk).any(1)
        variations.append(Variation(what, float(np.abs(other_nk - usual_nk).max()), int(changed.sum())))
    return InvarianceReport(len(plan.order), tolerance, tuple(variations))


Way = tuple[str, SlidePlan, Callable[[], Devices[TileNetwork]]]


def _ways(plan: SlidePlan, network: TileNetwork, load: Load, run_on: tuple[RunOn, ...]) -> list[Way]:
    def here() -> Devices[TileNetwork]:
        return OneDevice(network)

    ways: list[Way] = [
        (f"batches of {size}", replace(plan, batch_size=size), here) for size in other_batch_sizes(plan.batch_size)
    ]
    ways.append(("one batch to a block", replace(plan, max_block_tiles=plan.batch_size), here))
    ways.append(("one reading thread", plan, lambda: OneDevice(network, threads=1)))
    several = run_on if len(run_on) > 1 else run_on * 2
    names = ", ".join(setup.device for setup in several)
    ways.append((f"{len(several)} processes ({names})", plan, lambda: ManyDevices(load, several)))
    return ways


def other_batch_sizes(usual: int) -> list[int]:
    """Batch sizes that are compared with the usual one."""
    return sorted({1, max(1, usual // 2), usual + 1} - {usual})


def values_of_plan(plan: SlidePlan, devices: Devices[TileNetwork], advance: Advance) -> NDArray[np.float32]:
    """Values in the order of the plan's tiles."""
    values: dict[int, NDArray[np.float32]] = {}
    for result in devices.results(plan.blocks()):
        values[result.number] = result.values_nk
        advance(len(result.values_nk))
    return np.concatenate([values[number] for number in sorted(values)])
