"""`gemslide model`: its arguments, its output, and the stored record."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from pipeline.errors import NoSlidesError, NoTissueError
from pipeline.models.sample_tiles import sample_tiles
from pipeline.project import Project
from pipeline.store.layers.overlays import read_predictions
from tests.model_packages import read_config, sha256, write_config
from training.foundation.errors import UnreadableError
from training.tools.check_model import check_package
from training.tools.export_model import export_package
from training.tools.import_model import import_model
from training.tools.import_source import find_import_source

pytestmark = pytest.mark.xdist_group("model-verbs")


@pytest.fixture(scope="module")
def exported(small_project_copy, gemslide, tmp_path_factory):
    """WSInfer folder as written by the command, and the command's output."""
    folder = tmp_path_factory.mktemp("verbs") / "out"
    done = gemslide(
        "model",
        "export",
        small_project_copy.model_id,
        "--format",
        "wsinfer",
        "--out",
        folder,
        "--project",
        small_project_copy.project.root,
    )
    assert done.code == 0, done.err
    return folder, done


@pytest.fixture
def own_trust(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def records(project, verb):
    all_records = [json.loads(path.read_text()) for path in sorted(project.runs_dir.glob("*.json"))]
    return [record for record in all_records if record["verb"] == verb]


def test_an_export_prints_the_largest_difference_and_records_it(exported, small_project_copy):
    folder, done = exported

    assert "largest output difference on 3 real tiles, 3 batch sizes: " in done.out
    assert f"SHA-256 {sha256(folder / 'torchscript_model.pt')}" in done.out
    (record,) = records(small_project_copy.project, "model export")
    assert record["outcome"] == "done"
    assert record["largest_difference"] <= record["tolerance"] == 1e-4
    weights = sha256(small_project_copy.project.model_path(small_project_copy.model_id) / "model.safetensors")
    assert record["inputs"] == [{"id": small_project_copy.model_id, "sha256": weights}]


def test_torchscript_comes_in_with_trust_and_the_record_says_so(exported, gemslide, tmp_path, own_trust):
    source = tmp_path / "zoo"
    source.mkdir()
    shutil.copy(exported[0] / "torchscript_model.pt", source)
    config = read_config(exported[0])
    del config["gemslide"]
    write_config(source, config)
    digest = sha256(source / "torchscript_model.pt")
    project = Project(tmp_path / "project")

    refused = gemslide("model", "import", source, "--project", project.root)
    done = gemslide("model", "import", source, "--project", project.root, "--trust", digest, "--json")

    assert refused.code == 1
    assert f"--trust {digest}" in refused.err
    line = json.loads(done.out)
    assert (done.code, line["status"], line["slide_id"]) == (0, "done", f"zoo-{digest[:8]}")
    assert "torchscript (runs code that you trust)" in line["message"]
    before, record = records(project, "model import")
    assert (before["outcome"], before["trust"]) == ("unreadable", None)
    assert record["trust"]["sha256"] == digest
    assert record["outputs"] == [f"models/zoo-{digest[:8]}"]
    checked = gemslide("model", "check", f"zoo-{digest[:8]}", "--project", project.root)
    assert checked.code == 0, checked.err
    assert "torchscript; runs its own code, trusted by you" in checked.out


def test_infer_runs_an_onnx_model_and_finds_what_the_trained_one_does(small_project_copy, gemslide, tmp_path):
    project, slide = small_project_copy.project, small_project_copy.test_slide
    out = tmp_path / "onnx"
    tiles_nhwc = sample_tiles(project, [slide], tile_px=32, mpp=1.0, count=3)
    export_package(project.model_path(small_project_copy.model_id), "onnx", out, tiles_nhwc)
    imported = import_model(find_import_source(out, name="by-onnx"), project.models_dir)["model_id"]

    for model in (small_project_copy.model_id, imported):
        done = gemslide("infer", model, slide, "--project", project.root)
        assert done.code == 0, done.err

    ours, theirs = (
        read_predictions(project.store_path(slide), model).probabilities_cyx
        for model in (small_project_copy.model_id, imported)
    )
    np.testing.assert_allclose(theirs.astype(np.float32), ours.astype(np.float32), atol=1e-3)  # stored as float16
    (record,) = (
        record_found for record_found in records(project, "infer") if record_found["settings"]["model"] == imported
    )
    weights = sha256(project.model_path(imported) / "model.onnx")
    assert {"id": imported, "sha256": weights} in record["inputs"]


def test_check_says_what_a_trained_model_is_and_what_was_checked(small_project_copy, gemslide):
    done = gemslide(
        "model", "check", small_project_copy.model_id, "--project", small_project_copy.project.root, "--json"
    )

    report = json.loads(done.out)
    assert (report["runtime"], report["outputs"], report["tile_px"], report["mpp"]) == ("torch", "logits", 32, 1.0)
    assert report["knows_hues"]
    assert report["knows_focus"]
    assert "one run on probe images" in report["checked"]
    assert report["metrics"]["accuracy"] > 0


def test_a_damaged_package_does_not_pass_the_check(small_project, tmp_path):
    package = shutil.copytree(
        small_project.project.model_path(small_project.model_id), tmp_path / small_project.model_id
    )
    honest = read_config(package)

    write_config(package, {**honest, "gemslide": {**honest["gemslide"], "files": {"torchscript_model.pt": "0" * 64}}})
    with pytest.raises(UnreadableError, match=r"torchscript_model\.pt: No such file"):
        check_package(package)
    (package / "torchscript_model.pt").write_bytes(b"another")
    with pytest.raises(UnreadableError, match=r"config\.json says 0000"):
        check_package(package)
    write_config(package, honest)
    (package / "metrics.json").write_text('{"accuracy": "good"}')
    with pytest.raises(UnreadableError, match="not the figures of a model package"):
        check_package(package)


def test_card_is_shown_without_what_would_move_the_cursor(small_project_copy, gemslide, tmp_path):
    package = shutil.copytree(
        small_project_copy.project.model_path(small_project_copy.model_id), tmp_path / small_project_copy.model_id
    )
    with (package / "card.md").open("a") as card:
        card.write("\x1b[2Jgone\x07\n")

    done = gemslide("model", "card", package, "--project", tmp_path)

    assert done.code == 0
    assert "Research use only. Not for diagnosis." in done.out
    assert "## Intended use" in done.out
    assert "[2Jgone" in done.out
    assert not {"\x1b", "\x07"} & set(done.out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export", "smal", "--format", "onnx", "--out", "x"], "no such model"),
        (["import", "nowhere"], "no such file or folder"),
        (["check", "nothing"], "no such model"),
        (["card", "nothing"], "no such model"),
        (["export", "MODEL", "--format", "onnx", "--out", "no/where"], "there is no folder"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(small_project, gemslide, tmp_path, arguments, words):
    given = [small_project.model_id if word == "MODEL" else word for word in arguments]
    project = tmp_path if given[0] == "import" else small_project.project.root

    done = gemslide("model", *given, "--project", project, cwd=tmp_path)

    assert done.code == 1
    assert words in done.err


def test_tiles_to_compare_on_differ_and_a_project_without_any_says_what_to_do(small_project, tmp_path):
    tiles = sample_tiles(small_project.project, [small_project.test_slide], tile_px=32, mpp=1.0, count=5)

    assert tiles.shape == (5, 32, 32, 3)
    assert len({tile.tobytes() for tile in tiles}) == 5
    with pytest.raises(NoSlidesError, match="Ingest a slide"):
        sample_tiles(Project(tmp_path), [], tile_px=32, mpp=1.0, count=3)
    with pytest.raises(NoTissueError, match="small-test has 0"):
        sample_tiles(small_project.project, [small_project.test_slide], tile_px=2000, mpp=1.0, count=3)
    with pytest.raises(NoTissueError, match=r"small-test is coarser than 0.1 µm/px"):
        sample_tiles(small_project.project, [small_project.test_slide], tile_px=32, mpp=0.1, count=3)
