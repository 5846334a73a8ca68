"""The largest square tile that trains on four ranks: by layers, by rows, and by rows of the first layers.

    .venv/bin/python -m benchmarks.parts_side [--caps 1 4 16] [--limited 1 4]

ResNet-110-v2 in fp32, one tile in a step, with recomputation of every k blocks. For each layout the cuts and the k
that need the least memory are found by adding up. The largest side (a multiple of 32 px) whose predicted bytes fit the
cap is then found with exact predictions of live bytes, weights, gradients and the state of the optimizer. Where asked,
the step is run with as much memory for each rank as the cap, on top of what it has when it starts (RLIMIT_DATA), and a
smaller side is tried where that fails. Prints a JSON line for each cap and layout; the committed ones are in
benchmarks/results/parts_side.jsonl. Takes about half an hour on two cores, and 16 GiB.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

from benchmarks.machine import circumstances
from benchmarks.parts import loss, network
from training.engine.batches import TensorBatch
from training.engine.engine import Engine
from training.engine.plan import Plan, make_plan
from training.engine.predict import predict_memory
from training.engine.ranks import LostPeerError, connect_ranks
from training.engine.recompute import Recompute
from training.machine.memory_errors import is_out_of_memory
from training.oracle.search.memory import RankMemory
from training.oracle.search.stage_table import StageTable
from training.oracle.simulation.divided import divided_costs
from training.parallel.division import WHOLE, Division
from training.recipe.plan import EmptyBatch

DEPTH, NUM_RANKS, STEP_PX, GUESSED_PX = 110, 4, 32, 1024
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
GIB = 2**30


@dataclass(frozen=True)
class Layout:
    """A way to spread the network over four ranks."""

    parts: tuple[int, ...]
    cuts: tuple[int, ...]
    every: int
    guessed_bytes: int
    """Of the fullest rank, at `GUESSED_PX`."""

    @property
    def plan(self) -> Plan:
        strategy = "single" if len(self.parts) == 1 else "gpipe"
        return make_plan(
            strategy,
            costs=[1.0] * len(network(DEPTH)),
            num_stages=len(self.parts),
            cuts=self.cuts,
            parts=self.parts,
            recompute=Recompute(every=self.every),
            channels_last=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--caps", nargs="*", type=int, default=[1, 4, 16], metavar="GIB")
    parser.add_argument("--limited", nargs="*", type=int, default=[1, 4], metavar="GIB")
    arguments = parser.parse_args()
    conditions = circumstances("benchmarks.parts_side")
    for cap in arguments.caps:
        for name, parts in LAYOUTS.items():
            line = _line(parts, cap * GIB, is_run=cap in arguments.limited)
            print(json.dumps({"layout": name, "GiB for each rank": cap, **line, **conditions}), flush=True)


def _line(parts: tuple[int, ...], cap_bytes: int, *, is_run: bool) -> dict[str, Any]:
    layout = _least(parts)
    side_px = _largest(layout, cap_bytes)
    line = {
        "cuts": layout.cuts,
        "every": layout.every,
        "predicted largest side px": side_px,
        "predicted bytes of cap": round(_predicted(layout, side_px) / cap_bytes, 3),
    }
    if is_run:
        run_px = next(px for px in range(side_px, 0, -STEP_PX) if _runs(layout, px, cap_bytes))
        line["largest side px that ran"] = run_px
    return line


@cache
def _least(parts: tuple[int, ...]) -> Layout:
    """The cuts and segments that need the least memory, added up."""
    blocks = network(DEPTH)
    divisions = [Division(number, "rows") for number in parts]
    costs = divided_costs(blocks, (1, 3, GUESSED_PX, GUESSED_PX), [WHOLE, *divisions])
    table = StageTable(costs[WHOLE], costs)
    plan = Layout(parts, tuple(range(1, len(parts))), 1, 0).plan
    memory = RankMemory(plan.schedule(1), plan.placement, optimizer_slots=1)

    def priced() -> Iterator[Layout]:
        for every in EVERY:
            for cuts in combinations(range(1, len(blocks)), len(parts) - 1):
                stages = table.costs(cuts, Recompute(every), divisions)
                yield Layout(parts, cuts, every, memory.most_bytes(stages))

    return min(priced(), key=lambda layout: layout.guessed_bytes)


def _largest(layout: Layout, cap_bytes: int) -> int:
    """Largest side whose predicted bytes fit, from a guess: activations grow with the area."""
    side_px = int(GUESSED_PX * (cap_bytes / layout.guessed_bytes) ** 0.5) // STEP_PX * STEP_PX
    while _predicted(layout, side_px) > cap_bytes:
        side_px -= STEP_PX
    while _predicted(layout, side_px + STEP_PX) <= cap_bytes:
        side_px += STEP_PX
    return side_px


@cache
def _predicted(layout: Layout, side_px: int) -> int:
    """Bytes of the fullest rank: live bytes, weights, sums of their gradients, and momentum."""
    plan = layout.plan
    ranks = predict_memory(network(DEPTH), loss, EmptyBatch(1, 1, side_px), plan)
    holders = [len(plan.placement.holders(own[0][1])) for own in map(plan.placement.held_by, range(NUM_RANKS))]
    return int(
        max(rank.peak_bytes + rank.weight_bytes * (2 + 1 / number) for rank, number in zip(ranks, holders, strict=True))
    )


def _runs(layout: Layout, side_px: int, cap_bytes: int) -> bool:
    """Whether a step ends on four ranks with that much memory each."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (folder, layout, side_px, cap_bytes), nprocs=NUM_RANKS)  # type: ignore[attr-defined,no-untyped-call]
        return all((Path(folder) / str(rank)).exists() for rank in range(NUM_RANKS))


def _rank(rank: int, folder: str, layout: Layout, side_px: int, cap_bytes: int) -> None:
    torch.set_num_threads(1)
    ranks = connect_ranks(timeout_s=3600, init_method=f"file://{folder}/meeting", rank=rank, num_ranks=NUM_RANKS)
    engine = Engine(network(DEPTH), layout.plan, ranks=ranks)
    tile = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    engine.train_step(TensorBatch([(tile, torch.zeros(1, dtype=torch.int64))]), loss)  # threads and libraries are there
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + cap_bytes, resource.RLIM_INFINITY))
    try:
        tile = torch.randn(1, 3, side_px, side_px, generator=torch.Generator().manual_seed(0))
        engine.train_step(TensorBatch([(tile, torch.zeros(1, dtype=torch.int64))]), loss)
    except LostPeerError:
        return
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return
    (Path(folder) / str(rank)).touch()
    ranks.close()


def _data_bytes() -> int:
    """What the limit counts of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmData"))
    return int(line.split()[1]) << 10


if __name__ == "__main__":
    main()
