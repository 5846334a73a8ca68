"""`units.csv`: one row for each tested unit, with truth, prediction and group of every target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.evaluation.slide_level.material import Material
from pipeline.evaluation.slide_level.measures import called


def unit_rows(
    materials: Sequence[Material], units: Mapping[str, tuple[str, str]], threshold: float
) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
    """Header and rows; cells of a unit without a value are empty.

    Args:
        units: patient and model of each tested unit.
    """
    header = ["unit", "patient", "model"]
    cells: dict[str, list[object]] = {unit: [unit, patient, model] for unit, (patient, model) in units.items()}
    for material in materials:
        columns = _columns(material)
        header += columns
        rows = {unit: _cells(material, index, threshold) for index, unit in enumerate(material.units)}
        for unit, row in cells.items():
            row += rows.get(unit, [""] * len(columns))
    return tuple(header), tuple(tuple(row) for row in cells.values())


def _columns(material: Material) -> list[str]:
    name = material.target["name"]
    if material.classes:
        return [f"{name}: truth", f"{name}: prediction", *(f"{name}: probability of {c}" for c in material.classes)]
    if material.kind == "number":
        return [f"{name}: truth", f"{name}: prediction"]
    return [f"{name}: {what}" for what in ("time", "event", "risk", "group")]


def _cells(material: Material, index: int, threshold: float) -> list[object]:
    values, truth = material.model.values_nk[index], material.truth_nc[index].tolist()
    if material.classes:
        answer = int(called(material, values[None], threshold)[0])
        return [material.classes[int(truth[0])], material.classes[answer], *values.tolist()]
    if material.kind == "number":
        return [truth[0], float(values[0])]
    median = material.model.median_risk
    group = "" if median is None else "high risk" if values[0] >= median else "low risk"
    return [truth[0], int(truth[1]), float(values[0]), group]
