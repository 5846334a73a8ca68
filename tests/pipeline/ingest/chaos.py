"""kill -9 at random moments of ingest: no unfinished store looks finished, and the next run makes the same bytes.

`make chaos` kills a hundred times: `python -m tests.pipeline.ingest.chaos --times 100 --seed 0`. Real processes are
killed: the command with one slide, and the command with two slides at a time, whose children must not outlive it.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import tifffile

from tests.pipeline.damage import damage_tiles
from tests.pipeline.ingest.store_bytes import left_in, tree
from tests.pipeline.make import halved, sample_image, write_jpeg_pyramid

GEMSLIDE = Path(sys.executable).parent / "gemslide"
SETTINGS = "[ingest]\nshard_px = 256\ndecode_chunk_px = 128\nsmallest_level_px = 128\n"
MASKED = 'damaged = "mask"\n'
SHARE_BEFORE_LOCK = 0.1
SHARE_AMONG_SHARDS = 0.4
"""Share of kills after a random number of finished shards: on a machine of varying speed, a moment on the clock may
always come too late."""
SHARE_KILLED_AGAIN = 0.3
CHILDREN_END_WITHIN_S = 20.0


class Broken(AssertionError):
    """Ingest did not keep its promise."""


@dataclass
class Tally:
    """Counts of kills and of what they interrupted."""

    killed: int = 0
    killed_with_two: int = 0
    """Kills with two slides at a time."""
    moments: Counter[str] = field(default_factory=Counter)
    shards_found: int = 0
    shards_reused: int = 0

    def __str__(self) -> str:
        hit = ", ".join(f"{moment}: {times}" for moment, times in sorted(self.moments.items()))
        return f"{self.killed} kills ({hit}); {self.shards_reused} of {self.shards_found} finished shards reused"


def write_source(path: Path, seed: int) -> Path:
    """Write a slide whose levels are passed through, decoded, passed through and built: about 100 shards."""
    levels = halved(sample_image(2100, 1300, seed), 2)
    write_jpeg_pyramid(path, [levels[0], levels[2]], tile_px=128)
    with tifffile.TiffWriter(path, append=True) as tiff:
        tiff.write(
            levels[1], tile=(128, 128), photometric="rgb", compression="deflate", subfiletype=1, metadata=None
        )  # fmt: skip
    return path


class Chaos:
    """Rounds of killing in `folder`."""

    def __init__(self, folder: Path, seed: int, *, damaged: bool = False) -> None:
        self.settings = SETTINGS + MASKED * damaged
        self.folder, self.random, self.tally = folder, random.Random(seed), Tally()
        self.sources = [write_source(folder / f"s{seed}.tiff", seed) for seed in (1, 2)]
        for source in self.sources if damaged else ():
            damage_tiles(source, range(20, 40), "random")
            damage_tiles(source, [2], "zeros", page=1)
        self.unbroken: dict[str, dict[str, bytes]] = {}
        self.durations_s: dict[int, tuple[float, float]] = {}
        for workers in (1, 2):
            project = self._new_project("unbroken")
            self.durations_s[workers] = self._run_unbroken(project, workers)
            for source in self.sources[:workers]:
                store = tree(project / "slides" / f"{source.stem}.ome.zarr")
                if self.unbroken.setdefault(source.stem, store) != store:
                    raise Broken(f"{source.stem}: two unbroken runs differ")

    def round(self, times: int, workers: int = 1) -> int:
        """Kill runs of one project up to `times` times, then let one finish. Return the number of kills."""
        project, killed = self._new_project("project"), 0
        while killed < times and (not killed or self.random.random() < SHARE_KILLED_AGAIN):
            shards = self._finished_shards(project)
            self._kill_one(project, workers)
            self._check_left(project, workers)
            self._check_reused(project, shards)
            killed += 1
        shards = self._finished_shards(project)
        self._run_unbroken(project, workers)
        if left_in(project) != sorted(f"{source.stem}.ome.zarr" for source in self.sources[:workers]):
            raise Broken(f"left after the last run: {left_in(project)}")
        self._check_left(project, workers)
        self._check_reused(project, shards)
        self.tally.shards_found += len(shards)
        self.tally.shards_reused += len(shards)
        return killed

    def _new_project(self, name: str) -> Path:
        project = self.folder / name
        shutil.rmtree(project, ignore_errors=True)
        project.mkdir()
        (project / "gemslide.toml").write_text(self.settings)
        return project

    def _start(self, project: Path, workers: int) -> subprocess.Popen[str]:
        """Start a new process group, so that children can be found after the parent has died."""
        sources = map(str, self.sources[:workers])
        command = [str(GEMSLIDE), "ingest", *sources, "--project", str(project), "--workers", str(workers), "--json"]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def _run_unbroken(self, project: Path, workers: int) -> tuple[float, float]:
        """Run to the end; return the seconds until the first lock is taken, and from then to the end."""
        start = time.perf_counter()
        process = self._start(project, workers)
        _wait_for_lock(process, project)
        locked = time.perf_counter()
        out, err = process.communicate(timeout=120)
        if process.returncode:
            raise Broken(f"exit code {process.returncode}: {out}{err}")
        return locked - start, time.perf_counter() - locked

    def _kill_one(self, project: Path, workers: int) -> None:
        before_s, after_s = self.durations_s[workers]
        moment = self.random.random()
        process = self._start(project, workers)
        if moment < SHARE_BEFORE_LOCK:
            time.sleep(self.random.uniform(0, before_s))
        elif moment < SHARE_BEFORE_LOCK + SHARE_AMONG_SHARDS:
            self._wait_for_shards(process, project, self.random.randint(1, self._num_shards() // 2))
        else:
            delay_s = self.random.uniform(0, after_s)
            _wait_for_lock(process, project)
            time.sleep(delay_s)
        process.kill()
        process.communicate(timeout=60)
        wait_for_group_to_end(process.pid)
        self.tally.killed += 1
        self.tally.killed_with_two += workers == 2
        self.tally.moments[self._moment(project)] += 1

    def _wait_for_shards(self, process: subprocess.Popen[str], project: Path, count: int) -> None:
        while process.poll() is None and len(self._finished_shards(project)) < count:
            time.sleep(0.002)

    def _num_shards(self) -> int:
        """Number of shards of the first slide, over all levels."""
        return sum(re.match(r"0/[0-9]+/c/", path) is not None for path in self.unbroken[self.sources[0].stem])

    def _moment(self, project: Path) -> str:
        """Stage that the furthest slide reached, judged by the files it left."""
        names = left_in(project)
        if any(name.endswith(".ome.zarr") for name in names):
            return "6 published"
        signs = {"5 root written": "zarr.json", "4 last files": "OME", "3 tissue": "0/labels", "2 shards": "0/0/c"}
        for moment, sign in signs.items():
            if any((project / "slides" / name / sign).exists() for name in names):
                return moment
        return "1 locked" if names else "0 before the lock"

    def _check_left(self, project: Path, workers: int) -> None:
        """Check that only partial folders, and stores equal to those of an unbroken run, are left."""
        for name in left_in(project):
            slide_id = name.removesuffix(".ome.zarr")
            if name == slide_id:
                if name not in {f".{source.stem}.partial" for source in self.sources[:workers]}:
                    raise Broken(f"left behind: {name}")
            elif tree(project / "slides" / name) != self.unbroken[slide_id]:
                raise Broken(f"{name} looks finished and is not")

    def _finished_shards(self, project: Path) -> dict[str, tuple[int, int]]:
        """Inode and time of the shards that a resumed run must not touch, by slide and path."""
        shards = {}
        for partial in (project / "slides").glob(".*.partial"):
            if (partial / ".resume").exists():
                for path in (p for p in (partial / "0").glob("[0-9]*/c/**/*") if p.is_file()):
                    if not path.name.startswith("."):
                        name = f"{partial.name[1:].removesuffix('.partial')}/{path.relative_to(partial)}"
                        shards[name] = (path.stat().st_ino, path.stat().st_mtime_ns)
        return shards

    def _check_reused(self, project: Path, shards: dict[str, tuple[int, int]]) -> None:
        for name, was in shards.items():
            slide_id, path = name.split("/", 1)
            folders = [project / "slides" / f"{slide_id}.ome.zarr", project / "slides" / f".{slide_id}.partial"]
            stats = [(folder / path).stat() for folder in folders if (folder / path).exists()]
            if [(stat.st_ino, stat.st_mtime_ns) for stat in stats] != [was]:
                raise Broken(f"{name} was finished, and written again")


def _wait_for_lock(process: subprocess.Popen[str], project: Path) -> None:
    while process.poll() is None and not left_in(project):
        time.sleep(0.002)


def wait_for_group_to_end(group: int) -> None:
    """Wait for the children of a killed process to end by themselves.

    Raises:
        Broken: they do not end.
    """
    deadline = time.monotonic() + CHILDREN_END_WITHIN_S
    while alive := _alive_in(group):
        if time.monotonic() > deadline:
            raise Broken(f"processes {alive} outlive their killed parent")
        time.sleep(0.01)


def _alive_in(group: int) -> list[int]:
    """Live processes of a group, without zombies (proc(5), stat)."""
    alive = []
    for entry in (e for e in os.listdir("/proc") if e.isdigit()):
        try:
            state, _, process_group = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(process_group) == group and state not in "ZX":
            alive.append(int(entry))
    return alive


def run(folder: Path, times: int, seed: int, *, damaged: bool = False, say: bool = False) -> Tally:
    """Kill `times` times; every second project has two slides at a time.

    Args:
        damaged: whether the slides are damaged, and ingested anyway.

    Raises:
        Broken: a promise was not kept.
    """
    chaos, left, number = Chaos(folder, seed, damaged=damaged), times, 0
    while left:
        left -= chaos.round(left, workers=1 + number % 2)
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
        tally = run(Path(folder), options.times, options.seed, say=True)
    if not (tally.killed_with_two and tally.shards_found):
        raise SystemExit(f"proves nothing: {tally}. Give more --times.")
    print(tally)


if __name__ == "__main__":
    main()
