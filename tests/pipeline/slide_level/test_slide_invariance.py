"""`gemslide check-invariance` with a slide-level model: its answer does not depend on how the work is split."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from pipeline.embedding import TileEncoder, embed_slide
from pipeline.project import Project
from pipeline.settings.config import EmbedConfig
from pipeline.slide_level import invariance
from pipeline.slide_level.stored_bags import open_slide_features
from tests.pipeline.slide_level.drawn_model import write_drawn_model
from tests.pipeline.slide_level.planted_cohort import copy_slide
from tests.training.encoders.tiny_encoders import TIMM_CONFIG, folder_row, timm_state

pytestmark = pytest.mark.usefixtures("one_thread")
CONFIG = EmbedConfig(batch_size=8)
BATCHES = (8, 1, 4, 9)
TILES = 20


@pytest.fixture(scope="module")
def embedded(small_project, tmp_path_factory) -> tuple[Project, str]:
    """Project with two slides of one patient, their features of a tiny encoder, and a model with drawn weights."""
    project = Project(tmp_path_factory.mktemp("embedded"))
    row = folder_row(project.root / "encoders", timm_state(), TIMM_CONFIG, mpp=1.5)
    encoder = TileEncoder.load(row)
    for slide_id in ("S-1", "S-2"):
        source = small_project.project.store_path(small_project.test_slide)
        copy_slide(source, project.store_path(slide_id), slide_id)
        embed_slide(slide_id, encoder, project, CONFIG)
    slide = open_slide_features(project, "S-1", encoder.encoder_id)
    assert slide is not None
    project.settings_path.write_text("[embed]\nbatch_size = 8\n")
    return project, write_drawn_model(project, slide, "transmil", level="patient").name


@pytest.fixture
def own(embedded, tmp_path) -> tuple[Project, str]:
    shutil.copytree(embedded[0].root, tmp_path / "own")
    return Project(tmp_path / "own"), embedded[1]


def check(gemslide, project, model, slide="S-1", *more):
    where = ("--project", project.root, "--devices", "cpu", "--tiles", TILES, "--json")
    return gemslide("check-invariance", model, slide, *where, *more)


def test_the_answer_is_compared_for_another_order_other_threads_and_other_batches_of_the_encoder(embedded, gemslide):
    project, model = embedded

    done = check(gemslide, project, model)

    assert done.code == 0, done.err
    line = json.loads(done.out)
    ways = {way["what"]: way for way in line["variations"]}
    assert (line["slide_id"], line["status"]) == ("S-1", "done")
    assert list(ways) == [
        "tiles in reverse order", "tiles shuffled", "1 thread", "2 threads",
        *(f"embedded in batches of {size}" for size in BATCHES),
    ]  # fmt: skip
    assert all(way["largest_difference"] <= 1e-3 for way in ways.values())
    assert "difference allowed: at most 0.001; " in line["message"]
    assert "tiles were embedded again" in line["message"]


def test_a_unit_of_two_slides_is_checked_as_it_was_predicted(own, gemslide):
    project, model = own
    manifest = project.root / "cohort.csv"
    manifest.write_text("path,slide_id,patient_id\na.svs,S-1,P-1\nb.svs,S-2,P-1\n")

    alone = check(gemslide, project, model)
    predicted = gemslide("infer", model, manifest, "--project", project.root, "--devices", "cpu")
    where = ("--project", project.root, "--devices", "cpu", "--tiles", TILES)
    together = gemslide("check-invariance", model, "S-2", *where)

    assert (alone.code, predicted.code, together.code) == (0, 0, 0), predicted.err + together.err
    slides = [open_slide_features(project, slide_id, "tiny") for slide_id in ("S-1", "S-2")]
    assert together.out.startswith(f"{sum(s.stored.num_tiles for s in slides):,} tiles, compared with `gemslide infer`")
    assert together.out.count(" changed") == 4 + len(BATCHES)


def test_of_imported_features_no_encoder_is_run(own, gemslide, tmp_path):
    project, _ = own
    exported = gemslide(
        "features", "export", "S-1", "--to", "trident", "--out", tmp_path / "out", "--project", project.root
    )
    (file,) = (tmp_path / "out").rglob("*.h5")
    source = ("--slide", "S-1", "--from", "trident", "--encoder", "theirs")
    imported = gemslide("features", "import", file, *source, "--project", project.root)
    slide = open_slide_features(project, "S-1", "theirs")
    model = write_drawn_model(project, slide, "abmil").name

    done = check(gemslide, project, model)

    assert (exported.code, imported.code, done.code) == (0, 0, 0), exported.err + imported.err + done.err
    line = json.loads(done.out)
    assert [way["what"] for way in line["variations"]] == [
        "tiles in reverse order", "tiles shuffled", "1 thread", "2 threads",
    ]  # fmt: skip
    assert "the features were imported, so no encoder was run" in line["message"]


def test_an_answer_that_depends_on_the_encoder_s_batch_fails_the_check(embedded, monkeypatch, gemslide):
    start = TileEncoder.start

    def mixing(self, tiles_nhwc):
        result = start(self, tiles_nhwc)
        return lambda: result() * np.float32(1 + len(tiles_nhwc))

    monkeypatch.setattr(TileEncoder, "start", mixing)

    done = check(gemslide, *embedded)

    assert done.code == 1
    line = json.loads(done.out)
    assert (line["status"], line["code"]) == ("failed", "insane_output")
    by_way = {way["what"]: way["largest_difference"] for way in line["variations"]}
    assert by_way["tiles shuffled"] <= 1e-3
    assert by_way["embedded in batches of 9"] > 1e-3


def test_an_answer_that_depends_on_the_order_of_tiles_fails_the_check(embedded, monkeypatch, gemslide):
    predict = invariance.SlideModel.predict

    def by_first_tile(self, bag_nd):
        return predict(self, np.repeat(bag_nd[:1], len(bag_nd), 0))

    monkeypatch.setattr(invariance.SlideModel, "predict", by_first_tile)

    done = check(gemslide, *embedded)

    assert done.code == 1
    by_way = {way["what"]: way["num_changed"] for way in json.loads(done.out)["variations"]}
    assert by_way["tiles in reverse order"] == 2
    assert by_way["1 thread"] == 0


def test_what_cannot_be_checked_is_refused_with_the_reason(own, gemslide, tmp_path):
    project, model = own
    shutil.rmtree(project.store_path("S-2") / "features")
    several = gemslide("check-invariance", model, "S-1", "--project", project.root, "--devices", "cpu,cpu")
    without = check(gemslide, project, model, "S-2")
    row = project.root / "encoders/tiny.toml"
    row.write_text(row.read_text().replace("mpp = 1.5", "mpp = 1.0"))
    changed = check(gemslide, project, model)
    row.unlink()
    gone = check(gemslide, project, model)

    assert [done.code for done in (several, without, changed, gone)] == [1] * 4
    assert "a slide-level model runs on one device" in " ".join(several.err.split())
    assert "slide S-2: has no features of encoder tiny-" in " ".join(without.err.split())
    assert "its row or weights have changed" in " ".join(changed.err.split())
    assert "no such encoder" in " ".join(gone.err.split())
