"""Two checkouts of gemslide beside each other: ingest, reading and the engine before and after a change.

    git worktree add --detach ../before <commit>
    .venv/bin/python -m benchmarks.two_trees ../before [--starts 7] [--rounds 2]

Two processes of one and the same checkout can differ by a fifth for as long as they live (where their memory came to
lie). So processes are started anew several times, and beside one for each checkout stands a control: a second one of
the other checkout. The three do the same work in turns whose order changes. A figure is the median over starts of the
median ratio within a start, of processor time and of time on the clock: this checkout ÷ the other, and control ÷ the
other, which is the noise. Prints a JSON line per kind of work; the committed ones are in
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
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=2, help="of each start")
    options = parser.parse_args()
    roots = {"before": options.before.resolve(), "after": HERE, "control": options.before.resolve()}
    with tempfile.TemporaryDirectory() as folder:
        slide = Path(folder) / "slide.svs"
        make_slide(slide, side_px=SIDE_PX, colour="ycbcr")
        starts = [_one_start(number, roots, slide, options.rounds) for number in range(options.starts)]
    commits = {name: _commit(root) for name, root in roots.items() if name != "control"}
    for work in starts[0]:
        print(json.dumps({"benchmark": "two_trees", "work": work, "commits": commits, **_summary(work, starts)}))


Answers = dict[str, dict[str, Any]]
"""What each process said of one turn, by its name."""


def _one_start(number: int, roots: dict[str, Path], slide: Path, num_rounds: int) -> dict[str, list[Answers]]:
    """Fresh processes, and all their rounds by kind of work; another is started first, and works first, each time."""
    names = _turned(list(roots), number)
    trees = {name: Tree(roots[name], slide) for name in names}
    found: dict[str, list[Answers]] = {}
    for work in trees["after"].works:
        for tree in trees.values():
            tree.do(work)  # warm
        rounds = range(num_rounds)
        found[work] = [{name: trees[name].do(work) for name in _turned(names, turn)} for turn in rounds]
    for tree in trees.values():
        tree.end()
    return found


def _turned(names: list[str], by: int) -> list[str]:
    return names[by % len(names) :] + names[: by % len(names)]


def _summary(work: str, starts: list[dict[str, list[Answers]]]) -> dict[str, Any]:
    answers = [answer for start in starts for found in start[work] for answer in found.values()]
    by_start = {
        (name, clock): sorted(
            statistics.median(found[name][clock] / found["before"][clock] for found in start[work]) for start in starts
        )
        for name in ("after", "control")
        for clock in ("cpu_s", "wall_s")
    }
    return {
        "cpu after / before": round(statistics.median(by_start["after", "cpu_s"]), 3),
        "cpu control / before": round(statistics.median(by_start["control", "cpu_s"]), 3),
        "cpu after / before, by start": [round(ratio, 3) for ratio in by_start["after", "cpu_s"]],
        "cpu control / before, by start": [round(ratio, 3) for ratio in by_start["control", "cpu_s"]],
        "clock after / before": round(statistics.median(by_start["after", "wall_s"]), 3),
        "clock control / before": round(statistics.median(by_start["control", "wall_s"]), 3),
        "same bytes": len({answer["crc32"] for answer in answers}) == 1,
        "starts": len(starts),
        "rounds": len(starts[0][work]),
        **circumstances("benchmarks.two_trees"),
    }


def _commit(root: Path) -> str:
    git = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()


class Tree:
    """One checkout, and the process that works with its code."""

    def __init__(self, root: Path, slide: Path) -> None:
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
