"""Encoders in ONNX files, installed code and timm: opened only as their row says, and run in its number format."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.training.encoders.tiny_encoders import (
    SIDE_PX,
    TIMM_CONFIG,
    WIDTH,
    code_row,
    colours_state,
    folder_row,
    onnx_row,
    sha256,
    tiles,
    timm_state,
    write_onnx,
    write_row,
)
from training.data.augment import to_input
from training.encoders.check import run
from training.encoding import Encoder, check_encoder
from training.foundation.errors import BadRecipeError, ImplausibleOutputError, UnreadableError
from training.inference import RunOn
from training.predict.numerics import Numerics, ready_to_predict

pytestmark = pytest.mark.usefixtures("one_thread")


def test_an_onnx_file_gives_what_its_operators_say(tmp_path):
    encoder, given = Encoder.load(onnx_row(tmp_path)), tiles(3)

    matrix = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    expected = to_input(given, encoder.mean, encoder.std).numpy().mean((2, 3)) @ matrix
    np.testing.assert_allclose(encoder.encode(given), expected, atol=1e-5)
    check_encoder(tmp_path / "tiny.toml")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dims": 7}, r"returns numbers of the shape \(N, 5\), but the row says dims = 7"),
        ({"tile_px": 64}, r"takes images of the shape \(N, 3, 32, 32\), but the row says tile_px = 64"),
        ({"sha256": "0" * 64}, "These are other weights"),
        ({"source": "gone.onnx"}, "Nothing is downloaded"),
    ],
)
def test_an_onnx_file_that_is_not_the_row_s_is_refused(tmp_path, values, words):
    with pytest.raises(UnreadableError, match=words):
        Encoder.load(onnx_row(tmp_path, **values))


def test_an_onnx_file_may_lie_anywhere(tmp_path):
    path = write_onnx(tmp_path / "models/far.onnx")
    row = {"kind": "onnx", "sha256": sha256(path), "pool": "none", "dims": 5}
    one = Encoder.load(write_row(tmp_path / "project/encoders", "a", source=str(path), **row))
    other = Encoder.load(write_row(tmp_path / "project/encoders", "a", source="../../models/far.onnx", **row))

    np.testing.assert_array_equal(one.encode(tiles(2)), other.encode(tiles(2)))
    assert one.encoder_id == other.encoder_id


# --- code of other packages ----------------------------------------------------------------------


def network_of(path):
    """The installed network with the row's weights, run as it is."""
    import their_encoders_of_test

    model = their_encoders_of_test.Colours()
    model.load_state_dict(colours_state())
    return model.eval()


def test_installed_code_with_the_row_s_weights_gives_its_features(tmp_path, their_code):
    encoder, given = Encoder.load(code_row(tmp_path, "colours")), tiles(5)

    with torch.inference_mode():
        expected = network_of(tmp_path)(to_input(given, encoder.mean, encoder.std)).numpy()

    np.testing.assert_allclose(encoder.encode(given), expected, rtol=1e-4, atol=1e-5)
    report = check_encoder(tmp_path / "tiny.toml")
    assert report["encoder_id"] == encoder.encoder_id
    assert len(report["checked"]) == 5


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        ("colour", UnreadableError, r"no package installed here registers it\. Did you mean colours"),
        ("gone", UnreadableError, "cannot be imported"),
        ("failing", UnreadableError, "cannot build its encoder: no network here"),
        ("text", UnreadableError, "returns a str without model, mean, std, tile_px, precision"),
        ("no_module", UnreadableError, "returns a str as `model`, not a torch.nn.Module"),
        ("other_tiles", BadRecipeError, "was written for tile_px = 64, but the row says 32"),
        ("other_mean", BadRecipeError, r"was written for mean = \(0\.5, 0\.5, 0\.5\), but the row says"),
    ],
)
def test_code_that_is_not_the_row_s_encoder_is_refused(tmp_path, their_code, source, kind, words):
    with pytest.raises(kind, match=words):
        Encoder.load(code_row(tmp_path, source))


def test_weights_of_another_network_are_refused_for_installed_code(tmp_path, their_code):
    path = code_row(tmp_path, "colours")
    save_file({"conv.weight": torch.zeros(2)}, tmp_path / "colours.safetensors")
    path.write_text(path.read_text().replace(sha_in(path), sha256(tmp_path / "colours.safetensors")))

    with pytest.raises(UnreadableError, match="They are not this network's weights"):
        Encoder.load(path)


def sha_in(path):
    return next(line.split('"')[1] for line in path.read_text().splitlines() if line.startswith("sha256"))


@pytest.mark.parametrize(
    ("source", "values", "kind", "words"),
    [
        ("not_numbers", {}, ImplausibleOutputError, "not finite"),
        ("mixing", {}, ImplausibleOutputError, "different numbers for a tile among others than for it alone"),
        ("blind", {}, ImplausibleOutputError, "the same numbers for different tiles"),
        ("colours", {"dims": 7}, UnreadableError, "gives 6 numbers per tile, but the row says dims = 7"),
        ("colours", {"pool": "cls"}, UnreadableError, r"shape \(3, 6\).*needs tokens, the first of which"),
        ("colours", {"pool": "mean"}, UnreadableError, "needs tokens or a feature map"),
    ],
)
def test_an_encoder_that_cannot_be_right_does_not_pass_its_check(tmp_path, their_code, source, values, kind, words):
    with pytest.raises(kind, match=words):
        check_encoder(code_row(tmp_path, source, **values))


def test_tiles_of_another_size_are_refused_in_words(tmp_path):
    path = folder_row(tmp_path, timm_state(), TIMM_CONFIG)
    encoder = Encoder.load(path)

    assert encoder.encode(tiles(1)).shape == (1, WIDTH)
    with pytest.raises(UnreadableError, match="cannot be run on 2 tiles of 40 px"):
        run(encoder.encode, tiles(2, 40), "encoder tiny")


# --- number formats, batches, folding ------------------------------------------------------------


def test_the_row_says_the_number_format_and_half_precision_stays_close(tmp_path):
    state, given = timm_state(scales=True), tiles(4)
    exact = Encoder.load(folder_row(tmp_path, state, TIMM_CONFIG, "exact"))
    half = Encoder.load(folder_row(tmp_path, state, TIMM_CONFIG, "half", precision="bf16"), RunOn(views="all"))

    assert (half.run_on.numerics.precision, half.run_on.views) == ("bf16", "none")
    assert half.encoder_id.split("-")[1] != exact.encoder_id.split("-")[1]
    distance = np.linalg.norm(half.encode(given) - exact.encode(given)) / np.linalg.norm(exact.encode(given))
    assert 0 < distance < 0.05
    check_encoder(tmp_path / "half.toml")


def test_deterministic_features_do_not_depend_on_the_batch(tmp_path, their_code):
    given, exactly = tiles(7), RunOn(numerics=Numerics(deterministic=True))
    for path in (folder_row(tmp_path / "a", timm_state(), TIMM_CONFIG), code_row(tmp_path / "b", "colours")):
        encoder = Encoder.load(path, exactly)
        together = encoder.encode(given)
        apart = np.concatenate([encoder.encode(given[start : start + 3]) for start in range(0, 7, 3)])
        np.testing.assert_array_equal(together, apart)


def test_a_loader_of_an_encoder_can_be_sent_to_another_process(tmp_path):
    load = pickle.loads(pickle.dumps(partial(Encoder.load, onnx_row(tmp_path))))

    assert load(RunOn()).dims == 5


def test_a_device_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(BadRecipeError, match="cannot run on cpu as configured"):
        Encoder.load(onnx_row(tmp_path), RunOn(numerics=Numerics(compile=True)))
    with pytest.raises(BadRecipeError, match="one device"):
        Encoder.load(onnx_row(tmp_path), RunOn("cpu+cpu"))


def test_a_transformer_runs_spread_over_devices(tmp_path):
    path, given = folder_row(tmp_path, timm_state(scales=True), TIMM_CONFIG), tiles(3)

    whole, spread = Encoder.load(path), Encoder.load(path, RunOn("cpu+cpu"))

    np.testing.assert_allclose(spread.encode(given), whole.encode(given), atol=1e-5)


class Twice(nn.Module):
    """One convolution that runs twice, each time with a normalisation of its own, and a norm without statistics."""

    def __init__(self):
        super().__init__()
        self.conv, self.more = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 4, 1)
        self.one, self.two, self.last = nn.BatchNorm2d(3), nn.BatchNorm2d(3), nn.BatchNorm2d(4)

    def forward(self, images):
        return self.last(self.more(self.two(self.conv(self.one(self.conv(images))))))


def test_folding_changes_no_feature_where_a_convolution_runs_twice():
    torch.manual_seed(0)
    network = Twice().eval()
    for norm in (network.one, network.two, network.last):
        for tensor in (norm.weight, norm.bias, norm.running_mean):
            nn.init.normal_(tensor)
        nn.init.uniform_(norm.running_var, 0.5, 2)
    images = torch.randn(2, 3, 9, 7)
    with torch.inference_mode():
        expected = network(images)

    ready = ready_to_predict(network, [torch.device("cpu")], Numerics(), input_shape=(1, 3, 9, 7))

    with torch.inference_mode():
        torch.testing.assert_close(ready(images), expected, rtol=1e-4, atol=1e-5)
    assert sum(isinstance(module, nn.BatchNorm2d) for module in ready.modules()) == 2  # only the last was folded


# --- timm ----------------------------------------------------------------------------------------


def test_timm_s_networks_give_what_timm_gives(tmp_path):
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"timm cannot be imported here, so that no encoder of kind timm is tested: {error}")
    torch.manual_seed(1)
    given = tiles(3, 64)
    for architecture, pool, dims in (("resnet10t", "none", 512), ("resnet10t", "mean", 512)):
        model = timm.create_model(architecture, pretrained=False).eval()
        save_file(model.state_dict(), tmp_path / "w.safetensors")
        path = write_row(
            tmp_path, kind="timm", source=architecture, weights="w.safetensors", tile_px=64, pool=pool, dims=dims,
            sha256=sha256(tmp_path / "w.safetensors"),
        )  # fmt: skip
        encoder = Encoder.load(path)
        with torch.inference_mode():
            features = model.forward_features(to_input(given, encoder.mean, encoder.std))
        np.testing.assert_allclose(encoder.encode(given), features.mean((2, 3)).numpy(), rtol=1e-3, atol=1e-4)
    assert SIDE_PX != 64
