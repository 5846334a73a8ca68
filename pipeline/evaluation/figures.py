"""The report's figures: printable vector graphics, in colours that colour-blind readers can tell apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.evaluation.statistics.calibration import HISTOGRAM_BINS, Calibration
from pipeline.evaluation.statistics.froc import FALSE_POSITIVES_PER_SLIDE, Froc
from pipeline.evaluation.statistics.one_class import AUPRC, AUROC, ClassResult, Curve, NamedCurve

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe & Ito's palette."""
LINES = ("-", "--", "-.", ":")
SIDE_INCHES = 3.6
LEGEND_COLUMNS, LEGEND_LINE_INCHES = 3, 0.17
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "gemslide",
}
DrawStyle = Literal["default", "steps-pre"]
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def roc_figure(curves: Sequence[NamedCurve]) -> str:
    """ROC curves with pointwise bands."""

    def draw(axes: Axes) -> None:
        axes.plot((0, 1), (0, 1), color="0.6", linewidth=0.8, linestyle=(0, (2, 2)))
        for index, named in enumerate(curves):
            _curve(axes, index, named.curve, f"{named.class_name} ({_number(named.area)})")
        axes.set(xlabel="1 − specificity", ylabel="sensitivity")

    return _square(draw, legend=f"class ({AUROC})", entries=len(curves))


def precision_recall_figure(results: Sequence[ClassResult]) -> str:
    """Precision against recall, with the steps that average precision sums; thin lines are the classes' prevalence."""

    def draw(axes: Axes) -> None:
        for index, result in enumerate(results):
            share = result.positives / (result.positives + result.negatives)
            axes.axhline(share, color=COLOURS[index % len(COLOURS)], linewidth=0.6, linestyle=(0, (2, 2)))
            label = f"{result.class_name} ({_number(result.measures[AUPRC].value)})"
            _curve(axes, index, result.precision_recall, label, drawstyle="steps-pre")
        axes.set(xlabel="recall (sensitivity)", ylabel="precision (positive predictive value)")

    return _square(draw, legend=f"class ({AUPRC})", entries=len(results))


def reliability_figure(calibration: Calibration) -> str:
    """Observed share against mean probability in bins of equal mass, above a histogram of all probabilities."""
    with plt.rc_context(STYLE):
        figure, (axes, below) = plt.subplots(
            2, 1, figsize=(SIDE_INCHES, SIDE_INCHES * 1.25), height_ratios=(4, 1), sharex=True, layout="constrained"
        )
        axes.plot((0, 1), (0, 1), color="0.6", linewidth=0.8, linestyle=(0, (2, 2)))
        x = [group.mean_probability for group in calibration.bins]
        y = [group.observed.value or 0.0 for group in calibration.bins]
        for group, at in zip(calibration.bins, x, strict=True):
            if group.observed.low is not None and group.observed.high is not None:
                axes.plot((at, at), (group.observed.low, group.observed.high), color=COLOURS[0], linewidth=1, alpha=0.6)
        axes.plot(x, y, color=COLOURS[0], marker="o", markersize=4, linewidth=1)
        axes.set(ylabel="observed share", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        edges = np.linspace(0, 1, HISTOGRAM_BINS + 1)
        below.bar(edges[:-1], calibration.histogram, width=1 / HISTOGRAM_BINS, align="edge", color=COLOURS[0])
        below.set(xlabel="predicted probability", ylabel="n")
        return as_svg(figure)


def decision_figure(result: ClassResult) -> str:
    """Net benefit of acting on the model, on all and on none."""
    curve = result.decision
    assert curve is not None

    def draw(axes: Axes) -> None:
        axes.plot(curve.thresholds, curve.act_on_all, color=COLOURS[1], linewidth=1, linestyle="--", label="act on all")
        axes.axhline(0, color="0.3", linewidth=1, linestyle=":", label="act on none")
        axes.plot(curve.thresholds, curve.model, color=COLOURS[0], linewidth=1.4, label="act on the model")
        axes.fill_between(curve.thresholds, curve.low, curve.high, color=COLOURS[0], alpha=0.18, linewidth=0)
        highest = max(0.01, float(np.nanmax([*curve.model, *curve.act_on_all, *curve.high])))
        axes.set(xlabel="threshold probability", ylabel="net benefit", ylim=(-0.25 * highest, 1.08 * highest))

    return _square(draw, legend=None, entries=3, limits=False)


def froc_figure(frocs: Sequence[Froc]) -> str:
    """Sensitivity against false positives per slide; error bars at the six rates of the challenge."""

    def draw(axes: Axes) -> None:
        rates = np.asarray(FALSE_POSITIVES_PER_SLIDE)
        for index, froc in enumerate(frocs):
            colour = COLOURS[index % len(COLOURS)]
            label = f"{froc.class_name} ({_number(froc.score.value)})"
            fine = np.geomspace(rates[0] / 2, rates[-1] * 1.2, 400)
            axes.plot(
                fine, np.interp(fine, froc.curve_fp, froc.curve_sensitivity), color=colour, linewidth=1.4,
                linestyle=LINES[index % len(LINES)], label=label,
            )  # fmt: skip
            values = np.array([s.value for s in froc.sensitivities], np.float64)
            axes.plot(rates, values, color=colour, marker="o", markersize=4, linestyle="none")
            shift = 1.04 ** (index - (len(frocs) - 1) / 2)  # side by side, since the classes share rates
            for rate, at in zip(rates, froc.sensitivities, strict=True):
                if at.low is not None and at.high is not None:
                    axes.plot((rate * shift, rate * shift), (at.low, at.high), color=colour, linewidth=1, alpha=0.6)
        axes.set_xscale("log", base=2)
        axes.set_xticks(rates, ["1/4", "1/2", "1", "2", "4", "8"])
        axes.minorticks_off()
        axes.set(xlabel="false positives per slide", ylabel="sensitivity (lesions)", ylim=(-0.02, 1.02))

    return _square(draw, legend="class (score)", entries=len(frocs), limits=False)


def _curve(axes: Axes, index: int, curve: Curve | None, label: str, *, drawstyle: DrawStyle = "default") -> None:
    if curve is None:
        return
    colour, style = COLOURS[index % len(COLOURS)], LINES[index // len(COLOURS) % len(LINES)]
    axes.plot(curve.x, curve.y, color=colour, linewidth=1.4, linestyle=style, drawstyle=drawstyle, label=label)
    axes.fill_between(curve.grid, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)


def _square(draw: Callable[[Axes], None], *, legend: str | None, entries: int, limits: bool = True) -> str:
    """A square plot with the legend below it, where it covers nothing."""
    rows = -(-entries // LEGEND_COLUMNS) + (legend is not None)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            figsize=(SIDE_INCHES, SIDE_INCHES + LEGEND_LINE_INCHES * rows), layout="constrained"
        )
        draw(axes)
        if limits:
            axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        figure.legend(
            loc="outside lower center", ncols=LEGEND_COLUMNS, frameon=False, fontsize=8, title=legend, title_fontsize=8
        )
        return as_svg(figure)


def as_svg(figure: Figure) -> str:
    """The figure as an <svg> element for an HTML page."""
    buffer = StringIO()
    figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
