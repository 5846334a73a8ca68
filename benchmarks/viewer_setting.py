"""Setting of the viewer's benchmarks: a project with a large slide twice, and the load from other processes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
from shapely.geometry import Point, Polygon, box

from benchmarks.make_slide import make_slide
from pipeline.annotations import AnnotationFile, AnnotationObject
from pipeline.ingest import IngestRequest, ingest_slide
from pipeline.ledger import open_ledger
from pipeline.project import Project, slide_id_of
from pipeline.review import MAX_DRAFTS, Draft, annotations_of, import_file, save
from pipeline.settings.config import IngestConfig
from pipeline.store import Predictions, StoreReader
from pipeline.store.layers.overlays import write_predictions

CELLS = 1_000
MODEL_ID = "bench-00000000"


@contextmanager
def folder_for(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as name:
        yield Path(name)


@contextmanager
def others() -> Iterator[dict[str, float]]:
    """Measure the share of the machine's cores used by other processes, and by other machines on the same host."""
    load: dict[str, float] = {}
    start, stolen_before = time.perf_counter(), _stolen_s()
    known = {pid: seconds for (pid, _), seconds in _seconds_of_others().items()}
    yield load
    seconds = time.perf_counter() - start
    # New orphan processes are left behind by the browser.
    after = {pid: now for (pid, parent), now in _seconds_of_others().items() if parent != 1 or pid in known}
    foreign = sum(now - known.get(pid, 0.0) for pid, now in after.items())
    foreign += _stolen_s() - stolen_before
    load["busy"] = round(max(0.0, foreign / seconds / (psutil.cpu_count() or 1)), 2)


def _seconds_of_others() -> dict[tuple[int, int], float]:
    """Processor time of each foreign process, by its pid and its parent's."""
    me = psutil.Process()
    ours = {me.pid, *(child.pid for child in me.children(recursive=True))}
    seconds = {}
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            if process.pid not in ours:
                times = process.cpu_times()
                seconds[process.pid, process.ppid()] = times.user + times.system
    return seconds


def _stolen_s() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


def made(folder: Path, side_px: int) -> Project:
    """Project of two such slides of one case; the second one's store is the first one's, under another name."""
    project, source = Project(folder / "project"), folder / "slide.svs"
    rows = "\n".join(f"{name},../slide.svs,bench" for name in ("slide", "other"))
    project.root.mkdir(parents=True, exist_ok=True)
    (project.root / "cohort.csv").write_text(f"slide_id,path,patient_id\n{rows}\n", encoding="utf-8")
    if project.store_path("slide").exists():
        return project
    make_slide(source, side_px=side_px)
    report = ingest_slide(IngestRequest(source, "slide"), project, IngestConfig())
    stride_px0 = side_px / CELLS
    y, x = np.mgrid[:CELLS, :CELLS] / CELLS
    one = (0.5 + 0.5 * np.sin(9 * x) * np.cos(7 * y)).astype(np.float16)
    predictions = Predictions(MODEL_ID, ("a", "b"), np.stack([1 - one, one]), stride_px0, stride_px0, {})
    reader = StoreReader(report.store)
    write_predictions(report.store, predictions, mpp0=reader.mpp0)
    linked_slide(report.store, project.store_path("other"))
    return project


def linked_slide(store: Path, other: Path) -> None:
    """Add the same slide under another name without using more disk space; does nothing if it exists."""
    if other.exists():
        return
    shutil.copytree(store, other, copy_function=_linked)
    root = other / "zarr.json"
    text = root.read_text().replace(f'"slide_id": "{slide_id_of(store)}"', f'"slide_id": "{slide_id_of(other)}"')
    root.unlink()
    root.write_text(text)


def annotated(project: Project, *, count: int = 100_000) -> str:
    """Add the same slide once more, covered with outlines of 16 corners in four classes. Return its name."""
    name = "annotated"
    store = project.store_path(name)
    linked_slide(project.store_path("slide"), store)
    ledger = open_ledger(project)
    if not annotations_of(ledger, name):
        size_wh_px0 = StoreReader(store).size_wh_px0
        rng = np.random.default_rng(0)
        radius = np.clip(rng.lognormal(2.7, 0.5, (count, 1)), 5, 250) * rng.uniform(0.7, 1.3, (count, 16))
        angle = np.linspace(0, 2 * np.pi, 16, endpoint=False)
        middle = rng.uniform(400, np.array(size_wh_px0) - 400, (count, 2))
        corners = middle[:, None] + radius[..., None] * np.stack([np.cos(angle), np.sin(angle)], -1)
        classes = ("tumour", "stroma", "immune", "necrosis")
        objects = [AnnotationObject(Polygon(one), "made", classes[i % 4]) for i, one in enumerate(corners)]
        import_file(ledger, name, AnnotationFile("qupath", tuple(objects)), "benchmark", size_wh_px0=size_wh_px0)
    ledger.database.close()
    return name


def counted_slide(project: Project, *, count: int = 10_000) -> str:
    """Add the same slide once more, with points of two classes in one count. Return its name."""
    name = "counted"
    store = project.store_path(name)
    linked_slide(project.store_path("slide"), store)
    ledger = open_ledger(project)
    if not annotations_of(ledger, name):
        width_px0, height_px0 = StoreReader(store).size_wh_px0
        region = Draft(box(0.3 * width_px0, 0.3 * height_px0, 0.7 * width_px0, 0.7 * height_px0), "count")
        rng = np.random.default_rng(0)
        places = rng.uniform((0.31 * width_px0, 0.31 * height_px0), (0.69 * width_px0, 0.69 * height_px0), (count, 2))
        marks = [
            Draft(Point(*place), "mark", ("positive", "negative")[index % 2], parent_id=region.annotation_id)
            for index, place in enumerate(places)
        ]
        save(ledger, name, [region], "benchmark")
        for start in range(0, count, MAX_DRAFTS):
            save(ledger, name, marks[start : start + MAX_DRAFTS], "benchmark")
    ledger.database.close()
    return name


def _linked(source: str, target: str) -> None:
    Path(target).hardlink_to(source)
