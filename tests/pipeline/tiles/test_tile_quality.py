"""Tiles carry their slide's quality, and bad ones are left out when asked."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from pipeline.grid import mean_over
from pipeline.project import Project
from pipeline.settings.config import TileConfig
from pipeline.store.layers.qc_scores import SCORE_NAMES, Quality, write_quality
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.table import read_table
from pipeline.tiles.tile import make_tile_table
from tests.small_trained_project import TILES
from training.foundation.errors import BadRecipeError
from training.foundation.settings import parse_section

COLUMNS = [f"qc_{name}" for name in SCORE_NAMES]


@pytest.fixture
def project(small_project, tmp_path):
    """Project with two slides; the left half of one is under ink."""
    project = Project(tmp_path)
    for slide_id in ("small-val", "small-test"):
        shutil.copytree(small_project.project.store_path(slide_id), project.store_path(slide_id))
    scores = np.zeros((4, 7, 9), np.float16)
    scores[1, :, :4] = 1
    scores[0, :, 6] = np.nan
    reader = StoreReader(project.store_path("small-val"))
    write_quality(reader.path, Quality(SCORE_NAMES, scores, 128, {}), mpp0=0.5, summary={}, stain={})
    return project


def test_tiles_have_the_mean_score_under_them_and_none_where_there_is_none(project):
    frame = make_tile_table(project, "t", TILES, cohort=None).frame.set_index("slide_id")
    checked, unchecked = frame.loc["small-val"], frame.loc["small-test"]

    assert (frame[COLUMNS].dtypes == np.float32).all()
    assert unchecked[COLUMNS].isna().all(axis=None)
    assert (checked.qc_pen[checked.x_px0 + 64 <= 512] == 1).all()
    assert (checked.qc_pen[checked.x_px0 >= 512] == 0).all()
    over_unknown = (checked.x_px0 >= 768) & (checked.x_px0 + 64 <= 896)
    assert checked.qc_blur[over_unknown].isna().all()
    assert (checked.qc_blur[~over_unknown] == 0).all()
    assert read_table(project.tile_table_path("t")).frame.columns[-4:].tolist() == COLUMNS


def test_tiles_over_the_limit_are_left_out_and_unjudged_ones_kept(project):
    shutil.rmtree(project.store_path("small-test"))
    everything = make_tile_table(project, "all", TILES, cohort=None).frame

    table = make_tile_table(
        project, "good", TILES.model_copy(update={"max_qc": {"pen": 0.2, "blur": 0.0}}), cohort=None
    )

    assert (table.frame.x_px0 >= 500).all()
    assert len(table.frame) == (everything.x_px0 >= 512).sum()
    assert table.metadata["quality"]["small-val"]["left_out"] == len(everything) - len(table.frame)


def test_limits_need_scores(project):
    with pytest.raises(BadRecipeError, match=r"small-test: .*max_qc.*Run `gemslide qc`"):
        make_tile_table(project, "t", TileConfig(tile_px=32, mpp=1.0, max_qc={"pen": 0.2}), cohort=None)


def test_limits_on_scores_that_do_not_exist_are_refused():
    with pytest.raises(BadRecipeError, match=r"no such scores: inc; there are blur, pen, fold, bubble"):
        parse_section(TileConfig, {"max_qc": {"inc": 0.2}}, where="here")


def test_a_slide_whose_tiles_are_all_bad_failed_its_quality_and_the_rest_is_said(project, gemslide):
    reader = StoreReader(project.store_path("small-test"))
    bad = np.ones((4, 7, 9), np.float16)
    write_quality(reader.path, Quality(SCORE_NAMES, bad, 128, {}), mpp0=0.5, summary={}, stain={})
    (project.root / "gemslide.toml").write_text("[tile]\ntile_px = 32\nmpp = 1.0\nmax_qc = {fold = 0.5}\n")
    done = gemslide("tile", "--project", project.root, "--json")
    lines = {line["slide_id"]: line for line in map(json.loads, done.out.splitlines())}

    assert done.code == 1
    assert (lines["small-test"]["status"], lines["small-val"]["status"]) == ("qc_failed", "done")
    assert "max_qc = {'fold': 0.5}" in lines["small-test"]["message"]


def test_a_mean_over_tiles_counts_cells_by_the_share_they_cover():
    values = np.array([[0, 1, np.nan], [0.5, np.nan, np.nan]], np.float32)
    corners = np.array([[0, 0], [5, 0], [20, 10], [5, 5], [0, 10]])

    means = mean_over(corners, 10, values, 10.0)

    assert means[:2].tolist() == [0, 0.5]
    assert np.isnan(means[2])
    assert means[3] == pytest.approx((0 * 25 + 1 * 25 + 0.5 * 25) / 75)
    assert means[4] == 0.5
