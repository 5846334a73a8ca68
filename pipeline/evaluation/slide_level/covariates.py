"""Clinical columns as numbers: standardised numbers, one column per category, and one that says "missing"."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.cohort.manifest import Cohort
from pipeline.cohort.no_values import is_missing
from pipeline.slide_level import Cell, Clinical, TargetRow, Unit, natural_key, target_values, unit_cells, units_of
from training.foundation.errors import BadRecipeError

MAX_CATEGORIES = 50
Values = NDArray[np.float64]


def read_covariates(
    columns: Sequence[str], cohort: Cohort, clinical: Clinical | None, level: Unit, target_columns: Collection[str]
) -> dict[str, Mapping[str, float | str]]:
    """Values of clinical columns by unit: of each column either all numbers or all texts. Missing ones are left out.

    Args:
        target_columns: which are what is to be predicted.

    Raises:
        BadRecipeError: a column is a target's. BadManifestError: as `unit_cells` and `target_values`.
    """
    read: dict[str, Mapping[str, float | str]] = {}
    for column in columns:
        if column in target_columns:
            raise BadRecipeError(
                f"--covariates {column}: is a column of a target, so a model of it would know the answer. Name columns "
                "that were known before."
            )
        cells = {
            unit: cell
            for unit, cell in unit_cells(cohort, clinical, level, column).items()
            if not is_missing(cell.text)
        }
        if cells and all(_is_number(cell) for cell in cells.values()):
            row = TargetRow(name="covariate", columns=(column,), kind="number")
            table = target_values([row], cohort, clinical, units_of(cohort, level, ()))
            numbers = zip(table.units, table.values_nc[:, 0].tolist(), strict=True)
            read[column] = {unit: number for unit, number in numbers if math.isfinite(number)}
        else:
            read[column] = {unit: cell.text for unit, cell in cells.items()}
    return read


def covariate_matrix(
    covariates: Mapping[str, Mapping[str, float | str]], units: Sequence[str], training: Collection[str]
) -> tuple[Values, list[str]]:
    """Columns of units, float64 (units, columns), and their names.

    A number that is missing is the training units' mean; a category that no training unit has is none of them.

    Args:
        training: units that decide means and categories.

    Raises:
        BadRecipeError: a column with too many categories to learn from.
    """
    columns: list[list[float]] = []
    names: list[str] = []
    for name, values in covariates.items():
        known = [values[unit] for unit in sorted(training) if unit in values]
        if known and all(isinstance(value, float) for value in known):
            mean = float(np.mean(np.array(known, np.float64)))
            columns.append([float(values.get(unit, mean)) for unit in units])
            names.append(name)
        else:
            categories = sorted({str(value) for value in known}, key=natural_key)
            if len(categories) > MAX_CATEGORIES:
                raise BadRecipeError(
                    f"--covariates {name}: has {len(categories)} different texts, of which {MAX_CATEGORIES} are the "
                    "most to learn from. Leave it out, or group its values."
                )
            columns += [[float(values.get(unit) == category) for unit in units] for category in categories]
            names += [f"{name} = {category}" for category in categories]
        if any(unit not in values for unit in units):
            columns.append([float(unit not in values) for unit in units])
            names.append(f"{name} is missing")
    matrix = np.array(columns, np.float64).reshape(len(columns), len(units)).T.copy()
    return matrix, names


def _is_number(cell: Cell) -> bool:
    try:
        return math.isfinite(float(cell.text.replace(",", ".")))
    except ValueError:
        return False
