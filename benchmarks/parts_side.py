"""The largest square tile that trains on four ranks: by layers, by rows, and by rows of the first layers.

    .venv/bin/python -m benchmarks.parts_side [--network resnet110-v2] [--caps 1 4 16] [--limited 1 4] [--layouts …]

ResNet-110-v2 (or ResNet-152, whose weights take 240 MB) in fp32, one tile in a step, with momentum, and with
recomputation of every k blocks. For each cap and layout the cuts and the k that leave room for the largest tile are
found by adding up. The largest side (a multiple of 32 px) whose predicted bytes fit the cap is then found with exact
predictions of live bytes, weights, gradients and the state of the optimizer. Where asked, the step is run with as much
memory for each rank as the cap, on top of what Python and its libraries have (RLIMIT_DATA), and a smaller side is tried
where that fails. Prints a JSON line for each cap and layout; the committed ones are in
benchmarks/results/parts_side.jsonl. Takes about half an hour on two cores, and 16 GiB.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing
from torch import nn

from benchmarks.machine import circumstances
from benchmarks.networks import resnet152
from benchmarks.parts import loss
from benchmarks.parts import network as resnet_v2
from training.engine.batches import TensorBatch
from training.engine.engine import Engine
from training.engine.plan import Plan, make_plan
from training.engine.predict import predict_memory
from training.engine.ranks import LostPeerError, connect_ranks
from training.engine.recompute import Recompute
from training.machine.memory_errors import is_out_of_memory
from training.oracle.search.memory import RankMemory
from training.oracle.search.stage_table import StageTable
from training.oracle.simulation.costs import StageCost
from training.oracle.simulation.divided import divided_costs
from training.parallel.division import WHOLE, Division
from training.recipe.plan import EmptyBatch

NUM_RANKS, STEP_PX, ADDED_UP_PX = 4, 32, 1024
LAYOUTS = {
    "layers": (1, 1, 1, 1),
    "rows": (4,),
    "rows and layers, 2 + 2": (2, 2),
    "rows and layers, 3 + 1": (3, 1),
    "rows and layers, 2 + 1 + 1": (2, 1, 1),
}
"""Parts of each stage."""
EVERY = (1, 2, 3, 4, 6)
"""Blocks of a recomputed segment that are tried."""
NETWORKS: dict[str, Callable[[], list[nn.Module]]] = {
    "resnet110-v2": lambda: resnet_v2(110),
    "resnet152": lambda: list(resnet152(2)),
}
GIB = 2**30
M_MMAP_THRESHOLD = -3
"""Parameter of the C library's mallopt."""


def momentum_sgd(weights: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=0.01, momentum=0.9)


@dataclass(frozen=True)
class Layout:
    """A way to spread a network over four ranks."""

    network: str
    parts: tuple[int, ...]
    cuts: tuple[int, ...]
    every: int
    guessed_px: int
    """The largest side, by adding up."""

    @property
    def blocks(self) -> list[nn.Module]:
        return NETWORKS[self.network]()

    @property
    def plan(self) -> Plan:
        strategy = "single" if len(self.parts) == 1 else "gpipe"
        return make_plan(
            strategy,
            costs=[1.0] * len(self.blocks),
            num_stages=len(self.parts),
            cuts=self.cuts,
            parts=self.parts,
            recompute=Recompute(every=self.every),
            channels_last=True,
            make_optimizer=momentum_sgd,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=NETWORKS, default="resnet110-v2")
    parser.add_argument("--caps", nargs="*", type=int, default=[1, 4, 16], metavar="GIB")
    parser.add_argument("--limited", nargs="*", type=int, default=[1, 4], metavar="GIB")
    parser.add_argument("--layouts", nargs="*", choices=LAYOUTS, default=list(LAYOUTS))
    arguments = parser.parse_args()
    conditions = circumstances("benchmarks.parts_side")
    for cap in arguments.caps:
        for name in arguments.layouts:
            parts = LAYOUTS[name]
            line = {"network": arguments.network, "layout": name, "GiB for each rank": cap}
            line |= _line(arguments.network, parts, cap * GIB, is_run=cap in arguments.limited)
            print(json.dumps({**line, **conditions}), flush=True)


def _line(network: str, parts: tuple[int, ...], cap_bytes: int, *, is_run: bool) -> dict[str, Any]:
    layout = _roomiest(network, parts, cap_bytes)
    if layout.guessed_px == 0:
        return {"predicted largest side px": None, "why": "the weights alone need more"}
    side_px = _largest(layout, cap_bytes)
    line = {
        "cuts": layout.cuts,
        "every": layout.every,
        "predicted largest side px": side_px,
        "predicted bytes of cap": round(_predicted(layout, side_px) / cap_bytes, 3),
    }
    if is_run:
        line["largest side px that ran"] = _largest_that_runs(layout, side_px, cap_bytes)
    return line


def _roomiest(network: str, parts: tuple[int, ...], cap_bytes: int) -> Layout:
    """The cuts and segments that leave room for the largest tile, added up; activations grow with the area."""

    def side_px(memory: RankMemory, stages: Sequence[StageCost]) -> int:
        areas = [
            (cap_bytes - memory.state_bytes(rank, stages)) / memory.activation_bytes(rank, stages)
            for rank in range(NUM_RANKS)
        ]
        return int(ADDED_UP_PX * max(0.0, min(areas)) ** 0.5) // STEP_PX * STEP_PX

    table, divisions = _table(network, parts), [Division(number, "rows") for number in parts]
    num_blocks = len(NETWORKS[network]())
    plan = Layout(network, parts, tuple(range(1, len(parts))), 1, 0).plan
    memory = RankMemory(plan.schedule(1), plan.placement, optimizer_slots=1)
    layouts = (
        Layout(network, parts, cuts, every, side_px(memory, table.costs(cuts, Recompute(every), divisions)))
        for every in EVERY
        for cuts in combinations(range(1, num_blocks), len(parts) - 1)
    )
    return max(layouts, key=lambda layout: layout.guessed_px)


@cache
def _table(network: str, parts: tuple[int, ...]) -> StageTable:
    shape = (1, 3, ADDED_UP_PX, ADDED_UP_PX)
    costs = divided_costs(NETWORKS[network](), shape, [WHOLE, *(Division(number, "rows") for number in parts)])
    return StageTable(costs[WHOLE], costs)


def _largest(layout: Layout, cap_bytes: int) -> int:
    """Largest side whose predicted bytes fit."""
    side_px = layout.guessed_px
    while _predicted(layout, side_px) > cap_bytes:
        side_px -= STEP_PX
    while _predicted(layout, side_px + STEP_PX) <= cap_bytes:
        side_px += STEP_PX
    return side_px


@cache
def _predicted(layout: Layout, side_px: int) -> int:
    """Bytes of the fullest rank: live bytes, weights, sums of their gradients, and momentum."""
    ranks = predict_memory(layout.blocks, loss, EmptyBatch(1, 1, side_px), layout.plan)
    return max(rank.peak_bytes + kept for rank, kept in zip(ranks, _kept_bytes(layout), strict=True))


@cache
def _kept_bytes(layout: Layout, *, sums: int = 1) -> list[int]:
    """Of each rank, during a step: weights, sums of their gradients (0: none), and its share of the momentum."""
    placement, ranks = layout.plan.placement, range(NUM_RANKS)
    stages = [own[0][1] for own in map(placement.held_by, ranks)]
    cuts = (0, *layout.cuts, len(layout.blocks))
    weights = [
        sum(weight.nbytes for block in layout.blocks[cuts[stage] : cuts[stage + 1]] for weight in block.parameters())
        for stage in stages
    ]
    return [
        int(num_bytes * (1 + sums + 1 / len(placement.holders(stage))))
        for num_bytes, stage in zip(weights, stages, strict=True)
    ]


def _largest_that_runs(layout: Layout, predicted_px: int, cap_bytes: int) -> int:
    """The largest side, at most the predicted one, with which a step ends: halving what is left from 80 % of it up.

    In steps of 32 px for 1 GiB, of 64 for 4 GiB: a try takes minutes.
    """
    step_px = round(STEP_PX * (cap_bytes / GIB) ** 0.5)
    fails, runs = predicted_px // step_px + 1, 0
    tried = round(0.9 * fails)
    while fails - runs > 1:
        if _runs(layout, tried * step_px, cap_bytes):
            runs = tried
        else:
            fails = tried
        tried = min(fails - 1, (max(runs, round(0.8 * fails)) + fails) // 2)
    return runs * step_px


def _runs(layout: Layout, side_px: int, cap_bytes: int) -> bool:
    """Whether a step ends on four ranks with that much memory each."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (folder, layout, side_px, cap_bytes), nprocs=NUM_RANKS)  # type: ignore[attr-defined,no-untyped-call]
        return all((Path(folder) / str(rank)).exists() for rank in range(NUM_RANKS))


def _rank(rank: int, folder: str, layout: Layout, side_px: int, cap_bytes: int) -> None:
    torch.set_num_threads(1)
    ranks = connect_ranks(timeout_s=3600, init_method=f"file://{folder}/meeting", rank=rank, num_ranks=NUM_RANKS)
    engine = Engine(layout.blocks, layout.plan, ranks=ranks)
    engine.train_step(_batch(64), loss)  # threads, libraries and the optimizer's state are there
    # Freed memory goes back at once, so that the limit counts what is used and not what was.
    assert ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1_000_000) == 1
    room = _data_bytes() - _kept_bytes(layout, sums=0)[rank] + cap_bytes  # the sums are gone after a step
    resource.setrlimit(resource.RLIMIT_DATA, (room, resource.RLIM_INFINITY))
    try:
        engine.train_step(_batch(side_px), loss)
    except LostPeerError:
        return
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return
    (Path(folder) / str(rank)).touch()
    ranks.close()


def _batch(side_px: int) -> TensorBatch:
    tile = torch.randn(1, 3, side_px, side_px, generator=torch.Generator().manual_seed(0))
    return TensorBatch(((tile, torch.zeros(1, dtype=torch.int64)),))


def _data_bytes() -> int:
    """What the limit counts of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmData"))
    return int(line.split()[1]) << 10


if __name__ == "__main__":
    main()
