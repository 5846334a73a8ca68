"""Whether the oracle picks the fastest plan: three networks in four shapes each, on two real ranks.

    .venv/bin/python -m benchmarks.oracle_picks [--only NETWORK] [--shape SHAPE]

Everything as a user does it, with recipes whose strategy is `auto`: `gemslide plan RECIPE --calibrate --world 2`, then
`gemslide plan audit RECIPE --world 2`, which trains the fastest predicted plan of each strategy and some others. One
shape has a number of micro-batches that two ranks cannot share equally, so that only pipelines remain, and one leaves
a rank 60 % of the memory that the fastest plan takes. Prints JSON lines: a line for each plan that was run, one for
each recipe, and at the end the number of recipes for which the plan that was picked took at most 2 % longer than the
fastest. The committed ones are in benchmarks/results/oracle_picks.jsonl. Takes about half an hour on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import circumstances
from benchmarks.rounds import BUSY

GEMSLIDE = Path(sys.executable).with_name("gemslide")
RECIPE = """
[data]
tile_set = "none"
[model]
depth = {depth}
variant = "{variant}"
norm = "{norm}"
num_classes = 2
[parallel]
strategy = "auto"
num_microbatches = {num_microbatches}
microbatch_size = {microbatch_size}
[train]
steps = 1
precision = "{precision}"
"""
NUM_RANKS, PLANS, TRIES = 2, 8, 3
CLOSE = 1.02
"""Most time of the plan that was picked, relative to the fastest, that counts as picking the fastest."""


@dataclass(frozen=True)
class Network:
    depth: int
    variant: str = "standard"
    norm: str = "batch"


@dataclass(frozen=True)
class Shape:
    side_px: int
    num_microbatches: int
    microbatch_size: int
    precision: str = "fp32"
    memory: float | None = None
    """Share of what the fastest plan takes; None: all memory of the machine."""


NETWORKS = {
    "ResNet-20-v2, batch norm": Network(20),
    "ResNet-29-v2, group norm": Network(29, norm="group"),
    "the GEMS authors' ResNet-20": Network(20, variant="gems-public"),
}
SHAPES = {
    "8 × 1 tile of 128 px": Shape(128, 8, 1),
    "4 × 2 tiles of 128 px": Shape(128, 4, 2),
    "5 × 1 tile of 160 px": Shape(160, 5, 1),
    "8 × 1 tile of 160 px, 60 % of the memory": Shape(160, 8, 1, memory=0.6),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=NETWORKS)
    parser.add_argument("--shape", choices=SHAPES)
    asked = parser.parse_args()
    conditions = {"benchmark": "oracle picks", **circumstances("benchmarks.oracle_picks")}
    picks: list[float | None] = []
    for name, network in NETWORKS.items():
        if asked.only not in (None, name):
            continue
        for shape_name, shape in SHAPES.items():
            if asked.shape not in (None, shape_name):
                continue
            for line in _lines(network, shape):
                if "picked_by_best" in line:
                    picks.append(line["picked_by_best"])
                print(json.dumps({"network": name, "shape": shape_name, **line, **conditions}), flush=True)
    known = [pick for pick in picks if pick is not None]
    total = {"recipes": len(picks), "picked": sum(pick <= CLOSE for pick in known), "worst": max(known, default=None)}
    print(json.dumps({**total, **conditions}))


def _lines(network: Network, shape: Shape) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.toml"
        recipe.write_text(RECIPE.format(**vars(network), **vars(shape)), encoding="utf-8")
        asked = [recipe, "--project", folder, "--tile-px", shape.side_px, "--world", NUM_RANKS, "--json"]
        rows = _gemslide("plan", *asked, "--calibrate")
        limits = []
        if shape.memory and rows:
            limits = ["--memory", f"{int(shape.memory * rows[0]['bytes'])}B"]
        runs = _gemslide("plan", "audit", *asked, "--sample", PLANS, *limits) if rows else []
        yield from runs or [{"picked_by_best": None, "best_picked": BUSY}]


def _gemslide(*arguments: object) -> list[dict[str, Any]]:
    """The JSON lines of a command; none if other programs had the cores each time."""
    for _ in range(TRIES):
        done = subprocess.run([GEMSLIDE, *map(str, arguments)], check=False, capture_output=True, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        if not done.returncode:
            return lines
        if not lines or lines[-1].get("code") != "busy_machine":
            raise SystemExit(f"{done.stdout}{done.stderr}")
    return []


if __name__ == "__main__":
    main()
