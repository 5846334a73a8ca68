"""`gemslide check-invariance` with an encoder: its features do not depend on how the work is split."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from pipeline.embedding.invariance import TOLERANCE, check_encoder_invariance
from pipeline.project import Project
from pipeline.settings.config import EmbedConfig
from pipeline.store.reading.reader import StoreReader
from tests.training.encoders.tiny_encoders import TIMM_CONFIG, folder_row, timm_state

pytestmark = pytest.mark.usefixtures("one_thread")
TILES = 20


@pytest.fixture
def slide(small_project) -> str:
    return small_project.test_slide


@pytest.fixture
def project(small_project, slide, tmp_path) -> Project:
    """Project with a copy of the test slide, a model and a tiny encoder."""
    store = f"slides/{slide}.ome.zarr"
    shutil.copytree(small_project.project.root / store, tmp_path / store)
    (tmp_path / "models").symlink_to(small_project.project.models_dir)
    folder_row(tmp_path / "encoders", timm_state(), TIMM_CONFIG)
    return Project(tmp_path)


def check(gemslide, project, name, slide):
    where = ("--project", project.root, "--devices", "cpu", "--tiles", TILES, "--json")
    return gemslide("check-invariance", name, slide, *where)


def test_the_command_compares_an_encoder_s_features_within_a_share_of_the_largest(project, slide, gemslide):
    done = check(gemslide, project, "tiny", slide)

    assert done.code == 0, done.err
    line = json.loads(done.out)
    assert (line["slide_id"], line["status"]) == (slide, "done")
    assert {way["what"].split(" ")[0] for way in line["variations"]} == {"batches", "one", "2"}
    assert "difference allowed: at most 0.00" in line["message"]


def test_deterministic_features_are_the_same_bit_for_bit(project, slide, gemslide):
    project.settings_path.write_text("[embed]\nbatch_size = 8\ndeterministic = true\n")

    done = check(gemslide, project, "tiny", slide)

    assert done.code == 0, done.err
    line = json.loads(done.out)
    assert "none, bit for bit ([embed] deterministic)" in line["message"]
    assert [way["num_changed"] for way in line["variations"]] == [0] * len(line["variations"])


def test_the_tolerance_grows_with_the_features_and_the_tiles_are_spread_over_the_slide(project, slide):
    state, reader = timm_state(), StoreReader(project.store_path(slide))
    config = EmbedConfig(batch_size=8)
    small, large = (
        check_encoder_invariance(
            folder_row(project.root / "encoders", scaled, TIMM_CONFIG, name), reader, config, ("cpu",), max_tiles=TILES
        )
        for name, scaled in (
            ("tiny", state),
            ("large", {**state, "norm.weight": 1000 * state["norm.weight"], "norm.bias": 1000 * state["norm.bias"]}),
        )
    )

    np.testing.assert_allclose(large.tolerance, 1000 * small.tolerance, rtol=1e-4)
    assert 1e-3 < small.tolerance < 1e-1 < large.tolerance
    assert small.holds
    assert large.holds
    assert TILES // 2 <= small.num_tiles <= TILES


def test_a_model_comes_before_an_encoder_of_its_name(project, slide, small_project, gemslide):
    folder_row(project.root / "encoders", timm_state(), TIMM_CONFIG, small_project.model_id)
    where = ("--project", project.root, "--devices", "cpu", "--tiles", 3)

    model = gemslide("check-invariance", small_project.model_id, slide, *where)
    encoder = gemslide("check-invariance", "tiny", slide, *where)

    assert (model.code, "compared with `gemslide infer`" in model.out) == (0, True), model.err
    assert (encoder.code, "compared with `gemslide embed`" in encoder.out) == (0, True), encoder.err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tinny", ("no such model in", "Nor is it an encoder: ", "Did you mean tiny?")),
        ("lite0", ("no such model in", "`gemslide encoder add lite0`")),
        ("some/folder", ("some/folder: no such model in",)),
    ],
)
def test_a_name_of_neither_is_refused_with_what_there_is(project, slide, gemslide, name, words):
    done = check(gemslide, project, name, slide)

    assert done.code == 1
    assert [said for said in words if said not in done.err] == []


def test_features_that_depend_on_the_batch_fail_the_check(project, slide, monkeypatch):
    from pipeline.embedding import invariance

    start = invariance.TileEncoder.start

    def mixing(self, tiles_nhwc):
        result = start(self, tiles_nhwc)
        return lambda: result() * np.float32(1 + 0.01 * len(tiles_nhwc))

    monkeypatch.setattr(invariance.TileEncoder, "start", mixing)
    reader = StoreReader(project.store_path(slide))
    report = check_encoder_invariance(
        project.root / "encoders/tiny.toml", reader, EmbedConfig(batch_size=8), ("cpu",), max_tiles=TILES
    )

    assert not report.holds
    assert max(way.num_changed for way in report.variations) == report.num_tiles
    assert report.tolerance > 0
    assert TOLERANCE["fp32"] == 1e-3
