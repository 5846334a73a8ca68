"""Cost of training besides its steps: checkpoints, starting, resuming, reading.

    .venv/bin/python -m benchmarks.train [--folder DIR] [--times 5]

On the demonstration's slides and recipe (two ranks), each figure the median of several runs:

- `checkpoint share`: share of checkpoints in the time of training, validation and checkpoints, with one after each
  epoch.
- `start`: seconds from `gemslide train` to the end of the first step, less those of an interpreter that imports torch
  and exits, run before each start.
- `resume`: the same for a run that was killed and resumes from a checkpoint.
- `decoded / needed`: bytes of the chunks that all ranks decode in the first epoch, divided by those of its tiles when
  each is read once. Chunks decoded twice, or on a rank that does not need them, make it more than 1.

Prints JSON lines; the committed ones are in benchmarks/results/train.jsonl. Takes ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.machine import circumstances
from pipeline.cohort.manifest import load_cohort
from pipeline.demo.demo import NUM_RANKS, RECIPE, TILE_SET, TILES
from pipeline.demo.make_slides import make_demo_cohort
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.tiles.tile import make_tile_table
from training.foundation.recipe_file import RECIPES_DIR

GEMSLIDE = Path(sys.executable).parent / "gemslide"
POLL_S = 0.005


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="keep the project there; what is ingested is used again")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as temporary:
        project = Project(options.folder or Path(temporary))
        _make_ready(project)
        for line in (_started(project, options.times), _decoded(project), _checkpoints(project, options.times)):
            print(json.dumps({"benchmark": "train", **line, **circumstances("benchmarks.train")}), flush=True)


def _make_ready(project: Project) -> None:
    cohort = load_cohort(make_demo_cohort(project.root / "sources"))
    for entry in cohort.included:
        ingest_slide(IngestRequest(cohort.slide_path(entry), entry.slide_id), project, IngestConfig())
    make_tile_table(project, TILE_SET, TILES, cohort=cohort)


def _recipe(project: Project, more: str = "") -> Path:
    """The demonstration's recipe, with further tables."""
    text = (RECIPES_DIR / RECIPE).read_text() + more
    path = project.root / RECIPE
    path.write_text(text)
    return path


# --- starting ---------------------------------------------------------------------------------------


def _started(project: Project, times: int) -> dict[str, Any]:
    recipe = _recipe(project, "[checkpoint]\nevery_steps = 1\n")
    starts, resumes, imports = [], [], []
    for _ in range(times):
        shutil.rmtree(project.root / "checkpoints", ignore_errors=True)
        imports.append(_import_torch())
        starts.append(_until_step(project, recipe) - imports[-1])
        imports.append(_import_torch())
        resumes.append(_until_step(project, recipe) - imports[-1])
    return {
        "recipe": RECIPE,
        "ranks": NUM_RANKS,
        "import torch s": round(statistics.median(imports), 2),
        "start s": round(statistics.median(starts), 2),
        "resume s": round(statistics.median(resumes), 2),
    }


def _import_torch() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - start


def _until_step(project: Project, recipe: Path) -> float:
    """Seconds until the first step's checkpoint exists; then the whole run is killed."""
    had = _checkpoints_in(project)
    start = time.perf_counter()
    process = subprocess.Popen(
        [GEMSLIDE, "train", recipe, "--project", project.root, "--nproc", str(NUM_RANKS)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not _checkpoints_in(project) - had:
        if process.poll() is not None:
            raise SystemExit(f"the run ended with {process.returncode} before its first step")
        time.sleep(POLL_S)
    seconds = time.perf_counter() - start
    for one in (*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)):
        one.kill()
    process.wait()
    return seconds


def _checkpoints_in(project: Project) -> set[str]:
    return {path.parent.name for path in (project.root / "checkpoints").glob("*/step-*/manifest.json")}


# --- reading ----------------------------------------------------------------------------------------


def _decoded(project: Project) -> dict[str, Any]:
    recipe = _recipe(project)
    shutil.rmtree(project.root / "checkpoints", ignore_errors=True)
    into = project.root / "counted"
    launcher = ["-m", "training.local_ranks", f"--nproc-per-node={NUM_RANKS}", "-m", "benchmarks.train_counted"]
    command = [sys.executable, *launcher, str(recipe), "--project", str(project.root)]
    environment = {**os.environ, "COUNT_INTO": str(into), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)
    by_rank = [json.loads(Path(f"{into}.{rank}").read_text()) for rank in range(NUM_RANKS)]
    needed = json.loads(Path(f"{into}.needed").read_text())
    decoded = {what: sum(counted[what] for counted in by_rank) for what in needed}
    return {
        "recipe": RECIPE,
        "ranks": NUM_RANKS,
        "decoded MB by rank": [round(counted["bytes"] / 1e6, 2) for counted in by_rank],
        "needed MB": round(needed["bytes"] / 1e6, 2),
        "decoded / needed": round(decoded["bytes"] / needed["bytes"], 3),
        "pixels decoded / pixels of the tiles": round(decoded["pixels"] / needed["pixels"], 3),
    }


# --- checkpoints ------------------------------------------------------------------------------------


def _checkpoints(project: Project, times: int) -> dict[str, Any]:
    recipe = _recipe(project)
    shares = [_share(seconds) for seconds in _seconds_of_runs(project, recipe, times)]
    return {"recipe": RECIPE, "ranks": NUM_RANKS, "checkpoint share": round(statistics.median(shares), 4)}


def _share(seconds: dict[str, float]) -> float:
    return seconds["checkpoint"] / (seconds["train"] + seconds["validate"] + seconds["checkpoint"])


def _seconds_of_runs(project: Project, recipe: Path, times: int) -> Iterator[dict[str, float]]:
    for _ in range(times):
        before = set(project.runs_dir.glob("*.json"))
        command = [GEMSLIDE, "train", recipe, "--project", project.root, "--nproc", str(NUM_RANKS)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (record,) = set(project.runs_dir.glob("*.json")) - before
        yield json.loads(record.read_text())["seconds"]


if __name__ == "__main__":
    main()
