"""Clinical tables: facts about patients or slides that a manifest has no column for; and the value of each unit.

Columns are free, and keep their names exactly ("OS (months)", "T.Stadium"). A cell that stands for a missing value is
missing; "none" may also be a class, so its text is kept for the target to decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.cohort.look_alikes import WHAT_TO_DO, look_alikes
from pipeline.cohort.manifest import MAX_MANIFEST_BYTES, Cohort, SlideEntry
from pipeline.cohort.no_values import is_missing, why_no_value
from pipeline.cohort.total_rows import total_in
from pipeline.errors import BadManifestError
from pipeline.files import sha256_of
from pipeline.settings.source_folders import check_source
from pipeline.spreadsheets import read_rows, with_header
from training.foundation.settings import did_you_mean
from training.foundation.words.class_names import check_printable
from training.foundation.words.names import comparable

Key = Literal["slide_id", "patient_id"]
Unit = Literal["patient", "slide"]
"""What a target is about: a patient with all slides, or one slide."""

KEYS: tuple[Key, ...] = ("slide_id", "patient_id")
"""In a table with both, rows are about slides."""
MANIFEST_COLUMNS = ("label", "site", "scanner", "stain", "block", "mpp")
"""Columns of a manifest that can be targets, or strata of folds."""
NONE = "none"
"""A missing value or the name of a class, in any capitals."""
MAX_SHOWN = 5
"""Names in a message."""


@dataclass(frozen=True)
class Clinical:
    """A clinical table that was read and checked."""

    key: Key
    rows: Mapping[str, Mapping[str, str]]
    """Texts by column, by patient or slide, without missing ones; `patient_id` too in a table with both keys."""
    columns: tuple[str, ...]
    """As the table names them, without keys."""
    sha256: str
    path: Path
    lines: Mapping[str, int]
    """Line of each row."""


@dataclass(frozen=True)
class Cell:
    """The text of a cell and its place, for messages."""

    text: str
    where: str


def load_clinical(path: Path) -> Clinical:
    """Read and check a clinical table with a column `patient_id`, `slide_id` or both.

    Raises:
        BadManifestError: missing, too large, not a text table (`spreadsheets.py`), no key column, two columns of one
            name, a key that is missing or cannot be printed, or two rows of one key with different values.
        OutsideFoldersError: as `check_source`.
    """
    check_source(path)
    header, records = with_header(path, read_rows(path, max_bytes=MAX_MANIFEST_BYTES))
    key, columns = _checked_header(path, header)
    rows: dict[str, dict[str, str]] = {}
    lines: dict[str, int] = {}
    for number, cells in records:
        where = f"{path}, line {number}"
        name = _checked_key(where, key, cells[key])
        values = {column: comparable(text) for column, text in cells.items() if column != key and _is_value(text)}
        if name in rows:
            _refuse_difference(where, f"{key} {name!r:.80}", (rows[name], values), lines[name])
        rows.setdefault(name, values)
        lines.setdefault(name, number)
    if not rows:
        raise BadManifestError(f"{path}: has no rows below its header. Give a table with a row for each {key}.")
    return Clinical(key, rows, columns, sha256_of(path), path, lines)


def _checked_header(path: Path, header: Sequence[str]) -> tuple[Key, tuple[str, ...]]:
    key = next((name for name in KEYS if name in header), None)
    if key is None:
        found = ", ".join(f"`{name:.80}`" for name in header if name)[:400] or "an empty file"
        raise BadManifestError(
            f"{path}: no column `patient_id` or `slide_id`; found {found}. Name the column of the manifest's patients "
            "`patient_id`, or that of its slides `slide_id`."
        )
    names: dict[str, str] = {}
    for name in filter(None, header):
        first = names.setdefault(comparable(name), name)
        if first != name:
            raise BadManifestError(
                f"{path}: two columns are named `{name:.200}`, in different Unicode forms. Rename one of them."
            )
    return key, tuple(name for name in header if name and name not in KEYS)


def _checked_key(where: str, key: Key, text: str) -> str:
    why = "is empty: fill it in, or delete the row" if not text else why_no_value(key, text)
    if why is None and total_in([text]):
        why = f"looks like a row of totals, not like a {key.removesuffix('_id')}: delete the row"
    if why is None:
        try:
            return check_printable(text)
        except ValueError as error:
            why = str(error)
    raise BadManifestError(f"{where}: `{key}` = {text!r:.200}: {why}.")


def _is_value(text: str) -> bool:
    return text != "" and (text.casefold() == NONE or not is_missing(text))


def _refuse_difference(where: str, whose: str, rows: tuple[Mapping[str, str], Mapping[str, str]], line: int) -> None:
    first, second = rows
    for column in sorted(first.keys() | second.keys()):
        one, other = first.get(column, ""), second.get(column, "")
        if one != other:
            raise BadManifestError(
                f"{where}: {whose} has `{column:.80}` = {other!r:.80}, but {one!r:.80} on line {line}. Keep one row."
            )


def check_clinical(clinical: Clinical, cohort: Cohort) -> None:
    """Compare a table's keys with a manifest's. Either may have rows that the other lacks.

    Raises:
        BadManifestError: they have no key in common; a patient or slide without a row looks like one of the table that
            the manifest lacks, whose values would be lost; or a slide has another patient in the manifest.
    """
    known = list(dict.fromkeys(str(name) for entry in cohort.included if (name := _key_of(clinical, entry))))
    unmatched = [name for name in known if name not in clinical.rows]
    if len(unmatched) == len(known):
        raise BadManifestError(
            f"{clinical.path}: none of its rows is about the cohort: `{clinical.key}` is {_shown(clinical.rows)} in "
            f"the table and {_shown(known)} in {cohort.path}. Write both alike."
        )
    missing, extra = set(unmatched), clinical.rows.keys() - set(known)
    for group in look_alikes([*unmatched, *sorted(extra)]):
        own, others = [name for name in group if name in missing], [name for name in group if name in extra]
        if own and others:
            raise BadManifestError(
                f"{clinical.path}, line {clinical.lines[others[0]]}: `{clinical.key}` = {others[0]!r} looks like "
                f"{own[0]!r} of {cohort.path}, which has no row. {WHAT_TO_DO}."
            )
    for entry in cohort.included if clinical.key == "slide_id" else ():
        patient = clinical.rows.get(entry.slide_id, {}).get("patient_id")
        if patient is not None and entry.patient_id is not None and patient != entry.patient_id:
            raise BadManifestError(
                f"{clinical.path}, line {clinical.lines[entry.slide_id]}: slide {entry.slide_id} is of patient "
                f"{patient!r}, but of {entry.patient_id!r} in {cohort.path}. Correct one of them."
            )


def _shown(names: Iterable[str]) -> str:
    listed = list(names)
    return (", ".join(map(repr, listed[:MAX_SHOWN])) or "nowhere filled in") + (" …" if listed[MAX_SHOWN:] else "")


def _key_of(clinical: Clinical, entry: SlideEntry) -> str | None:
    return entry.slide_id if clinical.key == "slide_id" else entry.patient_id


def unit_cells(cohort: Cohort, clinical: Clinical | None, unit: Unit, column: str) -> dict[str, Cell]:
    """Cells of a column of the clinical table or the manifest, by patient or slide; units without a value are left out.

    Raises:
        BadManifestError: neither has the column, both have values in it, a patient's slides have different values, or
            a slide has no patient (unit "patient").
    """
    by_slide = _slide_cells(cohort, clinical, column)
    if unit == "slide":
        return by_slide
    refuse_without_patient(cohort)
    difference = find_difference(cohort, by_slide, column)
    if difference:
        raise BadManifestError(f'{difference}. Correct one of them, or use the unit "slide".')
    return {str(e.patient_id): by_slide[e.slide_id] for e in cohort.included if e.slide_id in by_slide}


def find_difference(cohort: Cohort, by_slide: Mapping[str, Cell], column: str) -> str | None:
    """A clause about the first patient whose slides have different values; None if there is none."""
    firsts: dict[str, Cell] = {}
    for entry in cohort.included:
        cell = by_slide.get(entry.slide_id)
        if cell is None or entry.patient_id is None:
            continue
        first = firsts.setdefault(entry.patient_id, cell)
        if first.text != cell.text:
            return (
                f"patient {entry.patient_id!r} has slides with different values of `{column}`: {first.text!r:.80} "
                f"({first.where}) and {cell.text!r:.80} ({cell.where})"
            )
    return None


def choose_unit(cohort: Cohort, clinical: Clinical | None, columns: Iterable[str]) -> tuple[Unit, str]:
    """ "patient" if the slides of each patient have the same values; else "slide", and a clause with an example.

    Raises:
        BadManifestError: as `unit_cells`.
    """
    for column in columns:
        difference = find_difference(cohort, unit_cells(cohort, clinical, "slide", column), column)
        if difference:
            return "slide", difference
    return "patient", ""


def refuse_without_patient(cohort: Cohort) -> None:
    """Raises BadManifestError: a slide has no patient_id."""
    without = [entry.slide_id for entry in cohort.included if not entry.patient_id]
    if without:
        raise BadManifestError(
            f"{cohort.path}: slides {', '.join(without[:MAX_SHOWN])}{' …' if without[MAX_SHOWN:] else ''} have no "
            "patient_id. Fill in the column `patient_id`."
        )


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith("?") else f"{sentence}."


def _slide_cells(cohort: Cohort, clinical: Clinical | None, column: str) -> dict[str, Cell]:
    own = {
        entry.slide_id: Cell(str(value), f"{cohort.path}, slide {entry.slide_id}")
        for entry in cohort.included
        if column in MANIFEST_COLUMNS and (value := getattr(entry, column)) is not None
    }
    columns = {comparable(name): name for name in clinical.columns} if clinical else {}
    name = columns.get(comparable(column))
    if clinical is None or name is None:
        if column not in MANIFEST_COLUMNS:
            where = f"{clinical.path} and {cohort.path} have" if clinical else f"{cohort.path} has"
            hint = did_you_mean(column, [*MANIFEST_COLUMNS, *columns.values()], what="columns")
            raise BadManifestError(f"{where} no column `{column:.200}`: {_ended(hint[:400])}")
        return own
    if own:
        raise BadManifestError(
            f"`{column}` has values both in {cohort.path} and in {clinical.path}. Rename the column of the table, or "
            "empty that of the manifest."
        )
    keys = {entry.slide_id: str(_key_of(clinical, entry)) for entry in cohort.included if _key_of(clinical, entry)}
    return {
        slide_id: Cell(clinical.rows[key][name], f"{clinical.path}, line {clinical.lines[key]}")
        for slide_id, key in keys.items()
        if name in clinical.rows.get(key, {})
    }
