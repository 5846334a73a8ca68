"""Waiting times in the viewer, in a real browser on a slide of 100,000 × 100,000 px.

    .venv/bin/python -m benchmarks.viewer [--only WORD …] [--folder DIR] [--side-px N] [--moves 40]

The slide is an Aperio-like one of real tissue (`benchmarks/make_slide.py`: 256 px tiles, levels 4, 16 and 64 times
smaller), with predictions of 1,000 × 1,000 cells.

tile     one tile over HTTP on a keep-alive connection, requested for the first time and again, at a scanner's level
         and at one between two levels, and through nginx; compared with OpenSlide's DeepZoom of the same file behind
         the same server (also tiles of 512 px), and with TIAToolbox's tile server (256 px) if `benchmarks.others` has
         installed it
readers  tiles per second for six clients at once, idle and while the script of the slide's page runs repeatedly; also
         through nginx with two tile processes, and compared with the same others
memory   of an app while slides are switched: a page's script, thumbnail, overlay and two fields of tiles each time
field    from the key press for the next field of view until it is fully drawn, in Chromium at 1920 × 1080 with the
         2-d canvas of a machine without GPU, at 40x, 20x, 10x and 5x
switch   from a click in the worklist to the complete image of the slide, which can then be moved; and to the page with
         its predictions
next     the same from the key for the next slide of a case, which has been loaded ahead
page     the same from an empty browser
repaint  from a threshold to the coloured overlay
worklist of 100,000 slides: from an empty browser to the first row, while slides are still being read and after; another
         page, a typed filter, sorting by a heading, the gallery
pan      frames per second while the slide pans under its overlay
annotations   a slide with 100,000 outlines: from the first request until all visible ones are drawn, for the first time
         since the app started and again; frames per second while the slide pans under them
counted  a slide with 10,000 counted points: from a reload's first request for them until they are drawn; frames per
         second while it pans under them

Milliseconds are medians and 95th percentiles. Prints a JSON line for each; `busy` is the share of the machine's cores
used by other processes: above 0.1, the figures are worth little. The committed lines are in
benchmarks/results/viewer.jsonl.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import circumstances
from benchmarks.viewer_browser import SETTLED, new_page, opened
from benchmarks.viewer_clients import milliseconds
from benchmarks.viewer_opening import first_page, following, switch
from benchmarks.viewer_setting import CELLS, annotated, counted_slide, folder_for, made, others
from benchmarks.viewer_tiles import memory, readers, tile
from benchmarks.viewer_worklist import worklist
from pipeline.project import Project
from tests.browser.conftest import wait_for
from tests.pathology_app.started_app import StartedApp, started_app

REPAINT = """async (value) => {
    const slider = [...document.querySelectorAll("*")].map((each) => each.shadowRoot ?? each)
        .map((root) => root.querySelector?.("input[aria-label=Threshold]")).find(Boolean);
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    await frame();
    const start = performance.now();
    slider.value = value;
    slider.dispatchEvent(new Event("input"));
    await frame();
    return performance.now() - start;
}"""
PAN = """async (seconds) => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const start = performance.now();
    let frames = 0;
    let next = 0;
    while (performance.now() - start < 1000 * seconds) {
        if (performance.now() - start > next) {
            const key = (next / 200) % 20 < 10 ? "ArrowRight" : "ArrowLeft";
            document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
            next += 200;
        }
        await frame();
        frames++;
    }
    return (1000 * frames) / (performance.now() - start);
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="measures whose name holds one of these words")
    parser.add_argument("--folder", type=Path, help="kept, and used again; without it the slide is made each time")
    parser.add_argument("--side-px", type=int, default=100_000)
    parser.add_argument("--moves", type=int, default=40)
    options = parser.parse_args()
    measures: dict[str, Callable[[StartedApp, Project, int], dict[str, Any]]] = {
        "tile": tile, "readers": readers, "memory": memory, "field": field, "switch": switch, "next": following,
        "page": first_page,
        "repaint": repaint, "pan": pan, "annotations": annotations, "counted": counted, "worklist": worklist,
    }  # fmt: skip
    with folder_for(options.folder) as folder:
        project = made(folder, options.side_px)
        with started_app(project.root, folder / "server.log") as app:
            for name, measure in measures.items():
                if not options.only or any(word in name for word in options.only):
                    with others() as busy:
                        results = measure(app, project, options.moves)
                    line = {"benchmark": "viewer", "measure": name, "side_px": options.side_px, **results, **busy}
                    print(json.dumps({**line, **circumstances("benchmarks.viewer")}), flush=True)


def field(app: StartedApp, project: Project, moves: int) -> dict[str, Any]:
    """Measure steps along a row of unseen fields of view, at each magnification."""
    times_by_name = {}
    for key, name in (("6", "40x"), ("5", "20x"), ("4", "10x"), ("3", "5x")):
        with opened(app) as page:
            page.evaluate(SETTLED, {"key": key})
            page.wait_for_timeout(1000)
            turns = [("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowDown")[index % 4] for index in range(moves)]
            times = []
            for turn in turns:
                times.append(page.evaluate(SETTLED, {"key": turn, "shiftKey": True}))
                page.wait_for_timeout(400)  # a viewer looks at a field before moving on
            times_by_name[name] = milliseconds(times)
    return times_by_name


def repaint(app: StartedApp, project: Project, moves: int) -> dict[str, Any]:
    """Measure a change of the threshold of an overlay of a million cells."""
    with opened(app) as page:
        wait_for(page, "window.__gemslide.hasOverlay()")
        times = [page.evaluate(REPAINT, str(round(0.2 + 0.6 * (i % 7) / 7, 2))) for i in range(moves)]
    return {"cells": CELLS**2, **milliseconds(times)}


def pan(app: StartedApp, project: Project, moves: int) -> dict[str, Any]:
    """Measure frames of the browser, at most 60 per second."""
    with opened(app) as page:
        page.evaluate(SETTLED, {"key": "5"})
        page.wait_for_timeout(2000)
        return {"frames_per_s": round(statistics.median(page.evaluate(PAN, 4) for _ in range(3)), 1)}


FIRST_PAINT = """async () => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    while (!window.__gemslide?.annotations?.isSettled()) await frame();
    const asked = performance.getEntriesByType("resource").find(({ name }) => name.includes("/annotations/"));
    return performance.now() - asked.startTime;
}"""


def annotations(app: StartedApp, project: Project, moves: int) -> dict[str, Any]:
    """Measure annotations, which the running app has not read before the slide is first viewed."""
    query = f"slide={annotated(project)}"
    paints = []
    for _ in range(max(3, moves // 8)):
        with new_page() as (_, page):
            page.goto(f"{app.url}/?{query}")
            page.wait_for_selector(".gemslide-viewer")
            paints.append(page.evaluate(FIRST_PAINT))
    figures: dict[str, Any] = {"first_ms": round(paints[0]), "again": milliseconds(paints[1:])}
    return figures | _panned(app, query, {"0": "whole", "2": "2.5x", "4": "10x", "6": "40x"})


def counted(app: StartedApp, project: Project, moves: int) -> dict[str, Any]:
    """Measure a slide on which 10,000 objects of two classes were counted."""
    query = f"slide={counted_slide(project)}"
    times = []
    with opened(app, query) as page:
        for _ in range(max(5, moves // 8)):
            page.wait_for_timeout(1000)
            page.reload(wait_until="commit")
            times.append(page.evaluate(FIRST_PAINT))
    figures: dict[str, Any] = {"reload": milliseconds(times)}
    return figures | _panned(app, query, {"0": "whole", "3": "5x", "5": "20x"})


def _panned(app: StartedApp, query: str, levels: dict[str, str]) -> dict[str, Any]:
    """Number of annotations on a slide, and frames per second while it pans at some magnifications, by their keys."""
    figures: dict[str, Any] = {}
    with opened(app, query) as page:
        wait_for(page, "window.__gemslide.annotations.isSettled()")
        figures["annotations"] = page.evaluate("window.__gemslide.annotations.total()")
        for key, name in levels.items():
            page.evaluate(SETTLED, {"key": key})
            page.wait_for_timeout(2000)
            figures[f"frames_per_s, {name}"] = round(statistics.median(page.evaluate(PAN, 4) for _ in range(3)), 1)
    return figures


if __name__ == "__main__":
    main()
