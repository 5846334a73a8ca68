"""Activations that ResNet-110-v2 keeps from forward to backward for one 1024 px tile, and how two stages share them.

    .venv/bin/python -m benchmarks.activations

Counted from shapes (fp32, distinct storages kept by autograd), so it takes neither the memory nor the time. Prints one
JSON line per cut; the committed ones are in benchmarks/results/activations.jsonl.
"""

from __future__ import annotations

import json
import platform

import torch

from training.engine.partition import block_costs, partition, stage_ranges
from training.models.resnet_v2 import resnet_v2_blocks

DEPTH, SIDE_PX, NUM_STAGES = 110, 1024, 2


def main() -> None:
    costs = block_costs(resnet_v2_blocks(depth=DEPTH, num_classes=2), (1, 3, SIDE_PX, SIDE_PX))
    for balance, values in (
        ("one stage", None),
        ("flops", [cost.flops for cost in costs]),
        ("bytes", [cost.saved_bytes for cost in costs]),
    ):
        cuts = partition(values, NUM_STAGES) if values else ()
        stages = stage_ranges(cuts, len(costs))
        line = {
            "benchmark": "activations",
            "network": f"ResNet-{DEPTH}-v2, 1 tile of {SIDE_PX} px, fp32",
            "balanced by": balance,
            "blocks per stage": [len(stage) for stage in stages],
            "saved GB per stage": [round(sum(costs[i].saved_bytes for i in stage) / 1e9, 2) for stage in stages],
            "forward GFLOP per stage": [round(sum(costs[i].flops for i in stage) / 1e9, 1) for stage in stages],
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "machine": f"{platform.system()} {platform.machine()}",
            "command": "python -m benchmarks.activations",
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
