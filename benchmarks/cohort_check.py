"""Time of `gemslide cohort check` for a manifest of 10,000 rows.

    .venv/bin/python -m benchmarks.cohort_check --rounds 3

Every row names a separate file (hard links to one small JPEG pyramid of two levels), so that every file is opened.
Prints one JSON line; the committed ones are in benchmarks/results/cohort_check.jsonl. Uses all cores: run it when they
are idle.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import circumstances
from tests.pipeline.make import halved, sample_image, write_jpeg_pyramid

GEMSLIDE = Path(sys.executable).with_name("gemslide")


def write_cohort(folder: Path, num_rows: int) -> Path:
    source = write_jpeg_pyramid(folder / "slide.tiff", halved(sample_image(1800, 1300), 2))
    rows = ["path,slide_id,patient_id"]
    for number in range(num_rows):
        os.link(source, folder / f"{number}.tiff")
        rows.append(f"{number}.tiff,S-{number},P-{number}")
    manifest = folder / "cohort.csv"
    manifest.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return manifest


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        manifest = write_cohort(Path(folder), arguments.rows)
        seconds = []
        for _ in range(arguments.rounds):
            start = time.perf_counter()
            command = [str(GEMSLIDE), "cohort", "check", str(manifest), "--project", str(Path(folder) / "project")]
            subprocess.run(command, check=True, capture_output=True)
            seconds.append(round(time.perf_counter() - start, 2))
    line = {
        "benchmark": "cohort_check",
        "rows": arguments.rows,
        "seconds": seconds,
        "median_s": statistics.median(seconds),
        "load_1min": round(os.getloadavg()[0], 1),
        **circumstances("benchmarks.cohort_check"),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
