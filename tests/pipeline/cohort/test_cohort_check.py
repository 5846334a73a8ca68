"""`gemslide cohort check` of many slides: the same as of few, in the manifest's order, and fast."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pipeline.cohort.duplicates import find_changes
from pipeline.cohort.manifest import load_cohort
from pipeline.files import sha256_of
from pipeline.ingest.cohort_check import AT_ONCE, FEW, check_entries
from tests.pipeline.make import sample_image
from tests.pipeline.slides.make_dicom import write_dicom
from tests.pipeline.slides.make_ome_zarr import write_container
from tests.small_trained_project import make_slide, write_annotations


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Manifest of a few hundred slides; every seventh is missing, and one is not a slide."""
    folder = tmp_path_factory.mktemp("many")
    make_slide(folder / "one.tiff", 1)
    write_annotations(folder / "one.geojson")
    (folder / "text.tiff").write_text("no slide")
    rows = ["path,slide_id,annotations,exclude"]
    for number in range(FEW + AT_ONCE):
        if number % 7:
            os.link(folder / "one.tiff", folder / f"{number}.tiff")
        rows.append(
            f"{number}.tiff,S-{number},{'one.geojson' if number == 9 else ''},{'blurred' if number == 3 else ''}"
        )
    rows.append("text.tiff,S-text,,")
    (folder / "cohort.csv").write_text("\n".join(rows) + "\n")
    return folder / "cohort.csv"


def without_times(outcomes):
    return [replace(outcome, seconds=0.0) for outcome in outcomes]


def test_many_slides_are_checked_as_few_are_in_the_manifest_s_order(many, monkeypatch):
    in_processes = without_times(check_entries(load_cohort(many)))
    monkeypatch.setattr("pipeline.ingest.cohort_check.FEW", 10_000)

    assert in_processes == without_times(check_entries(load_cohort(many)))
    assert [o.slide_id for o in in_processes] == [e.slide_id for e in load_cohort(many).included]
    assert {o.slide_id for o in in_processes if o.status != "done"} == {
        "S-text", *(f"S-{n}" for n in range(0, FEW + AT_ONCE, 7)),
    }  # fmt: skip
    assert ["annotations: 2 regions" in o.message for o in in_processes].count(True) == 1


def test_a_process_that_dies_takes_no_slide_with_it(many):
    before = set(psutil.Process().children())
    outcomes = check_entries(load_cohort(many))
    first = next(outcomes)
    for child in set(psutil.Process().children()) - before:
        if "resource_tracker" not in " ".join(child.cmdline()):
            child.kill()

    rest = without_times(outcomes)

    assert [first.slide_id, *(o.slide_id for o in rest)] == [e.slide_id for e in load_cohort(many).included]
    assert not any("crashed" in o.message for o in rest)


def test_the_command_shows_how_far_it_is_and_lines_stay_clean(gemslide, many, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    done = gemslide("cohort", "check", many, "--json")

    assert [json.loads(line)["slide_id"] for line in done.out.splitlines()][-1] == "S-text"
    assert (done.code, "cohort check" in done.err) == (1, True)


def test_a_manifest_of_fifty_thousand_rows_is_read_in_seconds(tmp_path):
    rows = "".join(f"{number}.svs,p-{number},train\n" for number in range(50_000))
    (tmp_path / "cohort.csv").write_text(f"path,patient_id,split\n{rows}")
    start = time.process_time()

    assert len(load_cohort(tmp_path / "cohort.csv").included) == 50_000
    assert time.process_time() - start < 5


def test_the_same_file_twice_and_a_file_that_is_another_than_the_manifest_says_are_found(gemslide, tmp_path):
    for seed, name in enumerate("abc"):
        make_slide(tmp_path / f"{name}.tiff", seed)
    shutil.copy(tmp_path / "a.tiff", tmp_path / "copy.tiff")
    sha256 = sha256_of(tmp_path / "b.tiff")
    rows = ["a.tiff,a,", "copy.tiff,copy,", f"b.tiff,b,{sha256}", f"c.tiff,c,{sha256}"]
    (tmp_path / "cohort.csv").write_text("\n".join(["path,slide_id,sha256", *rows]) + "\n")
    done = gemslide("cohort", "check", tmp_path / "cohort.csv", "--project", tmp_path, "--json")
    lines = {line["slide_id"]: line for line in map(json.loads, done.out.splitlines())}
    assert done.code == 1
    assert {name: line["code"] for name, line in lines.items()} == {
        "a": None, "copy": "bad_manifest", "b": None, "c": "changed_source",
    }  # fmt: skip
    assert "is the same file as slide a, byte for byte" in lines["copy"]["message"]


def changed_of(folder, *rows):
    (folder / "cohort.csv").write_text("\n".join(["path,slide_id,patient_id,series", *rows]) + "\n")
    return find_changes(load_cohort(folder / "cohort.csv"))


@pytest.fixture
def series(tmp_path):
    """Folder of a DICOM series of two levels, with a copy of one level elsewhere, and another series beside it."""
    pixels = sample_image(128, 96)
    for name in ("dcm", "copy", "other"):
        (tmp_path / name).mkdir()
    write_dicom(tmp_path / "dcm" / "l0.dcm", pixels, series="1.2.3.4")
    write_dicom(tmp_path / "dcm" / "l1.dcm", pixels[::2, ::2].copy(), downsample=2, series="1.2.3.4")
    shutil.copy(tmp_path / "dcm" / "l1.dcm", tmp_path / "copy" / "any.dcm")
    write_dicom(tmp_path / "other" / "l0.dcm", pixels, series="1.2.3.5")
    return tmp_path


@pytest.mark.parametrize("again", ["dcm", "dcm/l0.dcm", "dcm/l1.dcm", "copy", "copy/any.dcm"])
def test_files_of_one_dicom_series_are_one_slide_by_whatever_path(series, again):
    changes = changed_of(series, "dcm,A,P1,", "other,C,P3,", f"{again},B,P2,")

    assert list(changes) == ["B"]
    assert "is the same" in str(changes["B"])
    assert "slide A" in str(changes["B"])


def test_two_series_of_one_folder_are_two_slides_and_each_is_found_again(series):
    shutil.copy(series / "other" / "l0.dcm", series / "dcm" / "o.dcm")

    changes = changed_of(series, "dcm,A,P1,1.2.3.4", "dcm,B,P2,1.2.3.5", "other,C,P3,")

    assert list(changes) == ["C"]
    assert "slide B" in str(changes["C"])


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_an_ome_zarr_is_one_slide_by_whatever_path_and_whatever_a_desktop_left_in_it(tmp_path, version):
    images = {"slide": [sample_image(300, 210)], "other": [sample_image(310, 200)]}
    write_container(tmp_path / "one.zarr", images, version=version)
    shutil.copytree(tmp_path / "one.zarr", tmp_path / "copy.zarr")
    shutil.copytree(tmp_path / "one.zarr" / "0", tmp_path / "alone.zarr")
    for left in ("copy.zarr/.DS_Store", "copy.zarr/0/.DS_Store", "alone.zarr/0/Thumbs.db"):
        (tmp_path / left).write_bytes(b"icons")

    changes = changed_of(
        tmp_path, "one.zarr,A,P1,0", "one.zarr,B,P2,1", "one.zarr/0,C,P3,", "copy.zarr,D,P4,0", "alone.zarr,E,P5,"
    )

    assert list(changes) == ["C", "D", "E"]
    assert all("slide A" in str(change) for change in changes.values())


def test_the_same_slide_under_two_paths_is_found_by_the_command(gemslide, series):
    (series / "cohort.csv").write_text("path,slide_id,patient_id,split\ndcm,A,P1,train\ndcm/l0.dcm,B,P2,test\n")

    done = gemslide("cohort", "check", series / "cohort.csv", "--project", series, "--json")

    lines = {line["slide_id"]: line for line in map(json.loads, done.out.splitlines())}
    assert (done.code, lines["A"]["code"], lines["B"]["code"]) == (1, None, "bad_manifest")
    assert "their files are of one DICOM series, 1.2.3.4" in lines["B"]["message"]


def test_a_cohort_with_patients_that_a_model_was_trained_on_is_refused(gemslide, small_project):
    done = gemslide(
        "cohort",
        "check",
        small_project.cohort,
        "--model",
        small_project.model_id,
        "--project",
        small_project.project.root,
    )
    assert done.code == 1
    assert "was trained on patients or slides of this cohort" in done.err
