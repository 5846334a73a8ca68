"""What a stack of focal planes costs: to ingest, beside slides of its planes, and to focus in the viewer.

    .venv/bin/python -m benchmarks.focal_planes [--folder DIR] [--side-px 15360] [--rounds 3] [--steps 40]

The stack is an NDPI of five planes, made by `benchmarks.make_ndpi`. It is ingested in turns with five NDPI of one plane
each, whose chunks must be the same. Then Chromium shows it at 20 times, 1920 × 1080, and the focus is turned by keys:
to a neighbouring plane, once the neighbours are loaded, and to one that is two planes away and not loaded. Counted are
the milliseconds from the key to the second frame after the plane is on the screen. Prints a JSON line; the committed
one is in benchmarks/results/focal_planes.jsonl.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.machine import circumstances
from benchmarks.make_ndpi import make_ndpi
from benchmarks.viewer_browser import SETTLED, opened
from benchmarks.viewer_setting import others
from pipeline.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store import StoreReader
from tests.pathology_app.started_app import started_app

if TYPE_CHECKING:
    from playwright.sync_api import Page

HEIGHTS_NM = (-4000, -2000, 0, 2000, 4000)
READY = """async () => {
    while (!window.__gemslide.neighboursReady()) await new Promise((done) => setTimeout(done, 5));
}"""
TURN = """async ([keys, plane]) => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    await frame();
    const start = performance.now();
    for (const key of keys) document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    while (window.__gemslide.focalPlane() !== plane) await new Promise((done) => setTimeout(done, 0));
    await frame();
    await frame();
    return performance.now() - start;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gemslide-benchmarks")
    parser.add_argument("--side-px", type=int, default=15_360)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    folder = given.folder / f"focal-planes-{given.side_px}"
    folder.mkdir(parents=True, exist_ok=True)
    stack, planes = _made(folder, given.side_px)
    with others() as load:
        ingested = _ingested(stack, planes, folder, given.rounds)
        focused = _focused(Project(folder / "stack"), folder, given.steps)
    line = {"side_px": given.side_px, "planes": len(HEIGHTS_NM), **ingested, **focused, "others busy": load["busy"]}
    print(json.dumps({**line, **circumstances("benchmarks.focal_planes")}, ensure_ascii=False))


def _made(folder: Path, side_px: int) -> tuple[Path, list[Path]]:
    stack, planes = folder / "stack.ndpi", [folder / f"plane-{nm}.ndpi" for nm in HEIGHTS_NM]
    if not stack.exists():
        make_ndpi(stack, side_px=side_px, heights_nm=HEIGHTS_NM)
    for path, nm in zip(planes, HEIGHTS_NM, strict=True):
        if not path.exists():
            make_ndpi(folder / "made.ndpi", side_px=side_px, heights_nm=(nm,))
            _set_height(folder / "made.ndpi", path, nm)
    return stack, planes


def _set_height(made: Path, path: Path, nm: int) -> None:
    """The same file at height 0, which is where OpenSlide reads a slide of a single plane."""
    entry = (65424).to_bytes(2, "little") + (9).to_bytes(2, "little") + (1).to_bytes(4, "little")
    path.write_bytes(made.read_bytes().replace(entry + nm.to_bytes(4, "little", signed=True), entry + bytes(4)))
    made.unlink()


def _ingested(stack: Path, planes: list[Path], folder: Path, rounds: int) -> dict[str, Any]:
    ratios, of_stack = [], []
    for _ in range(rounds):
        whole = _seconds([stack], folder / "stack")
        apart = _seconds(planes, folder / "apart")
        ratios.append(whole / apart)
        of_stack.append(whole)
    store = Project(folder / "stack").store_path(stack.stem)
    for path, nm in zip(planes, HEIGHTS_NM, strict=True):
        one, other = StoreReader(store, nm / 1000), StoreReader(Project(folder / "apart").store_path(path.stem))
        for level in one.levels:
            for at in product(range(level.rows), range(level.columns)):
                if one.chunk(level.level, *at) != other.chunk(level.level, *at):
                    raise SystemExit(f"{nm} nm: the chunk of level {level.level} at {at} differs")
    store_bytes = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    return {
        "ingest s": round(statistics.median(of_stack), 2),
        "ingest, stack over its planes apart": round(statistics.median(ratios), 3),
        "ingest, each": [round(ratio, 3) for ratio in ratios],
        "store over file": round(store_bytes / stack.stat().st_size, 3),
    }


def _seconds(slides: list[Path], root: Path) -> float:
    shutil.rmtree(root, ignore_errors=True)
    start = time.perf_counter()
    for slide in slides:
        ingest_slide(IngestRequest(slide, slide.stem), Project(root), IngestConfig())
    return time.perf_counter() - start


def _focused(project: Project, folder: Path, steps: int) -> dict[str, Any]:
    with started_app(project.root, folder / "app.log") as app, opened(app, "slide=stack&at=1900.0,1900.0,0.5") as page:
        page.evaluate(SETTLED)
        near = [_turn(page, key, 1) for key in ["PageUp", "PageDown"] * (steps // 2)]
        far = [_turn(page, key, 2) for key in ["PageUp", "PageDown", "PageDown", "PageUp"] * (steps // 8)]
    return {
        "neighbour, ms, median": round(statistics.median(near), 1),
        "neighbour, ms, p95": round(float(np.percentile(near, 95)), 1),
        "neighbour, ms, most": round(max(near), 1),
        "two planes away, ms, median": round(statistics.median(far), 1),
    }


def _turn(page: Page, key: str, times: int) -> float:
    page.evaluate(READY)
    plane = page.evaluate("window.__gemslide.focalPlane()") + (times if key == "PageUp" else -times)
    return float(page.evaluate(TURN, [[key] * times, plane]))


if __name__ == "__main__":
    main()
