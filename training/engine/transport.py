"""Messages between two ranks: boundary tensors with their shapes, in order, as plain bytes.

A message is a small header (types, sizes, strides) and then the bytes of each tensor in the order they lie in memory,
so shapes may change from step to step and every type travels on every backend. The receiver lays its buffer out with
the *sender's strides*: with another memory layout the same convolution may add in another order, and the gradients
would no longer be equal, bit for bit, to those of one process.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from training.engine.ranks import Ranks
from training.errors import TrainingError

Boundary = Tensor | tuple[Tensor, ...]
"""What one block hands to the next."""

SYNC = -1
"""Lane of messages that concern both replicas; the lanes 0 and 1 are those of the replicas."""

_HEADER_LENGTH = 128
_DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.uint8,
    torch.int64,
    torch.int32,
    torch.bool,
)


class LostPeerError(TrainingError):
    """Another rank did not answer in time, or is gone."""

    code = "lost_peer"


@dataclass(frozen=True)
class _InFlight:
    """A message on its way. It keeps the tensor: the backend reads it until the wait returns."""

    work: dist.Work
    tensor: Tensor
    peer: int
    during: object


class Transport:
    """Sends and receives for one rank. Every method names `during`, the action it serves, in its errors."""

    def __init__(self, ranks: Ranks, device: torch.device):
        self._ranks = ranks
        self._device = device
        self._in_flight: list[_InFlight] = []

    def send(self, value: Boundary, *, peer: int, lane: int, during: object) -> None:
        """Send tensors without waiting for their arrival. Do not change them before the next `send` or `flush`.

        Raises:
            LostPeerError: an earlier message was not taken in time, or the peer is gone.
            ValueError: more tensors than a header can describe.
        """
        self.flush()
        tensors = [_without_overlaps(tensor.detach()) for tensor in _as_tuple(value)]
        needs_gradient = [tensor.requires_grad for tensor in _as_tuple(value)]
        header = _encode(tensors, needs_gradient, is_tuple=isinstance(value, tuple))
        for payload in (torch.tensor(header), *map(_memory, tensors)):
            if payload.numel() == 0:
                continue
            on_wire = payload.to(self._ranks.wire)
            with self._naming(peer, during, "sending to"):
                work = dist.isend(on_wire, peer, group=self._group(lane))
            assert work is not None  # None stands for "not a member of the group"
            self._in_flight.append(_InFlight(work, on_wire, peer, during))

    def receive(self, *, peer: int, lane: int, during: object) -> Boundary:
        """Take the next message of `peer` on a lane, laid out in memory as the sender had it.

        Tensors that need a gradient come back as leaves that need one.

        Raises:
            LostPeerError: nothing came within the timeout, or the peer is gone.
        """
        header = torch.zeros(_HEADER_LENGTH, dtype=torch.int64, device=self._ranks.wire)
        self._take(header, peer, lane, during)
        announced, is_tuple = _decode(header.tolist())
        received = []
        for layout in announced:
            memory = torch.empty(layout.num_elements, dtype=layout.dtype, device=self._ranks.wire)
            if memory.numel():
                self._take(memory.view(torch.uint8), peer, lane, during)
            received.append(layout.arrange(memory.to(self._device)).requires_grad_(layout.needs_gradient))
        return tuple(received) if is_tuple else received[0]

    def flush(self) -> None:
        """Wait until all messages sent so far have been taken, and let go of their tensors."""
        while self._in_flight:
            message = self._in_flight.pop(0)
            with self._naming(message.peer, message.during, "sending to"):
                message.work.wait()

    def sum_over_ranks(self, vector: Tensor, *, during: object) -> Tensor:
        """Add up a vector over all ranks. Exact where only one rank has a non-zero entry."""
        on_wire = vector.to(self._ranks.wire)
        with self._naming(None, during, "adding up with"):
            dist.all_reduce(on_wire, group=self._ranks.sync_group)
        return on_wire.cpu()

    def broadcast(self, tensor: Tensor, *, source: int, during: object) -> Tensor:
        """Give every rank the source's tensor; the others pass one of the same size."""
        on_wire = tensor.to(self._ranks.wire)
        with self._naming(source, during, "sharing what belongs to"):
            dist.broadcast(on_wire, source, group=self._ranks.sync_group)
        return on_wire.to(self._device)

    def share(self, value: dict[str, Tensor] | None, *, source: int, during: object) -> dict[str, Tensor]:
        """Give every rank the source's tensors by name, whose shapes the others do not know; they pass None."""
        shared = [value]
        if self._ranks.num_ranks > 1:
            with self._naming(source, during, "sharing what belongs to"):
                dist.broadcast_object_list(shared, source, group=self._ranks.sync_group)
        assert shared[0] is not None
        return shared[0]

    def _take(self, flat: Tensor, peer: int, lane: int, during: object) -> None:
        with self._naming(peer, during, "waiting for"):
            dist.recv(flat, peer, group=self._group(lane))

    def _group(self, lane: int) -> dist.ProcessGroup | None:
        return self._ranks.sync_group if lane == SYNC else self._ranks.replica_groups[lane]

    @contextmanager
    def _naming(self, peer: int | None, during: object, doing: str) -> Iterator[None]:
        """Turn an error of the backend, which knows addresses only, into one that knows ranks and work."""
        try:
            yield
        except RuntimeError as error:
            other = "the other ranks" if peer is None else f"rank {peer}"
            raise LostPeerError(
                f"rank {self._ranks.rank} in ({during}), {doing} {other}: no answer within "
                f"{self._ranks.timeout_s:g} s, or the connection broke. Look at the log of {other} first; "
                f"if it was only slow, raise the timeout. ({error})"
            ) from error


@dataclass(frozen=True)
class _Layout:
    """How a tensor lies in memory."""

    dtype: torch.dtype
    needs_gradient: bool
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def core_sizes(self) -> tuple[int, ...]:
        """Sizes without repetition: an expanded dimension (stride 0) is one element long in memory."""
        return tuple(size if stride else min(size, 1) for size, stride in zip(self.sizes, self.strides, strict=True))

    @property
    def num_elements(self) -> int:
        return math.prod(self.core_sizes)

    @property
    def has_gaps(self) -> bool:
        return _span(self.core_sizes, self.strides) != self.num_elements

    def arrange(self, memory: Tensor) -> Tensor:
        """The tensor whose elements `_memory` made."""
        if self.has_gaps:
            spaced = torch.empty_strided(self.core_sizes, self.strides, dtype=self.dtype, device=memory.device)
            memory = spaced.copy_(memory.view(self.core_sizes))
        return memory.as_strided(self.sizes, self.strides)


def _layout(tensor: Tensor, *, needs_gradient: bool = False) -> _Layout:
    return _Layout(tensor.dtype, needs_gradient, tuple(tensor.shape), tensor.stride())


def _memory(tensor: Tensor) -> Tensor:
    """The elements of a tensor as a flat row of bytes: its memory itself, or a copy by rows if that has gaps."""
    layout = _layout(tensor)
    core = tensor.as_strided(layout.core_sizes, layout.strides)
    row = core.contiguous().view(-1) if layout.has_gaps else core.as_strided((layout.num_elements,), (1,))
    return row.view(torch.uint8)


def _without_overlaps(tensor: Tensor) -> Tensor:
    layout = _layout(tensor)
    return tensor.contiguous() if _span(layout.core_sizes, layout.strides) is None else tensor


def _span(sizes: Sequence[int], strides: Sequence[int]) -> int | None:
    """Elements of memory from the first to the last; None if two indices share one."""
    span = min(1, math.prod(sizes))
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1 and stride < span:
            return None
        span += stride * (size - 1) if size > 1 else 0
    return span


def _as_tuple(value: Boundary) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def _encode(tensors: Sequence[Tensor], needs_gradient: Sequence[bool], *, is_tuple: bool) -> list[int]:
    header = [len(tensors), int(is_tuple)]
    for tensor, needs in zip(tensors, needs_gradient, strict=True):
        if tensor.dtype not in _DTYPES:
            raise ValueError(f"{tensor.dtype} cannot go from stage to stage; use one of {', '.join(map(str, _DTYPES))}")
        header += [_DTYPES.index(tensor.dtype), int(needs), tensor.ndim, *tensor.shape, *tensor.stride()]
    if len(header) > _HEADER_LENGTH:
        raise ValueError(
            f"{len(tensors)} tensors between two stages need a header of {len(header)} numbers, at most "
            f"{_HEADER_LENGTH} fit; let the block before the cut hand over fewer tensors"
        )
    return header + [0] * (_HEADER_LENGTH - len(header))


def _decode(header: list[int]) -> tuple[list[_Layout], bool]:
    num_tensors, is_tuple = header[:2]
    layouts = []
    rest = header[2:]
    for _ in range(num_tensors):
        dtype, needs, ndim = rest[:3]
        sizes, strides = rest[3 : 3 + ndim], rest[3 + ndim : 3 + 2 * ndim]
        layouts.append(_Layout(_DTYPES[dtype], bool(needs), tuple(sizes), tuple(strides)))
        rest = rest[3 + 2 * ndim :]
    return layouts, bool(is_tuple)
