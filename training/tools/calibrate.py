"""A rank that measures this machine for a recipe: `python -m training.local_ranks … -m training.tools.calibrate …`.

What was measured goes to the project.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from training.machine.devices import backend_of, local_ranks, room_bytes
from training.oracle.calibration.calibrate import calibrate
from training.oracle.calibration.machine import machine_path, save_machine
from training.recipe.choice import on_one_rank
from training.recipe.dividing import with_parts_to_choose
from training.recipe.optimisation import cross_entropy
from training.recipe.plan import EmptyBatch
from training.recipe.planned import identity_of, planned_of, setting_of
from training.tools.on_ranks import Measuring, parser_of, run_on_ranks


def measure(of: Measuring, *, cap_bytes: float | None = None) -> dict[str, Any]:
    """Measure on connected ranks; every rank calls it, and the first writes what was found.

    Args:
        cap_bytes: memory of a rank, which decides whether parts are measured for a search; None for what there is.

    Raises:
        GemslideError: a network that cannot be built, or other programs had the cores.
    """
    start_s = time.perf_counter()
    planned = planned_of(on_one_rank(of.recipe), of.side_px, of.device)
    # The same on every rank: each sees the memory of its own moment.
    cap_bytes = of.ranks.broadcast_from_first(cap_bytes or room_bytes(of.device, local_ranks()))
    planned = with_parts_to_choose(planned, of.ranks.num_ranks, cap_bytes)
    blocks, plan = planned.blocks, planned.plan
    plan.place_module(nn.Sequential(*blocks))
    setting = setting_of(of.recipe, of.side_px, of.device)
    identity = identity_of(of.recipe, setting, num_ranks=of.ranks.num_ranks, backend=backend_of(of.ranks.wire))
    targets = EmptyBatch(1, of.recipe.parallel.microbatch_size, of.side_px).targets(0).to(of.device)
    settings = [replace(setting, division=division) for division in planned.divided]
    machine = calibrate(blocks, cross_entropy, targets, plan, settings, of.ranks, identity)
    path = machine_path(of.project_dir, identity)
    if of.ranks.rank == 0:
        path = save_machine(of.project_dir, machine)
    return {
        "machine": str(path),
        "identity": identity.model_dump(),
        "num_blocks": len(blocks),
        "num_measured": len(machine.blocks),
        "seconds": time.perf_counter() - start_s,
    }


if __name__ == "__main__":
    parser = parser_of("python -m training.tools.calibrate")
    parser.add_argument("--cap-bytes", type=float)
    arguments = parser.parse_args()
    sys.exit(run_on_ranks(arguments, partial(measure, cap_bytes=arguments.cap_bytes)))
