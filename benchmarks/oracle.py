"""The oracle's seconds beside the clock: six strategies with three policies each, on two real ranks.

    .venv/bin/python -m benchmarks.oracle [--depth 20] [--side-px 256]

Two gloo processes, one thread and one core each. The machine is measured as `gemslide plan --calibrate` does it; then
every plan trains in rounds (rounds.py defines those that count), in fresh processes. Accuracy is 1 - |p - m| / m of the
predicted p and the median measured m (ParaDL, HPDC 2021). At the end: the fastest measured plan, the one that the
oracle would have picked, and how much longer that took. Prints JSON lines; the committed ones are in
benchmarks/results/oracle.jsonl. Takes about ten minutes on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from benchmarks.engine import on_two_ranks, random_batch
from benchmarks.machine import circumstances
from benchmarks.rounds import BUSY, Compute, run_rounds
from training.engine.engine import Engine
from training.engine.partition import block_costs
from training.engine.plan import Plan, make_plan
from training.engine.ranks import Ranks
from training.engine.recompute import Recompute
from training.engine.stage import StageCopy
from training.engine.strategies import STRATEGIES
from training.machine.allocator import keep_for_training
from training.models.resnet_v2 import resnet_v2_blocks
from training.oracle.calibration.calibrate import calibrate
from training.oracle.calibration.machine import Machine, identity_here
from training.oracle.calibration.measure_blocks import Setting
from training.oracle.predict import predict_step
from training.recipe.optimisation import cross_entropy

NUM_RANKS, NUM_MICROBATCHES, ROUNDS = 2, 8, 7
POLICIES = {"keep": Recompute(), "norm": Recompute(rest="norm"), "every 2": Recompute(2)}
AT_ONCE = 6
"""Plans whose networks and gradients are in memory at a time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=20)
    parser.add_argument("--side-px", type=int, default=256)
    arguments = parser.parse_args()
    conditions = {
        "benchmark": "oracle",
        "network": f"ResNet-{arguments.depth}-v2, {arguments.side_px} px, fp32, {NUM_RANKS} ranks",
        **circumstances("benchmarks.oracle"),
    }
    for line in _lines(arguments.depth, arguments.side_px):
        print(json.dumps({**line, **conditions}), flush=True)


def _lines(depth: int, side_px: int) -> Iterator[dict[str, Any]]:
    machine = Machine.model_validate_json(on_two_ranks(_calibrated, depth, side_px)[0])
    setting = Setting((1, 3, side_px, side_px))
    blocks = _blocks(depth)
    costs = machine.with_times(blocks, block_costs(blocks, setting.input_shape), setting)
    yield {"link": machine.link.model_dump() if machine.link else None, "update": machine.update.model_dump()}
    plans = _plans([cost.flops for cost in costs])
    predicted = {name: predict_step(plan, costs, machine).end_s for name, plan in plans.items()}
    measured: dict[str, float] = {}
    names = list(plans)
    for start in range(0, len(names), AT_ONCE):
        some = {name: plans[name] for name in names[start : start + AT_ONCE]}
        rounds = on_two_ranks(_race, depth, side_px, some)[0]
        measured |= {name: statistics.median(turns[name] for turns in rounds) for name in some if rounds}
        yield from (_line(name, predicted[name], measured.get(name), len(rounds)) for name in some)
    yield _summary(predicted, measured)


def _line(name: str, predicted_s: float, measured_s: float | None, num_rounds: int) -> dict[str, Any]:
    strategy, _, policy = name.partition(", ")
    line: dict[str, Any] = {"strategy": strategy, "recompute": policy, "good rounds": num_rounds}
    line["predicted s"] = round(predicted_s, 4)
    line["measured s"] = BUSY if measured_s is None else round(measured_s, 4)
    line["accuracy"] = BUSY if measured_s is None else round(_accuracy(predicted_s, measured_s), 4)
    return line


def _accuracy(predicted_s: float, measured_s: float) -> float:
    return 1 - abs(predicted_s - measured_s) / measured_s


def _summary(predicted: dict[str, float], measured: dict[str, float]) -> dict[str, Any]:
    if len(measured) < len(predicted):
        return {"summary": BUSY}
    accuracies = [_accuracy(predicted[name], measured[name]) for name in measured]
    best, picked = (min(times, key=times.__getitem__) for times in (measured, predicted))
    return {
        "mean accuracy": round(statistics.fmean(accuracies), 4),
        "worst accuracy": round(min(accuracies), 4),
        "best measured": best,
        "best picked": picked,
        "time of the picked / best": round(measured[picked] / measured[best], 4),
    }


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


def _calibrated(ranks: Ranks, depth: int, side_px: int) -> str:
    keep_for_training()
    blocks = _blocks(depth)
    setting = Setting((1, 3, side_px, side_px))
    plan = make_plan("single", costs=[1.0] * len(blocks), data_parallel=NUM_RANKS)
    identity = identity_here(setting, threads=1, backend="gloo", num_ranks=NUM_RANKS)
    targets = torch.zeros(1, dtype=torch.int64)
    return calibrate(blocks, cross_entropy, targets, plan, setting, ranks, identity).model_dump_json()


def _race(ranks: Ranks, depth: int, side_px: int, plans: dict[str, Plan]) -> list[dict[str, float]]:
    """Seconds of a step of each plan, by good round."""
    keep_for_training()
    compute = Compute()
    for name in ("forward", "backward"):
        compute.wrap(StageCopy, name, lambda copy: copy.stage)
    batch = random_batch(NUM_MICROBATCHES, side_px)
    engines = {name: Engine(_blocks(depth), plan, ranks=ranks) for name, plan in plans.items()}
    contenders = {
        name: lambda engine=engine: engine.train_step(batch, cross_entropy) for name, engine in engines.items()
    }
    rounds = run_rounds(contenders, compute, least=ROUNDS)
    return [{name: turn.seconds for name, turn in turns.items()} for turns in rounds]


def _blocks(depth: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return resnet_v2_blocks(depth=depth, num_classes=2)


if __name__ == "__main__":
    main()
