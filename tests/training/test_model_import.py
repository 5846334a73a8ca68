"""An imported model (ONNX, TorchScript, WSInfer folder, weights for installed code) predicts as at its origin."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.model_packages import read_config, sha256, write_config
from training.data.augment import to_input
from training.foundation.errors import BadRecipeError, UnreadableError
from training.foundation.trusted import is_trusted, trusted_dir
from training.inference import Classifier
from training.packages.config import read_package_config
from training.packages.network import trained_network
from training.tools.export_model import TOLERANCE
from training.tools.import_model import import_model
from training.tools.import_source import find_import_source

pytestmark = [pytest.mark.usefixtures("own_trust", "one_thread"), pytest.mark.xdist_group("model-exchange")]


def brought_in(source, models, **options):
    """Import a model as the command does."""
    trust = options.pop("trust", None)
    outputs = options.pop("outputs", None)
    report = import_model(find_import_source(source, **options), models, trusted_sha256=trust, outputs=outputs)
    return report, models / report["model_id"]


def test_an_onnx_file_comes_in_and_predicts_what_the_model_does(exports, package, tiles, tmp_path):
    report, imported = brought_in(exports["onnx"][0] / "model.onnx", tmp_path / "models", name="back")

    ours, theirs = Classifier.load(package), Classifier.load(imported)
    np.testing.assert_allclose(theirs.predict(tiles), ours.predict(tiles), atol=TOLERANCE)
    assert imported.name == f"back-{sha256(imported / 'model.onnx')[:8]}"
    assert (report["runtime"], report["outputs"], report["trust"]) == ("onnx", "logits", None)
    assert (theirs.class_names, theirs.tile_px, theirs.mpp) == (ours.class_names, ours.tile_px, ours.mpp)
    assert (theirs.hues, theirs.focus, theirs.split_sha256) == (ours.hues, ours.focus, ours.split_sha256)
    assert {path.name for path in imported.iterdir()} == {"config.json", "model.onnx", "metrics.json", "card.md"}
    assert json.loads((imported / "metrics.json").read_text()) == json.loads((package / "metrics.json").read_text())


def test_a_wsinfer_folder_of_ours_comes_back_as_the_same_model(exports, package, tiles, tmp_path):
    report, imported = brought_in(exports["wsinfer"][0], tmp_path / "models", name="small")

    assert report["model_id"] == package.name
    np.testing.assert_array_equal(Classifier.load(imported).predict(tiles), Classifier.load(package).predict(tiles))


def of_stranger(folder, exports, **changes):
    """Folder of a model zoo: TorchScript and its config, with no trace of gemslide."""
    folder.mkdir()
    shutil.copy(exports["torchscript"][0] / "torchscript_model.pt", folder)
    config = {**read_config(exports["torchscript"][0]), "architecture": "resnet34", **changes}
    del config["gemslide"]
    write_config(folder, config)
    return folder


def test_torchscript_is_refused_with_the_hash_to_give_and_nothing_of_it_runs(exports, tmp_path, monkeypatch):
    folder = of_stranger(tmp_path / "breast.v1", exports)
    monkeypatch.setattr(torch.jit, "load", lambda *_, **__: pytest.fail("loaded"))

    with pytest.raises(UnreadableError, match="runs code when it is loaded") as refused:
        brought_in(folder, tmp_path / "models")

    assert f"--trust {sha256(folder / 'torchscript_model.pt')}" in str(refused.value)
    assert not (tmp_path / "models").exists()


def test_torchscript_with_another_hash_than_the_trusted_one_is_refused(exports, tmp_path, monkeypatch):
    folder = of_stranger(tmp_path / "breast.v1", exports)
    monkeypatch.setattr(torch.jit, "load", lambda *_, **__: pytest.fail("loaded"))

    with pytest.raises(BadRecipeError, match=f"has the SHA-256 {sha256(folder / 'torchscript_model.pt')}"):
        brought_in(folder, tmp_path / "models", trust="0" * 64)
    assert not trusted_dir().exists()


def test_trusted_torchscript_comes_in_says_so_and_another_user_must_trust_it_anew(
    exports, package, tiles, tmp_path, monkeypatch
):
    folder = of_stranger(tmp_path / "breast.v1", exports)
    digest = sha256(folder / "torchscript_model.pt")

    report, imported = brought_in(folder, tmp_path / "models", trust=digest.upper())

    assert is_trusted(digest)
    assert imported.name == f"breast.v1-{digest[:8]}"
    assert report["trust"]["sha256"] == read_config(imported)["gemslide"]["trust"]["sha256"] == digest
    assert "Loading it runs code; the user who imported it vouched" in (imported / "card.md").read_text()
    ours = Classifier.load(package).predict(tiles)
    np.testing.assert_allclose(Classifier.load(imported).predict(tiles), ours, atol=TOLERANCE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "of-another-user"))
    with pytest.raises(UnreadableError, match="you have not marked this one as trusted"):
        Classifier.load(imported)
    again, _ = brought_in(imported, tmp_path / "models", trust=digest)
    assert again["already_there"]
    Classifier.load(imported)


def test_a_patch_that_wsinfer_resizes_becomes_a_tile_of_the_same_tissue(exports, tmp_path):
    normalise = read_config(exports["torchscript"][0])["transform"][2]
    steps = [{"name": "Resize", "arguments": {"size": [32, 32]}}, {"name": "ToTensor"}, normalise]
    folder = of_stranger(tmp_path / "m", exports, patch_size_pixels=50, spacing_um_px=0.25, transform=steps)

    source = find_import_source(folder)

    assert source.described.tile_px == 32
    assert source.described.mpp * 32 == pytest.approx(50 * 0.25)


REFUSED_CONFIGS = {
    "steps in another order": (
        {"transform": [{"name": "ToTensor"}, {"name": "Resize", "arguments": {"size": 32}}]}, "supports Resize, ",
    ),
    "no ToTensor": ({"transform": []}, "has the steps none"),
    "another step": ({"transform": [{"name": "CenterCrop", "arguments": {"size": 20}}]}, "0.name.*CenterCrop"),
    "not square": (
        {"transform": [{"name": "Resize", "arguments": {"size": [32, 40]}}, {"name": "ToTensor"}]}, "tiles are square",
    ),
    "no size": ({"transform": [{"name": "Resize"}, {"name": "ToTensor"}]}, "step Resize: `size` is missing"),
    "a deviation of nothing": (
        {"transform": [{"name": "ToTensor"}, {"name": "Normalize", "arguments": {"mean": [0] * 3, "std": [0, 1, 1]}}]},
        r"step Normalize: `std.0` = 0",
    ),
    "one class": ({"num_classes": 1, "class_names": ["tumour"]}, "num_classes = 1.*two or more"),
    "too few names": ({"class_names": ["one"]}, "1 class name, but num_classes = 2"),
    "the same name twice": ({"class_names": ["a", "a"]}, "a class name appears twice"),
    "no spacing": ({"spacing_um_px": 0}, "spacing_um_px"),
    "another version": ({"spec_version": "2.0"}, "spec_version"),
    "huge patch": ({"patch_size_pixels": 10**7}, "patch_size_pixels"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED_CONFIGS)
def test_a_description_that_gemslide_cannot_follow_is_refused_in_words(exports, tmp_path, what):
    changes, words = REFUSED_CONFIGS[what]
    folder = of_stranger(tmp_path / "m", exports, **changes)
    trust = sha256(folder / "torchscript_model.pt")

    with pytest.raises(UnreadableError, match=words):
        brought_in(folder, tmp_path / "models", trust=trust)
    assert not (tmp_path / "models").exists()


def test_a_torchscript_for_other_classes_is_found_out_by_running_it(exports, tmp_path):
    folder = of_stranger(tmp_path / "m", exports, num_classes=3, class_names=["a", "b", "c"])

    with pytest.raises(UnreadableError, match=r"shape \(3, 2\) for 3 tiles; 3 classes need \(3, 3\)"):
        brought_in(folder, tmp_path / "models", trust=sha256(folder / "torchscript_model.pt"))


def test_what_is_no_model_is_refused_with_what_could_be(package, exports, tmp_path):
    write_config(tmp_path, read_config(exports["onnx"][0]))
    (tmp_path / "weights.pth").write_bytes(b"x")
    (tmp_path / "torchscript_model.pt").write_bytes(b"not TorchScript")
    digest = sha256(tmp_path / "torchscript_model.pt")

    with pytest.raises(UnreadableError, match="no such file or folder"):
        find_import_source(tmp_path / "nothing")
    with pytest.raises(UnreadableError, match=r"A pickled checkpoint \(.pth, .ckpt, .bin, .pkl\) runs code"):
        find_import_source(tmp_path / "weights.pth")
    with pytest.raises(UnreadableError, match="not a TorchScript file, or damaged"):
        brought_in(tmp_path / "torchscript_model.pt", tmp_path / "models", trust=digest)
    with pytest.raises(BadRecipeError, match="a model's name is"):
        find_import_source(exports["onnx"][0], name="../up")
    (tmp_path / "config.json").unlink()
    with pytest.raises(UnreadableError, match=r"needs WSInfer's config\.json"):
        find_import_source(tmp_path / "torchscript_model.pt")


def test_the_same_model_twice_is_one_and_another_description_of_it_is_refused(exports, tmp_path):
    models = tmp_path / "models"
    _, imported = brought_in(exports["onnx"][0], models, name="m")
    before = {path.name: path.read_bytes() for path in imported.iterdir()}

    again, _ = brought_in(exports["onnx"][0], models, name="m")
    other = shutil.copytree(exports["onnx"][0], tmp_path / "other")
    write_config(other, {**read_config(other), "class_names": ["warm", "cold"]})
    with pytest.raises(BadRecipeError, match="with another description"):
        brought_in(other, models, name="m")

    assert again["already_there"]
    assert {path.name: path.read_bytes() for path in imported.iterdir()} == before


# --- networks of other packages ------------------------------------------------------------------

CODE = """
import torch
from torch import nn

def build(*, num_classes, tile_px):
    return nn.Sequential(nn.AvgPool2d(tile_px), nn.Flatten(), nn.Linear(3, num_classes), nn.Softmax(dim=1))

def no_module(*, num_classes, tile_px):
    return "a network"

def wrong_keywords(classes):
    return build(num_classes=classes, tile_px=32)
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Package that registers networks, installed for this test."""
    site = tmp_path / "site"
    (site / "their_models-2.1.dist-info").mkdir(parents=True)
    (site / "their_models_of_test.py").write_text(CODE)
    (site / "their_models-2.1.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: their-models\nVersion: 2.1\n"
    )
    names = {"colours": "build", "text": "no_module", "wrong": "wrong_keywords", "gone": "not_there"}
    lines = [f"{name} = their_models_of_test:{function}" for name, function in names.items()]
    (site / "their_models-2.1.dist-info/entry_points.txt").write_text("\n".join(["[gemslide.models]", *lines]) + "\n")
    monkeypatch.syspath_prepend(site)
    return site


@pytest.fixture
def weights(exports, tmp_path):
    """Weights for the network `colours`, and their description file."""
    folder = tmp_path / "colour-model"
    folder.mkdir()
    random = torch.Generator().manual_seed(1)
    state = {"2.weight": torch.randn(2, 3, generator=random), "2.bias": torch.randn(2, generator=random)}
    save_file(state, folder / "weights.safetensors")
    config = {**read_config(exports["onnx"][0]), "architecture": "mean-colour"}
    del config["gemslide"]
    write_config(folder, config)
    return folder / "weights.safetensors"


def test_weights_for_installed_code_come_in_and_predict(installed, weights, tiles, tmp_path):
    report, imported = brought_in(weights, tmp_path / "models", entry_point="colours")

    model = Classifier.load(imported)
    assert imported.name.startswith("colour-model-")
    assert report["outputs"] == "probabilities"  # determined by running it
    assert read_config(imported)["gemslide"]["entry_point"] == {
        "name": "colours", "value": "their_models_of_test:build", "distribution": "their-models", "version": "2.1",
    }  # fmt: skip
    with torch.inference_mode():
        expected = (
            trained_network(imported, read_package_config(imported))[0]
            .eval()(to_input(tiles, model.mean, model.std))
            .numpy()
        )
    np.testing.assert_allclose(model.predict(tiles), expected, atol=1e-6)
    np.testing.assert_allclose(expected.sum(1), 1, atol=1e-6)
    assert not np.allclose(Classifier.untrained(imported).predict(tiles), expected, atol=1e-2)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("colour", "no package installed here registers it. Did you mean colours?"),
        ("text", "returns a str, not a torch.nn.Module"),
        ("wrong", "It must take the keywords num_classes and tile_px"),
        ("gone", "cannot be imported"),
    ],
)
def test_code_that_builds_no_network_is_refused_in_words(installed, weights, tmp_path, name, words):
    with pytest.raises(UnreadableError, match=words):
        brought_in(weights, tmp_path / "models", entry_point=name)


def test_weights_of_another_network_or_without_any_are_refused(installed, weights, tmp_path):
    save_file({"2.weight": torch.zeros(5, 3)}, weights)
    with pytest.raises(UnreadableError, match="They are not this network's weights, or damaged"):
        brought_in(weights, tmp_path / "models", entry_point="colours")
    with pytest.raises(
        UnreadableError, match=r"'mean-colour', which gemslide does not build.*colours, gone, text, wrong"
    ):
        brought_in(weights, tmp_path / "models")


def test_a_package_whose_code_is_not_installed_or_is_other_code_is_refused(installed, weights, tmp_path):
    _, imported = brought_in(weights, tmp_path / "models", entry_point="colours")
    entries = installed / "their_models-2.1.dist-info/entry_points.txt"

    entries.write_text(entries.read_text().replace(":build", ":other"))
    with pytest.raises(UnreadableError, match="of their_models_of_test:build, but here that name stands for"):
        Classifier.load(imported)
    entries.write_text("")
    with pytest.raises(UnreadableError, match="needs the network 'colours'"):
        Classifier.load(imported)


# --- claims that a package may not make ----------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"runtime": "pickle"}, "runtime"),
        ({"runtime": "entry-point"}, "`entry_point` is missing"),
        ({"outputs": None}, "`outputs` is missing"),
        ({"outputs": "votes"}, "outputs"),
        ({"runtime": "torch", "model": None}, "`model` is missing"),
        ({"weights_sha256": "0" * 64}, "has the SHA-256"),
        ({"focus": {"median": 1e9, "spread": 1.0, "tiles": 3}}, "focus.median"),
        ({"data": {"tile_set": "t", "by_split": {"elsewhere": {}}, "scanners": {}}}, "data.by_split"),
    ],
)
def test_a_package_that_cannot_be_is_refused_when_it_is_loaded(exports, tmp_path, change, words):
    _, imported = brought_in(exports["onnx"][0], tmp_path / "models", name="m")
    config = read_config(imported)
    write_config(imported, {**config, "gemslide": {**config["gemslide"], **change}})

    with pytest.raises(UnreadableError, match=words):
        Classifier.load(imported)


def test_an_onnx_model_has_no_untrained_twin_and_says_how_to_go_on(exports, tmp_path):
    _, imported = brought_in(exports["onnx"][0], tmp_path / "models", name="m")

    with pytest.raises(BadRecipeError, match="--no-baselines"):
        Classifier.untrained(imported)
