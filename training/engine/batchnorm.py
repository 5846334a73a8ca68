"""Running statistics of BatchNorm layers whose micro-batches pass through two copies of the layer.

Each micro-batch is normalised with its own mean and variance, as in plain gradient accumulation, but the running
statistics must see all micro-batches of the step, in order. So a forward only *records* what it would have blended in,
and at the update the owner of a layer replays the records of both copies in the order of the micro-batches. Every
strategy thereby gives the same running statistics, equal to sequential nn.BatchNorm2d up to rounding (3e-7).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Statistics = list[Tensor]
"""Of one micro-batch: mean and unbiased variance of the first layer, of the second, and so on; each (C,)."""


def tracking_layers(module: nn.Module) -> list[_BatchNorm]:
    """BatchNorm layers that keep running statistics and are in training mode, in the order of the module."""
    return [
        layer
        for layer in module.modules()
        if isinstance(layer, _BatchNorm) and layer.training and layer.running_mean is not None
    ]


@contextmanager
def record_statistics(layers: Sequence[_BatchNorm]) -> Iterator[Statistics]:
    """Run a forward that leaves the layers' running statistics alone.

    With momentum 1 a layer blends in nothing of its old statistics: its buffers then *are* those of the micro-batch.

    Yields:
        a list, filled once the forward is over.
    """
    kept = [(layer.momentum, layer.running_mean, layer.running_var, layer.num_batches_tracked) for layer in layers]
    recorded: Statistics = []
    for layer in layers:
        layer.momentum = 1.0
        layer.running_mean, layer.running_var = _zeros(layer.running_mean), _zeros(layer.running_var)
        layer.num_batches_tracked = _zeros(layer.num_batches_tracked)
    try:
        yield recorded
        for layer in layers:
            recorded += [_present(layer.running_mean), _present(layer.running_var)]
    finally:
        for layer, buffers in zip(layers, kept, strict=True):
            layer.momentum, layer.running_mean, layer.running_var, layer.num_batches_tracked = buffers


def replay_statistics(layers: Sequence[_BatchNorm], recorded: Mapping[int, Statistics]) -> None:
    """Blend recorded statistics into the running ones, in the order of the micro-batch index, as nn.BatchNorm does.

    Args:
        recorded: micro-batch index to what `record_statistics` gave for it, for these layers.
    """
    with torch.no_grad():
        for _, statistics in sorted(recorded.items()):
            for index, layer in enumerate(layers):
                tracked = _present(layer.num_batches_tracked).add_(1)
                momentum = 1.0 / float(tracked) if layer.momentum is None else layer.momentum
                _present(layer.running_mean).mul_(1 - momentum).add_(statistics[2 * index], alpha=momentum)
                _present(layer.running_var).mul_(1 - momentum).add_(statistics[2 * index + 1], alpha=momentum)


def statistics_like(layers: Sequence[_BatchNorm]) -> Statistics:
    """Tensors of the shapes and types that `record_statistics` gives for these layers."""
    return [_present(buffer) for layer in layers for buffer in (layer.running_mean, layer.running_var)]


def _zeros(buffer: Tensor | None) -> Tensor:
    return torch.zeros_like(_present(buffer))


def _present(buffer: Tensor | None) -> Tensor:
    assert buffer is not None  # tracking_layers chose layers that have their buffers
    return buffer
