"""Time and memory of every strategy for ResNet-110-v2 on 1024 px tiles: 4 ranks, 8 tiles per step, one at a time.

    .venv/bin/python -m benchmarks.strategies

Nothing is run: time is simulated from operations (a backward counted as two forwards, messages as free), live bytes
are predicted by walking the real executor over fake tensors. Prints one JSON line per setting; the committed ones are
in benchmarks/results/strategies.jsonl.
"""

from __future__ import annotations

import json
import platform

import torch

from training.engine.partition import block_costs
from training.engine.plan import make_plan
from training.engine.predict import predict_memory
from training.engine.recompute import Recompute
from training.engine.strategies import build_schedule
from training.models.resnet_v2 import resnet_v2_blocks
from training.oracle.simulation.costs import Costs, stage_costs
from training.oracle.simulation.simulate import simulate
from training.recipe.optimisation import cross_entropy
from training.recipe.plan import EmptyBatch

DEPTH, SIDE_PX, RANKS, TILES = 110, 1024, 4, 8
POLICIES = {"none": Recompute(), "norm": Recompute(rest="norm"), "every 2": Recompute(2)}
SETTINGS = [
    (strategy, balance, policy)
    for strategy in ("mp-basic", "master", "gpipe", "1f1b", "chimera", "single")
    for balance in ("flops", "bytes")
    for policy in POLICIES
    if strategy != "single" or balance == "flops"
]


def main() -> None:
    blocks = resnet_v2_blocks(depth=DEPTH, num_classes=2)
    costs = block_costs(blocks, (1, 3, SIDE_PX, SIDE_PX))
    whole = sum(cost.flops for cost in costs)
    for strategy, balance, policy in SETTINGS:
        groups = RANKS if strategy == "single" else 1
        plan = make_plan(
            strategy,
            costs=[cost.flops if balance == "flops" else cost.saved_bytes for cost in costs],
            num_stages=RANKS // groups,
            num_microbatches=TILES // groups,
            data_parallel=groups,
            recompute=POLICIES[policy],
        )
        schedule = build_schedule(strategy, num_stages=plan.num_stages, num_microbatches=TILES, data_parallel=groups)
        timeline = simulate(schedule, Costs(stage_costs(costs, plan.cuts, plan.recompute)))
        memory = predict_memory(blocks, cross_entropy, EmptyBatch(TILES, 1, SIDE_PX), plan)
        line = {
            "benchmark": "strategies",
            "network": f"ResNet-{DEPTH}-v2, {SIDE_PX} px, fp32",
            "strategy": "ddp" if strategy == "single" else strategy,
            "stages balanced by": balance,
            "recompute": policy,
            "ranks": RANKS,
            "tiles per step": TILES,
            "live GB of the fullest rank": round(max(rank.peak_bytes for rank in memory) / 1e9, 2),
            # 1.0 is the whole step on one rank after another, without recomputation: mp-basic.
            "time / mp-basic": round(timeline.end_s / (3 * whole * TILES), 3),
            "bubble": round(timeline.bubble, 3),
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "machine": f"{platform.system()} {platform.machine()}",
            "command": "python -m benchmarks.strategies",
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
