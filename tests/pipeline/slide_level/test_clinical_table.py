"""Clinical tables: read as they are, and refused by row and value where they could be read in two ways."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cohort.manifest import Cohort, load_cohort
from pipeline.errors import BadManifestError, GemslideError, OutsideFoldersError
from pipeline.settings.site import WITHIN_VARIABLE
from pipeline.slide_level import Clinical, check_clinical, choose_unit, load_clinical, unit_cells

COHORT = """path,slide_id,patient_id,site,label
a.svs,a,P-1,Ulm,tumour
b.svs,b,P-1,Ulm,normal
c.svs,c,P-2,Köln,tumour
d.svs,d,P-3,,
"""


@pytest.fixture
def cohort(tmp_path: Path) -> Cohort:
    (tmp_path / "cohort.csv").write_text(COHORT, encoding="utf-8")
    return load_cohort(tmp_path / "cohort.csv")


def table(tmp_path: Path, content: str | bytes) -> Clinical:
    path = tmp_path / "clinical.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_clinical(path)


def test_columns_keep_their_names_exactly(tmp_path):
    read = table(tmp_path, 'patient_id,OS (months),T.Stadium,Größe,"a\nb",label 2\nP-1,12,pT2,3,x,y\n')

    assert read.columns == ("OS (months)", "T.Stadium", "Größe", "a\nb", "label 2")
    assert read.rows == {
        "P-1": {"OS (months)": "12", "T.Stadium": "pT2", "Größe": "3", "a\nb": "x", "label 2": "y"},
    }
    assert (read.key, read.sha256) == ("patient_id", hashlib.sha256(read.path.read_bytes()).hexdigest())


def test_a_table_saved_by_a_german_spreadsheet_is_read_alike(tmp_path):
    plain = table(tmp_path, "patient_id,Größe\nP-1,1\n")
    saved = table(tmp_path, "\ufeffpatient_id;Größe\r\nP-1;1\r\n".encode("utf-16"))

    assert (plain.rows, plain.columns) == (saved.rows, saved.columns)


@pytest.mark.parametrize("text", ["", "NA", "n/a", "NaN", "null", "-", "—", "."])
def test_a_cell_for_a_missing_value_is_missing(tmp_path, text):
    assert table(tmp_path, f"slide_id,grade,age\na,{text},7\n").rows == {"a": {"age": "7"}}


def test_none_is_kept_since_it_may_be_a_class(tmp_path):
    assert table(tmp_path, "slide_id,therapy\na,None\n").rows == {"a": {"therapy": "None"}}


def test_equal_rows_of_one_patient_count_once_and_different_ones_are_refused_by_name(tmp_path):
    assert table(tmp_path, "patient_id,age\nP-1,7\nP-2,8\nP-1,7\n").lines == {"P-1": 2, "P-2": 3}

    with pytest.raises(BadManifestError, match=r"line 4: patient_id 'P-1' has `age` = '9', but '7' on line 2"):
        table(tmp_path, "patient_id,age\nP-1,7\nP-2,8\nP-1,9\n")
    with pytest.raises(BadManifestError, match=r"line 3: .* has `age` = '', but '7' on line 2"):
        table(tmp_path, "patient_id,age\nP-1,7\nP-1,NA\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("PATIENT,age\nP-1,7\n", "no column `patient_id` or `slide_id`; found `PATIENT`, `age`"),
        ("", "found an empty file"),
        ("patient_id,age\n", "has no rows"),
        ("patient_id,age,age\nP-1,7,8\n", "the column `age` appears 2 times"),
        ("patient_id,M\u00fcller,Mu\u0308ller\nP-1,7,8\n", "different Unicode forms"),
        ("patient_id,age\n,7\n", "line 2: `patient_id` = '': is empty"),
        ("patient_id,age\nNA,7\n", "line 2: `patient_id` = 'NA': stands for a missing value"),
        ("patient_id,age\nTotal,7\n", "line 2: `patient_id` = 'Total': looks like a row of totals"),
        ("patient_id,age\n1.2e+9,7\n", "a program has shortened"),
        ("patient_id,age\nP\u200b1,7\n", r"contains the character U\+200B"),
        ("patient_id,age\nP-1\n", "line 2: the number of fields differs"),
        ("patient_id,age\nP-1,#REF!\n", "which a spreadsheet has put in place"),
        (b"PK\x03\x04rest", "is a spreadsheet"),
        (b"patient_id,age\nM\xfcller,7\n", "0xFC is not UTF-8"),
    ],
)
def test_a_table_that_could_be_misread_is_refused(tmp_path, text, says):
    with pytest.raises(BadManifestError, match=says):
        table(tmp_path, text)


def test_a_missing_table_and_a_folder_are_refused_by_name(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(BadManifestError, match=str(path)):
            load_clinical(path)


def test_a_run_of_the_web_app_reads_no_table_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "clinical.csv").write_text("patient_id,age\nP-1,7\n")
    monkeypatch.setenv(WITHIN_VARIABLE, '["/nowhere"]')

    with pytest.raises(OutsideFoldersError):
        load_clinical(tmp_path / "clinical.csv")


@given(st.binary(max_size=60))
def test_whatever_the_bytes_a_table_is_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(b"slide_id,x\n" + data)
    message = str(path)
    try:
        load_clinical(path)
    except GemslideError as error:
        message = str(error)
    assert message.startswith(str(path))


def test_values_are_found_by_patient_and_by_slide(tmp_path, cohort):
    by_patient = table(tmp_path, "patient_id,age\nP-2,8\nP-1,7\nP-9,1\n")
    assert {k: c.text for k, c in unit_cells(cohort, by_patient, "patient", "age").items()} == {"P-1": "7", "P-2": "8"}
    by_slide = unit_cells(cohort, by_patient, "slide", "age")
    assert {name: cell.text for name, cell in by_slide.items()} == {"a": "7", "b": "7", "c": "8"}
    assert by_slide["c"].where == f"{by_patient.path}, line 2"

    assert {name: cell.text for name, cell in unit_cells(cohort, None, "slide", "site").items()} == {
        "a": "Ulm", "b": "Ulm", "c": "Köln",
    }  # fmt: skip


def test_a_column_in_another_unicode_form_is_the_same(tmp_path, cohort):
    read = table(tmp_path, "patient_id,Gro\u0308\u00dfe\nP-1,7\n")

    assert unit_cells(cohort, read, "patient", "Gr\u00f6\u00dfe")["P-1"].text == "7"


def test_slides_of_a_patient_that_disagree_are_refused_or_counted_one_by_one(cohort):
    with pytest.raises(
        BadManifestError,
        match=r"patient 'P-1' has slides with different values of `label`: 'tumour' \(.*slide a\) and 'normal'",
    ):
        unit_cells(cohort, None, "patient", "label")
    unit, why = choose_unit(cohort, None, ["site", "label"])
    assert (unit, "slide b" in why) == ("slide", True)
    assert choose_unit(cohort, None, ["site"]) == ("patient", "")


def test_an_unknown_column_is_refused_with_the_nearest(tmp_path, cohort):
    read = table(tmp_path, "patient_id,T.Stadium\nP-1,pT2\n")

    with pytest.raises(BadManifestError, match=r"no column `T Stadium`.*did you mean `T.Stadium`"):
        unit_cells(cohort, read, "patient", "T Stadium")
    with pytest.raises(BadManifestError, match="no column `split`"):
        unit_cells(cohort, None, "slide", "split")


def test_a_column_with_values_in_both_tables_is_refused(tmp_path, cohort):
    read = table(tmp_path, "patient_id,site\nP-1,Bonn\n")

    with pytest.raises(BadManifestError, match=r"`site` has values both in .*cohort.csv and in .*clinical.csv"):
        unit_cells(cohort, read, "patient", "site")


def test_patients_written_otherwise_in_the_table_do_not_lose_their_values(tmp_path, cohort):
    check_clinical(table(tmp_path, "patient_id,age\nP-1,7\nP-10,8\n"), cohort)

    with pytest.raises(BadManifestError, match=r"line 3: `patient_id` = 'p-002' looks like 'P-2' .* has no row"):
        check_clinical(table(tmp_path, "patient_id,age\nP-1,7\np-002,8\n"), cohort)


def test_a_table_of_other_patients_is_refused(tmp_path, cohort):
    with pytest.raises(BadManifestError, match="none of its rows is about the cohort: `slide_id` is 'x' in the table"):
        check_clinical(table(tmp_path, "slide_id,age\nx,7\n"), cohort)


def test_a_slide_of_another_patient_than_in_the_manifest_is_refused(tmp_path, cohort):
    check_clinical(table(tmp_path, "slide_id,patient_id,age\na,P-1,7\nd,,8\n"), cohort)

    with pytest.raises(BadManifestError, match="line 3: slide c is of patient 'P-1', but of 'P-2'"):
        check_clinical(table(tmp_path, "slide_id,patient_id,age\na,P-1,7\nc,P-1,8\n"), cohort)
