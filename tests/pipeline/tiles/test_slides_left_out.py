"""One slide that cannot be tiled does not stop the others, and the rest is never mistaken for the whole cohort."""

from __future__ import annotations

import json
import shutil

import pytest

from pipeline.project import Project
from pipeline.tiles.table import read_table
from pipeline.tiles.tile import make_tile_table
from tests.small_trained_project import TILES, make_sources
from training.foundation.errors import UnreadableError

OPTIONS = ("--tile-px", 32, "--tile-mpp", 1)


@pytest.fixture
def own(small_project, tmp_path):
    """Project with copies of the small project's stores."""
    shutil.copytree(small_project.project.slides_dir, tmp_path / "p/slides")
    return Project(tmp_path / "p")


def _is_gone(store):
    shutil.rmtree(store)


def _is_damaged(store):
    (store / "zarr.json").write_text("{}")


def _has_no_mask(store):
    shutil.rmtree(store / "0/labels/tissue")


def _is_another_slide(store):
    shutil.rmtree(store)
    shutil.copytree(store.with_name("small-test.ome.zarr"), store)


@pytest.mark.parametrize(
    ("break_store", "code"),
    [(_is_gone, "unreadable"), (_is_damaged, "unreadable"), (_has_no_mask, "unreadable"),
     (_is_another_slide, "wrong_slide")],
)  # fmt: skip
def test_a_slide_of_a_cohort_that_cannot_be_read_is_left_out_and_said(gemslide, small_project, own, break_store, code):
    break_store(own.store_path("small-val"))

    done = gemslide("tile", small_project.cohort, "--project", own.root, *OPTIONS, "--json")
    lines = {line["slide_id"]: line for line in map(json.loads, done.out.splitlines())}
    table = read_table(own.tile_table_path("tiles"))
    (record,) = (json.loads(path.read_text()) for path in own.runs_dir.glob("*.json"))

    assert done.code == 1
    assert {slide_id: line["code"] for slide_id, line in lines.items()} == {
        "small-train": None, "small-val": code, "small-test": None,
    }  # fmt: skip
    assert set(table.frame["slide_id"]) == {"small-train", "small-test"}
    assert table.metadata["left_out"] == {"small-val": code}
    assert table.classes == ("cold", "warm")
    assert record["outcome"] == "failed"
    assert "1 of 3 not done" in done.err
    assert "1 of 3 slides is not in it: it does not cover the whole cohort" in done.err


def test_splits_and_annotations_are_checked_of_slides_that_are_left_out_too(gemslide, own, tmp_path):
    _is_gone(own.store_path("small-val"))
    manifest = make_sources(tmp_path / "in")
    (tmp_path / "leaky.csv").write_text(manifest.read_text().replace("patient-1", "patient-0"))
    (tmp_path / "in/file-val.geojson").write_text("{")

    leaky = gemslide("tile", tmp_path / "leaky.csv", "--project", own.root, *OPTIONS, "--json")
    damaged = gemslide("tile", manifest, "--project", own.root, *OPTIONS, "--json")

    assert json.loads(leaky.out)["code"] == "leakage"
    assert json.loads(damaged.out)["code"] == "bad_annotation"
    assert not own.tiles_dir.exists()


def test_a_cohort_of_which_nothing_can_be_tiled_leaves_no_table(gemslide, own):
    done = gemslide("tile", "small-val", "small-test", "--project", own.root, "--tile-mpp", 0.1, "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]

    assert done.code == 1
    assert [(line["slide_id"], line["code"]) for line in lines] == [
        ("small-val", "bad_recipe"), ("small-test", "bad_recipe"), ("tiles", "empty_table"),
    ]  # fmt: skip
    assert "Ask for 0.5 µm/px or more" in lines[0]["message"]
    assert not own.tiles_dir.exists()


def test_named_slides_are_tiled_and_others_are_not(gemslide, own):
    done = gemslide("tile", "small-val", own.store_path("small-test"), "--project", own.root, *OPTIONS)
    table = read_table(own.tile_table_path("tiles"))

    assert done.code == 0, done.err
    assert set(table.frame["slide_id"]) == {"small-val", "small-test"}
    assert (table.metadata["left_out"], table.metadata["manifest_sha256"]) == ({}, None)


def test_a_program_that_makes_a_table_is_told_by_an_exception(own):
    _has_no_mask(own.store_path("small-val"))

    with pytest.raises(UnreadableError, match=r"no tissue mask\. `gemslide ingest` of the same slide recreates it"):
        make_tile_table(own, "t", TILES)
