"""Patients from a model's training data do not enter its study unnoticed."""

from __future__ import annotations

import shutil

import pytest

from pipeline.cohort.manifest import load_cohort
from pipeline.errors import LeakageError
from pipeline.study.leakage import check_leakage


@pytest.fixture
def packages(small_project):
    return {small_project.model_id: small_project.project.model_path(small_project.model_id)}


def cohort(tmp_path, *rows: str):
    (tmp_path / "cohort.csv").write_text("\n".join(["path,slide_id,patient_id,exclude", *rows]) + "\n")
    return load_cohort(tmp_path / "cohort.csv")


@pytest.mark.parametrize(
    "row", ["x.tiff,small-train,,", "x.tiff,x,patient-0,", "x.tiff,small-val,,", "x.tiff,x,patient-1,"]
)
def test_a_slide_or_a_patient_of_training_or_validation_is_refused(small_project, packages, tmp_path, row):
    with pytest.raises(
        LeakageError, match=rf"model {small_project.model_id} was trained on .*Exclude them with a reason"
    ):
        check_leakage(cohort(tmp_path, row), packages, small_project.project)


@pytest.mark.parametrize(
    "row", ["x.tiff,small-test,patient-2,", "x.tiff,small-train,patient-0,was in training", "x.tiff,x,stranger,"]
)
def test_those_of_the_test_split_strangers_and_the_excluded_are_not(small_project, packages, tmp_path, row):
    assert check_leakage(cohort(tmp_path, row), packages, small_project.project) == []


def test_a_model_whose_training_data_are_elsewhere_is_said_to_be_unknown(small_project, packages, tmp_path):
    from pipeline.project import Project

    shutil.copytree(packages[small_project.model_id], tmp_path / "models" / small_project.model_id)
    elsewhere = {small_project.model_id: tmp_path / "models" / small_project.model_id}
    (message,) = check_leakage(cohort(tmp_path, "x.tiff,small-train,,"), elsewhere, Project(tmp_path))
    assert "known whether its patients are in the study. Compare the lists yourself" in message


@pytest.mark.parametrize("patient", ["Patient-0", "patient\u20110", "patient - 00", "'patient-0", "ｐａｔｉｅｎｔ-０"])
def test_a_patient_who_looks_like_one_of_training_is_refused_with_both_spellings(
    small_project, packages, tmp_path, patient
):
    with pytest.raises(LeakageError, match=r"was trained on patient 'patient-0', who looks like patient .*\(slide x\)"):
        check_leakage(cohort(tmp_path, f"x.tiff,x,{patient},"), packages, small_project.project)


def test_slides_without_a_patient_cannot_be_compared_and_that_is_said(small_project, packages, tmp_path):
    rows = cohort(tmp_path, "x.tiff,x,,", "y.tiff,y,stranger,", "z.tiff,z,,blurred")
    (message,) = check_leakage(rows, packages, small_project.project)
    assert "1 slide of the cohort and 0 slides of the model's training without a patient_id were compared" in message
