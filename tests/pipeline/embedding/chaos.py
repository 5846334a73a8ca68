"""kill -9 at random moments of an embedding: the next run resumes, to the same bytes as an unbroken run.

`make chaos` kills a hundred times: `python -m tests.pipeline.embedding.chaos --times 100 --seed 0`. Real processes are
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
from pathlib import Path

import numpy as np

from pipeline.batches.where import RunOn
from pipeline.embedding.embed import embed_slide
from pipeline.embedding.encoder import TileEncoder
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import EmbedConfig, IngestConfig
from pipeline.store.layers.features import list_features
from tests.pipeline.inference.chaos import MOST_S, SHARE_KILLED_AGAIN, Broken, Tally
from tests.small_trained_project import TISSUE, make_slide
from tests.training.encoders.tiny_encoders import TIMM_CONFIG, folder_row, timm_state

CONFIG = EmbedConfig(batch_size=8)
SLIDE = "S-1"
PRELOADED = ["pipeline.embedding.embed", "tests.small_trained_project", "tests.training.encoders.tiny_encoders"]
"""What takes long to import. The server of processes does not find this module where it runs as `__main__`."""
PUBLISHING_S = 0.1
"""Time within which an embedding whose batches are all done is killed."""


def embed(project: Path, log: Path) -> None:
    """Run the embedding that is killed; log a byte for each batch that went through the encoder."""
    encoder = TileEncoder.load(project / "encoders/tiny.toml", RunOn("cpu"))
    start = encoder.start

    def logged(tiles_nhwc: np.ndarray) -> Callable[[], np.ndarray]:
        with log.open("ab", buffering=0) as file:
            file.write(b".")
        return start(tiles_nhwc)

    encoder.start = logged  # type: ignore[method-assign]
    embed_slide(SLIDE, encoder, Project(project), CONFIG)


class Chaos:
    """Rounds of killing in `folder`.

    Args:
        store: of a slide with tissue and without features.
    """

    def __init__(self, store: Path, folder: Path, seed: int) -> None:
        self.store, self.folder, self.random, self.tally = store, folder, random.Random(seed), Tally()
        folder_row(folder / "encoders", timm_state(), TIMM_CONFIG)
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOADED)
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
        already = self._num_done(project)
        # Beyond the last batch: while features are written, or later.
        moment = self.random.randint(min(already, self.num_batches), self.num_batches + self.num_batches // 8)
        delay_s = self.random.uniform(0, PUBLISHING_S) if moment > self.num_batches else 0.0
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
        if list_features(Project(project).store_path(SLIDE)):
            self.tally.killed_at_the_end += 1
            features = {name: data for name, data in self._left(project).items() if name.startswith("store/")}
            if features != self.unbroken:
                raise Broken("features look finished and are not those of an unbroken run")
        elif self._num_done(project) >= self.num_batches:
            self.tally.killed_while_publishing += 1
        else:
            self.tally.killed_with_batches += 1

    def _run(self, project: Path) -> multiprocessing.process.BaseProcess:
        Project(project).recover()
        process = self.context.Process(target=embed, args=(project, project / "log"))
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
        """All bytes that an embedding leaves: features in the store, and nothing beside it once it is finished."""
        folders = {"store": Project(project).store_path(SLIDE) / "features", "results": Project(project).results_dir}
        return {
            f"{name}/{path.relative_to(folder)}": path.read_bytes()
            for name, folder in folders.items()
            for path in folder.rglob("*")
            if path.is_file()
        }

    def _new_project(self, name: str) -> Path:
        project = self.folder / name
        shutil.rmtree(project, ignore_errors=True)
        shutil.copytree(self.store, Project(project).store_path(SLIDE))
        os.symlink((self.folder / "encoders").resolve(), project / "encoders")
        return project


def run(store: Path, folder: Path, times: int, seed: int, *, say: bool = False) -> Tally:
    """Kill `times` times.

    Raises:
        Broken: a promise was not kept.
    """
    chaos, left, number = Chaos(store, folder, seed), times, 0
    while left:
        left -= chaos.round(left)
        number += 1
        if say:
            print(f"project {number}: {chaos.tally}", flush=True)
    return chaos.tally


def make_store(folder: Path) -> Path:
    """A slide's store in a new project."""
    folder.mkdir(parents=True)
    make_slide(folder / "slide.tiff", seed=1)
    ingest_slide(
        IngestRequest(folder / "slide.tiff", SLIDE), Project(folder), IngestConfig(shard_px=512, tissue=TISSUE)
    )
    return Project(folder).store_path(SLIDE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gemslide-chaos-") as folder:
        store = make_store(Path(folder) / "source")
        tally = run(store, Path(folder), options.times, options.seed, say=True)
    if not (tally.killed_with_batches and tally.killed_while_publishing):
        raise SystemExit(f"proves nothing: {tally}. Give more --times.")
    print(tally)


if __name__ == "__main__":
    main()
