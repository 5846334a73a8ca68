"""`gemslide qc` on real stores: files written, skipped and left alone."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import zarr
from ome_zarr_models.v05 import Image
from PIL import Image as Picture

from pipeline.errors import NoTissueError
from pipeline.project import Project
from pipeline.qc.check import check_quality
from pipeline.settings.config import QualityConfig
from pipeline.store.layers.qc_scores import SCORE_NAMES, read_quality
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import UnreadableError

pytestmark = pytest.mark.xdist_group("quality")  # the command runs once

VAL, TEST = "small-val", "small-test"


@pytest.fixture(scope="module")
def project(small_project, tmp_path_factory):
    """Writable copy of two small slides."""
    project = Project(tmp_path_factory.mktemp("quality"))
    for slide_id in (VAL, TEST):
        shutil.copytree(small_project.project.store_path(slide_id), project.store_path(slide_id))
    return project


@pytest.fixture(scope="module")
def checked(project, gemslide):
    """Project after one run of the command over all of it."""
    before = json.loads((project.store_path(VAL) / "zarr.json").read_text())
    return before, gemslide("qc", "--project", project.root, "--json")


def test_every_slide_is_done_whatever_its_verdict(checked):
    _, done = checked
    lines = [json.loads(line) for line in done.out.splitlines()]

    assert done.code == 0, done.err
    assert [(line["slide_id"], line["status"]) for line in lines] == [(TEST, "done"), (VAL, "done")]
    assert all(line["message"].startswith(("done: ok", "done: review (")) for line in lines)


def test_the_root_says_verdict_and_stain_and_nothing_else_changes(checked, project):
    before, _ = checked
    after = json.loads((project.store_path(VAL) / "zarr.json").read_text())
    new = {key: after["attributes"]["gemslide"].pop(key) for key in ("qc", "stain")}
    old = {key: before["attributes"]["gemslide"].pop(key) for key in ("qc", "stain")}

    assert after == before
    assert old == {"qc": None, "stain": None}
    assert set(new["qc"]["scores"]) == set(SCORE_NAMES)
    assert new["qc"]["verdict"] in ("ok", "review")
    assert {"macenko", "reinhard"} < set(new["stain"])


def test_the_scores_are_an_ngff_image_with_nothing_off_tissue(checked, project):
    path = project.store_path(VAL) / "quality"
    quality = read_quality(project.store_path(VAL))

    Image.from_zarr(zarr.open_group(path, mode="r"))
    assert quality.scores_cyx.dtype == np.float16
    assert quality.scores_cyx.shape == (4, -(-820 // quality.cell_px0), -(-1100 // quality.cell_px0))
    assert np.isnan(quality.scores_cyx[:, -1, -1]).all()
    assert np.isfinite(quality.scores_cyx[:, 2, 2]).all()


def test_the_image_says_research_use_and_has_colour(checked, project):
    image = Picture.open(project.results_dir / "quality" / VAL / "quality.png")

    assert image.text["Description"] == "Research use only. Not for diagnosis."
    assert min(image.size) > 500


def test_the_run_record_names_slides_by_id_and_bytes(checked, project):
    (path,) = project.runs_dir.glob("*.json")
    record = json.loads(path.read_text())

    assert (record["verb"], record["outcome"]) == ("qc", "done")
    assert {entry["id"] for entry in record["inputs"]} == {VAL, TEST}
    assert record["outputs"] == [f"results/quality/{s}/quality.png" for s in (TEST, VAL)]
    assert record["settings"]["qc"]["mpp"] == 1.0


def test_a_checked_slide_is_skipped_until_settings_change(checked, project):
    again = check_quality(VAL, project, QualityConfig())
    other = check_quality(VAL, project, QualityConfig(cell_um=32.0))
    back = check_quality(VAL, project, QualityConfig())

    assert (again.skipped, other.skipped, back.skipped) == (True, False, False)
    assert (again.verdict, again.shares) == (back.verdict, back.shares)


def test_damaged_scores_are_made_again_and_a_lost_image_is_drawn_again(checked, project):
    shutil.rmtree(project.store_path(TEST) / "quality" / "0")
    with pytest.raises(UnreadableError, match="gemslide qc"):
        read_quality(project.store_path(TEST))

    assert not check_quality(TEST, project, QualityConfig()).skipped
    report = check_quality(TEST, project, QualityConfig())
    report.image.unlink()
    assert check_quality(TEST, project, QualityConfig()).skipped
    assert report.image.exists()


def test_two_runs_give_the_same_numbers(checked, project):
    first = read_quality(project.store_path(TEST))
    stain = StoreReader(project.store_path(TEST)).attributes.stain["macenko"]
    shutil.rmtree(project.store_path(TEST) / "quality")

    check_quality(TEST, project, QualityConfig())

    assert np.array_equal(read_quality(project.store_path(TEST)).scores_cyx, first.scores_cyx, equal_nan=True)
    assert StoreReader(project.store_path(TEST)).attributes.stain["macenko"] == stain


def test_a_slide_without_tissue_is_said_and_left_alone(small_project, tmp_path):
    project = Project(tmp_path)
    store = project.store_path(VAL)
    shutil.copytree(small_project.project.store_path(VAL), store)
    for dataset in sorted((store / "0/labels/tissue").glob("[0-9]")):
        zarr.open_array(dataset, mode="r+")[...] = 0

    with pytest.raises(NoTissueError, match="Look at the tissue mask"):
        check_quality(VAL, project, QualityConfig())
    assert read_quality(store) is None


def test_a_manifest_names_the_slides_and_those_not_ingested_are_refused(small_project, project, gemslide):
    done = gemslide("qc", small_project.cohort, "--project", project.root, "--json")
    lines = {line["slide_id"]: line for line in map(json.loads, done.out.splitlines())}

    assert done.code == 1
    assert lines[VAL]["status"] in ("done", "skipped")
    assert (lines["small-train"]["status"], lines["small-train"]["code"]) == ("unreadable", "unreadable")
    assert "gemslide ingest" in lines["small-train"]["message"]
