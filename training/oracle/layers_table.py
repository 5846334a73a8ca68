"""ParaDL's projections for any network, from a table of its layers: seconds of an epoch and bytes of a rank.

Kahira et al., "An oracle for guiding large-scale model/hybrid parallel training of convolutional neural networks", HPDC
2021, and the technical report that preceded it. Two slips of the report are corrected: the pipeline's weight updates
happen once per iteration, not once per epoch; and data + filter sends what its table says, half of what its equation 14
does. Nothing is fitted to measured epochs.

Notation: D samples of an epoch, B samples of an iteration, p ranks, S segments of an iteration in a pipeline; x, y, w
elements of a layer's input, output (per sample) and weights; δ bytes per element; a message of m bytes takes α + m β.
Bytes are activations, weights, and the gradients of both; an output counts again as the next layer's input.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from training.engine.partition import partition, stage_ranges
from training.foundation.errors import BadRecipeError
from training.foundation.reading import read_regular
from training.foundation.settings import Section, parse_section
from training.foundation.words.counts import counted
from training.oracle.clusters.cluster import Cluster

ITEM_BYTES = 4
MAX_TABLE_BYTES, MAX_LAYERS = 2**24, 100_000


class Layer(Section):
    """One row of the table."""

    layer: str
    """Name, for people."""
    x_channels: int = Field(ge=1)
    x_height: int = Field(ge=1)
    x_width: int = Field(ge=1)
    y_channels: int = Field(ge=1)
    y_height: int = Field(ge=1)
    y_width: int = Field(ge=1)
    kernel: int = Field(1, ge=0)
    """Side of the window of a convolution or pooling; 0 or 1 for other layers."""
    weights: int = Field(0, ge=0)
    forward_s: float = Field(ge=0, allow_inf_nan=False)
    """Of one sample."""
    backward_s: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Of one sample."""
    update_s: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Of the weights, once per iteration."""

    @property
    def x(self) -> int:
        return self.x_channels * self.x_height * self.x_width

    @property
    def y(self) -> int:
        return self.y_channels * self.y_height * self.y_width

    @property
    def halo(self) -> int:
        """Elements of the input's edge that a neighbour needs, and of the output's gradient."""
        reach = max(self.kernel - 1, 0) // 2
        return reach * (self.x_channels * self.x_height + self.y_channels * self.y_height)


@dataclass(frozen=True)
class Epoch:
    """What is projected."""

    layers: Sequence[Layer]
    samples: int
    batch: int
    """Of an iteration, over all ranks."""
    cluster: Cluster

    @property
    def iterations(self) -> float:
        return self.samples / self.batch

    @property
    def sample_s(self) -> float:
        return sum(layer.forward_s + layer.backward_s for layer in self.layers)

    @property
    def update_s(self) -> float:
        return sum(layer.update_s for layer in self.layers)

    @property
    def activations(self) -> int:
        return sum(layer.x + layer.y for layer in self.layers)

    @property
    def positions(self) -> int:
        """Of the smallest output of a convolution or pooling."""
        windows = [layer.y_height * layer.y_width for layer in self.layers if layer.kernel > 1]
        return min(windows, default=1)

    @property
    def weights(self) -> int:
        return sum(layer.weights for layer in self.layers)

    def message_s(self, num_bytes: float, ranks: int) -> float:
        """Seconds of one message of a ring of ranks: its slowest link decides."""
        cluster = self.cluster
        link = cluster.node if ranks <= cluster.node.gpus else cluster.network
        return link.alpha_s + num_bytes / link.bytes_per_s

    def allreduce_s(self, ranks: int) -> float:
        """Sum of all gradients over a ring."""
        return 2 * (ranks - 1) * self.message_s(self.weights * ITEM_BYTES / ranks, ranks)


@dataclass(frozen=True)
class Projection:
    """Seconds of an epoch, and bytes of a rank."""

    computing_s: float
    communication_s: float
    bytes: float


def _held(activations: float, weights: float) -> float:
    """Bytes of activations and weights with the gradients of both."""
    return 2 * ITEM_BYTES * (activations + weights)


def _serial(epoch: Epoch) -> Projection:
    computing_s = epoch.samples * epoch.sample_s + epoch.iterations * epoch.update_s
    return Projection(computing_s, 0.0, _held(epoch.batch * epoch.activations, epoch.weights))


def _data(epoch: Epoch, p: int) -> Projection:
    computing_s = epoch.samples / p * epoch.sample_s + epoch.iterations * epoch.update_s
    held = _held(epoch.batch / p * epoch.activations, epoch.weights)
    return Projection(computing_s, epoch.iterations * epoch.allreduce_s(p), held)


def _halos_s(epoch: Epoch, batch: float, p: int) -> float:
    """Edges of all layers' inputs, and of their outputs' gradients, in one iteration."""
    halos = (layer.halo for layer in epoch.layers if layer.halo)
    return sum(2 * (epoch.message_s(0, p) + epoch.message_s(batch * halo * ITEM_BYTES, p)) for halo in halos)


def _spatial(epoch: Epoch, p: int) -> Projection:
    computing_s = epoch.samples / p * epoch.sample_s + epoch.iterations * epoch.update_s
    communication_s = epoch.iterations * (epoch.allreduce_s(p) + _halos_s(epoch, epoch.batch, p))
    return Projection(computing_s, communication_s, _held(epoch.batch * epoch.activations / p, epoch.weights))


def _layer(epoch: Epoch, p: int) -> Projection:
    groups = _groups(epoch, p)
    serial = _serial(epoch)
    sent = sum(2 * epoch.message_s(epoch.batch * group[-1].y * ITEM_BYTES, p) for group in groups[:-1])
    return Projection(serial.computing_s, epoch.iterations * sent, _fullest(epoch, groups))


def _pipeline(epoch: Epoch, p: int) -> Projection:
    groups, segments = _groups(epoch, p), min(epoch.batch, p)
    forward_s = max(sum(layer.forward_s for layer in group) for group in groups)
    backward_s = max(sum(layer.backward_s for layer in group) for group in groups)
    update_s = max(sum(layer.update_s for layer in group) for group in groups)
    computing_s = epoch.samples * (p + segments - 1) / segments * (forward_s + backward_s)
    sent_bytes = (epoch.batch / segments * group[-1].y * ITEM_BYTES for group in groups[:-1])
    sent_s = max((epoch.message_s(count, p) for count in sent_bytes), default=0.0)
    communication_s = 2 * epoch.iterations * (p + segments - 2) * sent_s
    return Projection(computing_s + epoch.iterations * update_s, communication_s, _fullest(epoch, groups))


def _groups(epoch: Epoch, p: int) -> list[list[Layer]]:
    cuts = partition([layer.forward_s + layer.backward_s for layer in epoch.layers], p)
    return [[epoch.layers[index] for index in indices] for indices in stage_ranges(cuts, len(epoch.layers))]


def _fullest(epoch: Epoch, groups: Sequence[Sequence[Layer]]) -> float:
    return max(
        _held(epoch.batch * sum(each.x + each.y for each in group), sum(each.weights for each in group))
        for group in groups
    )


def _gathered_s(epoch: Epoch, p: int, ways: int) -> float:
    """Outputs brought together among `ways` ranks after every layer but the last, forward and backward."""
    pieces = (epoch.batch * layer.y / p * ITEM_BYTES for layer in epoch.layers[:-1])
    return 3 * (ways - 1) * sum(epoch.message_s(piece, ways) for piece in pieces)


def _filter(epoch: Epoch, p: int) -> Projection:
    """Filters shared out; channels shared out cost the same, with forward and backward exchanged."""
    computing_s = epoch.samples / p * epoch.sample_s + epoch.iterations / p * epoch.update_s
    held = _held(epoch.batch * epoch.activations, epoch.weights / p)
    return Projection(computing_s, epoch.iterations * _gathered_s(epoch, p, p), held)


def _data_filter(epoch: Epoch, p: int) -> Projection:
    inside = epoch.cluster.node.gpus
    groups = p // inside
    computing_s = epoch.samples / p * epoch.sample_s + epoch.iterations / inside * epoch.update_s
    shared_bytes = epoch.weights * ITEM_BYTES / p
    allreduce_s = 2 * (groups - 1) * epoch.message_s(shared_bytes, p)
    held = _held(epoch.batch / groups * epoch.activations, epoch.weights / inside)
    return Projection(computing_s, epoch.iterations * (_gathered_s(epoch, p, inside) + allreduce_s), held)


def _data_spatial(epoch: Epoch, p: int) -> Projection:
    inside = epoch.cluster.node.gpus
    groups = p // inside
    computing_s = epoch.samples / p * epoch.sample_s + epoch.iterations * epoch.update_s
    halos_s = _halos_s(epoch, epoch.batch / groups, inside)
    held = _held(epoch.batch * epoch.activations / p, epoch.weights)
    return Projection(computing_s, epoch.iterations * (halos_s + epoch.allreduce_s(p)), held)


def _whole_nodes(epoch: Epoch, p: int) -> str | None:
    gpus = epoch.cluster.node.gpus
    return None if p % gpus == 0 else f"{counted(p, 'rank does', 'ranks do')} not fill nodes of {gpus}"


def _at_most(what: str, number: Callable[[Epoch], int]) -> Callable[[Epoch, int], str | None]:
    return lambda epoch, p: None if p <= number(epoch) else f"at most {counted(number(epoch), 'rank')}: {what}"


STRATEGIES: dict[str, tuple[Callable[[Epoch, int], Projection], Callable[[Epoch, int], str | None]]] = {
    "data": (_data, _at_most("a sample for each", lambda epoch: epoch.batch)),
    "spatial": (
        _spatial,
        # Layers without a window, such as the last, are computed from what the others gather.
        _at_most("positions of the smallest output of a window", lambda epoch: epoch.positions),
    ),
    "layer": (_layer, _at_most("a layer for each", lambda epoch: len(epoch.layers))),
    "pipeline": (_pipeline, _at_most("a layer for each", lambda epoch: len(epoch.layers))),
    "filter": (_filter, _at_most("filters of a layer", lambda e: min(x.y_channels for x in e.layers if x.weights))),
    "channel": (
        _filter,
        # The first layer's input has too few channels in any case, and stays whole.
        _at_most("channels of a layer", lambda e: min(x.x_channels for x in e.layers[1:] or e.layers)),
    ),
    "data+filter": (_data_filter, _whole_nodes),
    "data+spatial": (_data_spatial, _whole_nodes),
}
"""Projection by strategy, and why it is not possible on p ranks."""


def project(epoch: Epoch, worlds: Sequence[int]) -> list[dict[str, Any]]:
    """One row for one process, and one for each strategy and number of ranks above 1."""
    rows = [_row(epoch, "serial", 1, _serial(epoch))]
    for name, (projected, refusal) in STRATEGIES.items():
        for p in (number for number in worlds if number > 1):
            reason = refusal(epoch, p)
            if reason is None:
                rows.append(_row(epoch, name, p, projected(epoch, p)))
            else:
                rows.append({"strategy": name, "world": p, "refused": reason})
    return rows


def _row(epoch: Epoch, strategy: str, p: int, found: Projection) -> dict[str, Any]:
    return {
        "strategy": strategy,
        "world": p,
        "computing_s": found.computing_s,
        "communication_s": found.communication_s,
        "epoch_s": found.computing_s + found.communication_s,
        "bytes": int(found.bytes),
        "fits": found.bytes <= epoch.cluster.gpu.memory_bytes,
    }


def load_layers(path: Path) -> list[Layer]:
    """Read a table of layers: CSV with the fields of `Layer` as header.

    Raises:
        BadRecipeError: it cannot be read, or a value is wrong; the message names the line.
    """
    try:
        text = read_regular(path, max_bytes=MAX_TABLE_BYTES).decode("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except (OSError, ValueError, csv.Error) as error:
        raise BadRecipeError(f"{path}: cannot be read as a table of layers: {error}.") from error
    if not 0 < len(rows) <= MAX_LAYERS:
        raise BadRecipeError(
            f"{path}: {counted(len(rows), 'layer')}; a table has 1 to {MAX_LAYERS:,}, after its header."
        )
    return [_layer_of(row, f"{path}, line {number}") for number, row in enumerate(rows, start=2)]


def _layer_of(row: dict[str | Any, str | Any], where: str) -> Layer:
    if None in row or None in row.values():
        raise BadRecipeError(
            f"{where}: it has more or fewer cells than the header. Columns: {', '.join(Layer.model_fields)}."
        )
    given: dict[str, Any] = {key.strip(): _number(value.strip()) for key, value in row.items() if value.strip()}
    return parse_section(Layer, given, where=where)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
