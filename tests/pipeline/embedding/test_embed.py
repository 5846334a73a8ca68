"""`gemslide embed`: an encoder's features of a slide's tissue, in its store."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from pipeline.batches.devices import ManyDevices, OneDevice
from pipeline.batches.where import RunOn
from pipeline.embedding.embed import embed_slide, encoder_grid
from pipeline.embedding.encoder import TileEncoder
from pipeline.project import Project
from pipeline.settings.config import EmbedConfig
from pipeline.store.layers.features import features_path, list_features, read_features
from pipeline.store.layers.labels import read_tissue, tissue_share, write_tissue
from pipeline.store.reading.reader import StoreReader
from tests.training.encoders.tiny_encoders import TIMM_CONFIG, WIDTH, folder_row, timm_state
from training.foundation.errors import ImplausibleOutputError

CONFIG = EmbedConfig(batch_size=16)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def project(small_project, tmp_path):
    """Project with a copy of the test slide and a tiny encoder."""
    store = f"slides/{small_project.test_slide}.ome.zarr"
    shutil.copytree(small_project.project.root / store, tmp_path / store)
    folder_row(tmp_path / "encoders", timm_state(), TIMM_CONFIG)
    return Project(tmp_path)


@pytest.fixture
def encoder(project):
    return TileEncoder.load(project.root / "encoders/tiny.toml", RunOn("cpu"))


@pytest.fixture
def slide(small_project):
    return small_project.test_slide


def files_of(project, slide, encoder) -> dict[str, bytes]:
    folder = features_path(project.store_path(slide), encoder.encoder_id)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_features_are_those_of_the_encoder_for_the_stores_pixels_row_by_row(project, slide, encoder):
    report = embed_slide(slide, encoder, project, CONFIG)
    reader = StoreReader(project.store_path(slide))
    stored = read_features(reader.path, encoder.encoder_id)
    grid = encoder_grid(reader, encoder, CONFIG)
    tissue = tissue_share(reader.path, reader.mpp0, grid.corners_xy0, grid.side_px0)
    corners = grid.corners_xy0[tissue >= CONFIG.min_tissue]

    assert (report.num_tiles, report.dims) == stored.values_nd.shape == (len(corners), WIDTH)
    np.testing.assert_array_equal(stored.xy0_n2, corners)
    level = reader.tile_level(encoder.read, mpp=grid.mpp, side_px0=grid.side_px0)
    chosen = [0, len(corners) // 2, len(corners) - 1]
    tiles = np.stack([reader.read_square(level, *map(int, corners[k]), grid.side_px0, encoder.tile_px) for k in chosen])
    np.testing.assert_allclose(stored.values_nd[chosen], encoder.encode(tiles), rtol=2e-3, atol=2e-3)
    assert stored.attributes["weights_sha256"] == encoder.weights_sha256
    assert stored.attributes["encoder"]["licence"] == "CC0-1.0"


def test_an_interrupted_run_resumes_to_the_same_bytes_and_repeats_no_batch(project, slide, encoder):
    embed_slide(slide, encoder, project, CONFIG)
    unbroken = files_of(project, slide, encoder)
    shutil.rmtree(features_path(project.store_path(slide), encoder.encoder_id))

    class Interrupted(OneDevice):
        def results(self, blocks):
            for number, result in enumerate(super().results(blocks)):
                if number == 2:
                    raise KeyboardInterrupt
                yield result

    with suppress(KeyboardInterrupt):
        embed_slide(slide, encoder, project, CONFIG, devices=Interrupted(encoder))
    assert list_features(project.store_path(slide)) == []
    seen = []

    class Counting(OneDevice):
        def results(self, blocks):
            for result in super().results(blocks):
                seen.append(result.number)
                yield result

    embed_slide(slide, encoder, project, CONFIG, devices=Counting(encoder))

    assert files_of(project, slide, encoder) == unbroken
    assert min(seen) == 2
    assert not list(project.results_dir.rglob("*")), "a journal was left"


def test_two_processes_give_the_bytes_of_one(project, slide, encoder):
    load = partial(TileEncoder.load, project.root / "encoders/tiny.toml")
    stored = []
    for count in (1, 2):
        devices = ManyDevices(load, (RunOn("cpu"),) * count)
        devices._workers[0]._process.threads = 1
        with devices:
            embed_slide(slide, devices.network, project, EmbedConfig(batch_size=8), devices=devices)
        stored.append(files_of(project, slide, encoder))
        shutil.rmtree(features_path(project.store_path(slide), encoder.encoder_id))
    assert stored[0] == stored[1]


def test_finished_features_are_kept_until_mask_row_or_settings_change(project, slide, encoder):
    assert not embed_slide(slide, encoder, project, CONFIG).skipped
    again = embed_slide(slide, encoder, project, EmbedConfig(batch_size=5))
    stored = read_features(project.store_path(slide), encoder.encoder_id)
    assert (again.skipped, again.num_tiles) == (True, len(stored.values_nd))

    assert not embed_slide(slide, encoder, project, EmbedConfig(batch_size=16, overlap=0.5)).skipped
    store = project.store_path(slide)
    mask_yx, mask_mpp = read_tissue(store)
    mask_yx[: len(mask_yx) // 2] = 0
    reader = StoreReader(store)
    write_tissue(store, mask_yx.astype(bool), mask_mpp, reader.mpp0, len(reader.levels))
    half = embed_slide(slide, encoder, project, CONFIG)
    assert not half.skipped
    assert half.num_tiles < again.num_tiles

    folder_row(project.root / "encoders", timm_state(), TIMM_CONFIG, mean=[0.5, 0.5, 0.5])
    other = TileEncoder.load(project.root / "encoders/tiny.toml", RunOn("cpu"))
    assert other.encoder_id != encoder.encoder_id
    assert not embed_slide(slide, other, project, CONFIG).skipped
    assert list_features(store) == sorted([encoder.encoder_id, other.encoder_id])


class _Answering:
    """An encoder with other answers."""

    def __init__(self, encoder, answer):
        self._encoder, self._answer = encoder, answer

    def __getattr__(self, name):
        return getattr(self._encoder, name)

    def start(self, tiles_nhwc):
        return lambda: self._answer(len(tiles_nhwc))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda count: np.ones((count, WIDTH), np.float32), "have the same features"),
        (lambda count: 1e6 * np.arange(1, count * WIDTH + 1, dtype=np.float32).reshape(count, WIDTH), "of tile 0 is"),
        (lambda count: np.zeros((count, WIDTH - 1), np.float32), "were to be embedded"),
    ],
    ids=["the same everywhere", "too large for half precision", "another width"],
)
def test_features_that_cannot_be_are_refused_and_nothing_is_stored(project, slide, encoder, answer, words):
    with pytest.raises(ImplausibleOutputError, match=words):
        embed_slide(slide, _Answering(encoder, answer), project, CONFIG)
    assert list_features(project.store_path(slide)) == []
    assert not list(project.results_dir.rglob("*"))


def test_the_verb_embeds_each_slide_reports_and_records(project, slide, encoder, gemslide):
    (project.root / "gemslide.toml").write_text("[embed]\nbatch_size = 16\n")
    done = gemslide("embed", "tiny", slide, "no-such-slide", "--project", project.root, "--devices", "cpu", "--json")
    assert done.code == 1
    assert "no such slide" in done.out
    assert list_features(project.store_path(slide)) == []

    done = gemslide("embed", "tiny", "--project", project.root, "--devices", "cpu", "--json")
    assert done.code == 0, done.err
    (line,) = map(json.loads, done.out.splitlines())
    assert (line["slide_id"], line["status"]) == (slide, "done")
    assert f"{WIDTH} features each" in line["message"]
    assert list_features(project.store_path(slide)) == [encoder.encoder_id]
    (record,) = (json.loads(path.read_text()) for path in project.runs_dir.glob("*.json"))
    assert (record["verb"], record["settings"]["encoder"]) == ("embed", encoder.encoder_id)
    assert record["inputs"] == [{"id": encoder.encoder_id, "sha256": encoder.weights_sha256}]

    unknown = gemslide("embed", "tinny", "--project", project.root)
    assert unknown.code == 1
    assert "Did you mean tiny?" in unknown.err
    verified = gemslide("verify", slide, "--project", project.root)
    assert verified.code == 0, verified.err
