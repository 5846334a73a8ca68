"""Encoders in a local folder as on Hugging Face: `config.json` and the weights. Code in such a folder is never run.

Plain vision transformers (ViT, DINOv2, with registers or without) are built by gemslide, from timm's files and from
those of transformers, so that what runs does not depend on what is installed. Other architectures of timm need timm.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from training.encoders.kinds.backbone import Backbone
from training.encoders.kinds.timm import timm_encoder
from training.encoders.kinds.vit_weights import TIMM, TRANSFORMERS, Stated, vit_backbone
from training.foundation.errors import UnreadableError
from training.foundation.reading import parse_json, read_regular

MAX_CONFIG_BYTES = 2**20
_CODE = ("auto_map", "custom_pipelines", "trust_remote_code")
"""Keys of a config that refer to code in the folder."""
_EPS = {"vit": 1e-12, "dinov2": 1e-6, "dinov2_with_registers": 1e-6}
"""`layer_norm_eps` of transformers' model types unless stated."""
_PLAIN = re.compile(r"vit_(tiny|small|base|large|huge|giant|gigantic)_patch\d+(?:_reg\d+)?_(dinov2|\d+)")
"""Architectures of timm that are plain vision transformers; others of similar names differ beyond their weights."""
_HEADS = {"tiny": 3, "small": 6, "base": 12, "large": 16, "huge": 16, "giant": 16, "gigantic": 16}
_HEADS_OF_DINOV2_GIANT, _SIDE_OF_DINOV2 = 24, 518
_SAID_BY_WEIGHTS = {
    "img_size", "patch_size", "embed_dim", "depth", "num_heads", "init_values", "reg_tokens", "num_classes",
    "mlp_ratio", "no_embed_class", "dynamic_img_size", "dynamic_img_pad", "global_pool", "qkv_bias",
}  # fmt: skip
"""Arguments of timm's constructor that a plain vision transformer may have: the weights show them, or they are read
here. SwiGLU also shows in the weights, but its activation does not."""


def read_folder_config(folder: Path) -> tuple[dict[str, Any], str]:
    """The folder's configuration, and the SHA-256 of its file.

    Raises:
        UnreadableError: missing, not JSON, or it refers to code.
    """
    path = folder / "config.json"
    try:
        data = read_regular(path, max_bytes=MAX_CONFIG_BYTES)
        config = parse_json(data)
        code = [entry.name for entry in sorted(folder.iterdir()) if entry.suffix == ".py"]
    except OSError as error:
        raise UnreadableError(
            f"{path}: {error.strerror}. Name a folder with config.json and model.safetensors in the row's `source`; "
            "nothing is downloaded."
        ) from error
    except ValueError as error:
        raise UnreadableError(f"{path}: not JSON ({error}). Copy the folder again.") from error
    if not isinstance(config, dict):
        raise UnreadableError(f"{path}: holds no object. Copy the folder again.")
    if code or any(config.get(key) for key in _CODE):
        named = f"the file {code[0]}" if code else f"the key {next(key for key in _CODE if config.get(key))!r}"
        raise UnreadableError(
            f"{folder}: comes with code of its own ({named:.100}), which is not run. If its network is a plain vision "
            "transformer, remove the code and the key; otherwise export it as ONNX."
        )
    return config, hashlib.sha256(data).hexdigest()


def folder_weights(folder: Path) -> Path:
    """The file with a folder's weights, unless the row names another; it may be missing."""
    names = ("model.safetensors", "pytorch_model.bin")
    return next((folder / name for name in names if os.path.isfile(folder / name)), folder / names[0])


def folder_network(config: Mapping[str, Any], state: Mapping[str, Tensor], where: str, *, tile_px: int) -> Backbone:
    """The network that a folder's configuration describes, with its weights.

    Raises:
        UnreadableError: not a network that gemslide or timm can build, or other weights.
        BadRecipeError: it needs timm, which is not installed.
    """
    if isinstance(architecture := config.get("architecture"), str):
        arguments = config.get("model_args") or {}
        if not isinstance(arguments, dict):
            raise UnreadableError(f"{where}: model_args in config.json is no table. Copy the folder again.")
        if stated := _plain_timm(architecture, arguments, where):
            return vit_backbone(state, TIMM, stated, where, tile_px=tile_px)
        return timm_encoder(architecture, state, where, tile_px=tile_px, is_pooled=False, arguments=arguments)
    kind = config.get("model_type")
    if kind not in _EPS:
        raise UnreadableError(
            f"{where}: config.json describes neither an `architecture` of timm nor a `model_type` that gemslide builds "
            f"({', '.join(_EPS)}), but {kind!r:.60}. Export the network as ONNX."
        )
    stripped = {name.removeprefix(f"{kind}."): tensor for name, tensor in state.items()}
    return vit_backbone(stripped, TRANSFORMERS, _transformers(str(kind), config, where), where, tile_px=tile_px)


def _plain_timm(architecture: str, arguments: Mapping[str, Any], where: str) -> Stated | None:
    """What a plain vision transformer's configuration states; None if it is another architecture."""
    matched = _PLAIN.fullmatch(architecture.partition(".")[0])
    if matched is None or not set(arguments) <= _SAID_BY_WEIGHTS:
        return None
    size, trained = matched.groups()
    is_dinov2 = trained == "dinov2"
    usual_heads = _HEADS_OF_DINOV2_GIANT if is_dinov2 and size == "giant" else _HEADS[size]
    side_px = arguments.get("img_size", _SIDE_OF_DINOV2 if is_dinov2 else int(trained))
    heads = arguments.get("num_heads", usual_heads)
    return Stated(_whole(heads, "num_heads", where), _whole(side_px, "img_size", where), 1e-6, antialias=True)


def _transformers(kind: str, config: Mapping[str, Any], where: str) -> Stated:
    """What a configuration of transformers states."""
    if config.get("hidden_act", "gelu") != "gelu" and not config.get("use_swiglu_ffn"):
        raise UnreadableError(
            f'{where}: hidden_act = {config["hidden_act"]!r:.60} in config.json; gemslide builds networks with "gelu". '
            "Export the network as ONNX."
        )
    heads, side_px = (_whole(config.get(key), key, where) for key in ("num_attention_heads", "image_size"))
    eps = config.get("layer_norm_eps", _EPS[kind])
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 < eps < 1:
        raise UnreadableError(f"{where}: layer_norm_eps = {eps!r:.60} in config.json is no small number.")
    return Stated(heads, side_px, float(eps), antialias=kind == "dinov2_with_registers")


def _whole(value: object, key: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**14:
        raise UnreadableError(f"{where}: {key} = {value!r:.60} in config.json is no whole number from 1 to {2**14}.")
    return value
