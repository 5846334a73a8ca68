"""Measuring a machine: blocks, links, and sums and updates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from torch import nn

from training.engine.executor import Loss
from training.engine.memory import LiveBytes
from training.engine.partition import BlockTimes
from training.engine.plan import Plan
from training.engine.ranks import Ranks
from training.engine.transport import Transport
from training.oracle.calibration.block_inputs import Setting, fingerprints
from training.oracle.calibration.machine import Identity, Machine, MeasuredBlock, network_of
from training.oracle.calibration.measure_blocks import measure_blocks
from training.oracle.calibration.measure_links import measure_link
from training.oracle.calibration.measure_updates import measure_update
from training.oracle.calibration.rounds import together


def calibrate(
    blocks: Sequence[nn.Module],
    loss: Loss,
    targets: object,
    plan: Plan,
    settings: Sequence[Setting],
    ranks: Ranks,
    identity: Identity,
) -> Machine:
    """Measure this machine for one network; every rank calls it and gets what was found.

    Args:
        plan: of the recipe, for its optimizer. The weights are the same afterwards.
        targets: of one micro-batch.
        settings: of the whole blocks, and then of each division that is to be measured.

    Raises:
        BusyMachineError: other programs had the cores.
        ValueError: a block cannot be divided so.
    """
    setting = settings[0]
    transport = Transport(ranks, setting.device, counter=LiveBytes())
    times: dict[str, BlockTimes] = {}
    for each in settings:
        found = measure_blocks(blocks, loss, targets, each, lambda value: together(transport, value), rank=ranks.rank)
        times |= zip(fingerprints(blocks, each), found, strict=True)
    link = measure_link(transport, ranks) if ranks.num_ranks > 1 else None
    update = measure_update(blocks, plan, setting, ranks, transport, network_of(link))
    machine = Machine(
        identity=identity,
        measured_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        blocks={name: MeasuredBlock(**vars(block)) for name, block in times.items()},
        link=link,
        update=update,
    )
    # The fits of two ranks may differ in their last bits.
    shared: Machine = ranks.broadcast_from_first(machine)
    return shared
