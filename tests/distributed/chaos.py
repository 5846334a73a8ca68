"""kill -9 of ranks at random moments of a training run: the same command resumes, to the weights of an unbroken run.

`make chaos` kills fifty times: `python -m tests.distributed.chaos --times 50 --seed 0`. Real processes are killed: one
rank of `gemslide train`, or all of it, on one rank or on two, under strategies that change from start to start.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pipeline.models.launch import TrainingResult, train
from tests.small_trained_project import SmallProject, Way, make_small_project, share_tiles

GEMSLIDE = Path(sys.executable).parent / "gemslide"
WAYS = (
    Way("single"), Way("master", num_stages=2), Way("1f1b", num_stages=2, more='recompute = "norm"'),
    Way("ddp", num_microbatches=1, data_parallel=2),
)  # fmt: skip
"""All use 8 tiles per step, 4 per micro-batch."""
EPOCHS, EVERY_STEPS = 4, 3
SHARE_OF_WHOLE = 0.3
"""Share of kills that hit the command and all its processes rather than one rank."""
LONGEST_S = 90.0
ENOUGH_TO_GO_ON = 10
"""Number of kills from which some must hit a run resumed from a checkpoint."""


class Broken(AssertionError):
    """Training did not keep its promise."""


@dataclass
class Tally:
    """Counts of kills and of what they interrupted."""

    killed: int = 0
    runs: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    resumed: int = 0

    def __str__(self) -> str:
        hit = ", ".join(f"{moment}: {times}" for moment, times in sorted(self.moments.items()))
        return (
            f"{self.killed} kills in {self.runs} runs ({hit}); {self.resumed} had gone on at a checkpoint; all ended "
            "with the weights of an unbroken run"
        )


class Chaos:
    """Runs in `folder` that are killed."""

    def __init__(self, small_project: SmallProject, folder: Path, seed: int) -> None:
        self._small_project, self._folder, self._random, self.tally = (
            small_project,
            folder,
            random.Random(seed),
            Tally(),
        )
        whole = self._new_project("unbroken")
        start = time.perf_counter()
        self._unbroken = train(self._write(whole, WAYS[1]), whole, 2)
        self._seconds = time.perf_counter() - start

    def run(self, times: int) -> int:
        """Kill one run up to `times` times, then let it finish; return the number of kills."""
        project, killed = self._new_project("project"), 0
        while killed < times and not self._is_done(project):
            way = self._random.choice(WAYS)
            if self._is_killed(project, way):
                killed += 1
            else:
                break
        way = self._random.choice(WAYS)
        ended = None if self._is_done(project) else train(self._write(project, way), project, way.num_ranks)
        self._check(project, ended)
        self.tally.runs += 1
        return killed

    def _new_project(self, name: str) -> Path:
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        share_tiles(self._small_project.project, folder)
        return folder

    def _write(self, project: Path, way: Way) -> Path:
        recipe = way.write(project / "r.toml", steps=1)
        text = recipe.read_text().replace("lr = 0.05", "lr = 0.05\nema_decay = 0.9")
        text = text.replace("steps = 1", f"epochs = {EPOCHS}")
        recipe.write_text(f"{text}[checkpoint]\nevery_steps = {EVERY_STEPS}\n")
        return recipe

    def _is_killed(self, project: Path, way: Way) -> bool:
        """Start a run and kill it at some moment; False if it was over before."""
        command = [GEMSLIDE, "train", self._write(project, way), "--project", project, "--nproc", way.num_ranks]
        had = bool(list(project.glob("checkpoints/*/step-*")))
        process = subprocess.Popen(
            [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
        )
        time.sleep(self._random.uniform(0.2, 0.9) * self._seconds)
        self._kill(process)
        output, _ = process.communicate(timeout=LONGEST_S)
        if process.returncode == 0:
            return False
        if process.returncode != -signal.SIGKILL and "was ended by signal 9" not in output:
            raise Broken(f"it ended with code {process.returncode}, and not by the kill: {output}")
        self.tally.killed += 1
        self.tally.resumed += had and "resuming after step" in output
        self.tally.moments[self._moment(project)] += 1
        self._check_whole(project)
        return True

    def _kill(self, process: subprocess.Popen[str]) -> None:
        try:
            family = psutil.Process(process.pid).children(recursive=True)
            ranks = [one for one in family if one.environ().get("RANK") or one.cmdline()[2:3] == ["training.train"]]
        except psutil.NoSuchProcess:
            return
        is_whole = not ranks or self._random.random() < SHARE_OF_WHOLE
        for victim in [psutil.Process(process.pid), *family] if is_whole else [self._random.choice(ranks)]:
            try:
                victim.kill()
            except psutil.NoSuchProcess:
                continue

    def _moment(self, project: Path) -> str:
        steps = sorted(path.name for path in project.glob("checkpoints/*/step-*"))
        if self._models(project):
            return "packages written"
        return f"after {int(steps[-1].removeprefix('step-')) // 19} epochs" if steps else "before the first checkpoint"

    def _check_whole(self, project: Path) -> None:
        for checkpoint in project.glob("checkpoints/*/step-*"):
            if not (checkpoint / "manifest.json").exists():
                raise Broken(f"{checkpoint} looks whole and is not")

    def _models(self, project: Path) -> set[str]:
        models = project / "models"
        return {path.name for path in models.iterdir() if not path.name.startswith(".")} if models.exists() else set()

    def _is_done(self, project: Path) -> bool:
        return self._models(project) == {self._unbroken.best, self._unbroken.last}

    def _check(self, project: Path, ended: TrainingResult | None) -> None:
        if not self._is_done(project) or (ended and ended != self._unbroken):
            raise Broken(f"ended with {self._models(project)}, an unbroken run with {self._unbroken}")


def run(small_project: SmallProject, folder: Path, times: int, seed: int, *, say: bool = False) -> Tally:
    """Kill `times` times.

    Raises:
        Broken: a promise was not kept.
    """
    chaos, left = Chaos(small_project, folder, seed), times
    while left > 0:
        left -= chaos.run(min(left, 6))
        if say:
            print(chaos.tally, flush=True)
    if times >= ENOUGH_TO_GO_ON and not chaos.tally.resumed:
        raise Broken(f"none of {times} runs had gone on at a checkpoint")
    return chaos.tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gemslide-chaos-") as name:
        folder = Path(name)
        print(run(make_small_project(folder / "small_project"), folder, options.times, options.seed, say=True))


if __name__ == "__main__":
    main()
