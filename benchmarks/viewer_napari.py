"""Waiting times in napari, on a slide of 100,000 × 100,000 px as opened by `gemslide view`.

    xvfb-run -a -s "-screen 0 1920x1080x24" .venv/bin/python -m benchmarks.viewer_napari [--folder DIR] [--side-px N]
        [--moves 200]

The slide is that of `benchmarks/viewer.py`, with predictions of 1,000 × 1,000 cells. Under xvfb, the CPU draws
(llvmpipe), as on a machine without GPU: at least half of a frame's time is drawing, which grows with the window.

open       from opening the store to the first frame drawn; `import_s`: loading of the libraries before that, which a
           running program does not repeat
pan        until a frame of level 0 (40x), moved by 48 px each time, is drawn with the prediction over it; in a window
           of 1920 × 1080 px, and in one of 1400 × 900 px
colours    the same with an ICC profile applied
threshold  from a threshold to the frame in its colours
as_scanned from the switch to the frame in the scanner's colours

`ours_ms` is the processor time of the main thread per frame, without drawing in other threads.

Milliseconds are medians and 95th percentiles. Each measure runs in a separate process. Prints a JSON line for each;
`busy` is the share of the machine's cores used by other processes: above 0.1, the figures are worth little. The
committed lines are in benchmarks/results/viewer.jsonl.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import ImageCms

from benchmarks.machine import circumstances
from benchmarks.viewer import milliseconds
from benchmarks.viewer_setting import folder_for, made, others
from pipeline.project import Project

STEP_PX, FORTY_TIMES = 48, 4.0
LARGE_PX, SMALL_PX = (1920, 1080), (1400, 900)
"""Window sizes for a separate screen and for a laptop."""


class Opened:
    """A drawn window, and the time it took."""

    def __init__(self, store: Path, window_px: tuple[int, int] = LARGE_PX) -> None:
        start = time.perf_counter()
        from pathology_app.desktop import window

        _load_late_libraries()
        self.import_s = time.perf_counter() - start
        start = time.perf_counter()
        self.viewer = window.open_viewer(store)
        from qtpy.QtWidgets import QApplication

        self.app, self.frames = QApplication.instance(), 0
        self.dock = window.furnish(self.viewer)
        self.canvas = self.viewer.window._qt_viewer.canvas._scene_canvas
        self.canvas.events.draw.connect(self._drawn, position="last")
        self.until_drawn(lambda: None)
        self.open_s = time.perf_counter() - start
        self.viewer.window._qt_window.resize(*window_px)
        self.until_drawn(lambda: None, frames=3)
        self.settle()

    def _drawn(self, event: Any) -> None:
        self.frames += 1

    def until_drawn(self, change: Callable[[], None], frames: int = 1) -> float:
        """Milliseconds from a change until the canvas has been drawn."""
        start, before = time.perf_counter(), self.frames
        change()
        for frame in range(1, frames + 1):
            self.canvas.update()
            while self.frames < before + frame:
                self.app.processEvents()
        return 1000 * (time.perf_counter() - start)

    def settle(self) -> None:
        """Wait until the rings are drawn, too."""
        ends = time.perf_counter() + 2
        while time.perf_counter() < ends:
            self.app.processEvents()
            time.sleep(0.01)

    def move_to(self, moves: int) -> None:
        self.viewer.scene.camera.center = (10_000 + 6 * moves / 4, 10_000 + moves * STEP_PX / FORTY_TIMES)


def _load_late_libraries() -> None:
    """Load the modules that napari loads when it opens a window, as counted in `import_s`."""
    from napari.utils.transforms._units import get_units_from_name

    get_units_from_name("micrometer")


def open_(store: Path, moves: int) -> dict[str, Any]:
    opened = Opened(store)
    return {"open_s": round(opened.open_s, 2), "import_s": round(opened.import_s, 2)}


def pan(store: Path, moves: int, window_px: tuple[int, int] = LARGE_PX) -> dict[str, Any]:
    opened = Opened(store, window_px)
    opened.viewer.scene.camera.zoom = FORTY_TIMES
    opened.until_drawn(lambda: opened.move_to(0), frames=2)
    start = time.thread_time()
    times = [opened.until_drawn(lambda i=i: opened.move_to(i)) for i in range(1, moves)]
    ours_ms = round(1000 * (time.thread_time() - start) / len(times), 1)
    image = opened.viewer.layers[0]
    return {
        "canvas_px": list(opened.canvas.size),
        "level": int(image.data_level),
        "ours_ms": ours_ms,
        **milliseconds(times),
    }


def threshold(store: Path, moves: int) -> dict[str, Any]:
    opened = Opened(store)
    times = [opened.until_drawn(lambda i=i: opened.dock.threshold.setValue(10 + i % 80)) for i in range(moves // 2)]
    return {"cells": opened.viewer.layers["P(b) bench-00000000"].data.size, **milliseconds(times)}


def as_scanned(store: Path, moves: int) -> dict[str, Any]:
    opened = Opened(store)
    opened.viewer.scene.camera.zoom = FORTY_TIMES
    opened.until_drawn(lambda: opened.move_to(0), frames=2)
    times = []
    for i in range(max(6, moves // 20)):
        opened.move_to(40 * i)
        opened.settle()
        times.append(opened.until_drawn(lambda i=i: opened.dock.as_scanned.setChecked(i % 2 == 0), frames=2))
    return milliseconds(times)


def pan_small(store: Path, moves: int) -> dict[str, Any]:
    return pan(store, moves, SMALL_PX)


MEASURES = {
    "open": open_,
    "pan": pan,
    "pan small": pan_small,
    "colours": pan,
    "colours small": pan_small,
    "threshold": threshold,
    "as_scanned": as_scanned,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="measures whose name holds one of these words")
    parser.add_argument("--folder", type=Path, help="kept, and used again; without it the slide is made each time")
    parser.add_argument("--side-px", type=int, default=100_000)
    parser.add_argument("--moves", type=int, default=200)
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "STORE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, store = options.measure
        print(json.dumps(MEASURES[name](Path(store), options.moves)), flush=True)
        return
    with folder_for(options.folder) as folder:
        project = made(folder, options.side_px)
        for name in MEASURES:
            if not options.only or any(word in name for word in options.only):
                has_profile = name.startswith("colours") or name == "as_scanned"
                store = profiled(project) if has_profile else project.store_path("slide")
                command = [sys.executable, "-W", "ignore", "-m", "benchmarks.viewer_napari"]
                with others() as busy:
                    arguments = ["--moves", str(options.moves), "--measure", name, str(store)]
                    done = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, check=True)
                line = {"benchmark": "viewer", "measure": f"napari {name}", "side_px": options.side_px}
                results = json.loads(done.stdout.splitlines()[-1])
                print(json.dumps({**line, **results, **busy, **circumstances("benchmarks.viewer_napari")}), flush=True)


def profiled(project: Project) -> Path:
    """Second slide, with sRGB's profile as its scanner's: as much work as any profile of its kind."""
    store = project.store_path("profiled")
    if not store.exists():
        shutil.copytree(project.store_path("other"), store, copy_function=os.link)
        root = store / "zarr.json"
        content = json.loads(root.read_text())
        profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        content["attributes"]["gemslide"] |= {
            "slide_id": store.name.split(".")[0],
            "icc": base64.b64encode(profile).decode(),
        }
        root.unlink()  # the other slide shares it
        root.write_text(json.dumps(content))
    return store


if __name__ == "__main__":
    main()
