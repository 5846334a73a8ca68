"""Seconds and memory of every output format of a slide's results, at 100,000 and 200,000 tiles.

    .venv/bin/python -m benchmarks.results_formats [--folder DIR] [--side-px 100000] [--cells 100000 200000]

A slide is made by `benchmarks.make_slide` and ingested. Predictions of two classes on a square grid over all of it, in
smooth islands of high probability, are synthetic. Every format is written by a separate process, as `gemslide infer`
writes it: seconds of the writing alone, in wall-clock and processor time (medians of the rounds), and the process's
peak memory above its memory before. "all" means all formats except DICOM, together. DICOM objects are made from
attributes of a source of the same size, without reading its file. Prints a JSON line per format and number; the
committed ones are in benchmarks/results/results_formats.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import cv2
import numpy as np

from benchmarks.machine import circumstances
from benchmarks.make_slide import make_slide
from pipeline.export.dicom.kinds import DICOM_KINDS
from pipeline.inference.results.files import write_results
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import InferConfig, IngestConfig, ResultFormat
from pipeline.store.layers.overlays import Predictions
from pipeline.store.reading.reader import StoreReader

SLIDE_ID = "bench"
ALL = tuple(name for name in get_args(ResultFormat) if name not in DICOM_KINDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gemslide-benchmarks")
    parser.add_argument("--side-px", type=int, default=100_000)
    parser.add_argument("--cells", type=int, nargs="+", default=[100_000, 200_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    store = prepare(given.folder, given.side_px)
    if given.one:
        print(json.dumps(measure(store, given.one, given.cells[0])))
        return
    conditions = circumstances("benchmarks.results_formats")
    for cells in given.cells:
        for name in (*get_args(ResultFormat), "all"):
            runs = [in_a_process(given, name, cells) for _ in range(given.rounds)]
            line = {
                "benchmark": "results_formats",
                "format": name,
                "cells": runs[0]["cells"],
                "side_px": given.side_px,
                "seconds": round(statistics.median(run["seconds"] for run in runs), 3),
                "rounds": [round(run["seconds"], 3) for run in runs],
                "processor_s": round(statistics.median(run["processor_s"] for run in runs), 3),
                "memory_mib": round(max(run["memory_mib"] for run in runs), 1),
                "whole_process_mib": round(max(run["whole_process_mib"] for run in runs), 1),
                "file_mib": round(runs[0]["file_bytes"] / 2**20, 2),
                "load_1min": round(os.getloadavg()[0], 1),
            }
            print(json.dumps(line | conditions), flush=True)


def prepare(folder: Path, side_px: int) -> Path:
    """Make the store once."""
    project = Project(folder / f"formats-{side_px}")
    store = project.store_path(SLIDE_ID)
    if not store.exists():
        project.root.mkdir(parents=True, exist_ok=True)
        slide = project.root / "slide.svs"
        make_slide(slide, side_px=side_px)
        ingest_slide(IngestRequest(slide, SLIDE_ID), project, IngestConfig())
        slide.unlink()
    return store


def in_a_process(given: argparse.Namespace, name: str, cells: int) -> dict[str, float]:
    module = [sys.executable, "-m", "benchmarks.results_formats", "--one", name, "--cells", str(cells)]
    module += ["--folder", str(given.folder), "--side-px", str(given.side_px)]
    done = subprocess.run(module, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def made_predictions(reader: StoreReader, cells: int) -> Predictions:
    """Predictions of at least this many cells on a square grid, with islands of the second class on a third of them."""
    side = math.isqrt(cells - 1) + 1
    random = np.random.default_rng(0)
    islands = cv2.resize(random.random((24, 24)).astype(np.float32), (side, side), interpolation=cv2.INTER_CUBIC)
    noise = random.normal(0, 0.05, (side, side))
    warm = (1 / (1 + np.exp(-18 * (islands + noise - 0.62)))).astype(np.float16)
    stride_px0 = float(max(reader.size_wh_px0) // side)
    return Predictions("bench-00000000", ("cold", "warm"), np.stack([1 - warm, warm]), stride_px0, stride_px0, {})


def measure(store: Path, name: str, cells: int) -> dict[str, float]:
    reader = StoreReader(store)
    predictions = made_predictions(reader, cells)
    with tempfile.TemporaryDirectory() as folder:
        write = writer(reader, predictions, name, Path(folder))
        before = peak_mib()
        start, busy = time.perf_counter(), time.process_time()
        write()
        seconds, processor_s = time.perf_counter() - start, time.process_time() - busy
        after = peak_mib()
        files = sum(path.stat().st_size for path in Path(folder).iterdir())
    return {
        "cells": predictions.probabilities_cyx[0].size,
        "seconds": seconds,
        "processor_s": processor_s,
        "memory_mib": after - before,
        "whole_process_mib": after,
        "file_bytes": files,
    }


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def writer(reader: StoreReader, predictions: Predictions, name: str, folder: Path) -> Callable[[], object]:
    if name in DICOM_KINDS:
        from pipeline.export.dicom.library import DicomResult, parametric_map, save, segmentation
        from pipeline.slides.dicom.plane import SlidePlane
        from tests.pipeline.slides.make_dicom import placed_attributes

        plane = SlidePlane((1.0, 2.0, 0.0), (0.0, -1.0, 0.0), (-1.0, 0.0, 0.0), (0.00025, 0.00025))
        source = placed_attributes(*reader.size_wh_px0)
        make = segmentation if name == "dicom-seg" else parametric_map

        def write_dicom() -> None:
            with (folder / "made.dcm").open("wb") as stream:
                save(make(DicomResult(source, "made.dcm", plane, predictions)), stream)

        return write_dicom
    config = InferConfig(formats=ALL if name == "all" else (name,))
    return lambda: write_results(reader, predictions, folder, config)


if __name__ == "__main__":
    main()
