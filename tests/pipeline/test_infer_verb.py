"""`gemslide infer`: its arguments, its output, and exactly one final state for every slide of a list."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import pandas as pd
import pytest

from pipeline.project import Project
from tests.small_trained_project import TISSUE_TOML, make_slide


@pytest.fixture
def project(small_project, tmp_path):
    """Project with the small project's models and no slide."""
    shutil.copytree(small_project.project.models_dir, tmp_path / "p" / "models")
    (tmp_path / "p" / "gemslide.toml").write_text(TISSUE_TOML)
    return Project(tmp_path / "p")


def lines_of(done) -> dict[str, dict]:
    return {line["slide_id"]: line for line in map(json.loads, done.out.splitlines())}


def test_a_slide_file_is_ingested_on_the_way_and_only_once(small_project, project, tmp_path, gemslide):
    make_slide(tmp_path / "fresh.tiff", 5)

    first = gemslide("infer", small_project.model_id, tmp_path / "fresh.tiff", "--project", project.root, "--json")
    (record,) = project.runs_dir.glob("*.json")
    again = gemslide("infer", small_project.model_id, tmp_path / "fresh.tiff", "--project", project.root, "--json")

    assert (first.code, again.code) == (0, 0), first.err
    assert [lines_of(done)["fresh"]["status"] for done in (first, again)] == ["done", "skipped"]
    assert project.slide_ids() == ["fresh"]
    assert (project.result_dir("fresh", small_project.model_id) / "predictions.csv").exists()
    seconds = json.loads(record.read_text())["seconds"]
    assert {"ingest", "predict", "read", "decode", "transfer", "compute", "waiting", "write"} <= set(seconds)


def test_a_file_that_was_replaced_is_noticed_though_its_name_is_the_same(small_project, project, tmp_path, gemslide):
    make_slide(tmp_path / "S-1.tiff", 5)
    assert gemslide("infer", small_project.model_id, tmp_path / "S-1.tiff", "--project", project.root).code == 0
    make_slide(tmp_path / "S-1.tiff", 6)

    done = gemslide("infer", small_project.model_id, tmp_path / "S-1.tiff", "--project", project.root, "--json")

    assert done.code == 1
    assert lines_of(done)["S-1"]["code"] == "changed_source"


def test_every_slide_of_a_manifest_ends_in_one_state_and_the_counts_add_up(small_project, project, tmp_path, gemslide):
    make_slide(tmp_path / "good.tiff", 5)
    (tmp_path / "cut.tiff").write_bytes((tmp_path / "good.tiff").read_bytes()[:9000])
    (tmp_path / "text.tiff").write_text("no slide")
    (tmp_path / "cohort.csv").write_text(
        "path,slide_id,mpp\ngood.tiff,good,\ncut.tiff,cut,\ntext.tiff,text,\ngood.tiff,coarse,3.0\nnone.tiff,missing,\n"
    )

    done = gemslide("infer", small_project.model_id, tmp_path / "cohort.csv", "--project", project.root, "--json")

    lines = lines_of(done)
    assert done.code == 1
    assert Counter(line["status"] for line in lines.values()) == {"done": 1, "unreadable": 3, "refused": 1}
    assert lines["coarse"]["code"] == "bad_recipe"
    assert "needs: use a model trained on tiles of 3" in lines["coarse"]["message"]
    assert "5 slides: 3 unreadable, 1 done, 1 refused" in done.err


def test_slides_overlap_on_several_devices_and_give_the_same(small_project, project, tmp_path, gemslide):
    for name, seed in (("a", 5), ("b", 6), ("c", 7)):
        make_slide(tmp_path / f"{name}.tiff", seed)
    (tmp_path / "d.tiff").write_text("no slide")
    slides = [tmp_path / f"{name}.tiff" for name in "abcd"]
    tables = []
    for how in (("--devices", "cpu,cpu"), ()):
        done = gemslide("infer", small_project.model_id, *slides, "--project", project.root, "--json", *how)

        ended = {slide_id: line["status"] for slide_id, line in lines_of(done).items()}
        assert ended == {"a": "done", "b": "done", "c": "done", "d": "unreadable"}, done.err
        results = [project.result_dir(name, small_project.model_id) / "predictions.csv" for name in "abc"]
        tables.append([pd.read_csv(path, comment="#") for path in results])
        for name in "abc":
            shutil.rmtree(project.store_path(name) / "predictions")
    for spread, alone in zip(*tables, strict=True):
        pd.testing.assert_frame_equal(spread, alone, atol=1e-3)


def test_slides_that_quality_control_did_not_find_good_can_be_left_out(small_project, project, gemslide):
    shutil.copytree(
        small_project.project.store_path(small_project.test_slide), project.store_path(small_project.test_slide)
    )
    (project.root / "gemslide.toml").write_text("[infer]\nrequire_qc = true\n")

    done = gemslide("infer", small_project.model_id, "--project", project.root, "--json")

    line = lines_of(done)[small_project.test_slide]
    assert (line["status"], line["code"]) == ("qc_failed", "qc_failed")
    assert "Run `gemslide qc` first" in line["message"]


def test_two_files_of_one_name_are_refused_before_anything_is_done(small_project, project, tmp_path, gemslide):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        make_slide(tmp_path / folder / "S-1.tiff", 5)

    done = gemslide(
        "infer", small_project.model_id, tmp_path / "a/S-1.tiff", tmp_path / "b/S-1.tiff", "--project", project.root
    )

    assert done.code == 1
    assert "both would be slide 'S-1'" in done.err
    assert project.slide_ids() == []


def test_implausible_results_are_published_with_a_warning_or_refused_as_configured(small_project, project, gemslide):
    """The model classifies glass as warm, because it was trained on tissue alone."""
    shutil.copytree(
        small_project.project.store_path(small_project.test_slide), project.store_path(small_project.test_slide)
    )

    flagged = gemslide("infer", small_project.model_id, "--project", project.root)
    (project.root / "gemslide.toml").write_text('[infer]\nrefuse = ["glass"]\n')
    stored = gemslide("infer", small_project.model_id, "--project", project.root, "--json")
    shutil.rmtree(project.store_path(small_project.test_slide) / "predictions")
    refused = gemslide("infer", small_project.model_id, "--project", project.root, "--json")

    assert flagged.code == 0
    assert "the model calls bare glass 'warm'" in flagged.err
    assert (
        "The earlier run's result, which carried a warning, was kept"
        in lines_of(stored)[small_project.test_slide]["message"]
    )
    assert {lines_of(done)[small_project.test_slide]["code"] for done in (stored, refused)} == {"insane_output"}
    assert 'leave "glass" out of [infer] refuse' in lines_of(refused)[small_project.test_slide]["message"]
    assert not (project.store_path(small_project.test_slide) / "predictions" / small_project.model_id).exists()
