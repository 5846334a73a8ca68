"""Cost of `gemslide study verify`: the log of a study of many slides, and the files of one slide.

    python -m benchmarks.study_proof SLIDE --mpp 0.5 --slides 1000

Times are processor seconds; the files are read once before, so that the disk is not measured. Prints a JSON line; the
committed ones are in benchmarks/results/study_proof.jsonl.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.machine import circumstances
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.ledger.database import Database
from pipeline.ledger.ledger import Ledger, NewSlide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store.layers.overlays import Predictions, write_predictions
from pipeline.store.reading.reader import StoreReader
from pipeline.study import verify_ledger
from pipeline.study.stages.ingest import changed_files
from pipeline.study.stages.registry import output_sha256, results_of_stage
from pipeline.study.work.leases import Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process

MODEL, CLASSES, CELL_PX0 = "m-00000000", tuple("abcdefghi"), 448
STAGES = ("ingest", "qc", f"infer {MODEL}")


def seconds(work: Callable[[], object]) -> float:
    """Processor time of the second of two runs."""
    work()
    start = time.process_time()
    work()
    return time.process_time() - start


def time_log(folder: Path, slides: int) -> tuple[int, float]:
    """Number of log entries of a finished study, and the time to check all of them."""
    with Ledger(Database(f"sqlite:///{folder}/gemslide.db")) as ledger:
        new = [NewSlide(f"S-{number}") for number in range(slides)]
        ledger.begin("s", {"question": "?"}, "0" * 64, new, STAGES, actor="ada")
        mine = Leases(ledger, this_process(), Limits(), actor="worker")
        done, lease = Ended("done", None, None, 1.0, "a" * 64, "b" * 64, "{}"), mine.take("s")
        while lease:
            _, lease = mine.finish(lease, done, take_next=True)
        entries = verify_ledger(ledger.database, "s").entries
        return entries, seconds(lambda: verify_ledger(ledger.database, "s"))


def time_files(project: Project, slide: Path, mpp: float | None) -> dict[str, float]:
    """Time to compare one slide's files with the ledger's hashes, without and with all pixels."""
    ingest_slide(IngestRequest(slide, "x", mpp), project, IngestConfig())
    store = project.store_path("x")
    reader = StoreReader(store)
    columns, rows = (side // CELL_PX0 + 1 for side in reader.size_wh_px0)
    values_cyx = np.random.default_rng(0).random((len(CLASSES), rows, columns))
    shares_cyx = (values_cyx / values_cyx.sum(0)).astype(np.float16)
    made_from = {"made_from": {"source_sha256": reader.source_sha256}}
    predictions = Predictions(MODEL, CLASSES, shares_cyx, CELL_PX0, CELL_PX0, made_from)
    write_predictions(store, predictions, mpp0=reader.mpp0)

    def work(*, all_pixels: bool) -> None:
        for stage in ("ingest", STAGES[-1]):
            output_sha256(project, "x", stage)
            results_of_stage(project, "x", stage)
        list(changed_files(store, all_pixels=all_pixels))

    return {
        "without pixels": seconds(lambda: work(all_pixels=False)),
        "with all pixels": seconds(lambda: work(all_pixels=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("slide", type=Path)
    parser.add_argument("--mpp", type=float)
    parser.add_argument("--slides", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        entries, log_s = time_log(Path(folder), arguments.slides)
        files_s = time_files(Project(Path(folder)), arguments.slide, arguments.mpp)
    line = {
        "benchmark": "study_proof",
        "slides": arguments.slides,
        "log_entries": entries,
        "log_s": round(log_s, 2),
        "files_of_all_slides_s": {what: round(each_s * arguments.slides, 1) for what, each_s in files_s.items()},
        **circumstances("benchmarks.study_proof"),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
