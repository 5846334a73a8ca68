"""Tiny encoders of every kind, with random weights: folders, ONNX files, installed code, and their rows."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from safetensors.torch import save_file
from torch import Tensor

SIDE_PX, PATCH_PX, WIDTH, DEPTH, HEADS, HIDDEN = 32, 8, 24, 2, 3, 40
REGISTERS = 2
"""Registers of networks that have some."""

COMMON: dict[str, Any] = {
    "tile_px": SIDE_PX,
    "mpp": 0.5,
    "mean": [0.7, 0.55, 0.65],
    "std": [0.2, 0.25, 0.15],
    "licence": "CC0-1.0",
    "citation": "Nobody, Nowhere, 2026",
}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_row(folder: Path, name: str = "tiny", **values: Any) -> Path:
    """Write a row of `COMMON` and these values; None leaves a key out."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    row = {key: value for key, value in {**COMMON, **values}.items() if value is not None}
    path.write_bytes(tomli_w.dumps(row).encode())
    return path


def tiles(count: int, side_px: int = SIDE_PX, *, seed: int = 3) -> np.ndarray:
    """Tiles that all differ, uint8 (count, side, side, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (count, side_px, side_px, 3), np.uint8)


def timm_state(
    *, registers: int = 0, gated: bool = False, scales: bool = False, side_px: int = SIDE_PX
) -> dict[str, Tensor]:
    """Random weights of a small vision transformer under timm's names; with registers, as its DINOv2 has them."""
    random = torch.Generator().manual_seed(5)

    def drawn(*shape: int) -> Tensor:
        return 0.3 * torch.randn(*shape, generator=random)

    patches = (side_px // PATCH_PX) ** 2
    state = {
        "cls_token": drawn(1, 1, WIDTH),
        "pos_embed": drawn(1, patches + (0 if registers else 1), WIDTH),
        "patch_embed.proj.weight": drawn(WIDTH, 3, PATCH_PX, PATCH_PX),
        "patch_embed.proj.bias": drawn(WIDTH),
        "norm.weight": 1 + drawn(WIDTH),
        "norm.bias": drawn(WIDTH),
    }
    if registers:
        state["reg_token"] = drawn(1, registers, WIDTH)
    for index in range(DEPTH):
        layers = {
            "attn.qkv": (3 * WIDTH, WIDTH), "attn.proj": (WIDTH, WIDTH),
            "mlp.fc1": (2 * HIDDEN if gated else HIDDEN, WIDTH), "mlp.fc2": (WIDTH, HIDDEN),
        }  # fmt: skip
        for layer, shape in layers.items():
            state[f"blocks.{index}.{layer}.weight"] = drawn(*shape)
            state[f"blocks.{index}.{layer}.bias"] = drawn(shape[0])
        for norm in ("norm1", "norm2"):
            state[f"blocks.{index}.{norm}.weight"] = 1 + drawn(WIDTH)
            state[f"blocks.{index}.{norm}.bias"] = drawn(WIDTH)
        if scales:
            state |= {f"blocks.{index}.{scale}.gamma": drawn(WIDTH) for scale in ("ls1", "ls2")}
    return state


def as_transformers(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights under the names of transformers' Dinov2Model (version 4), which also keeps a mask token."""
    renamed = {
        "embeddings.cls_token": state["cls_token"],
        "embeddings.mask_token": torch.zeros(1, WIDTH),
        "embeddings.position_embeddings": state["pos_embed"],
        "embeddings.patch_embeddings.projection.weight": state["patch_embed.proj.weight"],
        "embeddings.patch_embeddings.projection.bias": state["patch_embed.proj.bias"],
        "layernorm.weight": state["norm.weight"],
        "layernorm.bias": state["norm.bias"],
    }
    gated = state["blocks.0.mlp.fc1.weight"].shape[0] == 2 * HIDDEN
    layers = {
        "attn.proj": "attention.output.dense", "norm1": "norm1", "norm2": "norm2",
        "mlp.fc1": "mlp.weights_in" if gated else "mlp.fc1", "mlp.fc2": "mlp.weights_out" if gated else "mlp.fc2",
    }  # fmt: skip
    for index in range(DEPTH):
        ours, theirs = f"blocks.{index}.", f"encoder.layer.{index}."
        for kind in ("weight", "bias"):
            parts = state[f"{ours}attn.qkv.{kind}"].chunk(3)
            for part, tensor in zip(("query", "key", "value"), parts, strict=True):
                renamed[f"{theirs}attention.attention.{part}.{kind}"] = tensor.contiguous()
            renamed |= {f"{theirs}{new}.{kind}": state[f"{ours}{old}.{kind}"] for old, new in layers.items()}
        for number in (1, 2):
            if (scale := state.get(f"{ours}ls{number}.gamma")) is not None:
                renamed[f"{theirs}layer_scale{number}.lambda1"] = scale
    return renamed


TIMM_CONFIG = {
    "architecture": "vit_tiny_patch8_32",
    "model_args": {"img_size": SIDE_PX, "num_classes": 0},
    "pretrained_cfg": {"tag": "none"},
}
DINOV2_CONFIG = {
    "model_type": "dinov2", "hidden_act": "gelu", "image_size": SIDE_PX, "num_attention_heads": HEADS,
    "layer_norm_eps": 1e-6, "architectures": ["Dinov2Model"],
}  # fmt: skip


def write_folder(folder: Path, state: dict[str, Tensor], config: dict[str, Any]) -> Path:
    """Write a folder as on Hugging Face."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "model.safetensors")
    return folder


def folder_row(
    encoders: Path, state: dict[str, Tensor], config: dict[str, Any], name: str = "tiny", **values: Any
) -> Path:
    """Write a folder and the row that describes it."""
    folder = write_folder(encoders / f"{name}-files", state, config)
    row = {"pool": "cls", "dims": WIDTH, "source": folder.name, "sha256": sha256(folder / "model.safetensors")}
    return write_row(encoders, name, kind="hf-folder", **{**row, **values})


def write_onnx(path: Path, *, dims: int = 5, side_px: int = SIDE_PX) -> Path:
    """Write an ONNX file: mean colour times a matrix."""
    from onnx import TensorProto, helper, numpy_helper, save

    matrix = np.random.default_rng(0).normal(size=(3, dims)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["images"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["colours"]),
            helper.make_node("MatMul", ["colours", "matrix"], ["outputs"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, side_px, side_px])],
        [helper.make_tensor_value_info("outputs", TensorProto.FLOAT, ["N", dims])],
        [numpy_helper.from_array(matrix, "matrix")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(model, str(path))
    return path


def onnx_row(encoders: Path, name: str = "tiny", **values: Any) -> Path:
    """Write an ONNX file and the row that describes it."""
    path = write_onnx(encoders / f"{name}.onnx")
    row = {"source": path.name, "sha256": sha256(path), "pool": "none", "dims": 5}
    return write_row(encoders, name, kind="onnx", **{**row, **values})


CODE = """
from types import SimpleNamespace
import torch
from torch import nn

class Colours(nn.Module):
    def __init__(self, spoil=lambda features, images: features):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 4, stride=4)
        self.norm = nn.BatchNorm2d(6)
        self.again = nn.Conv2d(6, 6, 1)
        self.norm_a, self.norm_b = nn.BatchNorm2d(6), nn.BatchNorm2d(6)
        self.spoil = spoil

    def forward(self, images):
        image = torch.relu(self.norm(self.conv(images)))
        image = torch.relu(self.norm_a(self.again(image)))
        image = torch.relu(self.norm_b(self.again(image)))
        return self.spoil(image.mean((2, 3)), images)

def built(model, **changes):
    usual = dict(model=model, mean=[0.7, 0.55, 0.65], std=[0.2, 0.25, 0.15], tile_px=32, precision="fp32")
    return SimpleNamespace(**{**usual, **changes})

def colours():
    return built(Colours())

def mixing():
    return built(Colours(lambda features, images: features - features.mean(0)))

def not_numbers():
    return built(Colours(lambda features, images: features / (features - features)))

def blind():
    return built(Colours(lambda features, images: features.new_ones(len(images), 6)))

def other_tiles():
    return built(Colours(), tile_px=64)

def other_mean():
    return built(Colours(), mean=(0.5, 0.5, 0.5))

def text():
    return "an encoder"

def no_module():
    return built("a model")

def failing():
    raise RuntimeError("no network here")
"""


def install(site: Path) -> None:
    """Lay out a package that registers encoders, to be put on `sys.path`."""
    info = site / "their_encoders-1.2.dist-info"
    info.mkdir(parents=True)
    (site / "their_encoders_of_test.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-encoders\nVersion: 1.2\n")
    names = ("colours", "mixing", "not_numbers", "blind", "other_tiles", "other_mean", "text", "no_module", "failing")
    lines = ["[gemslide.encoders]", *(f"{name} = their_encoders_of_test:{name}" for name in names)]
    (info / "entry_points.txt").write_text("\n".join([*lines, "gone = their_encoders_of_test:not_there"]) + "\n")


def colours_state() -> dict[str, Tensor]:
    """Weights of the installed network, with running statistics that matter."""
    random = torch.Generator().manual_seed(2)
    state = {
        "conv.weight": torch.randn(6, 3, 4, 4, generator=random), "conv.bias": torch.randn(6, generator=random),
        "again.weight": torch.randn(6, 6, 1, 1, generator=random), "again.bias": torch.randn(6, generator=random),
    }  # fmt: skip
    for norm in ("norm", "norm_a", "norm_b"):
        state[f"{norm}.running_var"] = 0.5 + torch.rand(6, generator=random)
        state[f"{norm}.num_batches_tracked"] = torch.tensor(7)
        for part in ("weight", "bias", "running_mean"):
            state[f"{norm}.{part}"] = torch.randn(6, generator=random)
    return state


def code_row(encoders: Path, source: str, name: str = "tiny", **values: Any) -> Path:
    """Write weights for the installed network, and the row that describes it."""
    encoders.mkdir(parents=True, exist_ok=True)
    weights = encoders / "colours.safetensors"
    save_file(colours_state(), weights)
    row = {"source": source, "weights": weights.name, "sha256": sha256(weights), "pool": "none", "dims": 6}
    return write_row(encoders, name, kind="entry-point", **{**row, **values})
