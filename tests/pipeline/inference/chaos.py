"""kill -9 at random moments of inference: the next run resumes, to the same bytes as an unbroken run.

`make chaos` kills a hundred times: `python -m tests.pipeline.inference.chaos --times 100 --seed 0`. Real processes are
killed, forked from a server with the libraries loaded, so that little time is spent on starting.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.project import Project
from pipeline.settings.config import InferConfig
from pipeline.store.layers.overlays import list_predictions
from tests.small_trained_project import SmallProject, make_small_project

CONFIG = InferConfig(batch_size=4, overlap=0.5)
SHARE_KILLED_AGAIN = 0.5
MOST_S = 120.0


class Broken(AssertionError):
    """Inference did not keep its promise."""


@dataclass
class Tally:
    """Counts of kills and of what they interrupted."""

    killed: int = 0
    killed_with_batches: int = 0
    killed_while_publishing: int = 0
    killed_at_the_end: int = 0
    batches: int = 0
    """Batches of all slides that finished."""
    repeated: int = 0

    def __str__(self) -> str:
        return (
            f"{self.killed} kills ({self.killed_with_batches} between batches, {self.killed_while_publishing} with all "
            f"of them done, {self.killed_at_the_end} after publishing); {self.repeated} batches done twice beside "
            f"{self.batches}"
        )


def infer(project: Path, model_id: str, slide_id: str, log: Path) -> None:
    """Run the inference that is killed; log a byte for each batch that went through the network."""
    predictor = Predictor.load(project / "models" / model_id)
    start = predictor.start

    def logged(tiles_nhwc: np.ndarray) -> Callable[[], np.ndarray]:
        with log.open("ab", buffering=0) as file:
            file.write(b".")
        return start(tiles_nhwc)

    predictor.start = logged  # type: ignore[method-assign]
    infer_slide(slide_id, predictor, Project(project), CONFIG)


class Chaos:
    """Rounds of killing in `folder`."""

    def __init__(self, small_project: SmallProject, folder: Path, seed: int) -> None:
        self.small_project, self.folder, self.random, self.tally = small_project, folder, random.Random(seed), Tally()
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload([__name__])
        project = self._new_project("unbroken")
        self._run(project).join(MOST_S)
        self.num_batches = self._num_done(project)
        self.unbroken = self._results(project)

    def round(self, times: int) -> int:
        """Kill runs of one project up to `times` times, then let one finish. Return the number of kills."""
        project, killed = self._new_project("project"), 0
        while killed < times and (not killed or self.random.random() < SHARE_KILLED_AGAIN):
            self._kill_one(project)
            killed += 1
        last = self._run(project)
        last.join(MOST_S)
        if last.exitcode != 0:
            raise Broken(f"the run after {killed} kills ended with {last.exitcode}")
        if self._results(project) != self.unbroken:
            raise Broken(f"after {killed} kills the results differ from those of an unbroken run")
        repeated = self._num_done(project) - self.num_batches
        if repeated > killed:
            raise Broken(f"{killed} kills, but {repeated} batches were done twice")
        self.tally.batches += self.num_batches
        self.tally.repeated += repeated
        return killed

    def _kill_one(self, project: Path) -> None:
        already = self._num_done(project)
        # Beyond the last batch: while results are written, or later.
        moment = self.random.randint(min(already, self.num_batches), self.num_batches + 3)
        delay_s = self.random.uniform(0, 0.5) if moment > self.num_batches else 0.0
        process = self._run(project)
        give_up = time.monotonic() + MOST_S
        while self._num_done(project) < min(moment, self.num_batches) and process.is_alive():
            if time.monotonic() > give_up:
                raise Broken(f"no batch in {MOST_S} s")
            time.sleep(0.001)
        process.join(delay_s)
        process.kill()
        process.join()
        self._count(project)
        store = Project(project).store_path(self.small_project.test_slide)
        if list_predictions(store) and not self._stored(project).items() <= self.unbroken.items():
            raise Broken("predictions look finished and are not those of an unbroken run")

    def _count(self, project: Path) -> None:
        self.tally.killed += 1
        if list_predictions(Project(project).store_path(self.small_project.test_slide)):
            self.tally.killed_at_the_end += 1
        elif self._num_done(project) >= self.num_batches:
            self.tally.killed_while_publishing += 1
        else:
            self.tally.killed_with_batches += 1

    def _run(self, project: Path) -> multiprocessing.process.BaseProcess:
        Project(project).recover()
        work = (project, self.small_project.model_id, self.small_project.test_slide, project / "log")
        process = self.context.Process(target=infer, args=work)
        process.start()
        return process

    def _num_done(self, project: Path) -> int:
        log = project / "log"
        return log.stat().st_size if log.exists() else 0

    def _results(self, project: Path) -> dict[str, bytes]:
        """All bytes that inference leaves; of the report, which contains durations, only its existence."""
        contents = self._stored(project) | _files(Project(project).model_results_dir(self.small_project.model_id))
        return {name: b"" if name.endswith(".html") else data for name, data in contents.items()}

    def _stored(self, project: Path) -> dict[str, bytes]:
        return _files(Project(project).store_path(self.small_project.test_slide) / "predictions")

    def _new_project(self, name: str) -> Path:
        project = self.folder / name
        shutil.rmtree(project, ignore_errors=True)
        source = self.small_project.project
        shutil.copytree(
            source.store_path(self.small_project.test_slide), Project(project).store_path(self.small_project.test_slide)
        )
        os.symlink(source.models_dir.resolve(), project / "models")
        return project


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(small_project: SmallProject, folder: Path, times: int, seed: int, *, say: bool = False) -> Tally:
    """Kill `times` times.

    Raises:
        Broken: a promise was not kept.
    """
    chaos, left, number = Chaos(small_project, folder, seed), times, 0
    while left:
        left -= chaos.round(left)
        number += 1
        if say:
            print(f"project {number}: {chaos.tally}", flush=True)
    return chaos.tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gemslide-chaos-") as folder:
        small_project = make_small_project(Path(folder) / "small_project")
        tally = run(small_project, Path(folder), options.times, options.seed, say=True)
    if not (tally.killed_with_batches and tally.killed_while_publishing):
        raise SystemExit(f"proves nothing: {tally}. Give more --times.")
    print(tally)


if __name__ == "__main__":
    main()
