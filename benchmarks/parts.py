"""Stages in two parts against one rank: processor time, bytes between them, live bytes.

    .venv/bin/python -m benchmarks.parts [--side 1024] [--rounds 3]

ResNet-110-v2 in fp32, channels_last, on one tile: forward and backward of a step, two ranks of one thread each over
gloo. One rank and two take turns within each round, so that a slow spell of the machine meets both. Prints a JSON line
per way to split: the processor time of a rank over half of one rank's, the time on the clock likewise, live bytes over
predicted, and over one rank's. The committed ones are in benchmarks/results/parts.jsonl.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.multiprocessing
from torch import Tensor

from benchmarks.machine import circumstances
from training.engine.batches import TensorBatch
from training.engine.engine import Engine
from training.engine.plan import Plan, make_plan
from training.engine.predict import predict_memory
from training.engine.ranks import Ranks, alone, connect_ranks
from training.engine.recompute import Recompute
from training.models.resnet_v2 import resnet_v2_blocks
from training.parallel.parted import Split


@dataclass(frozen=True)
class Work:
    """A step on one tile."""

    side_px: int
    depth: int
    rounds: int
    split: Split

    def plan(self, parts: tuple[int, ...]) -> Plan:
        recompute = Recompute(every=1)
        return make_plan(
            "single",
            costs=[1.0],
            parts=parts,
            split=(self.split,) * len(parts),
            recompute=recompute,
            channels_last=True,
        )

    def batch(self) -> TensorBatch:
        images = torch.randn(1, 3, self.side_px, self.side_px, generator=torch.Generator().manual_seed(0))
        return TensorBatch([(images, torch.zeros(1, dtype=torch.int64))])


def loss(logits_nk: Tensor, labels_n: Tensor) -> Tensor:
    """Cross-entropy, summed."""
    return torch.nn.functional.cross_entropy(logits_nk, labels_n, reduction="sum")


def network(depth: int) -> list[torch.nn.Module]:
    """The blocks, the same on every rank."""
    torch.manual_seed(0)
    return list(resnet_v2_blocks(depth=depth, num_classes=2))


def step_seconds(engine: Engine, work: Work) -> tuple[float, float]:
    """Processor time and time on the clock of a step of this rank."""
    batch = work.batch()
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    engine.train_step(batch, loss)
    return time.process_time() - cpu_s, time.perf_counter() - wall_s


def measure(ranks: Ranks, work: Work) -> dict[str, Any]:
    """All rounds on one of two ranks: both together, then each by itself; warm-up first."""
    two = Engine(network(work.depth), work.plan((2,)), ranks=ranks, count_bytes=True)
    one = Engine(network(work.depth), work.plan(()), ranks=alone(), count_bytes=True)
    rounds = []
    for number in range(work.rounds + 1):
        together = step_seconds(two, work)
        ranks.gather(None)
        mine = step_seconds(one, work)  # on both at once: each core has the same to do
        ranks.gather(None)
        if number:
            rounds.append((together, mine))
    return {
        "rounds": rounds,
        "live": two.peak_bytes()["live"],
        "live_of_one": one.live_bytes.peak,
    }


def _rank(rank: int, folder: str, work: Work) -> None:
    torch.set_num_threads(1)
    ranks = connect_ranks(timeout_s=600, init_method=f"file://{folder}/meeting-point", rank=rank, num_ranks=2)
    found = measure(ranks, work)
    everything = ranks.gather(found)
    if rank == 0:
        print(json.dumps({**line(everything, work), **circumstances("benchmarks.parts")}), flush=True)
    ranks.close()


def line(by_rank: list[dict[str, Any]], work: Work) -> dict[str, Any]:
    """One result of all ranks' measurements."""
    cpu = [[2 * together[0] / mine[0] for together, mine in found["rounds"]] for found in by_rank]
    wall = [2 * together[1] / mine[1] for together, mine in by_rank[0]["rounds"]]
    plan = work.plan((2,))
    predicted = [part.peak_bytes for part in predict_memory(network(work.depth), loss, work.batch(), plan)]
    return {
        "benchmark": "parts",
        "work": f"ResNet-{work.depth}-v2, {work.side_px} px, two parts by {work.split}",
        "CPU time of a rank / half of one rank's": [round(statistics.median(ratios), 3) for ratios in cpu],
        "wall / half of one rank's": round(statistics.median(wall), 3),
        "live bytes / predicted": [m / p for m, p in zip(by_rank[0]["live"], predicted, strict=True)],
        "live bytes / one rank's": [round(m / by_rank[0]["live_of_one"], 4) for m in by_rank[0]["live"]],
        "rounds": work.rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=110)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--split", nargs="*", default=["rows"], choices=["rows", "filter", "channel"])
    options = parser.parse_args()
    for split in options.split:
        work = Work(options.side, options.depth, options.rounds, split)
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.start_processes(_rank, (folder, work), nprocs=2, start_method="spawn")


if __name__ == "__main__":
    main()
