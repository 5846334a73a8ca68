"""Folders as on Hugging Face: the same weights under timm's names and transformers' give the same features."""

from __future__ import annotations

import importlib.util
import json
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.training.encoders.tiny_encoders import (
    DEPTH,
    DINOV2_CONFIG,
    HEADS,
    HIDDEN,
    PATCH_PX,
    REGISTERS,
    SIDE_PX,
    TIMM_CONFIG,
    WIDTH,
    as_transformers,
    folder_row,
    tiles,
    timm_state,
)
from training.data.augment import to_input
from training.encoders.kinds.hf_folder import read_folder_config
from training.encoding import Encoder
from training.foundation.errors import BadRecipeError, UnreadableError
from training.models.vit import ViTSizes

pytestmark = pytest.mark.usefixtures("one_thread")


def by_formula(state, images_nchw):
    """Tokens of the transformer, written out from the papers, with timm's names of weights."""

    def linear(name, x):
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def normalised(name, x):
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-6)
        return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]

    patches = functional.unfold(images_nchw, PATCH_PX, stride=PATCH_PX).transpose(1, 2)
    x = patches @ state["patch_embed.proj.weight"].flatten(1).T + state["patch_embed.proj.bias"]
    prefix = torch.cat([state["cls_token"], state.get("reg_token", torch.empty(1, 0, WIDTH))], 1).expand(len(x), -1, -1)
    if state["pos_embed"].shape[1] == x.shape[1]:
        x = torch.cat([prefix, x + state["pos_embed"]], 1)
    else:
        x = torch.cat([prefix, x], 1) + state["pos_embed"]
    for index in range(DEPTH):
        block, one = f"blocks.{index}.", torch.ones(WIDTH)
        query, key, value = (
            part.reshape(*x.shape[:2], HEADS, -1).transpose(1, 2)
            for part in linear(f"{block}attn.qkv", normalised(f"{block}norm1", x)).split(WIDTH, dim=-1)
        )
        weights = torch.softmax(query @ key.transpose(2, 3) / math.sqrt(WIDTH / HEADS), dim=-1)
        mixed = (weights @ value).transpose(1, 2).reshape(x.shape)
        x = x + state.get(f"{block}ls1.gamma", one) * linear(f"{block}attn.proj", mixed)
        raised = linear(f"{block}mlp.fc1", normalised(f"{block}norm2", x))
        if raised.shape[-1] == 2 * HIDDEN:
            raised = raised[..., :HIDDEN] * torch.sigmoid(raised[..., :HIDDEN]) * raised[..., HIDDEN:]
        else:
            raised = raised * 0.5 * (1 + torch.erf(raised / math.sqrt(2)))
        x = x + state.get(f"{block}ls2.gamma", one) * linear(f"{block}mlp.fc2", raised)
    return normalised("norm", x)


@pytest.mark.parametrize("options", [{}, {"scales": True, "gated": True}, {"scales": True}], ids=str)
def test_both_layouts_give_the_features_of_the_formula(tmp_path, options):
    state, given = timm_state(**options), tiles(4)
    timm = Encoder.load(folder_row(tmp_path / "timm", state, TIMM_CONFIG))
    config = {**DINOV2_CONFIG, "use_swiglu_ffn": options.get("gated", False)}
    transformers = Encoder.load(folder_row(tmp_path / "hf", as_transformers(state), config))

    expected = by_formula(state, to_input(given, timm.mean, timm.std))[:, 0].numpy()

    np.testing.assert_allclose(timm.encode(given), expected, atol=2e-5)
    np.testing.assert_array_equal(transformers.encode(given), timm.encode(given))
    assert timm.encode(given).dtype == np.float32
    assert timm.encoder_id != transformers.encoder_id  # other files


def test_registers_are_neither_the_class_token_nor_patches(tmp_path):
    state, given = timm_state(registers=REGISTERS, scales=True), tiles(3)
    encoders = {
        pool: Encoder.load(folder_row(tmp_path, state, TIMM_CONFIG, pool.replace("+", "-"), pool=pool, dims=dims))
        for pool, dims in {"cls": WIDTH, "mean": WIDTH, "cls+mean": 2 * WIDTH}.items()
    }

    tokens = by_formula(state, to_input(given, encoders["cls"].mean, encoders["cls"].std))

    assert tokens.shape[1] == 1 + REGISTERS + (SIDE_PX // PATCH_PX) ** 2
    first, mean = tokens[:, 0].numpy(), tokens[:, 1 + REGISTERS :].mean(1).numpy()
    np.testing.assert_allclose(encoders["cls"].encode(given), first, atol=2e-5)
    np.testing.assert_allclose(encoders["mean"].encode(given), mean, atol=2e-5)
    np.testing.assert_allclose(encoders["cls+mean"].encode(given), np.hstack([first, mean]), atol=2e-5)


@pytest.mark.parametrize(("layout", "antialias"), [("timm", True), ("transformers", False)])
def test_position_embeddings_are_interpolated_as_their_program_does(tmp_path, layout, antialias):
    trained_px, given = 2 * SIDE_PX, tiles(2)
    state = timm_state(side_px=trained_px)
    if layout == "timm":
        config = {**TIMM_CONFIG, "architecture": "vit_tiny_patch8_64", "model_args": {"num_classes": 0}}
        path = folder_row(tmp_path, state, config)
    else:
        path = folder_row(tmp_path, as_transformers(state), {**DINOV2_CONFIG, "image_size": trained_px})
    encoder = Encoder.load(path)

    grid = (
        state["pos_embed"][:, 1:].reshape(1, trained_px // PATCH_PX, trained_px // PATCH_PX, WIDTH).permute(0, 3, 1, 2)
    )
    size = (SIDE_PX // PATCH_PX,) * 2
    smaller = functional.interpolate(grid, size=size, mode="bicubic", antialias=antialias).flatten(2).transpose(1, 2)
    resized = {**state, "pos_embed": torch.cat([state["pos_embed"][:, :1], smaller], 1)}
    expected = by_formula(resized, to_input(given, encoder.mean, encoder.std))[:, 0].numpy()
    np.testing.assert_allclose(encoder.encode(given), expected, atol=2e-5)


def test_position_embeddings_may_cover_the_registers_too(tmp_path):
    given = tiles(2)
    state = timm_state(registers=REGISTERS)
    prefix = torch.randn(1, 1 + REGISTERS, WIDTH, generator=torch.Generator().manual_seed(9))
    state["pos_embed"] = torch.cat([prefix, state["pos_embed"]], 1)
    encoder = Encoder.load(folder_row(tmp_path, state, TIMM_CONFIG))

    expected = by_formula(state, to_input(given, encoder.mean, encoder.std))[:, 0].numpy()

    np.testing.assert_allclose(encoder.encode(given), expected, atol=2e-5)


def test_a_folder_with_code_is_refused_whatever_its_weights(tmp_path):
    path = folder_row(tmp_path, timm_state(), TIMM_CONFIG)
    config = tmp_path / "tiny-files/config.json"

    (tmp_path / "tiny-files/modeling.py").write_text("raise SystemExit('ran')")
    with pytest.raises(UnreadableError, match=r"comes with code of its own \(the file modeling.py\), which is not run"):
        Encoder.load(path)
    (tmp_path / "tiny-files/modeling.py").unlink()
    config.write_text(json.dumps({**TIMM_CONFIG, "auto_map": {"AutoModel": "somebody/else--modeling.Net"}}))
    with pytest.raises(UnreadableError, match="the key 'auto_map'"):
        Encoder.load(path)
    config.write_text(json.dumps(TIMM_CONFIG))
    Encoder.load(path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "bert"}, "but 'bert'. Export the network as ONNX"),
        ({**DINOV2_CONFIG, "hidden_act": "relu"}, "hidden_act = 'relu'"),
        ({**DINOV2_CONFIG, "num_attention_heads": 5}, "5 heads do not divide a width of 24"),
        ({**DINOV2_CONFIG, "num_attention_heads": "3"}, "num_attention_heads = '3'"),
        ({**DINOV2_CONFIG, "image_size": 72}, "17 position embeddings for images of 72 px in patches of 8 px"),
        ({**DINOV2_CONFIG, "layer_norm_eps": True}, "layer_norm_eps = True"),
        ({**TIMM_CONFIG, "model_args": []}, None),
        ({**TIMM_CONFIG, "model_args": 3}, "model_args in config.json is no table"),
    ],
)
def test_a_configuration_that_cannot_be_followed_is_refused(tmp_path, config, words):
    state = timm_state() if "architecture" in config else as_transformers(timm_state())
    path = folder_row(tmp_path, state, config)

    if words is None:
        Encoder.load(path)  # empty, as some programs write it
        return
    with pytest.raises(UnreadableError, match=words):
        Encoder.load(path)


def test_a_configuration_that_is_no_json_or_no_object_is_refused(tmp_path):
    for text, words in (("{", "not JSON"), ("[]", "holds no object")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UnreadableError, match=words):
            read_folder_config(tmp_path)


def changed(state, change):
    if change == "more":
        return {**state, "blocks.0.attn.q_norm.weight": torch.ones(8)}
    if change == "less":
        return {name: tensor for name, tensor in state.items() if name != "blocks.1.mlp.fc2.weight"}
    if change == "no class token":
        return {name: tensor for name, tensor in state.items() if name != "cls_token"}
    if change == "parts that do not join":
        parts = {
            f"encoder.layer.0.attention.attention.{part}.weight": torch.ones(3, 4 + len(part))
            for part in ("query", "key")
        }
        return {**as_transformers(state), **parts}
    if change == "a scalar":
        return {**state, "blocks.0.mlp.fc2.weight": torch.tensor(1.0)}
    return {**state, "blocks.0.attn.qkv.weight": torch.ones(WIDTH, WIDTH)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("more", r"weights that a plain vision transformer lacks: blocks\.0\.attn\.q_norm\.weight"),
        ("less", "block1.mlp.down.weight.*not this network's weights"),
        ("no class token", "lacks cls"),
        ("a scalar", "not the weights of a plain vision transformer"),
        ("parts that do not join", "not the weights of a plain vision transformer"),
        ("other sizes", "size mismatch.*not this network's weights"),
    ],
)
def test_weights_of_another_network_are_refused(tmp_path, change, words):
    config = DINOV2_CONFIG if change == "parts that do not join" else TIMM_CONFIG
    path = folder_row(tmp_path, changed(timm_state(), change), config)

    with pytest.raises(UnreadableError, match=words):
        Encoder.load(path)


def test_tiles_that_patches_do_not_cover_are_refused(tmp_path):
    path = folder_row(tmp_path, timm_state(), TIMM_CONFIG, tile_px=36)

    with pytest.raises(UnreadableError, match="patches of 8 px do not cover images of 36 px"):
        Encoder.load(path)
    with pytest.raises(UnreadableError, match="2048 patches per side"):
        Encoder.load(folder_row(tmp_path, timm_state(), TIMM_CONFIG, tile_px=16_384))
    with pytest.raises(ValueError, match="do not cover"):
        ViTSizes(side_px=4, patch_px=8, width=8, depth=1, heads=1, hidden=8)


@pytest.mark.skipif(importlib.util.find_spec("timm") is not None, reason="timm is installed here")
@pytest.mark.parametrize(
    "config", [{"architecture": "resnet50"}, {**TIMM_CONFIG, "model_args": {"act_layer": "quick_gelu"}}]
)
def test_another_architecture_says_that_it_needs_timm(tmp_path, config):
    path = folder_row(tmp_path, timm_state(), config)

    with pytest.raises(BadRecipeError, match="needs timm, which cannot be imported here"):
        Encoder.load(path)
