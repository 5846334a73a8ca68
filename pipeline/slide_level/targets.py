"""Targets of slides and patients: classes, ordered classes, numbers and survival, from tables to arrays.

Whatever could be read in two ways is refused with its row and value: "1,234", a status "2", "none" among classes that
are not listed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from pipeline.cohort.look_alikes import look_alikes
from pipeline.cohort.manifest import Cohort
from pipeline.cohort.no_values import is_missing
from pipeline.errors import BadManifestError
from pipeline.slide_level.clinical import NONE, Cell, Clinical, Unit, check_clinical, refuse_without_patient, unit_cells
from training.foundation.errors import BadRecipeError, EmptyTableError
from training.foundation.settings import Section
from training.foundation.words.class_names import check_class_name
from training.foundation.words.counts import counted, first_of

ClassName = Annotated[str, AfterValidator(check_class_name)]
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
_EVENTS = {"1": 1.0, "yes": 1.0, "true": 1.0, "dead": 1.0, "0": 0.0, "no": 0.0, "false": 0.0, "alive": 0.0}


class TargetRow(Section):
    """One target of a recipe: its columns of the clinical table or the manifest, and how they are read."""

    name: ClassName
    columns: tuple[str, ...]
    """One; for survival two, the time and the event."""
    kind: Literal["class", "ordinal", "number", "survival"]
    weight: float = Field(1.0, gt=0)
    """Of its loss, beside those of other targets."""
    classes: tuple[ClassName, ...] = ()
    """In order; if empty, those of the training units in natural order."""
    loss: Literal["cox", "discrete"] = "cox"
    """Of survival."""

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        needed = 2 if self.kind == "survival" else 1
        if len(set(self.columns)) != needed or len(self.columns) != needed:
            which = "two, the time and the event" if needed == 2 else "one"
            raise ValueError(f'columns = {list(self.columns)}: a target of the kind "{self.kind}" has {which}')
        if self.classes and self.kind not in ("class", "ordinal"):
            raise ValueError(f'classes = {list(self.classes)}: a target of the kind "{self.kind}" has none')
        if self.kind == "ordinal" and not self.classes:
            raise ValueError("classes are missing: list those of an ordinal target from the lowest to the highest")
        if len(self.classes) == 1 or len(set(self.classes)) != len(self.classes):
            raise ValueError(f"classes = {list(self.classes)}: list at least two, each once")
        return self


SHOWN = 5
"""Names in a clause."""


@dataclass(frozen=True)
class Units:
    """Patients or slides, in order, and those that the model is trained on."""

    kind: Unit
    names: tuple[str, ...]
    training: frozenset[str]
    """They decide the order of classes that are not listed. Empty: nothing is trained, and classes must be listed."""


@dataclass(frozen=True)
class TargetTable:
    """The targets of units, one row for each; NaN where a value is missing."""

    units: tuple[str, ...]
    rows: tuple[TargetRow, ...]
    columns: tuple[str, ...]
    """Of `values_nc`: those of each target in turn."""
    values_nc: NDArray[np.float64]
    """Index of the class; the number; survival: time, then event (1 or 0), both or neither."""
    classes: Mapping[str, tuple[str, ...]]
    """Order of the classes, by target of the kinds "class" and "ordinal"."""
    notes: tuple[str, ...] = ()
    """Clauses about values that are not used."""

    def values_of(self, name: str) -> NDArray[np.float64]:
        """Values of one target, (units, 1); of survival (units, 2). Raises KeyError: no such target."""
        start = 0
        for row in self.rows:
            if row.name == name:
                return self.values_nc[:, start : start + len(row.columns)]
            start += len(row.columns)
        raise KeyError(name)


def units_of(cohort: Cohort, kind: Unit, training: Collection[str] | None = None) -> Units:
    """The units of a manifest's included slides, in its order.

    Args:
        training: patients that the model is trained on; empty: nothing is trained; None: all units.

    Raises:
        BadManifestError: a slide has no patient (kind "patient", or `training` is given); or a patient of `training` is
            not in the manifest.
    """
    if kind == "patient" or training is not None:
        refuse_without_patient(cohort)
    names = {str(e.patient_id) if kind == "patient" else e.slide_id: e.patient_id for e in cohort.included}
    unknown = sorted(set(training or ()).difference(filter(None, names.values())))
    if unknown:
        raise BadManifestError(
            f"{cohort.path}: has no slide of {counted(len(unknown), 'training patient')}, such as {unknown[0]!r}. Give "
            "the manifest that the folds were made from."
        )
    trained = (name for name, patient in names.items() if training is None or patient in training)
    return Units(kind, tuple(names), frozenset(trained))


def target_values(rows: Sequence[TargetRow], cohort: Cohort, clinical: Clinical | None, units: Units) -> TargetTable:
    """The values of targets as float64 (units, columns).

    Raises:
        BadRecipeError: two targets of one name; unlisted classes where nothing is trained.
        BadManifestError: as `check_clinical` and `unit_cells`; a value that does not fit the target's kind.
        EmptyTableError: a target cannot be learnt: no value, a class without a training unit, only one class, only one
            number, or no event.
    """
    twice = [name for name, count in Counter(row.name for row in rows).items() if count > 1]
    if twice:
        raise BadRecipeError(f"two targets are named {twice[0]!r}. Give each target its own name.")
    if clinical is not None:
        check_clinical(clinical, cohort)
    columns: list[str] = []
    values: list[list[float]] = []
    classes: dict[str, tuple[str, ...]] = {}
    notes: list[str] = []
    for row in rows:
        cells = [_known_units(unit_cells(cohort, clinical, units.kind, column), units) for column in row.columns]
        if row.kind in ("class", "ordinal"):
            classes[row.name], numbers = _class_indices(row, cells[0], units)
        elif row.kind == "number":
            numbers = _numbers(row, cells[0], units)
        else:
            numbers = _survival(row, cells[0], cells[1], units)
            notes += _halves(row, cells[0], cells[1], numbers)
        missing = (math.nan,) * len(row.columns)
        values += map(list, zip(*(numbers.get(name, missing) for name in units.names), strict=True))
        columns += row.columns
    values_nc = np.array(values, np.float64).reshape(len(columns), len(units.names)).T.copy()
    return TargetTable(units.names, tuple(rows), tuple(columns), values_nc, classes, tuple(notes))


def _known_units(cells: Mapping[str, Cell], units: Units) -> dict[str, Cell]:
    return {name: cells[name] for name in units.names if name in cells}


def class_cells(cells: Mapping[str, Cell], column: str, listed: Sequence[str] = ()) -> dict[str, Cell]:
    """Cells that hold names of classes.

    Raises:
        BadManifestError: a name that cannot be a class's; two that look like one; "none" in a column other than
            `label`, if no class is listed: it may be a class or a missing value.
    """
    none_is_class = column == "label" or any(name.casefold() == NONE for name in listed)
    named: dict[str, Cell] = {}
    for unit, cell in cells.items():
        is_none = cell.text.casefold() == NONE and not none_is_class
        if is_none and listed:
            continue
        if is_none:
            raise BadManifestError(
                f"{cell.where}: `{column}` = {cell.text!r} can be a class or a missing value. Empty the cell, list the "
                "classes of the target, or write a word that says more."
            )
        try:
            named[unit] = Cell(check_class_name(cell.text), cell.where)
        except ValueError as error:
            raise BadManifestError(f"{cell.where}: `{column}` = {cell.text!r:.200}: {error}.") from error
    firsts = {cell.text: cell.where for cell in reversed(named.values())}
    for one, other, *_ in look_alikes(sorted(firsts)):
        raise BadManifestError(
            f"the classes {one!r} ({firsts[one]}) and {other!r} ({firsts[other]}) of `{column}` look like one, and "
            "would count as two. Write both alike, or rename one."
        )
    return named


def natural_key(text: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """Key of the order in which "T2" comes before "T10"."""
    parts = re.split(r"([0-9]{1,18})", text.casefold())
    return tuple((0, int(part), "") if index % 2 else (1, 0, part) for index, part in enumerate(parts) if part), text


def _class_indices(
    row: TargetRow, cells: Mapping[str, Cell], units: Units
) -> tuple[tuple[str, ...], Mapping[str, tuple[float, ...]]]:
    named = class_cells(cells, row.columns[0], row.classes)
    trained = {named[name].text for name in units.training if name in named}
    if not row.classes and not units.training:
        raise BadRecipeError(f"target {row.name!r}: its classes are not listed. List those that the model knows.")
    _refuse_without_value(row, named, units)
    order = row.classes or tuple(sorted(trained, key=natural_key))
    if len(order) < 2:
        raise EmptyTableError(
            f"target {row.name!r}: every training {units.kind} has the class {order[0]!r} in `{row.columns[0]}`. A "
            "target needs at least two classes."
        )
    for cell in named.values():
        if cell.text not in order and row.classes:
            raise BadManifestError(
                f"{cell.where}: `{row.columns[0]}` = {cell.text!r} is not among the classes of target {row.name!r}: "
                f"{', '.join(order)[:400]}. Add it to its `classes`, or empty the cell."
            )
    used = {cell.text: cell.where for cell in reversed(named.values())}
    for name in dict.fromkeys([*order, *used]) if units.training else ():
        if name not in trained:
            where = f" ({used[name]})" if name in used else ""
            raise EmptyTableError(
                f"target {row.name!r}: no training {units.kind} has the class {name!r}{where} of `{row.columns[0]}`. "
                "Use other folds, merge the class with another, or empty its cells."
            )
    return order, {unit: (float(order.index(cell.text)),) for unit, cell in named.items()}


def _numbers(row: TargetRow, cells: Mapping[str, Cell], units: Units) -> Mapping[str, tuple[float, ...]]:
    numbers = {unit: (_number(cell, row.columns[0]),) for unit, cell in _values(cells)}
    _refuse_without_value(row, numbers, units)
    trained = {numbers[name][0] for name in units.training if name in numbers}
    if len(trained) == 1:
        raise EmptyTableError(
            f"target {row.name!r}: every training {units.kind} has the number {trained.pop():g} in "
            f"`{row.columns[0]}`. There is nothing to learn; leave the target out."
        )
    return numbers


def _survival(
    row: TargetRow, times: Mapping[str, Cell], events: Mapping[str, Cell], units: Units
) -> Mapping[str, tuple[float, ...]]:
    time_of = {unit: _time(cell, row.columns[0]) for unit, cell in _values(times)}
    event_of = event_numbers(events, row.columns[1])
    pairs = {unit: (time, event_of[unit]) for unit, time in time_of.items() if unit in event_of}
    _refuse_without_value(row, pairs, units)
    if units.training and not any(pairs[name][1] for name in units.training if name in pairs):
        raise EmptyTableError(
            f"target {row.name!r}: no training {units.kind} has an event in `{row.columns[1]}`. Use other folds, or "
            "leave the target out."
        )
    return pairs


def _halves(row: TargetRow, times: Mapping[str, Cell], events: Mapping[str, Cell], used: Collection[str]) -> list[str]:
    """A clause about units of which only the time or only the event is known."""
    known = {unit for cells in (times, events) for unit, _ in _values(cells)}
    halves = sorted(known.difference(used))
    if not halves:
        return []
    shown = first_of(halves, SHOWN)
    have, are = ("has", "is") if len(halves) == 1 else ("have", "are")
    return [f"{shown} {have} only one of `{row.columns[0]}` and `{row.columns[1]}` and {are} left out of {row.name!r}"]


def _values(cells: Mapping[str, Cell]) -> Iterable[tuple[str, Cell]]:
    return ((unit, cell) for unit, cell in cells.items() if not is_missing(cell.text))


def _refuse_without_value(row: TargetRow, values: Collection[str], units: Units) -> None:
    wanted = units.training or frozenset(units.names)
    if wanted.isdisjoint(values):
        which = f"training {units.kind}" if units.training else units.kind
        named = " and ".join(f"`{column}`" for column in row.columns)
        raise EmptyTableError(
            f"target {row.name!r}: none of {counted(len(wanted), which)} has a value in {named}. Fill them in, or "
            "leave the target out."
        )


def _number(cell: Cell, column: str) -> float:
    if _THOUSANDS.fullmatch(cell.text):
        why = "can be a fraction or a number of thousands: write it with a point, or without a separator"
    elif not _NUMBER.fullmatch(cell.text):
        why = "is not a number: correct it, or empty the cell"
    else:
        number = float(cell.text.replace(",", "."))
        if math.isfinite(number):
            return number
        why = "is too large a number: correct it, or empty the cell"
    raise BadManifestError(f"{cell.where}: `{column}` = {cell.text!r:.200} {why}.")


def _time(cell: Cell, column: str) -> float:
    number = _number(cell, column)
    if number <= 0:
        raise BadManifestError(
            f"{cell.where}: `{column}` = {cell.text!r} is not a time above 0. Correct it, or empty the cell."
        )
    return number


def event_numbers(cells: Mapping[str, Cell], column: str) -> dict[str, float]:
    """1 for an event, 0 for none; cells that stand for a missing value are left out.

    Raises:
        BadManifestError: a text that says neither.
    """
    return {unit: _event(cell, column) for unit, cell in _values(cells)}


def _event(cell: Cell, column: str) -> float:
    text = re.sub(r"(?<=[01])[.,]0+$", "", cell.text.casefold())  # "1.0": programs write it beside empty cells
    number = _EVENTS.get(text)
    if number is None:
        raise BadManifestError(
            f"{cell.where}: `{column}` = {cell.text!r:.200} does not say whether the event happened. Write 1, yes, "
            "true or dead if it did, and 0, no, false or alive if it did not."
        )
    return number
