"""A model exported as ONNX, TorchScript or a WSInfer folder gives the same numbers there."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import jsonschema
import numpy as np
import onnxruntime
import openslide
import pytest
import torch
from torch import nn

import training
from tests.model_packages import read_config, sha256
from training.data.augment import to_input
from training.foundation.errors import BadRecipeError, ImplausibleOutputError, UnreadableError
from training.inference import Classifier
from training.models.gems_public import gems_public_blocks
from training.models.resnet_v2 import resnet_v2
from training.networks.onnx_network import OnnxNetwork
from training.networks.torchscript import run_torchscript
from training.tools.export_formats import onnx_bytes, torchscript_bytes, with_logits
from training.tools.export_model import TOLERANCE, export_package, largest_difference

pytestmark = [pytest.mark.usefixtures("own_trust", "one_thread"), pytest.mark.xdist_group("model-exchange")]

WSINFER_SCHEMA = {
    "$schema": "http://json-schema.org/draft-04/schema",
    "type": "object",
    "required": [
        "spec_version", "architecture", "num_classes", "patch_size_pixels", "spacing_um_px", "class_names", "transform",
    ],
    "properties": {
        "spec_version": {"type": "string", "enum": ["1.0"]},
        "architecture": {"type": "string"},
        "num_classes": {"type": "integer", "minimum": 1},
        "patch_size_pixels": {"type": "integer", "minimum": 1},
        "spacing_um_px": {"type": "number", "minimum": 0},
        "class_names": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "transform": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "enum": ["Resize", "ToTensor", "Normalize"]},
                    "arguments": {"type": "object"},
                },
            },
        },
    },
}  # fmt: skip
"""Requirements of wsinfer-zoo's model-config.schema.json, which allows further keys at the top level."""


@pytest.mark.parametrize("to", ["onnx", "torchscript", "wsinfer"])
def test_an_export_says_how_far_its_outputs_are_from_the_model_s_on_real_tiles(exports, package, to):
    folder, report = exports[to]
    config = read_config(folder)

    assert 0 <= report["largest_difference"] <= TOLERANCE
    assert report["sha256"] == sha256(folder / report["file"])
    assert config["gemslide"]["exported_from"] == {
        "model_id": package.name,
        "weights_sha256": sha256(package / "model.safetensors"),
        "largest_difference": report["largest_difference"],
    }
    assert (folder / "card.md").read_text().count("Research use only. Not for diagnosis.") == 1


def test_onnx_by_onnxruntime_alone_gives_the_model_s_probabilities(exports, package, tiles):
    """As another program runs it: none of our code between the file and the numbers."""
    config = read_config(exports["onnx"][0])
    session = onnxruntime.InferenceSession(exports["onnx"][0] / "model.onnx", providers=["CPUExecutionProvider"])
    (_, _, normalise) = config["transform"]
    mean, std = (np.array(normalise["arguments"][key], np.float32) for key in ("mean", "std"))
    ours = Classifier.load(package).predict(tiles)

    for count in (1, 5, 12):
        images = ((tiles[:count] / np.float32(255) - mean) / std).astype(np.float32).transpose(0, 3, 1, 2)
        (logits,) = session.run(None, {"images": np.ascontiguousarray(images)})
        shares = np.exp(logits - logits.max(1, keepdims=True))
        np.testing.assert_allclose(shares / shares.sum(1, keepdims=True), ours[:count], atol=TOLERANCE)


@pytest.mark.parametrize("to", ["onnx", "torchscript", "wsinfer"])
def test_an_exported_config_is_valid_by_wsinfer_s_schema(exports, to):
    config = read_config(exports[to][0])

    jsonschema.Draft4Validator(WSINFER_SCHEMA).validate(config)
    assert len(config["class_names"]) == config["num_classes"]


def test_a_wsinfer_folder_holds_what_wsinfer_loads(exports, package, tiles):
    folder, _ = exports["wsinfer"]

    assert {"config.json", "torchscript_model.pt", "model.safetensors"} <= {path.name for path in folder.iterdir()}
    assert (folder / "model.safetensors").read_bytes() == (package / "model.safetensors").read_bytes()
    assert read_config(folder)["gemslide"]["files"] == {"torchscript_model.pt": sha256(folder / "torchscript_model.pt")}


def test_no_export_holds_a_path_of_this_computer(exports):
    secrets = [str(Path(training.__file__).parent).encode(), sys.prefix.encode()]
    for folder, report in exports.values():
        path = folder / report["file"]
        held = [path.read_bytes()]
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                held += [archive.read(name) for name in archive.namelist()]
        assert not [secret for secret in secrets for data in held if secret in data], path


def test_probabilities_go_to_wsinfer_as_numbers_whose_softmax_they_are(tmp_path, tiles):
    """WSInfer applies a softmax to a network's output; the published GEMS network returns probabilities."""
    torch.manual_seed(0)
    network = nn.Sequential(*gems_public_blocks(depth=11, num_classes=2, side_px=32)).eval()
    images = torch.randn(4, 3, 32, 32)

    exported = run_torchscript(torchscript_bytes(with_logits(network, "probabilities"), images), "a.pt")

    with torch.inference_mode():
        torch.testing.assert_close(exported(images).softmax(1), network(images), atol=1e-6, rtol=0)


@pytest.mark.prove
@pytest.mark.data
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_a_resnet_of_110_layers_gives_the_same_numbers_on_real_tissue(real_slides, norm):
    with openslide.OpenSlide(real_slides / "crc-mosaic/train_1.tiff") as slide:
        tiles_nhwc = np.stack(
            [np.asarray(slide.read_region((x, 1500), 0, (224, 224)).convert("RGB")) for x in (1000, 1500, 2000)]
        )
    images = to_input(tiles_nhwc, [0.7, 0.5, 0.7], [0.2, 0.2, 0.2]).contiguous()
    torch.manual_seed(0)
    network = resnet_v2(depth=110, num_classes=5, norm=norm)
    with torch.no_grad():
        for _ in range(8):  # running statistics like those of a trained network
            network.train()(images)
    network.eval()

    onnx = OnnxNetwork(onnx_bytes(network, images), "a.onnx", tile_px=224, num_classes=5)
    script = run_torchscript(torchscript_bytes(network, images), "a.pt")

    for exported in (onnx, script):
        assert largest_difference(network, exported, images, "export", outputs="logits") < TOLERANCE


def test_an_export_that_gives_other_numbers_is_refused(tiles):
    network, other = nn.Flatten(), nn.Sequential(nn.Flatten(), nn.Dropout(0.5))
    images = torch.ones(3, 3, 8, 8)

    assert largest_difference(network, nn.Flatten(), images, "f", outputs="logits") == 0
    with pytest.raises(ImplausibleOutputError, match="f: its outputs differ by 1 from the model's on a batch of 1"):
        largest_difference(network, other.train(), images, "f", outputs="logits")
    with pytest.raises(ImplausibleOutputError, match="differ by nan"):
        largest_difference(network, network, images * float("nan"), "f", outputs="logits")


def test_an_export_replaces_nothing_and_leaves_nothing_when_refused(package, tiles, tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(UnreadableError, match="already exists"):
        export_package(package, "torchscript", tmp_path / "there", tiles)
    with pytest.raises(BadRecipeError, match="torch cannot turn this network into ONNX"):
        onnx_bytes(Unexportable(), torch.zeros(2, 3, 8, 8))
    assert [path.name for path in tmp_path.iterdir() if path.name != "config"] == ["there"]


class Unexportable(nn.Module):
    def forward(self, images_nchw):
        return torch.linalg.svdvals(images_nchw[:, 0])
