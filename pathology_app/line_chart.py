"""Curves as a picture (SVG): no script, so the page's policy needs no exception, and words for who does not see it.

The picture has a ground of its own: what is inside an image does not know whether the page is light or dark.
"""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pathology_app.text import as_text

WIDTH, HEIGHT = 640, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 12, 46
_TICKS = 5

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
        style: "thin" for what is measured often, "dots" for what is measured now and then.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    style: str = "thin"


def line_chart(curves: Sequence[Curve], *, label: str, x_name: str, y_to: float | None = None) -> str:
    """A chart as HTML, with a legend that gives each curve's last value.

    Args:
        curves: x axes begin at 0, or at the lowest value below it.
        label: what it shows, for who does not see it.
        y_to: upper end of the y axis; None: the highest value. The axis begins at 0, or at the lowest value below it.
    """
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return ""
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points]
    frame = _Frame(min(0.0, *xs), max(*xs, 1.0), min(0.0, min(ys)), max(y_to or 0.0, max(ys), min(ys) + 1e-9))
    last = "; ".join(f"{curve.name} {_number(curve.points[-1][1])}" for curve in curves)
    parts = "".join([*_axes(frame, x_name), *(_drawn(curve, frame) for curve in curves)])
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="15"><rect width="100%" height="100%" fill="{_PAPER}"/>{parts}</svg>'
    )
    data = base64.b64encode(svg.encode()).decode()
    said = _escaped(f"{label}. Last: {last}")
    return (
        f'<figure class="gs-chart"><img src="data:image/svg+xml;base64,{data}" alt="{said}"></figure>{_legend(curves)}'
    )


@dataclass(frozen=True)
class _Frame:
    """From values to places in the drawing."""

    x_from: float
    x_to: float
    y_from: float
    y_to: float

    def x(self, value: float) -> float:
        return _LEFT + (value - self.x_from) / (self.x_to - self.x_from) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - (value - self.y_from) / (self.y_to - self.y_from) * (HEIGHT - _TOP - _BOTTOM)


def _axes(frame: _Frame, x_name: str) -> Iterator[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    for value in _ticks(frame.y_from, frame.y_to):
        y = frame.y(value)
        yield f'<line stroke="{_FAINT}" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text fill="{_INK}" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>'
    for value in _ticks(frame.x_from, frame.x_to, whole=True):
        x = frame.x(value)
        yield f'<line stroke="{_INK}" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
        yield f'<text fill="{_INK}" x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{_number(value)}</text>'
    yield f'<line stroke="{_INK}" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>'
    middle = (_LEFT + right) / 2
    yield f'<text fill="{_INK}" x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{_escaped(x_name)}</text>'


def _drawn(curve: Curve, frame: _Frame) -> str:
    places = [(frame.x(x), frame.y(y)) for x, y in curve.points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    width = 1.4 if curve.style == "thin" else 2.4
    drawn = f'<polyline points="{line}" fill="none" stroke="{curve.colour}" stroke-width="{width}"/>'
    if curve.style == "dots" or len(places) == 1:
        drawn += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{curve.colour}"/>' for x, y in places)
    return drawn


def _legend(curves: Sequence[Curve]) -> str:
    items = (
        f'<span><span class="gs-swatch" style="background: {curve.colour}"></span>'
        f"{_escaped(curve.name)}: {_number(curve.points[-1][1])}</span>"
        for curve in curves
    )
    return f'<div class="gs-legend">{"".join(items)}</div>'


def _ticks(low: float, high: float, *, whole: bool = False) -> Iterator[float]:
    """About five round values between two."""
    rough = (high - low) / _TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    step = max(1.0, step) if whole else step
    value = math.ceil(low / step - 1e-9) * step
    while value <= high + step * 1e-9:
        yield value
        value += step


def _number(value: float) -> str:
    if value == round(value) and abs(value) < 1e7:
        return f"{round(value):,}"
    return f"{value:.3g}"


def _escaped(text: object) -> str:
    return html.escape(as_text(text))
