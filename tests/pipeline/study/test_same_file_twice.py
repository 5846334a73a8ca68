"""The same file twice in a cohort stops a study, as it stops `gemslide cohort check`."""

import os
import shutil

import pytest

from pipeline.files import sha256_of
from tests.pipeline.study.small_study import make_project
from tests.small_trained_project import make_slide


@pytest.fixture
def project(small_project, tmp_path):
    return make_project(small_project, tmp_path, slides=("a", "b"))


def manifest(project, *more, sha256=""):
    rows = ["path,slide_id,patient_id,exclude,sha256", f"a.tiff,a,patient-a,,{sha256}", "b.tiff,b,patient-b,,", *more]
    (project.root.parent / "cohort.csv").write_text("\n".join(rows) + "\n")


def init(gemslide, project, small_project):
    cohort = project.root.parent / "cohort.csv"
    return gemslide(
        "study",
        "init",
        "s",
        "--cohort",
        cohort,
        "--model",
        small_project.model_id,
        "--question",
        "?",
        "--project",
        project.root,
    )


COPY = "copy.tiff,copy,patient-c,,"


def test_a_copy_stops_the_study_before_it_is_laid_out(gemslide, small_project, project):
    shutil.copyfile(project.root.parent / "a.tiff", project.root.parent / "copy.tiff")
    manifest(project, COPY)

    done = init(gemslide, project, small_project)

    assert (done.code, "slide copy: is the same file as slide a" in done.err) == (1, True)
    assert not (project.root / "studies/s/study.toml").exists()


def test_a_copy_that_came_later_stops_its_beginning_and_an_amendment(gemslide, small_project, project):
    manifest(project)
    assert init(gemslide, project, small_project).code == 0
    make_slide(project.root.parent / "copy.tiff", 9)
    os.replace(project.root.parent / "copy.tiff", project.root.parent / "new.tiff")
    shutil.copyfile(project.root.parent / "b.tiff", project.root.parent / "copy.tiff")
    arguments = ("s", "--project", project.root)

    manifest(project, COPY)
    refused = gemslide("study", "begin", *arguments)
    manifest(project)
    begun = gemslide("study", "begin", *arguments)
    manifest(project, COPY)
    amended = gemslide("study", "amend", *arguments, "--why", "one more slide")
    manifest(project, COPY.replace(",,", ",the same,"))
    excluded = gemslide("study", "amend", *arguments, "--why", "one more slide")

    assert [done.code for done in (refused, begun, amended, excluded)] == [1, 0, 1, 0], excluded.err
    for done in (refused, amended):
        assert "slide copy: is the same file as slide b" in done.err


def test_a_slide_that_is_another_file_than_the_manifest_says_stops_the_study(gemslide, small_project, project):
    manifest(project, sha256=sha256_of(project.root.parent / "a.tiff").upper())
    assert init(gemslide, project, small_project).code == 0
    make_slide(project.root.parent / "a.tiff", 7)

    done = gemslide("study", "begin", "s", "--project", project.root)

    assert (done.code, "but the manifest says" in done.err) == (1, True)


def test_a_copy_whose_file_is_gone_is_known_by_its_store(gemslide, small_project, project):
    folder = project.root.parent
    shutil.copyfile(folder / "a.tiff", folder / "copy.tiff")
    for name in ("a", "copy"):
        assert gemslide("ingest", folder / f"{name}.tiff", "--project", project.root).code == 0
        (folder / f"{name}.tiff").unlink()
    manifest(project, COPY)

    done = init(gemslide, project, small_project)

    assert (done.code, "slide copy: is the same file as slide a" in done.err) == (1, True)
