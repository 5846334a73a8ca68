"""A training step fed from a slide store against the same step from tensors in memory, on two real ranks.

    .venv/bin/python -m benchmarks.engine_fed

Two gloo processes, one thread and one core each, ResNet-20-v2 on 512 px tiles, 8 micro-batches of one tile, fp32. The
store is made from scikit-image's bundled tissue (make_slide.py): JPEG tiles as a scanner writes them, read, decoded and
augmented by the product's own batches, two ahead, in threads that share the rank's core. The same images are held in
memory, ready for the network. Times are medians of ratios within rounds (rounds.py; the steps from memory decide which
rounds count). Prints JSON lines; the committed ones are in benchmarks/results/engine_fed.jsonl. Takes about fifteen
minutes.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.engine import on_two_ranks
from benchmarks.infer_work import slide_of
from benchmarks.machine import circumstances
from benchmarks.rounds import BUSY, Compute, Turn, ratio, run_rounds
from pipeline.box import Box
from pipeline.project import Project
from pipeline.store.reading.reader import StoreReader
from training.data.augment import normalised
from training.data.tile_batch import TileBatch
from training.data.tile_dataset import Tiles
from training.engine import Engine, Ranks, TensorBatch, make_plan
from training.engine.partition import block_costs
from training.engine.stage import StageCopy
from training.machine.allocator import keep_for_training
from training.models.resnet_v2 import resnet_v2_blocks
from training.recipe.config import AugmentConfig
from training.recipe.optimisation import cross_entropy
from training.recipe.plan import PREFETCH

DEPTH, TILE_PX, NUM_MICROBATCHES, SLIDE_PX = 20, 512, 8, 8192
STRATEGIES = ("1f1b", "master")
PREPARE = partial(normalised, mean=[0.7, 0.6, 0.7], std=[0.2, 0.2, 0.2])


class _Grid:
    """Tiles of a slide, row by row."""

    tile_px = TILE_PX

    def __init__(self, reader: StoreReader):
        self._reader = reader
        self._columns = SLIDE_PX // TILE_PX
        self.labels = np.arange(self._columns**2) % 2

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, index: int) -> Tiles:
        y, x = divmod(index, self._columns)
        return self._reader.read_region(0, Box(x * TILE_PX, y * TILE_PX, TILE_PX, TILE_PX))


def main() -> None:
    conditions = {
        "network": f"ResNet-{DEPTH}-v2, {TILE_PX} px, {NUM_MICROBATCHES} micro-batches, fp32, 2 ranks",
        **circumstances("benchmarks.engine_fed"),
    }
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as folder:
        project = slide_of(Path(folder), SLIDE_PX)
        for strategy in STRATEGIES:
            rounds = on_two_ranks(_race, project, strategy)[0]
            print(json.dumps({"benchmark": "engine_fed", **_line(strategy, rounds), **conditions}), flush=True)


def _line(strategy: str, rounds: list[dict[str, Turn]]) -> dict[str, Any]:
    fed, memory = ([turns[name].seconds for turns in rounds] for name in ("store", "memory"))
    return {
        "contender": strategy,
        "good rounds": len(rounds),
        "median step s": round(statistics.median(fed), 3) if fed else BUSY,
        "from the store / from memory": ratio(fed, memory),
    }


def _race(ranks: Ranks, project: Project, strategy: str) -> list[dict[str, Turn]]:
    keep_for_training()
    compute = Compute()
    for name in ("forward", "backward"):
        compute.wrap(StageCopy, name, lambda copy: copy.stage)
    from_store = _FromStore(_Grid(StoreReader(project.store_path("S-1"))), _engine(ranks, strategy))
    engine, in_memory = _engine(ranks, strategy), from_store.in_memory()
    contenders = {"store": from_store.step, "memory": lambda: engine.train_step(in_memory, cross_entropy)}
    return run_rounds(contenders, compute, least=7, most=16, judged=["memory"])


class _FromStore:
    """Steps on new tiles every time, with the next batch announced, as in the product's loop."""

    def __init__(self, source: _Grid, engine: Engine):
        self._source, self._engine = source, engine
        self._pool = ThreadPoolExecutor(2)
        self._number = 0

    def batch(self, number: int) -> TileBatch:
        first = number * NUM_MICROBATCHES % len(self._source)
        return TileBatch(
            self._source,  # type: ignore[arg-type]  # of a dataset only what a batch reads
            np.arange(first, first + NUM_MICROBATCHES),
            microbatch_size=1,
            pool=self._pool,
            augmentation=AugmentConfig(),
            epoch=number,
        )

    def step(self) -> None:
        if not self._number:
            self._current = self.batch(0)
        upcoming = self.batch(self._number + 1)
        self._engine.train_step(self._current, cross_entropy, upcoming=upcoming)
        self._current, self._number = upcoming, self._number + 1

    def in_memory(self) -> TensorBatch:
        batch = self.batch(0)
        return TensorBatch(tuple((PREPARE(batch.inputs(k)), batch.targets(k)) for k in range(NUM_MICROBATCHES)))


def _engine(ranks: Ranks, strategy: str) -> Engine:
    costs = [cost.flops for cost in block_costs(_blocks(), (1, 3, TILE_PX, TILE_PX))]
    plan = make_plan(strategy, costs=costs, num_stages=2, num_microbatches=NUM_MICROBATCHES, prefetch=PREFETCH)
    return Engine(_blocks(), plan, ranks=ranks, prepare=_ready)


def _ready(images: torch.Tensor) -> torch.Tensor:
    return PREPARE(images) if images.dtype == torch.uint8 else images


def _blocks() -> list[nn.Module]:
    torch.manual_seed(0)
    return resnet_v2_blocks(depth=DEPTH, num_classes=2)


if __name__ == "__main__":
    main()
