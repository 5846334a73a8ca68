"""Targets as arrays: order of classes, numbers, survival; what cannot be learnt, or could be misread, is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.cohort.manifest import Cohort, load_cohort
from pipeline.errors import BadManifestError
from pipeline.slide_level import TargetRow, TargetTable, load_clinical, natural_key, target_values, units_of
from training.foundation.errors import BadRecipeError, EmptyTableError

PATIENTS = ("P-1", "P-2", "P-3", "P-4", "P-5")
TRAINING = ("P-1", "P-2", "P-3")


def cohort_of(folder: Path, *, labels: tuple[str, ...] = ("T10", "T2", "T10", "T2", "")) -> Cohort:
    """Two slides of the first patient, one of each other."""
    patients = ("P-1", *PATIENTS)
    rows = [f"{i}.svs,s{i},{p},{label}" for i, (p, label) in enumerate(zip(patients, ("T10", *labels), strict=True))]
    (folder / "cohort.csv").write_text("\n".join(["path,slide_id,patient_id,label", *rows]))
    return load_cohort(folder / "cohort.csv")


def read(
    folder: Path,
    *rows: TargetRow,
    column: str = "x",
    cells: tuple[str, ...] = (),
    training: tuple[str, ...] | None = TRAINING,
) -> TargetTable:
    """Targets of patients with the given cells, separated by bars where there are several columns."""
    lines = [f"{patient};{cell.replace('|', ';')}" for patient, cell in zip(PATIENTS, cells, strict=True)]
    path = folder / "clinical.csv"
    path.write_text("\n".join([f"patient_id;{column.replace('|', ';')}", *lines]), encoding="utf-8")
    cohort = cohort_of(folder)
    return target_values(rows, cohort, load_clinical(path), units_of(cohort, "patient", training))


def test_classes_of_the_training_patients_are_in_natural_order(tmp_path):
    row = TargetRow(name="stage", columns=("label",), kind="class")
    cohort = cohort_of(tmp_path)

    got = target_values([row], cohort, None, units_of(cohort, "patient", TRAINING))

    assert got.classes == {"stage": ("T2", "T10")}
    np.testing.assert_array_equal(got.values_nc, [[1], [0], [1], [0], [math.nan]])
    assert (got.units, got.values_nc.dtype) == (PATIENTS, np.float64)


def test_slides_are_units_too_and_take_values_of_their_patients(tmp_path):
    rows = [
        TargetRow(name="stage", columns=("label",), kind="class"),
        TargetRow(name="age", columns=("age",), kind="number"),
    ]
    (tmp_path / "clinical.csv").write_text("patient_id,age\nP-1,61.5\nP-4,48\nP-2,7\n")
    cohort = cohort_of(tmp_path)

    got = target_values(rows, cohort, load_clinical(tmp_path / "clinical.csv"), units_of(cohort, "slide", TRAINING))

    assert got.units == ("s0", "s1", "s2", "s3", "s4", "s5")
    np.testing.assert_array_equal(got.values_of("age")[:, 0], [61.5, 61.5, 7, math.nan, 48, math.nan])
    np.testing.assert_array_equal(got.values_of("stage")[:, 0], [1, 1, 0, 1, 0, math.nan])


def test_several_targets_keep_the_names_of_their_columns(tmp_path):
    rows = [
        TargetRow(name="überleben", columns=("OS (months)", "Tod.Ereignis"), kind="survival"),
        TargetRow(name="grade", columns=("Grad ß",), kind="ordinal", classes=("low", "mid", "high")),
    ]

    got = read(
        tmp_path,
        *rows,
        column="OS (months)|Tod.Ereignis|Grad ß",
        cells=("12.5|yes|high", "3|0|low", "7|FALSE|mid", "4,25|Dead|NA", "n/a|1|low"),
    )

    assert got.columns == ("OS (months)", "Tod.Ereignis", "Grad ß")
    np.testing.assert_array_equal(
        got.values_nc,
        [[12.5, 1, 2], [3, 0, 0], [7, 0, 1], [4.25, 1, math.nan], [math.nan, math.nan, 0]],
    )
    assert got.classes == {"grade": ("low", "mid", "high")}


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("1.0", 1), ("yes", 1), ("True", 1), ("DEAD", 1), ("0", 0), ("0.0", 0), ("No", 0), ("alive", 0)],
)
def test_an_event_is_read_in_each_of_its_words(tmp_path, text, number):
    row = TargetRow(name="os", columns=("t", "e"), kind="survival")

    got = read(tmp_path, row, column="t|e", cells=(f"3|{text}", "4|1", "5|0", "6|0", "7|0"))

    assert got.values_nc[0].tolist() == [3, number]


SURVIVAL = {"name": "os", "columns": ("t", "e"), "kind": "survival"}
NUMBER = {"name": "age", "columns": ("t",), "kind": "number"}
CLASS = {"name": "msi", "columns": ("t",), "kind": "class"}


@pytest.mark.parametrize(
    ("row", "cell", "says"),
    [
        (SURVIVAL, "3|2", r"line 4: `e` = '2' does not say whether the event happened"),
        (SURVIVAL, "3|unknown", "`e` = 'unknown' does not say"),
        (SURVIVAL, "3|11.0", "`e` = '11.0' does not say"),
        (SURVIVAL, "0|1", r"line 4: `t` = '0' is not a time above 0"),
        (SURVIVAL, "-3|1", "`t` = '-3' is not a time above 0"),
        (NUMBER, "1,234|", r"line 4: `t` = '1,234' can be a fraction or a number of thousands"),
        (NUMBER, "<5|", "`t` = '<5' is not a number"),
        (NUMBER, "1_000|", "`t` = '1_000' is not a number"),
        (NUMBER, "inf|", "`t` = 'inf' is not a number"),
        (NUMBER, "٣|", "is not a number"),
        (NUMBER, "1e999|", "is too large a number"),
        (CLASS | {"classes": ("1", "4")}, "3|", "`t` = '3' is not among the classes of target 'msi': 1, 4"),
        (CLASS, "none|", r"line 4: `t` = 'none' can be a class or a missing value"),
        (CLASS, "04|", r"the classes '04' \(.*line 4\) and '4' \(.*line 3\) of `t` look like one"),
        (CLASS, "a\u200bb|", r"`t` = 'a\\u200bb': contains the character U\+200B"),
    ],
)
def test_a_value_that_could_be_misread_is_refused_with_its_row(tmp_path, row, cell, says):
    with pytest.raises(BadManifestError, match=says):
        read(tmp_path, TargetRow(**row), column="t|e", cells=("1|1", "4|0", cell, "1|0", "4|0"))


def test_none_is_a_class_where_it_is_listed_and_else_missing(tmp_path):
    cells = ("None", "a", "b", "a", "b")

    listed = read(tmp_path, TargetRow(name="x", columns=("x",), kind="class", classes=("None", "a", "b")), cells=cells)
    other = read(tmp_path, TargetRow(name="x", columns=("x",), kind="class", classes=("a", "b")), cells=cells)

    assert listed.values_nc[0] == 0
    assert np.isnan(other.values_nc[0])
    with pytest.raises(BadManifestError, match="'none' is not among the classes"):
        read(
            tmp_path,
            TargetRow(name="x", columns=("x",), kind="class", classes=("None", "a", "b")),
            cells=("none", "a", "b", "a", "b"),
        )


@pytest.mark.parametrize(
    ("row", "cells", "says"),
    [
        (CLASS, ("", "", "", "a", "b"), "none of 3 training patients has a value in `t`"),
        (CLASS, ("a", "b", "b", "c", "a"), r"no training patient has the class 'c' \(.*line 5\) of `t`"),
        (CLASS | {"classes": ("a", "b", "c")}, ("a", "b", "b", "b", "a"), "no training patient has the class 'c' of"),
        (CLASS, ("a", "a", "a", "a", ""), "every training patient has the class 'a' in `t`"),
        (NUMBER, ("NA", "-", "n/a", "3", ""), "none of 3 training patients has a value"),
        (NUMBER, ("2", "2.0", "", "3", "4"), "every training patient has the number 2 in `t`"),
        (SURVIVAL, ("1|0", "2|0", "3|0", "4|1", "5|1"), "no training patient has an event in `e`"),
        (SURVIVAL, ("1|", "|1", "NA|0", "4|1", "5|1"), "none of 3 training patients has a value in `t` and `e`"),
    ],
)
def test_what_cannot_be_learnt_is_refused(tmp_path, row, cells, says):
    cells = tuple(cell if "|" in cell else f"{cell}|" for cell in cells)

    with pytest.raises(EmptyTableError, match=says):
        read(tmp_path, TargetRow(**row), column="t|e", cells=cells)


def test_where_nothing_is_trained_listed_classes_need_not_occur(tmp_path):
    row = CLASS | {"columns": ("x",), "classes": ("a", "b", "c")}

    got = read(tmp_path, TargetRow(**row), cells=("c", "c", "", "c", "c"), training=())

    np.testing.assert_array_equal(got.values_nc[:, 0], [2, 2, math.nan, 2, 2])
    with pytest.raises(BadRecipeError, match="its classes are not listed"):
        read(tmp_path, TargetRow(**row | {"classes": ()}), cells=("c", "c", "", "c", "c"), training=())
    with pytest.raises(EmptyTableError, match="none of 5 patients has a value in `x`"):
        read(tmp_path, TargetRow(**row), cells=("", "", "", "", ""), training=())


def test_training_patients_of_another_cohort_are_refused(tmp_path):
    with pytest.raises(BadManifestError, match="has no slide of 1 training patient, such as 'P-9'"):
        units_of(cohort_of(tmp_path), "slide", ("P-1", "P-9"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"columns": ("a", "b")}, "has one"),
        ({"kind": "survival"}, "has two, the time and the event"),
        ({"kind": "survival", "columns": ("a", "a")}, "has two, the time and the event"),
        ({"kind": "ordinal"}, "from the lowest to the highest"),
        ({"kind": "number", "classes": ("a", "b")}, "has none"),
        ({"classes": ("a", "a")}, "at least two, each once"),
        ({"classes": ("a",)}, "at least two, each once"),
        ({"weight": 0}, "greater than 0"),
        ({"wieght": 2}, "wieght"),
    ],
)
def test_a_target_that_does_not_hold_together_is_refused(changes, says):
    with pytest.raises(ValidationError, match=says):
        TargetRow(**CLASS | changes)


def test_two_targets_of_one_name_are_refused(tmp_path):
    row = TargetRow(**CLASS | {"columns": ("x",)})

    with pytest.raises(BadRecipeError, match="two targets are named 'msi'"):
        read(tmp_path, row, row, cells=("a", "b", "a", "b", "a"))


@given(st.lists(st.integers(0, 10**6), unique=True, min_size=2))
def test_natural_order_is_that_of_the_numbers(numbers):
    texts = [f"T{number}" for number in numbers]

    assert sorted(texts, key=natural_key) == [f"T{number}" for number in sorted(numbers)]


@given(st.lists(st.text(max_size=6), unique=True))
def test_natural_order_is_one_for_any_texts(texts):
    turned = texts[::-1]
    assert sorted(texts, key=natural_key) == sorted(turned, key=natural_key)
