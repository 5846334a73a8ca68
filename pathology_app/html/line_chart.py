"""Curves as an SVG image with a text alternative. It contains no script, so the page's policy needs no exception.

The image has its own background: its content cannot tell whether the page is light or dark.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from threading import Lock

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pathology_app.html.text import as_text

WIDTH, HEIGHT = 640, 280
"""Points."""
_POINTS = 72
"""Per inch."""
_TEXT_PT, _TICKS = 15, 5
_LOCK = Lock()
"""matplotlib's settings apply to the whole process; sessions draw in threads."""

_INK, _FAINT, _PAPER = "#31333f", "#dfe1e6", "#ffffff"

STYLE = """
<style>
.gs-chart { margin: 0; }
.gs-chart img { width: 100%; height: auto; display: block; border-radius: 4px; }
.gs-legend { display: flex; flex-wrap: wrap; gap: 4px 20px; font-size: 0.875rem; margin: 4px 0 12px 8px; }
</style>
"""
"""Put on every page with charts."""


@dataclass(frozen=True)
class Curve:
    """A curve.

    Attributes:
        points: (x, y), x rising.
        style: "thin" for frequent measurements, "dots" for occasional ones.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    style: str = "thin"


def line_chart(curves: Sequence[Curve], *, label: str, x_name: str, y_to: float | None = None) -> str:
    """A chart as HTML, with a legend that shows each curve's last value.

    Args:
        curves: the x axis begins at 0, or at the lowest value below it.
        label: the chart's text alternative.
        y_to: upper end of the y axis; None: the highest value. The axis begins at 0, or at the lowest value below it.
    """
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return ""
    last = "; ".join(f"{curve.name} {_number(curve.points[-1][1])}" for curve in curves)
    svg = _draw(curves, x_name, y_to)
    data = base64.b64encode(svg.encode()).decode()
    text = _escaped(f"{label}. Last: {last}")
    return (
        f'<figure class="gs-chart"><img src="data:image/svg+xml;base64,{data}" alt="{text}"></figure>{_legend(curves)}'
    )


def _draw(curves: Sequence[Curve], x_name: str, y_to: float | None) -> str:
    """The chart as an SVG document of WIDTH x HEIGHT points, with each curve in a group `curve-<position>`."""
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points]
    figure = Figure(figsize=(WIDTH / _POINTS, HEIGHT / _POINTS), facecolor=_PAPER, layout="constrained")
    axes = figure.add_subplot()
    for at, curve in enumerate(curves):
        is_dotted = curve.style == "dots" or len(curve.points) == 1
        axes.plot(
            *zip(*curve.points, strict=True), color=curve.colour, linewidth=1.4 if curve.style == "thin" else 2.4,
            marker="o" if is_dotted else "", markersize=7, clip_on=False, gid=f"curve-{at}",
        )  # fmt: skip
    axes.set(
        xlim=(min(0.0, *xs), max(*xs, 1.0)), ylim=(min(0.0, *ys), max(y_to or 0.0, *ys, min(ys) + 1e-9)),
        xlabel=x_name, facecolor=_PAPER,
    )  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(_TICKS, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(_TICKS))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: _number(value))
        axis.label.set(parse_math=False, size=_TEXT_PT, color=_INK)
    axes.tick_params(labelsize=_TEXT_PT, labelcolor=_INK, color=_INK)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=_FAINT)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_INK)
    document = StringIO()
    with _LOCK, matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gemslide"}):
        figure.savefig(document, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return document.getvalue()


def _legend(curves: Sequence[Curve]) -> str:
    items = (
        f'<span><span class="gs-swatch" style="background: {curve.colour}"></span>'
        f"{_escaped(curve.name)}: {_number(curve.points[-1][1])}</span>"
        for curve in curves
    )
    return f'<div class="gs-legend">{"".join(items)}</div>'


def _number(value: float) -> str:
    if value == round(value) and abs(value) < 1e7:
        return f"{round(value):,}"
    return f"{value:.3g}"


def _escaped(text: object) -> str:
    return html.escape(as_text(text))
