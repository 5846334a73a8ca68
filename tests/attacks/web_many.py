"""A worklist of very many slides: the time its pages take, and the files left open.

    python -m tests.attacks.web_many --times 10000 --seed 1

Promised: what a page shows is ready within a second, however many slides there are and while they are still being read;
no file stays open.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path

from pathology_app.links.worklist import ROWS_PER_PAGE
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.index.facts import read_facts
from pathology_app.slides.index.index import SlideIndex
from pathology_app.slides.index.wanted import Wanted
from pipeline.project import Project
from tests.attacks.attack import Result, main
from tests.pathology_app.many_slides import make_many_slides
from tests.pathology_app.small_project import make_project

READY_S = 1.0


def attack(times: int, seed: int) -> Result:
    """Page through a worklist of `times` slides. The result's name gives the time per page."""
    result, rng = Result(f"looks at a worklist of {times} slides"), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        small, root = Path(folder) / "small", Path(folder) / "many"
        small.mkdir()
        make_many_slides(make_project(small), root, times)
        cache = SlideCache(Project(root))
        read_facts(cache, cache.project.slide_ids()[-1])  # once, so that the libraries open the files they keep
        opened = len(os.listdir("/proc/self/fd"))
        index = SlideIndex(cache)
        for what, wanted, page in (
            ("the first page", Wanted(), 1),
            ("the first page again", Wanted(), 1),
            ("another page", Wanted(), rng.randint(2, max(2, times // ROWS_PER_PAGE))),
            ("the last page", Wanted(), -(-times // ROWS_PER_PAGE)),
            ("a name", Wanted(words=[str(times - 1)]), 1),
            ("those with predictions", Wanted(words=["demo"], only_predicted=True), 1),
            ("the largest first", Wanted(sort="size"), 1),
        ):
            start = time.perf_counter()
            rows = _look(index, wanted, page)
            seconds = time.perf_counter() - start
            result.attempts += 1
            result.what += f", {what} {seconds:.2f} s"
            result.check(rows > 0 and seconds < READY_S, f"{what}: {rows} rows in {seconds:.2f} s")
        index.close()
        stayed = len(os.listdir("/proc/self/fd")) - opened
        result.check(stayed <= 0, f"{stayed} files stayed open")
    return result


def _look(index: SlideIndex, wanted: Wanted, page: int) -> int:
    """Read a page as the worklist does; return its number of rows without a fault."""
    index.look()
    listed = index.table.find(wanted, skip=(page - 1) * ROWS_PER_PAGE, limit=ROWS_PER_PAGE)
    index.table.count(wanted)
    return sum(not index.facts(row).note for row in listed)


if __name__ == "__main__":
    main(attack, times=10_000)
