"""The oracle's seconds beside the clock: six strategies with three policies each, on two real ranks.

    .venv/bin/python -m benchmarks.oracle [--depth 20] [--side-px 256] [--parts]

Two gloo processes, one thread and one core each. The machine is measured as `gemslide plan --calibrate` does it; then
every plan trains as in `gemslide plan audit`, six plans at a time in fresh processes. With `--parts`, the plans are one
stage in two parts, by rows, filters and channels, beside `ddp`, on two micro-batches. Accuracy is 1 - |p - m| / m of
the predicted p and the median measured m (ParaDL, HPDC 2021). At the end: the fastest measured plan, the one that the
oracle would have picked, and how much longer that took. Prints JSON lines; the committed ones are in
benchmarks/results/oracle.jsonl and oracle_parts.jsonl. Takes about fifteen minutes on an idle machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.engine import on_two_ranks, random_batch
from benchmarks.machine import circumstances
from benchmarks.rounds import BUSY
from training.engine.plan import Plan, make_plan
from training.engine.ranks import Ranks
from training.engine.recompute import Recompute
from training.engine.strategies import STRATEGIES
from training.foundation.errors import BusyMachineError
from training.machine.allocator import keep_for_training
from training.models.resnet_v2 import resnet_v2_blocks
from training.oracle.audit.accuracy import accuracy, summary
from training.oracle.audit.race import Raced, race
from training.oracle.calibration.block_inputs import Setting
from training.oracle.calibration.calibrate import calibrate
from training.oracle.calibration.machine import Machine, identity_here
from training.oracle.predict import predict_step
from training.oracle.simulation.divided import divided_costs
from training.parallel.division import WHOLE, Division
from training.parallel.parted import Split
from training.recipe.optimisation import cross_entropy

NUM_RANKS, NUM_MICROBATCHES = 2, 8
SPLITS: tuple[Split, ...] = ("rows", "filter", "channel")
FEW_MICROBATCHES = 2
"""With parts, which are for batches of few large tiles."""
POLICIES = {"keep": Recompute(), "norm": Recompute(rest="norm"), "every 2": Recompute(2)}
AT_ONCE = 6
"""Plans whose networks and gradients are in memory at a time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=20)
    parser.add_argument("--side-px", type=int, default=256)
    parser.add_argument("--parts", action="store_true")
    arguments = parser.parse_args()
    conditions = {
        "benchmark": "oracle",
        "network": f"ResNet-{arguments.depth}-v2, {arguments.side_px} px, fp32, {NUM_RANKS} ranks",
        **circumstances("benchmarks.oracle"),
    }
    for line in _lines(arguments.depth, arguments.side_px, in_parts=arguments.parts):
        print(json.dumps({**line, **conditions}), flush=True)


def _lines(depth: int, side_px: int, *, in_parts: bool) -> Iterator[dict[str, Any]]:
    divisions = tuple(Division(NUM_RANKS, split) for split in SPLITS) if in_parts else ()
    machine = Machine.model_validate_json(on_two_ranks(_calibrated, depth, side_px, divisions)[0])
    setting = Setting((1, 3, side_px, side_px))
    blocks = _blocks(depth)
    counted = divided_costs(blocks, setting.input_shape, (WHOLE, *divisions))
    costs = {
        division: machine.with_times(blocks, own, replace(setting, division=division))
        for division, own in counted.items()
    }
    yield {"link": machine.link.model_dump() if machine.link else None, "update": machine.update.model_dump()}
    plans = _plans_in_parts() if in_parts else _plans([cost.flops for cost in costs[WHOLE]])
    predicted = {name: predict_step(plan, costs, machine).end_s for name, plan in plans.items()}
    measured: dict[str, float] = {}
    names = list(plans)
    for start in range(0, len(names), AT_ONCE):
        some = {name: plans[name] for name in names[start : start + AT_ONCE]}
        raced = on_two_ranks(_race, depth, side_px, some)[0]
        measured |= {name: one.step_s for name, one in raced.items()}
        yield from (_line(name, predicted[name], raced.get(name)) for name in some)
    picked = min(predicted, key=predicted.__getitem__)
    yield summary(predicted, measured, picked) if len(measured) == len(plans) else {"summary": BUSY}


def _line(name: str, predicted_s: float, raced: Raced | None) -> dict[str, Any]:
    strategy, _, policy = name.partition(", ")
    line: dict[str, Any] = {"strategy": strategy, "recompute": policy, "predicted s": round(predicted_s, 4)}
    if raced is None:
        return {**line, "measured s": BUSY, "accuracy": BUSY}
    right = round(accuracy(predicted_s, raced.step_s), 4)
    return {**line, "measured s": round(raced.step_s, 4), "accuracy": right, "good rounds": len(raced.rounds_s)}


def _plans(flops: list[int]) -> dict[str, Plan]:
    plans = {}
    for strategy in STRATEGIES:
        groups = NUM_RANKS if strategy == "single" else 1
        for policy, recompute in POLICIES.items():
            plans[f"{strategy}, {policy}"] = make_plan(
                strategy,
                costs=flops,
                num_stages=NUM_RANKS // groups,
                num_microbatches=NUM_MICROBATCHES // groups,
                data_parallel=groups,
                recompute=recompute,
            )
    return plans


def _plans_in_parts() -> dict[str, Plan]:
    """One stage in two parts, and a whole network on each of two ranks."""
    plans = {}
    for policy in ("keep", "every 2"):
        options: dict[str, Any] = {"costs": [1.0], "recompute": POLICIES[policy]}
        plans[f"ddp, {policy}"] = make_plan("single", data_parallel=NUM_RANKS, **options)
        for split in SPLITS:
            plans[f"{split}, {policy}"] = make_plan(
                "single", num_microbatches=FEW_MICROBATCHES, parts=(NUM_RANKS,), split=(split,), **options
            )
    return plans


def _calibrated(ranks: Ranks, depth: int, side_px: int, divisions: tuple[Division, ...]) -> str:
    keep_for_training()
    blocks = _blocks(depth)
    setting = Setting((1, 3, side_px, side_px))
    plan = make_plan("single", costs=[1.0] * len(blocks), data_parallel=NUM_RANKS)
    identity = identity_here(setting, threads=1, backend="gloo", num_ranks=NUM_RANKS)
    targets = torch.zeros(1, dtype=torch.int64)
    settings = [setting, *(replace(setting, division=division) for division in divisions)]
    return calibrate(blocks, cross_entropy, targets, plan, settings, ranks, identity).model_dump_json()


def _race(ranks: Ranks, depth: int, side_px: int, plans: dict[str, Plan]) -> dict[str, Raced]:
    """What was measured of each plan; nothing if the machine was busy."""
    keep_for_training()
    first = next(iter(plans.values()))
    number = first.num_microbatches * first.data_parallel
    try:
        return race(plans, partial(_blocks, depth), random_batch(number, side_px), cross_entropy, ranks)
    except BusyMachineError:
        return {}


def _blocks(depth: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return resnet_v2_blocks(depth=depth, num_classes=2)


if __name__ == "__main__":
    main()
