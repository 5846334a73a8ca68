"""Cost of inference of 100,000 × 100,000 pixels beyond its tiles: seconds, memory, and after a kill at 95 %.

    .venv/bin/python -m benchmarks.infer_large [--side-px 100000] [--tile-px 224 1024]

The network is the mean of a tile's channels, so that memory and seconds are those of everything else; the slide comes
from `benchmarks.make_slide`, and about two thirds of it are tissue. Each run is a separate process, with every format
for a TIFF source. `overhead` is everything except the time between the first tile and the last probability: opening,
finding tissue, planning, writing. `peak` is the memory beyond that of the process after the model was loaded and one
batch was run. `resume` is a run after a process that was killed (-9) with 95 % of its tiles predicted: its extra time
over the share of an unbroken run for the remaining tiles and the overhead. Prints a JSON line per tile size; the
committed ones are in benchmarks/results/infer_large.jsonl.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.infer_work import Clock, Mean, Work, forget, opened, slide_of
from benchmarks.machine import circumstances, peak_bytes
from pipeline.batches.network import usual_batch_size
from pipeline.inference.infer import infer_slide
from pipeline.project import Project
from pipeline.settings.config import InferConfig
from pipeline.store.layers.overlays import read_predictions

FORMATS = InferConfig(
    formats=("csv", "parquet", "geojson", "contours", "heatmap", "ome-tiff", "report"),
)
KILLED_AT = 0.95


class KillingClock(Clock):
    """Clock that kills the process, like a power cut, once a share of the tiles has been predicted."""

    def __init__(self) -> None:
        super().__init__(time.perf_counter)
        self._expected = self._done = 0

    def expect(self, steps: int) -> None:
        super().expect(steps)
        self._expected += steps

    def __call__(self, steps: int) -> None:
        super().__call__(steps)
        self._done += steps
        if self._done >= KILLED_AT * self._expected:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side-px", type=int, default=100_000)
    parser.add_argument("--tile-px", type=int, nargs="*", default=[224, 1024])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as folder:
        project = slide_of(Path(folder), options.side_px)
        for tile_px in options.tile_px:
            print(json.dumps({**measure(project, tile_px), **circumstances("benchmarks.infer_large")}), flush=True)


def measure(project: Project, tile_px: int) -> dict[str, Any]:
    """Measure an unbroken run, a run that is killed, and the run that resumes it."""
    unbroken = _in_process(project, tile_px, "whole")
    assert unbroken
    stored = _stored(project)
    forget(project)
    assert _in_process(project, tile_px, "killed") is None
    resumed = _in_process(project, tile_px, "whole")
    assert resumed
    left_s = (1 - KILLED_AT) * unbroken["predicting_s"] + unbroken["overhead_s"]
    return {
        "benchmark": "infer_large",
        "tile_px": tile_px,
        "slide_px": project.root.name,
        "tiles": unbroken["tiles"],
        "overhead_s": unbroken["overhead_s"],
        "predicting_s": unbroken["predicting_s"],
        "peak_mib": unbroken["peak_mib"],
        "resumed_run_s": resumed["road_s"],
        "resume: beyond an unbroken run's rest, s": round(resumed["road_s"] - left_s, 2),
        "resumed run's predictions are the unbroken run's": bool(
            np.array_equal(stored, _stored(project), equal_nan=True)
        ),
        "seconds": unbroken["seconds"],
        "formats": list(FORMATS.formats),
        "files_mib": unbroken["files_mib"],
    }


def _stored(project: Project) -> Any:
    return read_predictions(project.store_path("S-1"), "bench").probabilities_cyx


def _in_process(project: Project, tile_px: int, how: str) -> dict[str, Any] | None:
    """Figures of the run; None if its process was killed."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, project.root, tile_px, how))
    process.start()
    theirs.close()
    try:
        figures_sent: dict[str, Any] | None = ours.recv()
    except EOFError:
        figures_sent = None
    process.join()
    return figures_sent


def _run(parent: Connection, root: Path, tile_px: int, how: str) -> None:
    project = Project(root)
    _, predictor = opened(Work("large", lambda _: Mean(), tile_px, 0), project)
    predictor.predict(
        np.full((usual_batch_size(predictor.devices, predictor.tile_px), tile_px, tile_px, 3), 200, np.uint8)
    )
    before = psutil.Process().memory_info().rss
    clock = KillingClock() if how == "killed" else Clock(time.perf_counter)
    start = time.perf_counter()
    report = infer_slide("S-1", predictor, project, FORMATS, advance=clock)
    total_s, predicting_s = time.perf_counter() - start, clock.last_s - clock.first_s
    parent.send(
        {
            "tiles": report.num_tiles,
            "road_s": round(total_s, 2),
            "predicting_s": round(predicting_s, 2),
            "overhead_s": round(total_s - predicting_s, 2),
            "peak_mib": (peak_bytes() - before) // 2**20,
            "seconds": report.seconds,
            "files_mib": round(sum(path.stat().st_size for path in report.result_dir.iterdir()) / 2**20, 1),
        }
    )


if __name__ == "__main__":
    main()
