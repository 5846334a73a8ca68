"""Running statistics of BatchNorm layers whose micro-batches pass through several copies of the layer.

Each micro-batch is normalised with its own mean and variance, as in plain gradient accumulation, but the running
statistics must see all micro-batches of the step, in order. So a forward only *records* what it would have blended in,
and at the update the records of all copies are replayed in the order of the micro-batches. Every strategy thereby gives
the same running statistics, equal to sequential nn.BatchNorm2d up to rounding (3e-7).

All statistics of a stage are in one row, of which the layers' buffers are views: one copy, one message, one blend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class RunningStatistics:
    """Running statistics of a stage's BatchNorm layers that keep them and are in training mode."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        """Move the layers' buffers into one row.

        Args:
            modules: with the layers; they are not searched for others.

        Raises:
            ValueError: the layers keep statistics of different types.
        """
        self._layers = [
            layer
            for layer in modules
            if isinstance(layer, _BatchNorm) and layer.training and layer.running_mean is not None
        ]
        self._replayed = set(map(id, self._layers))
        buffers = [layer._buffers[name] for layer in self._layers for name in ("running_mean", "running_var")]
        kinds = {(buffer.dtype, buffer.device) for buffer in buffers if buffer is not None}
        if len(kinds) > 1:
            raise ValueError(f"BatchNorm layers of one stage keep statistics of several types or devices: {kinds}")
        self._sizes = [buffer.numel() for buffer in buffers if buffer is not None]
        self._kept = [layer.__dict__["momentum"] for layer in self._layers]
        self.row = torch.cat([buffer for buffer in buffers if buffer is not None]) if buffers else torch.empty(0)
        """(values,): mean and variance of the first layer, of the second, and so on."""
        self._views = torch.split(self.row, self._sizes)
        self._own = torch.zeros_like(self.row)
        self._put(self._views)

    @property
    def rows(self) -> tuple[Tensor, Tensor]:
        """All the memory used here."""
        return self.row, self._own

    def __len__(self) -> int:
        return len(self.row)

    def replays(self, layer: nn.Module) -> bool:
        """Whether a layer's buffers are managed here."""
        return id(layer) in self._replayed

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Run the forwards of a step; none of them touches the running statistics.

        With momentum 1 a layer keeps nothing of its old statistics: its buffers *are* those of the micro-batch.
        """
        tracked = [layer._buffers["num_batches_tracked"] for layer in self._layers]
        for layer in self._layers:
            layer.__dict__["momentum"] = 1.0
            layer._buffers["num_batches_tracked"] = None
        self._put(torch.split(self._own, self._sizes))
        try:
            yield
        finally:
            for layer, momentum, count in zip(self._layers, self._kept, tracked, strict=True):
                layer.__dict__["momentum"] = momentum
                layer._buffers["num_batches_tracked"] = count
            self._put(self._views)

    def start(self) -> None:
        """Clear the buffers for a micro-batch: what an earlier one left, even infinite, must not leak in."""
        # Autograd has saved these buffers, though backward in training mode never reads them: keep their version.
        self._own.data.zero_()

    def recorded(self) -> Tensor:
        """A row like `row`: mean and unbiased variance of the micro-batch seen since `start`."""
        return self._own.clone()

    def replay(self, recorded: Sequence[Tensor], columns: slice) -> None:
        """Blend what was recorded into some columns of `row`, micro-batch by micro-batch, as nn.BatchNorm does.

        Args:
            recorded: for each micro-batch in order, these columns of what `recorded` returned.
        """
        row = self.row[columns]
        for index, values in enumerate(recorded if len(row) else ()):
            blend = self._blend(index)[columns]
            # Separate products: a fused one gives different bits at the end of a row than in its middle.
            row.mul_(1 - blend).add_(values * blend)

    def count(self, num_microbatches: int) -> None:
        """Add to the number of micro-batches that all layers have seen; call it after `replay`."""
        for layer in self._layers:
            if layer.num_batches_tracked is not None:
                layer.num_batches_tracked.add_(num_microbatches)

    def _blend(self, index: int) -> Tensor:
        """Weight of a step's `index`-th micro-batch in each running value; a layer without momentum averages."""
        values = []
        for layer, momentum in zip(self._layers, self._kept, strict=True):
            if momentum is None:
                tracked = 0 if layer.num_batches_tracked is None else int(layer.num_batches_tracked)
                momentum = 1.0 / (tracked + index + 1)
            values += [momentum, momentum]
        # In double precision first, as nn.BatchNorm computes it.
        row = torch.tensor(values, dtype=torch.float64).repeat_interleave(torch.tensor(self._sizes, dtype=torch.int64))
        return row.to(self.row)

    def _put(self, views: Sequence[Tensor]) -> None:
        for index, layer in enumerate(self._layers):
            layer._buffers["running_mean"] = views[2 * index]
            layer._buffers["running_var"] = views[2 * index + 1]
