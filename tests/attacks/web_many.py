"""A worklist of very many slides: how long its pages take, and what stays open.

    python -m tests.attacks.web_many --times 10000 --seed 1

Promised: what a page shows is ready within a second, however many slides there are; no file stays open.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pathology_app.tiles.cache import SlideCache
from pathology_app.worklist_rows import find_slides, page_of, read_row
from pipeline.project import Project
from tests.pathology_app.many_slides import make_many_slides
from tests.pathology_app.small_project import make_project

READY_S = 1.0
READY_BY_MODEL_S = 3.0
"""Where every slide's folder of predictions has to be listed."""


def attack(times: int, seed: int, folder: Path) -> tuple[list[str], dict[str, float]]:
    """Look through a worklist of `times` slides.

    Returns:
        what was not as promised; seconds that each look took.
    """
    small, root = folder / "small", folder / "many"
    small.mkdir()
    make_many_slides(make_project(small), root, times)
    cache, rng = SlideCache(Project(root)), random.Random(seed)
    looks: dict[str, Callable[[], int]] = {
        "first page": lambda: _look(cache, "", "1"),
        "first page again": lambda: _look(cache, "", "1"),
        "another page": lambda: _look(cache, "", str(rng.randrange(2, times // 50))),
        "the last page": lambda: _look(cache, "", str(times)),
        "a part of the name": lambda: _look(cache, str(times - 1), "1"),
        "with predictions": lambda: _look(cache, "demo", "1", only_predicted=True),
    }
    read_row(cache, find_slides(cache, "", only_predicted=False)[0][-1])  # zarr opens an event loop once
    opened, seconds, findings = len(os.listdir("/proc/self/fd")), {}, []
    for name, look in looks.items():
        start = time.perf_counter()
        rows = look()
        seconds[name] = time.perf_counter() - start
        limit_s = READY_BY_MODEL_S if name == "with predictions" else READY_S
        if seconds[name] > limit_s or not rows:
            findings.append(f"{name}: {rows} rows in {seconds[name]:.2f} s")
    if len(os.listdir("/proc/self/fd")) > opened:
        findings.append(f"{len(os.listdir('/proc/self/fd')) - opened} files stayed open")
    return findings, seconds


def _look(cache: SlideCache, text: str, wanted: str, *, only_predicted: bool = False) -> int:
    """Read a page as the worklist does; how many rows it has without a fault."""
    slide_ids, _ = find_slides(cache, text, only_predicted=only_predicted)
    return sum(not read_row(cache, slide_id).note for slide_id in page_of(slide_ids, wanted).slide_ids)


def main() -> int:
    """Run the attack; 1 on any finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        findings, seconds = attack(options.times, options.seed, Path(folder))
    sys.stdout.write("".join(f"{finding}\n" for finding in findings))
    figures = ", ".join(f"{name} {taken:.2f} s" for name, taken in seconds.items())
    sys.stdout.write(f"web_many: {options.times} slides, {len(findings)} not as promised ({figures})\n")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
