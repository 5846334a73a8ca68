"""Table and plot of docs/benchmarks/viewer.md, from the committed results.

.venv/bin/python -m benchmarks.report_viewer
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.pages import ROOT, between, lines_of, reached

PAGE = ROOT / "docs/benchmarks/viewer.md"
PLOT = ROOT / "docs/images/viewer-waits.png"
HEAD = ["| measure | target | measured | reached | |", "|---|---|---|---|---|"]
QUIET = 0.1
"""Largest share of the cores used by other processes for a figure to count."""
WHERES = {"own level": "a scanner level", "between two levels": "a level between two scanner levels"}
WORKLIST = {
    "first page": "the first row in an empty browser",
    "another look": "another page of the list, reloaded",
    "filter": "the result of a typed filter",
    "sort": "a new order",
    "gallery": "the gallery",
}
FIELDS = ("40x", "20x", "10x", "5x")


def main() -> None:
    lines = {line["measure"]: line for line in lines_of("viewer.jsonl")}  # the last result of each kind counts
    rows = [row for name, make in ROWS.items() if name in lines for row in make(lines[name])]
    page = between(PAGE.read_text(encoding="utf-8"), "table", [*HEAD, *rows])
    PAGE.write_text(page, encoding="utf-8")
    if "field" in lines:
        _plot(lines["field"])


def _row(line: dict[str, Any], measure: str, target: str, value: float, more: str = "") -> str:
    busy = "" if line["busy"] <= QUIET else f"machine busy ({line['busy']:.0%})"
    return (
        f"| {measure} | {target} | {value:.3g} | {reached(target, value)} | {', '.join(filter(None, (more, busy)))} |"
    )


def _tile(line: dict[str, Any]) -> Iterator[str]:
    for where, words in WHERES.items():
        for who, times in line[where].items():
            targets = ("≤ 3", "≤ 10") if who == "gemslide" else ("", "")
            first = f"first request {times['first']['p50_ms']:.3g}"
            measure = f"tile at {words}, {who}: ms, repeated request"
            yield _row(line, f"{measure}, p50", targets[0], times["again_p50_ms"], first)
            yield _row(line, f"{measure}, p95", targets[1], times["again_p95_ms"])


def _readers(line: dict[str, Any]) -> Iterator[str]:
    for where, words in WHERES.items():
        for state, of_all in line[where].items():
            for who, rates in of_all.items():
                if not isinstance(rates, dict):
                    continue
                has_target = who == "gemslide" and state != "idle app"
                measure = f"six readers at {words}, {state}, {who}"
                yield _row(line, f"{measure}: tiles/s", "≥ 300" if has_target else "", rates["tiles_per_s"])
                yield _row(line, f"{measure}: ms, p95", "≤ 40" if has_target else "", rates["p95_ms"])


def _field(line: dict[str, Any]) -> Iterator[str]:
    for name in FIELDS:
        times = line[name]
        yield _row(line, f"next field of view at {name}: ms, p50", "≤ 35", times["p50_ms"])
        yield _row(line, f"next field of view at {name}: ms, p95", "≤ 80", times["p95_ms"])


def _one(measure: str, target: str, key: str) -> Callable[[dict[str, Any]], Iterator[str]]:
    def rows(line: dict[str, Any]) -> Iterator[str]:
        yield _row(line, measure, target, line[key])

    return rows


def _annotations(line: dict[str, Any]) -> Iterator[str]:
    count = f"{line['annotations']:,} annotations"
    yield _row(line, f"{count}: ms to first paint, first time since the app started", "≤ 1000", line["first_ms"])
    yield _row(line, f"{count}: ms to first paint, repeated, p50", "≤ 1000", line["again"]["p50_ms"])
    rates = {name.removeprefix("frames_per_s, "): rate for name, rate in line.items() if name.startswith("frames")}
    slowest = min(rates, key=lambda name: rates[name])
    others = ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items() if name != slowest)
    yield _row(line, f"{count}: frames/s of panning, slowest ({slowest})", "≥ 30", rates[slowest], others)


def _opening(words: str, target: str) -> Callable[[dict[str, Any]], Iterator[str]]:
    """Rows of a slide's image, and of its page with the prediction."""

    def rows(line: dict[str, Any]) -> Iterator[str]:
        yield _row(line, f"{words}: ms, p50", target, line["p50_ms"], f"p95 {line['p95_ms']:.3g}")
        page = line["with_page"]
        yield _row(line, f"{words} with its predictions: ms, p50", "", page["p50_ms"], f"p95 {page['p95_ms']:.3g}")

    return rows


def _counted(line: dict[str, Any]) -> Iterator[str]:
    reload = line["reload"]
    points = f"{line['annotations']:,} counted points"
    after = f"p95 {reload['p95_ms']:.3g}"
    yield _row(line, f"{points}: ms until they are there after a reload, p50", "≤ 500", reload["p50_ms"], after)
    slowest = min((value, name.partition(", ")[2]) for name, value in line.items() if name.startswith("frames_per_s"))
    yield _row(line, f"{points}: frames/s of panning, slowest ({slowest[1]})", "≥ 50", slowest[0])


def _worklist(line: dict[str, Any]) -> Iterator[str]:
    slides = f"worklist of {line['slides']:,} slides"
    yield _row(line, f"{slides}, still being indexed: ms to the first row", "", line["while_read_ms"])
    targets = {"first page": "≤ 1000", "another look": "≤ 1000", "filter": "≤ 1000"}
    for name, words in WORKLIST.items():
        times = line[name]
        yield _row(
            line, f"{slides}: ms to {words}, p50", targets.get(name, ""), times["p50_ms"], f"p95 {times['p95_ms']:.3g}"
        )


ROWS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "tile": _tile,
    "readers": _readers,
    "field": _field,
    "switch": _opening("from a click in the worklist to the slide", "≤ 400"),
    "next": _opening("from the key for the case's next slide to the slide", "≤ 250"),
    "page": _opening("from an empty browser to the slide", "≤ 1000"),
    "repaint": _one("threshold to repaint, a million cells: ms, p95", "≤ 50", "p95_ms"),
    "pan": _one("panning under an overlay: frames/s", "≥ 50", "frames_per_s"),
    "memory": _one("memory of the app from switch 200 to 1,000: % more", "≤ 5", "growth_percent"),
    "annotations": _annotations,
    "counted": _counted,
    "worklist": _worklist,
    "napari open": _one("napari, from start to a slide on the screen: s", "≤ 2.5", "open_s"),
    "napari pan": _one("napari, a pan at level 0, window of 1920 × 1080: ms, p95", "≤ 45", "p95_ms"),
    "napari pan small": _one("napari, a pan at level 0, window of 1400 × 900: ms, p95", "≤ 45", "p95_ms"),
    "napari colours": _one("napari, a pan at level 0 with a profile's colours: ms, p95", "≤ 45", "p95_ms"),
    "napari colours small": _one(
        "napari, a pan at level 0 with a profile's colours, window of 1400 × 900: ms, p95", "≤ 45", "p95_ms"
    ),
    "napari threshold": _one("napari, threshold to repaint: ms, p95", "", "p95_ms"),
    "napari as_scanned": _one("napari, colours as scanned or corrected: ms, p95", "", "p95_ms"),
}


def _plot(line: dict[str, Any]) -> None:
    """Plot of waits for the next field of view, with the pathologists' targets."""
    figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
    for at, name in enumerate(FIELDS):
        axes.plot([line[name]["p50_ms"], line[name]["p95_ms"]], [at, at], color="#0072b2", lw=5, solid_capstyle="round")
        axes.plot(line[name]["p50_ms"], at, "o", mfc="white", mec="#0072b2", ms=6)
    axes.axvline(80, color="#d55e00", ls="--", lw=1, label="target, p95")
    axes.axvline(250, color="#000000", ls=":", lw=1, label="limit named by pathologists in a study")
    axes.set(yticks=range(len(FIELDS)), yticklabels=FIELDS, xlim=(0, 270), xlabel="next field of view, ms: p50 to p95")
    axes.invert_yaxis()
    axes.legend(loc="center", bbox_to_anchor=(185, 1.5), bbox_transform=axes.transData, fontsize=8)
    figure.savefig(PLOT, dpi=130)


if __name__ == "__main__":
    main()
