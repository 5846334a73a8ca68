"""kill -9 at random moments of a network's work on a slide: the next run resumes, to the bytes of an unbroken run.

`tests.pipeline.inference.chaos` and `tests.pipeline.embedding.chaos` say what is killed. Real processes are killed,
forked from a server with the libraries loaded, so that little time is spent on starting.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.embedding.encoder import TileEncoder
from pipeline.inference.predictor import Predictor
from pipeline.project import Project

SHARE_KILLED_AGAIN = 0.5
MOST_S = 120.0


class Broken(AssertionError):
    """A run did not keep its promise."""


@dataclass(frozen=True)
class Victim:
    """Work on a slide that is killed."""

    work: Callable[[Path, Path], None]
    """Does it in a project, and logs a byte for each batch (`log_batches`); called in another process."""
    store: Path
    """The slide's store, without results."""
    linked: Path
    """Folder of models or encoders, which the project has by its name."""
    layer: str
    """Folder of the store in which results appear."""
    list_layers: Callable[[Path], list[str]]
    """Complete results in a store."""
    preloaded: Sequence[str]
    """What takes long to import. The server of processes does not find a module that runs as `__main__`."""
    late_kills: float
    """Kills after the last batch, while results are written or later, as a share of those between batches."""
    publishing_s: float
    """Time within which they come."""


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


def log_batches(network: Predictor | TileEncoder, log: Path) -> None:
    """Log a byte for each batch that goes through a network."""
    start = network.start

    def logged(tiles_nhwc: np.ndarray) -> Callable[[], np.ndarray]:
        with log.open("ab", buffering=0) as file:
            file.write(b".")
        return start(tiles_nhwc)

    network.start = logged  # type: ignore[method-assign]


class Chaos:
    """Rounds of killing in `folder`."""

    def __init__(self, victim: Victim, folder: Path, seed: int) -> None:
        self.victim, self.folder, self.random, self.tally = victim, folder, random.Random(seed), Tally()
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(list(victim.preloaded))
        project = self._new_project("unbroken")
        self._finish(project, "an unbroken run")
        self.num_batches = self._num_done(project)
        self.unbroken = self._left(project)

    def round(self, times: int) -> int:
        """Kill runs of one project up to `times` times, then let one finish. Return the number of kills."""
        project, killed = self._new_project("project"), 0
        while killed < times and (not killed or self.random.random() < SHARE_KILLED_AGAIN):
            self._kill_one(project)
            killed += 1
        self._finish(project, f"the run after {killed} kills")
        left = self._left(project)
        if left != self.unbroken:
            names = sorted(
                name for name in left.keys() | self.unbroken.keys() if left.get(name) != self.unbroken.get(name)
            )
            raise Broken(f"after {killed} kills other files are left than by an unbroken run: {', '.join(names)}")
        repeated = self._num_done(project) - self.num_batches
        if repeated > killed:
            raise Broken(f"{killed} kills, but {repeated} batches were done twice")
        self.tally.batches += self.num_batches
        self.tally.repeated += repeated
        return killed

    def _kill_one(self, project: Path) -> None:
        already, late = self._num_done(project), max(1, round(self.victim.late_kills * self.num_batches))
        moment = self.random.randint(min(already, self.num_batches), self.num_batches + late)
        delay_s = self.random.uniform(0, self.victim.publishing_s) if moment > self.num_batches else 0.0
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

    def _count(self, project: Path) -> None:
        self.tally.killed += 1
        if self.victim.list_layers(self._store(project)):
            self.tally.killed_at_the_end += 1
            if _stored(self._left(project)) != _stored(self.unbroken):
                raise Broken(f"{self.victim.layer} look finished and are not those of an unbroken run")
        elif self._num_done(project) >= self.num_batches:
            self.tally.killed_while_publishing += 1
        else:
            self.tally.killed_with_batches += 1

    def _run(self, project: Path) -> multiprocessing.process.BaseProcess:
        Project(project).recover()
        process = self.context.Process(target=self.victim.work, args=(project, project / "log"))
        process.start()
        return process

    def _finish(self, project: Path, what: str) -> None:
        process = self._run(project)
        process.join(MOST_S)
        if process.exitcode != 0:
            raise Broken(f"{what} ended with {process.exitcode}")

    def _num_done(self, project: Path) -> int:
        log = project / "log"
        return log.stat().st_size if log.exists() else 0

    def _left(self, project: Path) -> dict[str, bytes]:
        """All bytes that a run leaves; of reports, which contain durations, only their existence."""
        folders = {"store": self._store(project) / self.victim.layer, "results": Project(project).results_dir}
        return {
            f"{name}/{path.relative_to(folder)}": b"" if path.suffix == ".html" else path.read_bytes()
            for name, folder in folders.items()
            for path in folder.rglob("*")
            if path.is_file()
        }

    def _store(self, project: Path) -> Path:
        return Project(project).slides_dir / self.victim.store.name

    def _new_project(self, name: str) -> Path:
        project = self.folder / name
        shutil.rmtree(project, ignore_errors=True)
        shutil.copytree(self.victim.store, self._store(project))
        os.symlink(self.victim.linked.resolve(), project / self.victim.linked.name)
        return project


def _stored(left: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in left.items() if name.startswith("store/")}


def run(victim: Victim, folder: Path, times: int, seed: int, *, say: bool = False) -> Tally:
    """Kill `times` times.

    Raises:
        Broken: a promise was not kept.
    """
    chaos, left, number = Chaos(victim, folder, seed), times, 0
    while left:
        left -= chaos.round(left)
        number += 1
        if say:
            print(f"project {number}: {chaos.tally}", flush=True)
    return chaos.tally


def main(description: str | None, make_victim: Callable[[Path], Victim]) -> None:
    """The command: `--times` and `--seed`. `make_victim` is given an empty folder."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gemslide-chaos-") as name:
        folder = Path(name)
        (folder / "source").mkdir()
        tally = run(make_victim(folder / "source"), folder, options.times, options.seed, say=True)
    if not (tally.killed_with_batches and tally.killed_while_publishing):
        raise SystemExit(f"proves nothing: {tally}. Give more --times.")
    print(tally)
