"""The report's own drawings: the flow of the cohort, and endpoints of groups side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from textwrap import wrap

import matplotlib.pyplot as plt

from pipeline.evaluation.figures import COLOURS, STYLE, as_svg
from pipeline.evaluation.statistics.bootstrap import Estimate
from pipeline.study.report.flow import Flow
from training.foundation.words.counts import counted

WIDTH, BOX, LEFT, RIGHT = 640, 270, 20, 350
LINE, PADDING, GAP = 17, 12, 34
FONT = 'font-family="sans-serif" font-size="13"'
ARROW = (
    '<marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z"/></marker>'
)
MAX_REASONS = 8
"""Most reasons in one box; the others are summed up, and listed in the table."""


def flow_figure(flow: Flow) -> str:
    """Boxes from top to bottom; slides left out are shown beside their step."""
    steps = [
        (_lines("Received", flow.received), _reasons("Excluded", flow.excluded)),
        (_lines("Begun", flow.begun), _reasons("Without a result", flow.left_out)),
        (_lines("Analysed", flow.analysed), []),
        (_lines("Of these with a reference", flow.with_reference), []),
    ]
    parts: list[str] = []
    y = 4.0
    for number, (lines, aside) in enumerate(steps):
        height = _height(lines)
        parts += _box(LEFT, y, BOX, lines)
        below = y + height
        if aside:
            at = below + GAP / 2
            parts += _box(RIGHT, at, WIDTH - RIGHT - 10, aside)
            parts.append(_line(LEFT + BOX / 2, at + 20, RIGHT, at + 20))
            below = at + _height(aside) - GAP / 2
        following = below + GAP
        if number < len(steps) - 1:
            parts.append(_line(LEFT + BOX / 2, y + height, LEFT + BOX / 2, following))
        y = following
    size = f'viewBox="0 0 {WIDTH} {y:.0f}" width="{WIDTH}" height="{y:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {FONT}><defs>{ARROW}</defs>{"".join(parts)}</svg>'


def _lines(what: str, count: tuple[int, int]) -> list[str]:
    slides, patients = count
    return [what, f"{counted(slides, 'slide')} of {counted(patients, 'patient')}"]


def _reasons(what: str, counts: Mapping[str, int]) -> list[str]:
    if not counts:
        return []
    listed = list(counts.items())
    lines = [f"{what}: {counted(sum(counts.values()), 'slide')}"]
    for reason, number in listed[:MAX_REASONS]:
        lines += wrap(f"{number:,} {reason}", 36, subsequent_indent="   ")[:2]
    if len(listed) > MAX_REASONS:
        lines.append(f"{sum(number for _, number in listed[MAX_REASONS:]):,} for other reasons")
    return lines


def _height(lines: Sequence[str]) -> float:
    return len(lines) * LINE + 2 * PADDING - 4


def _box(x: float, y: float, width: float, lines: Sequence[str]) -> list[str]:
    frame = f'<rect x="{x}" y="{y:.1f}" width="{width}" height="{_height(lines):.1f}" fill="#f5f8fb" stroke="#1c2530"/>'
    texts = [
        f'<text x="{x + 12}" y="{y + PADDING + 11 + LINE * number:.1f}"{_weight(number)}>{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    return [frame, *texts]


def _weight(number: int) -> str:
    return ' font-weight="bold"' if number == 0 else ""


def _line(x0: float, y0: float, x1: float, y1: float) -> str:
    return f'<line x1="{x0}" y1="{y0:.1f}" x2="{x1}" y2="{y1:.1f}" stroke="#1c2530" marker-end="url(#tip)"/>'


def forest_figure(estimates: Mapping[str, Estimate], at_least: float | None) -> str:
    """A line per group with its interval; the hypothesis as a dashed line."""
    names = list(estimates)[::-1]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(4.6, 0.9 + 0.28 * len(names)), layout="constrained")
        for at, name in enumerate(names):
            estimate = estimates[name]
            if estimate.low is not None and estimate.high is not None:
                axes.plot((estimate.low, estimate.high), (at, at), color=COLOURS[0], linewidth=1.4)
            if estimate.value is not None:
                axes.plot(estimate.value, at, color=COLOURS[0], marker="o", markersize=5)
        if at_least is not None:
            axes.axvline(at_least, color=COLOURS[1], linewidth=1, linestyle="--")
        axes.set_yticks(range(len(names)), [name if len(name) <= 32 else f"{name[:31]}…" for name in names])
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.6, len(names) - 0.4))
        return as_svg(figure)
