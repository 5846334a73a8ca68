"""A training of a slide-level model on its run's page: patients, encoder, and the figures of each target. Pure: nothing
here draws."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pathology_app.html import tables as html_tables
from pathology_app.html.line_chart import Curve, line_chart
from pathology_app.html.tables import Column
from pathology_app.jobs.curves import Curves, epochs, thinned
from pathology_app.jobs.history import RunSummary

MAX_CHARTS = 8
"""Of targets: a page of a running one is redrawn every few seconds."""
_MAX_POINTS = 400
_LAST_STEPS = 20
"""Steps whose mean is the present rate."""
_UNITS = re.compile(r"data/(train|val|test)_(patient|slide)s")
_ENCODER = "data/features/"
_SHARES = ("accuracy", "balanced_accuracy", "auc", "concordance")
"""Figures from 0 to 1 that are drawn, if a target has them."""
_COLOURS = {
    "accuracy": "#2e7d32",
    "balanced_accuracy": "#1565c0",
    "auc": "#c2185b",
    "concordance": "#c2185b",
    "mean absolute error": "#1565c0",
}
_NAMES = {"auc": "AUC", "f1": "F1"}
_SPLITS = {"train": "training", "val": "validation", "test": "test"}


@dataclass(frozen=True)
class SlideTraining:
    """Facts about the data of a training of a slide-level model.

    Attributes:
        unit: "patient" or "slide": what has one label.
        units: number of them by split.
        encoder: id of the encoder whose features are read; empty where it is not known.
    """

    unit: str
    units: Mapping[str, int]
    encoder: str = ""


def slide_training(run: RunSummary, curves: Curves | None) -> SlideTraining | None:
    """What a run trains on, from its curves while it runs, or from its record; None if it is on tiles."""
    points = curves.points if curves else {}
    known = {(match[2], match[1]): points[tag][-1][1] for tag in points if (match := _UNITS.fullmatch(tag))}
    if known:
        unit = next(iter(known))[0]
        units = {split: int(number) for (_, split), number in known.items()}
        encoder = next((tag.removeprefix(_ENCODER) for tag in points if tag.startswith(_ENCODER)), "")
        return SlideTraining(unit, units, encoder)
    data = run.record.settings.get("data") if run.record and run.verb == "train" else None
    if not isinstance(data, dict) or data.get("source") != "features":
        return None
    unit = data.get("unit")
    return SlideTraining(unit if unit in ("patient", "slide") else "patient", {}, str(data.get("encoder") or "")[:100])


def training_facts(training: SlideTraining, curves: Curves | None) -> dict[str, str]:
    """Short facts for the top of the run's page."""
    facts = {"Encoder": training.encoder} if training.encoder else {}
    named = [f"{training.units[split]:,} {name}" for split, name in _SPLITS.items() if split in training.units]
    if named:
        facts[f"{training.unit.capitalize()}s"] = ", ".join(named)
    rates = curves.points.get(f"train/{training.unit}s_per_s", []) if curves else []
    if rates:
        last = [value for _, value in rates[-_LAST_STEPS:]]
        facts["Rate"] = f"{sum(last) / len(last):.3g} {training.unit}s/s"
    return facts


def figure_of(tag: str) -> tuple[str, str] | None:
    """Target and figure of a validation's tag, "val/TARGET: FIGURE"; None for others."""
    target, colon, figure = tag.removeprefix("val/").rpartition(": ")
    return (target, figure) if tag.startswith("val/") and colon and target else None


def figure_name(figure: str) -> str:
    """A figure's name for people."""
    return _NAMES.get(figure, figure.replace("_", " "))


def target_charts(curves: Curves) -> dict[str, str]:
    """A chart of each target's figures, by heading."""
    drawn: dict[str, list[str]] = {}
    for tag in curves.points:
        if (named := figure_of(tag)) and named[1] in _COLOURS:
            drawn.setdefault(named[0], []).append(named[1])
    charts = {}
    for target, figures in list(drawn.items())[:MAX_CHARTS]:
        shown = [
            Curve(figure_name(figure), drawn_points(curves, f"val/{target}: {figure}"), _COLOURS[figure], "dots")
            for figure in _COLOURS
            if figure in figures
        ]
        y_to = 1.0 if set(figures) <= set(_SHARES) else None
        charts[f"Validation: {target}"] = line_chart(shown, label=f"{target} by step", x_name="step", y_to=y_to)
    return charts


def drawn_points(curves: Curves, tag: str) -> list[tuple[float, float]]:
    """Points of a curve that a chart draws, by the number of steps done."""
    return [(step + 1, value) for step, value in thinned(curves.points[tag], _MAX_POINTS)]


def best_epoch_html(curves: Curves) -> str:
    """Figures of each target in the epoch with the lowest validation loss, which is that of the best model."""
    rows = [(number, row) for number, row in enumerate(epochs(curves), start=1) if "val/loss" in row]
    if not rows:
        return ""
    number, best = min(rows, key=lambda numbered: numbered[1]["val/loss"])
    by_target: dict[str, dict[str, float]] = {}
    for tag, value in best.items():
        if named := figure_of(tag):
            by_target.setdefault(named[0], {})[named[1]] = value
    figures = sorted({figure for values in by_target.values() for figure in values})
    columns = [Column("Target"), *(Column(_capital(figure_name(figure)), "number") for figure in figures)]
    cells = (
        [target, *(f"{values[figure]:.4g}" if figure in values else "" for figure in figures)]
        for target, values in by_target.items()
    )
    if not by_target:
        return ""
    return html_tables.table(columns, cells, label=f"Validation of the best epoch so far, number {number}")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
