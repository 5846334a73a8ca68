"""Our vision transformer with weights that timm or Hugging Face's transformers have stored under names of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from training.encoders.kinds.backbone import Backbone, put_state
from training.foundation.errors import UnreadableError
from training.models.vit import ViTSizes, resampled_positions, vit

MAX_PATCHES_PER_SIDE = 256
"""More would not fit into memory: attention is between all pairs of patches."""


@dataclass(frozen=True)
class Layout:
    """Names of weights in a program's files, and their names here."""

    whole: Mapping[str, str]
    """Names outside of blocks."""
    block: str
    """Pattern of a name within a block: its number, then its part."""
    parts: Mapping[str, str]
    """Layers of a block, each with a weight and most with a bias, and scales."""
    left_out: str
    """Pattern of names that do not change the tokens: heads, and the token of masked patches in training."""


TIMM = Layout(
    whole={
        "cls_token": "cls", "reg_token": "registers", "pos_embed": "positions", "norm": "norm",
        "patch_embed.proj": "embed.patch",
    },
    block=r"blocks\.(\d+)\.(.+)",
    parts={
        "norm1": "norm1", "attn.qkv": "attention.qkv", "attn.proj": "attention.out", "ls1.gamma": "scale1",
        "norm2": "norm2", "mlp.fc1": "mlp.up", "mlp.fc2": "mlp.down", "ls2.gamma": "scale2",
    },
    left_out=r"head\.(weight|bias)|mask_token",
)  # fmt: skip
TRANSFORMERS = Layout(
    whole={
        "embeddings.cls_token": "cls", "embeddings.register_tokens": "registers",
        "embeddings.position_embeddings": "positions", "embeddings.patch_embeddings.projection": "embed.patch",
        "layernorm": "norm",
    },
    block=r"encoder\.layer\.(\d+)\.(.+)",
    parts={
        "norm1": "norm1", "layernorm_before": "norm1", "norm2": "norm2", "layernorm_after": "norm2",
        "attention.attention.query": "query", "attention.attention.key": "key", "attention.attention.value": "value",
        "attention.output.dense": "attention.out",
        "layer_scale1.lambda1": "scale1", "layer_scale2.lambda1": "scale2",
        "intermediate.dense": "mlp.up", "mlp.fc1": "mlp.up", "mlp.weights_in": "mlp.up",
        "output.dense": "mlp.down", "mlp.fc2": "mlp.down", "mlp.weights_out": "mlp.down",
    },
    left_out=r"embeddings\.mask_token|pooler\.dense\.(weight|bias)|classifier\.(weight|bias)",
)  # fmt: skip
"""Names in its files; version 5 has others in memory only."""
_JOINED, _PARTS = "attention.qkv", ("query", "key", "value")
"""Layer here that transformers keeps in parts."""


@dataclass(frozen=True)
class Stated:
    """What weights do not say about their network, and its configuration does."""

    heads: int
    side_px: int
    """Side of the images that its position embeddings were made for."""
    norm_eps: float
    antialias: bool
    """How its program interpolates position embeddings for other sizes."""


def vit_backbone(state: Mapping[str, Tensor], layout: Layout, stated: Stated, where: str, *, tile_px: int) -> Backbone:
    """Our transformer with these weights.

    Raises:
        UnreadableError: they have other parts than such a network, or other sizes than stated.
    """
    try:
        named = _renamed(state, layout, where)
        sizes = _sizes(named, stated, tile_px)
        prefix, positions = _positions(named, stated, sizes)
    except KeyError as error:
        raise UnreadableError(f"{where}: lacks {error.args[0]}, which a plain vision transformer has.") from error
    except (ValueError, IndexError, RuntimeError, ZeroDivisionError) as error:
        raise UnreadableError(
            f"{where}: not the weights of a plain vision transformer for tiles of {tile_px} px ({error!s:.200}). "
            "Compare its config.json and the row."
        ) from error
    ours = {name: tensor for name, tensor in named.items() if name not in ("cls", "registers", "positions")}
    with torch.device("meta"):  # without memory: the weights themselves become its parameters
        network = vit(sizes)
    put_state(network, {**ours, "embed.prefix": prefix, "embed.positions": positions}, where, assign=True)
    return Backbone(network, sizes.prefix_tokens)


def _renamed(state: Mapping[str, Tensor], layout: Layout, where: str) -> dict[str, Tensor]:
    """Weights under our names, joined where other programs keep parts."""
    named: dict[str, Tensor] = {}
    unknown = []
    for name, tensor in state.items():
        if re.fullmatch(layout.left_out, name):
            continue
        ours = _our_name(name, layout)
        if ours is None or ours in named:
            unknown.append(name)
        else:
            named[ours] = tensor
    if unknown:
        raise UnreadableError(
            f"{where}: has weights that a plain vision transformer lacks: {', '.join(unknown[:3]):.300}"
            f"{' …' if len(unknown) > 3 else ''}. Describe it as another kind, such as an ONNX file."
        )
    return dict(_joined(named))


def _our_name(name: str, layout: Layout) -> str | None:
    """A weight's name here; None if it is none of this network's."""
    inner = re.fullmatch(layout.block, name)
    names, prefix, part = (layout.parts, f"block{int(inner[1])}.", inner[2]) if inner else (layout.whole, "", name)
    if part in names:
        return prefix + names[part]
    layer, _, kind = part.rpartition(".")
    return f"{prefix}{names[layer]}.{kind}" if layer in names and kind in ("weight", "bias") else None


def _joined(named: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in named.items():
        block, _, rest = name.partition(".")
        layer, _, kind = rest.partition(".")
        if layer == _PARTS[0]:
            parts = [named[part] for layer in _PARTS if (part := f"{block}.{layer}.{kind}") in named]
            yield f"{block}.{_JOINED}.{kind}", torch.cat(parts)
        elif layer not in _PARTS:
            yield name, tensor


def _sizes(named: Mapping[str, Tensor], stated: Stated, tile_px: int) -> ViTSizes:
    down, up = named["block0.mlp.down.weight"], named["block0.mlp.up.weight"]
    blocks = {name.partition(".")[0] for name in named if name.startswith("block")}
    sizes = ViTSizes(
        side_px=tile_px,
        patch_px=named["embed.patch.weight"].shape[-1],
        width=named["cls"].shape[-1],
        depth=len(blocks),
        heads=stated.heads,
        hidden=down.shape[1],
        registers=named["registers"].shape[1] if "registers" in named else 0,
        is_gated=up.shape[0] == 2 * down.shape[1],
        has_scales="block0.scale1" in named,
        qkv_bias="block0.attention.qkv.bias" in named,
        norm_eps=stated.norm_eps,
    )
    if sizes.patches_per_side > MAX_PATCHES_PER_SIDE:
        raise ValueError(f"{sizes.patches_per_side} patches per side; at most {MAX_PATCHES_PER_SIDE} are supported")
    return sizes


def _positions(named: Mapping[str, Tensor], stated: Stated, sizes: ViTSizes) -> tuple[Tensor, Tensor]:
    """The prefix tokens with their position embeddings, and the embeddings of the patches.

    Programs differ in what position embeddings cover besides patches: nothing, the class token, or registers as well.
    """
    tokens = torch.cat([named["cls"], *([named["registers"]] if "registers" in named else [])], dim=1)
    embeddings = named["positions"]
    covered = embeddings.shape[1] - (stated.side_px // sizes.patch_px) ** 2
    if covered not in (0, 1, sizes.prefix_tokens):
        raise ValueError(
            f"{embeddings.shape[1]} position embeddings for images of {stated.side_px} px in patches of "
            f"{sizes.patch_px} px"
        )
    prefix = torch.cat([tokens[:, :covered] + embeddings[:, :covered], tokens[:, covered:]], dim=1)
    patches = resampled_positions(embeddings[:, covered:], sizes.patches_per_side, antialias=stated.antialias)
    return prefix, patches
