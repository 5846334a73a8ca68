"""A worklist of very many slides: how long its pages take, and what stays open.

    python -m tests.attacks.web_many --times 10000 --seed 1

Promised: what a page shows is ready within a second, however many slides there are; no file stays open.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path

from pathology_app.tiles.cache import SlideCache
from pathology_app.worklist_rows import ROWS_PER_PAGE, find_slides, page_of, read_row
from pipeline.project import Project
from tests.attacks.attack import Result, main
from tests.pathology_app.many_slides import make_many_slides
from tests.pathology_app.small_project import make_project

READY_S = 1.0
WITH_PREDICTIONS = "those with predictions"
READY_BY_MODEL_S = 3.0
"""Where every slide's folder of predictions has to be listed."""


def attack(times: int, seed: int) -> Result:
    """Look through a worklist of `times` slides. What each look took stands in the result's name."""
    result, rng = Result(f"looks at a worklist of {times} slides"), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        small, root = Path(folder) / "small", Path(folder) / "many"
        small.mkdir()
        make_many_slides(make_project(small), root, times)
        cache = SlideCache(Project(root))
        read_row(cache, find_slides(cache, "", only_predicted=False)[0][-1])  # once: the libraries open what they keep
        opened = len(os.listdir("/proc/self/fd"))
        for what, text, page in (
            ("the first page", "", 1),
            ("the first page again", "", 1),
            ("another page", "", rng.randint(2, max(2, times // ROWS_PER_PAGE))),
            ("the last page", "", times),
            ("a name", str(times - 1), 1),
            (WITH_PREDICTIONS, "demo", 1),
        ):
            start = time.perf_counter()
            rows = _look(cache, text, page, only_predicted=what == WITH_PREDICTIONS)
            seconds = time.perf_counter() - start
            result.attempts += 1
            result.what += f", {what} {seconds:.2f} s"
            limit_s = READY_BY_MODEL_S if what == WITH_PREDICTIONS else READY_S
            result.check(rows > 0 and seconds < limit_s, f"{what}: {rows} rows in {seconds:.2f} s")
        stayed = len(os.listdir("/proc/self/fd")) - opened
        result.check(stayed <= 0, f"{stayed} files stayed open")
    return result


def _look(cache: SlideCache, text: str, wanted: int, *, only_predicted: bool = False) -> int:
    """Read a page as the worklist does; how many rows it has without a fault."""
    slide_ids, _ = find_slides(cache, text, only_predicted=only_predicted)
    return sum(not read_row(cache, slide_id).note for slide_id in page_of(slide_ids, wanted).slide_ids)


if __name__ == "__main__":
    main(attack, times=10_000)
