"""Figures of the report of slide-level models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import pyplot as plt

from pipeline.evaluation.figures import COLOURS, LINES, SIDE_INCHES, STYLE, as_svg, reliability_figure, roc_figure
from pipeline.evaluation.slide_level.material import Material
from pipeline.evaluation.slide_level.measures import Measured
from pipeline.evaluation.slide_level.result import Drawing, RiskGroup, SurvivalPart
from pipeline.evaluation.statistics.one_class import AUROC, NamedCurve
from pipeline.evaluation.statistics.survival.horizon_calibration import SurvivalBin
from training.foundation.words.counts import counted


def drawings_of(material: Material, measured: Measured, survival: SurvivalPart | None) -> tuple[Drawing, ...]:
    """The figures of one target.

    Args:
        measured: of the model.
    """
    if material.kind == "class":
        return _class_drawings(measured)
    if material.kind == "number":
        return (Drawing(_scatter(material), "True against predicted values; dashed: where both are the same."),)
    if survival is None:
        return ()
    drawings = []
    if any(group.patients for group in survival.groups):
        caption = f"Survival of two groups, split at the training units’ median risk, {survival.median_risk:.3g}; by "
        caption += "Kaplan and Meier, with pointwise 95 % limits."
        drawings.append(Drawing(_kaplan_meier(survival.groups), caption))
    if survival.calibration:
        caption = f"Observed against predicted survival up to {survival.median_follow_up:g}, the median follow-up, in "
        caption += f"{counted(len(survival.calibration), 'bin')} of similar predictions; lines: 95 % limits."
        drawings.append(Drawing(_survival_calibration(survival.calibration), caption))
    return tuple(drawings)


def _class_drawings(measured: Measured) -> tuple[Drawing, ...]:
    own = measured.by_class
    curves = [NamedCurve(result.class_name, result.measures[AUROC].value, result.roc) for result in own if result.roc]
    drawings = []
    if curves:
        what = "" if len(own) == 1 else ", each class against the rest"
        caption = f"ROC of this model{what}. Shaded: pointwise 95 % band by patient."
        drawings.append(Drawing(roc_figure(curves), caption))
    for result in own:
        if result.calibration:
            caption = f"{result.class_name}: observed share against mean probability of this model."
            drawings.append(Drawing(reliability_figure(result.calibration), caption))
    return tuple(drawings)


def _scatter(material: Material) -> str:
    truth, predicted = material.truth_nc[:, 0], material.model.values_nk[:, 0]
    ends = (min(truth.min(), predicted.min()), max(truth.max(), predicted.max()))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(SIDE_INCHES, SIDE_INCHES), layout="constrained")
        axes.plot(ends, ends, color="0.6", linewidth=0.8, linestyle=(0, (2, 2)))
        axes.plot(predicted, truth, color=COLOURS[0], marker="o", markersize=4, linestyle="none", alpha=0.7)
        axes.set(xlabel="predicted", ylabel="true")
        return as_svg(figure)


def _kaplan_meier(groups: Sequence[RiskGroup]) -> str:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(SIDE_INCHES, SIDE_INCHES), layout="constrained")
        for index, group in enumerate(groups):
            if group.last_time is None:
                continue
            times = np.array([0.0, *group.times, group.last_time])
            survival = np.array([1.0, *group.survival, group.survival[-1] if group.survival else 1.0])
            colour = COLOURS[index % len(COLOURS)]
            label = f"{group.name} ({counted(group.events, 'event')}, {group.patients} at start)"
            axes.step(times, survival, where="post", color=colour, linestyle=LINES[index], linewidth=1.4, label=label)
            if group.times:
                low, high = (np.array(side, np.float64) for side in (group.low, group.high))
                ends = (np.append(group.times, group.last_time), np.append(low, low[-1]), np.append(high, high[-1]))
                axes.fill_between(*ends, step="post", color=colour, alpha=0.15, linewidth=0)
        axes.set(xlabel="time", ylabel="share without an event", ylim=(-0.02, 1.02), xlim=(0, None))
        figure.legend(loc="outside lower center", ncols=1, frameon=False, fontsize=8)
        return as_svg(figure)


def _survival_calibration(bins: Sequence[SurvivalBin]) -> str:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(SIDE_INCHES, SIDE_INCHES), layout="constrained")
        axes.plot((0, 1), (0, 1), color="0.6", linewidth=0.8, linestyle=(0, (2, 2)))
        known = [group for group in bins if group.observed is not None]
        for group in known:
            if group.low is not None and group.high is not None:
                at = (group.mean_predicted, group.mean_predicted)
                axes.plot(at, (group.low, group.high), color=COLOURS[0], linewidth=1, alpha=0.6)
        x, y = [group.mean_predicted for group in known], np.array([group.observed for group in known], np.float64)
        axes.plot(x, y, color=COLOURS[0], marker="o", markersize=4, linewidth=1)
        axes.set(xlabel="predicted share without an event", ylabel="observed", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        return as_svg(figure)
