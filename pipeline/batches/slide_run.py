"""A network's run over one slide: batches that the journal lacks are computed; all are checked to be there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pipeline.batches.blocks import SlidePlan
from pipeline.batches.devices import Devices
from pipeline.batches.journal import BatchResult, Journal
from pipeline.batches.network import TileNetwork
from pipeline.run_record import versions
from training.foundation.errors import ImplausibleOutputError
from training.foundation.progress import Advance
from training.foundation.words.counts import counted


def run_on_text(network: TileNetwork) -> dict[str, object]:
    """Everything that the bits of a network's values depend on, except itself and tiles, as JSON."""
    kinds = {"+".join(part.split(":")[0] for part in device.split("+")) for device in network.devices}
    return {"device": ",".join(sorted(kinds)), **asdict(network.run_on.numerics)}


def journal_key(key: Mapping[str, Any], plan: SlidePlan, network: TileNetwork) -> dict[str, Any]:
    """Everything that the bits of a batch's result depend on.

    Args:
        key: of the results.
    """
    how = {"batch_size": plan.batch_size, "tiles": plan.fingerprint, "run_on": run_on_text(network)}
    return {**key, **how, "versions": versions()}


def compute_missing(
    plan: SlidePlan, devices: Devices[TileNetwork], journal: Journal, advance: Advance
) -> dict[str, float]:
    """Compute the batches that the journal lacks, and keep them in it.

    Returns:
        seconds: `predict` in wall-clock time, and within it those of `Devices.seconds`.
    """
    advance.expect(len(plan.order))
    for result in journal.finished.values():
        advance(len(result.values_nk))
    with devices.turn:
        start, before = time.perf_counter(), devices.seconds
        for result in devices.results(plan.blocks(set(journal.finished))):
            journal.add(result)
            advance(len(result.values_nk))
        return {"predict": time.perf_counter() - start, **asdict(devices.seconds - before)}


def complete_results(
    plan: SlidePlan, journal: Journal, columns: int, *, whose: str, done: str, value: str
) -> list[BatchResult]:
    """Results of all batches in the plan's order, once each tile is found to have one row of them.

    Args:
        columns: values of a tile.
        whose, done, value: for the message, such as "slide S-1, model m-1", "predicted" and "value".

    Raises:
        ImplausibleOutputError: a batch or a tile is missing, or has another number of values.
    """
    results = sorted(journal.finished.values(), key=lambda result: result.number)
    actual = [(result.number, *result.values_nk.shape) for result in results]
    expected = [(number, len(plan.order[plan.tiles_of(number)]), columns) for number in range(plan.num_batches)]
    if actual != expected:
        raise ImplausibleOutputError(
            f"{whose}: {counted(len(plan.order), 'tile was', 'tiles were')} to be {done} in "
            f"{counted(len(expected), 'batch', 'batches')}, with {counted(columns, value)} each; there are "
            f"results for {counted(sum(tiles for _, tiles, _ in actual), 'tile')} in "
            f"{counted(len(actual), 'batch', 'batches')}. Nothing was published: run it again."
        )
    return results
