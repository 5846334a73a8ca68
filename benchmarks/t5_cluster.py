"""Data parallelism with sub-graphs over data parallelism alone, for T5-Large on 1,024 V100: computed, not measured.

    .venv/bin/python -m benchmarks.t5_cluster [--cluster abci_v100] [--gpus 1024] [--tokens 64 128 256 512]

The network has T5-Large's published sizes: 24 layers of an encoder and 24 of a decoder with 1,024 channels, 16 heads
and 4,096 channels inside, 32,128 words, one table for input and output. Operations and bytes are counted on its blocks;
a GPU needs the longer of the times that its operations and its traffic take, messages take what the cluster's file
says (training/oracle/clusters), and nothing is fitted to anybody's result. Taken for granted: encoder and decoder have
the same number of tokens; the words' table is used once as a layer and once for its weights; no time for drawing a
batch; every message waits for the computation before it, gradients included (no overlap, for neither side). Batches are
samples of each GPU: a group of P sub-graphs has P times as many, one after the other, so both sides train on the same
batch. Prints a JSON line for each number of tokens, precision,
batch and P; the committed ones are in benchmarks/results/t5_cluster.jsonl. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.machine import circumstances
from benchmarks.t5 import RMSNorm, T5Attention, T5FeedForward
from training.engine.partition import BlockCost
from training.engine.plan import make_plan
from training.oracle.clusters.cluster import Cluster, load_cluster
from training.oracle.simulation.costs import StageCost, plan_stage_costs
from training.oracle.simulation.divided import DividedCosts, divided_costs
from training.oracle.simulation.simulate import simulate
from training.parallel.division import WHOLE, Division

WIDTH, HEADS, HEAD_DIM, HIDDEN, LAYERS, WORDS = 1024, 16, 64, 4096, 24, 32_128
PARTS, BATCHES = (2, 4, 8), (1, 2, 4, 8, 16, 32)
CLAIM = 3.05
"""Times over data parallelism, told of T5-Large-Mod on 1,024 V100 (MUG 2021)."""


class Words(nn.Module):
    """Scores of all words for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.table = RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x_ntd: Tensor) -> Tensor:
        return self.table(self.norm(x_ntd))  # type: ignore[no-any-return]


def t5_large(branches: int) -> list[nn.Module]:
    """Encoder and decoder as a chain: attention to the encoder costs what attention to oneself does."""

    def attention() -> T5Attention:
        return T5Attention(WIDTH, HEADS, HEAD_DIM, branches)

    def feed_forward() -> T5FeedForward:
        return T5FeedForward(WIDTH, HIDDEN, branches)

    with torch.device("meta"):
        encoder = [make() for _ in range(LAYERS) for make in (attention, feed_forward)]
        decoder = [make() for _ in range(LAYERS) for make in (attention, attention, feed_forward)]
        return [*encoder, *decoder, Words()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", type=Path, default=Path("abci_v100"))
    parser.add_argument("--gpus", type=int, default=1024)
    parser.add_argument("--tokens", type=int, nargs="*", default=[64, 128, 256, 512])
    options = parser.parse_args()
    cluster = load_cluster(options.cluster)
    for tokens in options.tokens:
        for line in _lines(cluster, options.gpus, tokens):
            print(json.dumps({**line, **circumstances("benchmarks.t5_cluster")}), flush=True)


def _lines(cluster: Cluster, gpus: int, tokens: int) -> Iterator[dict[str, object]]:
    divisions = (WHOLE, *(Division(parts, "branches") for parts in PARTS))
    counted = {division: _counted(tokens, division) for division in divisions}
    setup = f"T5-Large, {gpus} GPUs of {cluster.name}"
    for precision in sorted(cluster.gpu.flops_per_s):
        costs: DividedCosts = {division: cluster.with_times(own, precision) for division, own in counted.items()}
        for batch in BATCHES:
            alone = _Step(cluster, costs, gpus, 1, batch)
            for parts in PARTS:
                conditions = {"tokens": tokens, "precision": precision, "samples of each GPU": batch}
                line = _line(alone, _Step(cluster, costs, gpus, parts, batch * parts))
                yield {**conditions, "sub-graphs": parts, **line, "setup": setup}


def _counted(tokens: int, division: Division) -> list[BlockCost]:
    return divided_costs(t5_large(division.parts), (1, tokens, WIDTH), [division])[division]


class _Step:
    """A step of groups of sub-graphs."""

    def __init__(self, cluster: Cluster, costs: DividedCosts, gpus: int, parts: int, samples: int) -> None:
        division = {"parts": (parts,), "split": ("branches",)} if parts > 1 else {}
        plan = make_plan("single", costs=[1.0], num_microbatches=samples, data_parallel=gpus // parts, **division)  # type: ignore[arg-type]
        one = make_plan("single", costs=[1.0], num_microbatches=samples, **division)  # type: ignore[arg-type]
        stages: Sequence[StageCost] = plan_stage_costs(one, costs)
        schedule = one.schedule(samples)
        self.seconds = simulate(schedule, cluster.group_costs(stages, schedule, plan.placement)).end_s
        (stage,) = stages
        self.computing_s = samples * (stage.forward_s + stage.backward_s)
        held = stage.held(plan.placement, 0)
        self.gradients_s = 2 * sum(cluster.swap_s(own, size / len(own), gpus) for size, own in held)
        self.weight_gb = stage.weight_bytes / 1e9


def _line(alone: _Step, together: _Step) -> dict[str, object]:
    ratio = alone.seconds / together.seconds
    return {
        "dp / (dp and sub-graphs)": round(ratio, 3),
        "reaches 3.05": ratio >= CLAIM,
        "s of dp": round(alone.seconds, 4),
        "s of dp and sub-graphs": round(together.seconds, 4),
        "computing s": [round(alone.computing_s, 4), round(together.computing_s, 4)],
        "gradients and weights s": [round(alone.gradients_s, 4), round(together.gradients_s, 4)],
        "weights GB of a GPU": [round(alone.weight_gb, 3), round(together.weight_gb, 3)],
    }


if __name__ == "__main__":
    main()
