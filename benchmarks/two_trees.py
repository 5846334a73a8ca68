"""Two checkouts of gemslide beside each other: ingest, reading and the engine before and after a change.

    git worktree add --detach ../before <commit>
    .venv/bin/python -m benchmarks.two_trees ../before [--rounds 9]

A process per checkout stays open; both do the same work in turns that change their order. The figures are medians
over rounds of ratios (this checkout ÷ the other) within a round, of processor time and of time on the clock, and
whether both gave the same bytes. Prints a JSON line per kind of work; the committed ones are in
benchmarks/results/two_trees.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import circumstances
from benchmarks.make_slide import make_slide

HERE = Path(__file__).parents[1]
SIDE_PX = 12_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        slide = Path(folder) / "slide.svs"
        make_slide(slide, side_px=SIDE_PX, colour="ycbcr")
        trees = {"before": Tree(options.before.resolve(), slide), "after": Tree(HERE, slide)}
        for work in trees["after"].works:
            print(json.dumps(_compared(work, trees, options.rounds)), flush=True)
        for tree in trees.values():
            tree.end()


def _compared(work: str, trees: dict[str, Tree], num_rounds: int) -> dict[str, Any]:
    for tree in trees.values():
        tree.do(work)  # warm
    rounds = []
    for number in range(num_rounds):
        order = ("before", "after") if number % 2 else ("after", "before")
        found = {name: trees[name].do(work) for name in order}
        rounds.append(found)
    ratios = {
        clock: sorted(found["after"][clock] / found["before"][clock] for found in rounds)
        for clock in ("cpu_s", "wall_s")
    }
    return {
        "benchmark": "two_trees",
        "work": work,
        "commits": {name: tree.commit for name, tree in trees.items()},
        "cpu after / before": round(statistics.median(ratios["cpu_s"]), 3),
        "cpu, all rounds": [round(ratio, 3) for ratio in ratios["cpu_s"]],
        "clock after / before": round(statistics.median(ratios["wall_s"]), 3),
        "median before s": round(statistics.median(found["before"]["wall_s"] for found in rounds), 3),
        "same bytes": len({found[name]["crc32"] for found in rounds for name in found}) == 1,
        "rounds": num_rounds,
        **circumstances("benchmarks.two_trees"),
    }


class Tree:
    """One checkout, and the process that works with its code."""

    def __init__(self, root: Path, slide: Path) -> None:
        git = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
        self.commit = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
        worker = HERE / "benchmarks/two_trees_worker.py"
        self._process = subprocess.Popen(
            [sys.executable, str(worker), str(slide)],
            env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        said = self._answer()
        if Path(said["root"]).resolve() != root:
            raise SystemExit(f"{root}: its process works with the code in {said['root']}")
        self.works: list[str] = said["works"]

    def do(self, work: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(work + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process ended with {self._process.wait()}; its message stands above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


if __name__ == "__main__":
    main()
