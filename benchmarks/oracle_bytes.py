"""Predicted beside counted bytes: each normalisation, in each precision, under each policy, on two real ranks.

    .venv/bin/python -m benchmarks.oracle_bytes

Networks with batch and group norm are ResNet-20-v2, the one with layer norm is a small vision transformer, on tiles of
32 px; two stages, four micro-batches, in 1F1B and MASTER. Bytes are the peak of each rank in its second step, as the
run record has them; the prediction walks the same schedule on tensors without storage. Prints a JSON line for each
combination, and at the end the number of those that are equal to the byte; the committed ones are in
benchmarks/results/oracle_bytes.jsonl. Takes about five minutes; other programs do not disturb it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import nn

from benchmarks.engine import on_two_ranks, random_batch
from benchmarks.machine import circumstances
from benchmarks.networks import small_vit
from training.engine.engine import Engine
from training.engine.partition import block_costs
from training.engine.plan import Plan, make_plan
from training.engine.predict import predict_memory
from training.engine.ranks import Ranks
from training.engine.recompute import Recompute
from training.engine.stage import Precision
from training.models.resnet_v2 import resnet_v2_blocks
from training.recipe.optimisation import cross_entropy

SIDE_PX, NUM_STAGES, NUM_MICROBATCHES = 32, 2, 4
NORMS = ("batch", "group", "layer")
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "fp16")
POLICIES = {
    "keep": Recompute(),
    "norm": Recompute(rest="norm"),
    "offload": Recompute(rest="offload"),
    "every block": Recompute(1),
    "every 2 blocks": Recompute(2),
    "2 and 1 blocks, the rest keep": Recompute(1, prefix=(2, 1)),
    "2 and 1 blocks, the rest norm": Recompute(1, prefix=(2, 1), rest="norm"),
    "2 and 1 blocks, the rest offload": Recompute(1, prefix=(2, 1), rest="offload"),
}
STRATEGIES = ("1f1b", "master")


def main() -> None:
    conditions = {"benchmark": "oracle bytes", **circumstances("benchmarks.oracle_bytes")}
    equal = total = 0
    for norm, precision in product(NORMS, PRECISIONS):
        for line in _lines(norm, precision):
            total += 1
            equal += line["predicted bytes"] == line["counted bytes"]
            print(json.dumps({"norm": norm, "precision": precision, **line, **conditions}), flush=True)
    print(json.dumps({"combinations": total, "equal to the byte": equal, **conditions}))


def _lines(norm: str, precision: Precision) -> Iterator[dict[str, Any]]:
    by_rank = on_two_ranks(_counted, norm, precision)
    blocks, batch = _blocks(norm), random_batch(NUM_MICROBATCHES, SIDE_PX)
    for (name, plan), *counted in zip(_plans(norm, precision).items(), *by_rank, strict=True):
        predicted = [rank.peak_bytes for rank in predict_memory(blocks, cross_entropy, batch, plan)]
        strategy, _, policy = name.partition(", ")
        yield {
            "strategy": strategy,
            "recompute": policy,
            "predicted bytes": predicted,
            "counted bytes": counted,
            "predicted by counted": [round(p / c, 4) for p, c in zip(predicted, counted, strict=True)],
        }


def _counted(ranks: Ranks, norm: str, precision: Precision) -> list[int]:
    """Peak of this rank under each plan."""
    peaks = []
    for plan in _plans(norm, precision).values():
        engine = Engine(_blocks(norm), plan, ranks=ranks, count_bytes=True)
        for _ in range(2):
            engine.train_step(random_batch(NUM_MICROBATCHES, SIDE_PX), cross_entropy)
        peaks.append(engine.live_bytes.peak)
        engine.close()
    return peaks


def _plans(norm: str, precision: Precision) -> dict[str, Plan]:
    costs = [cost.flops for cost in block_costs(_blocks(norm), (1, 3, SIDE_PX, SIDE_PX))]
    return {
        f"{strategy}, {policy}": make_plan(
            strategy,
            costs=costs,
            num_stages=NUM_STAGES,
            num_microbatches=NUM_MICROBATCHES,
            recompute=recompute,
            precision=precision,
        )
        for strategy, (policy, recompute) in product(STRATEGIES, POLICIES.items())
    }


def _blocks(norm: str) -> list[nn.Module]:
    torch.manual_seed(0)
    return list(small_vit(2, SIDE_PX)) if norm == "layer" else resnet_v2_blocks(depth=20, num_classes=2, norm=norm)


if __name__ == "__main__":
    main()
