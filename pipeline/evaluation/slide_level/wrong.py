"""The units whose predictions are furthest from the truth, with the tiles that the model attended to most."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pipeline.evaluation.slide_level.collect import AttendedTile, Values
from pipeline.evaluation.slide_level.material import Material
from pipeline.evaluation.slide_level.result import WrongUnit
from pipeline.evaluation.slide_level.survival_measures import deviance_residuals

MOST_WRONG = 5
"""Units of each target in the report."""
SORTED_BY = {
    "class": "1 − probability of the true class",
    "ordinal": "distance of the expected grade from the true one",
    "number": "distance from the true value",
    "survival": "size of the deviance residual",
}


def errors_of(material: Material) -> Values | None:
    """How far each unit's prediction is from the truth, (units,); None if that is not known."""
    values_nk, truth_n = material.model.values_nk, material.truth_nc[:, 0]
    if material.kind == "class":
        return np.asarray(1 - values_nk[np.arange(len(truth_n)), truth_n.astype(np.int64)], np.float64)
    if material.kind == "ordinal":
        return np.abs(values_nk @ np.arange(values_nk.shape[1]) - truth_n)
    if material.kind == "number":
        return np.abs(values_nk[:, 0] - truth_n)
    residuals = deviance_residuals(material)
    return None if residuals is None else np.abs(residuals)


def most_wrong(material: Material, tiles: Mapping[str, tuple[AttendedTile, ...]]) -> tuple[WrongUnit, ...]:
    """The most wrong units, the worst first.

    Args:
        tiles: the most attended ones of each unit.
    """
    errors = errors_of(material)
    if errors is None:
        return ()
    worst = np.argsort(-errors, kind="stable")[:MOST_WRONG].tolist()
    return tuple(
        WrongUnit(
            unit=material.units[index],
            model_id=material.models[index],
            truth=said_truth(material, index),
            predicted=said_prediction(material, index),
            error=float(errors[index]),
            tiles=tiles[material.units[index]],
        )
        for index in worst
    )


def said_truth(material: Material, index: int) -> str:
    """A unit's true value, for people."""
    first = float(material.truth_nc[index, 0])
    if material.classes:
        return material.classes[int(first)]
    if material.kind == "number":
        return f"{first:g}"
    return f"event at {first:g}" if material.truth_nc[index, 1] else f"no event until {first:g}"


def said_prediction(material: Material, index: int) -> str:
    """A unit's prediction, for people."""
    values = material.model.values_nk[index]
    if material.classes:
        best = int(values.argmax())
        return f"{material.classes[best]} ({values[best]:.2f})"
    if material.kind == "number":
        return f"{values[0]:g}"
    median = material.model.median_risk
    side = "" if median is None else f" ({'at or above' if values[0] >= median else 'below'} the median, {median:.3g})"
    return f"risk {values[0]:.3g}{side}"
