"""Encoders whose network timm (PyTorch Image Models) builds: the only adapter to it. Nothing is downloaded."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from training.encoders.kinds.backbone import Backbone, put_state
from training.foundation.errors import BadRecipeError, UnreadableError
from training.foundation.words.spelling import nearest


class Tokens(nn.Module):
    """The tokens or the feature map of a timm network, before its own pooling."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images_nchw: Tensor) -> Tensor:
        features: Tensor = self.model.forward_features(images_nchw)
        return features


def timm_encoder(
    architecture: str,
    state: Mapping[str, Tensor],
    where: str,
    *,
    tile_px: int,
    is_pooled: bool,
    arguments: Mapping[str, Any] | None = None,
) -> Backbone:
    """The network of an architecture, with its weights.

    Args:
        is_pooled: whether timm itself pools it to one row per image.
        arguments: of timm's constructor, besides the size of images and the number of classes.

    Raises:
        BadRecipeError: timm is not installed, or does not work with this torch.
        UnreadableError: there is no such architecture, or these are weights of another.
    """
    timm = _timm(where)
    if not architecture.replace("_", "").replace(".", "").isalnum() or not timm.is_model(architecture):
        near = nearest(architecture, timm.list_models(), most=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise UnreadableError(f"{where}: timm {timm.__version__} has no architecture {architecture!r:.100}.{hint}")
    model = _created(timm, architecture, {**(arguments or {}), "num_classes": 0}, tile_px, where)
    put_state(model, _fitted(dict(state), model), where)
    prefix = int(getattr(model, "num_prefix_tokens", 0))
    return Backbone(model if is_pooled else Tokens(model), prefix)


def _timm(where: str) -> Any:
    try:
        return import_module("timm")
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision that was built for another torch
        reason = " ".join(str(error).split())
        raise BadRecipeError(
            f"{where}: needs timm, which cannot be imported here ({reason:.200}). Install timm, and the torchvision "
            "that was built for this torch."
        ) from error


def _created(timm: Any, architecture: str, arguments: dict[str, Any], tile_px: int, where: str) -> Any:
    """The network for tiles of this size; a convolutional network takes any, and no argument for it."""
    try:
        try:
            return timm.create_model(architecture, pretrained=False, **{**arguments, "img_size": tile_px})
        except TypeError:
            arguments.pop("img_size", None)
            return timm.create_model(architecture, pretrained=False, **arguments)
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        raise UnreadableError(
            f"{where}: timm cannot build {architecture} for tiles of {tile_px} px ({error!s:.200}). Correct the row."
        ) from error


def _fitted(state: dict[str, Tensor], model: Any) -> dict[str, Tensor]:
    """The weights as timm itself fits them to a network: renamed, position embeddings of its size, without head."""
    adapt = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    if adapt is not None:
        state = adapt(state, model)
    heads = model.pretrained_cfg.get("classifier") or ()
    heads = (heads,) if isinstance(heads, str) else heads
    return {name: tensor for name, tensor in state.items() if name.rpartition(".")[0] not in heads}
