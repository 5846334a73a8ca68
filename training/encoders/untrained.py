"""An encoder's network with random weights: what its architecture alone gives, to compare a trained one with."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from training.data.augment import to_input
from training.encoders.check import probe_tiles
from training.encoders.kinds.backbone import Backbone
from training.encoders.row import EncoderRow
from training.foundation.errors import BadRecipeError

SEED = 0
_STD = 0.02
"""Deviation of the random numbers of embeddings and tokens, as transformers begin with."""


def redraw(backbone: Backbone, row: EncoderRow, where: str) -> None:
    """Draw all weights of a network again, in place; the same ones each time.

    Layers begin as torch makes them. Batch normalisations, whose statistics would be those of no data, take them from
    the probe tiles: without, deep networks return nearly the same for every tile.

    Raises:
        BadRecipeError: the file runs as it is, or has no layers that can be drawn.
    """
    network = backbone.network
    layers = [layer for layer in network.modules() if hasattr(layer, "reset_parameters")]
    if not backbone.is_ours or not layers:
        raise BadRecipeError(
            f"{where}: `untrained` needs a network whose layers can be drawn anew; kind {row.kind!r} runs as it is. "
            "Remove `untrained`."
        )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(SEED)
        drawn = set[int]()
        for layer in layers:
            layer.reset_parameters()  # type: ignore[operator]  # a method, by the name that torch gives it
            drawn |= {id(weight) for weight in layer.parameters(recurse=False)}
        for weight in network.parameters():
            if id(weight) not in drawn:
                weight.normal_(std=_STD) if weight.dim() > 1 else weight.fill_(1.0)
        _take_statistics(network, row)


def _take_statistics(network: nn.Module, row: EncoderRow) -> None:
    norms = [layer for layer in network.modules() if isinstance(layer, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    network.eval()  # without dropout
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    network(to_input(probe_tiles(row.tile_px), row.mean, row.std))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    network.eval()
