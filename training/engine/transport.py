"""Messages between two ranks: boundary tensors with their shapes, in order, as plain bytes.

A message is a small header (types, sizes, strides) and then the bytes of each tensor in the order they lie in memory,
so shapes may change from step to step and every type travels on every backend. The receiver lays its buffer out with
the *sender's strides*: with another memory layout the same convolution may add in another order, and the gradients
would no longer be equal, bit for bit, to those of one process.
"""

from collections.abc import Iterator
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
        is_tuple = isinstance(value, tuple)
        tensors = [_dense(tensor) for tensor in (value if isinstance(value, tuple) else (value,))]
        header = torch.tensor(_encode(tensors, is_tuple=is_tuple), device=self._ranks.wire)
        for payload in (header, *(_flat_bytes(tensor.detach().to(self._ranks.wire)) for tensor in tensors)):
            if payload.numel() == 0:
                continue
            with self._naming(peer, during, "sending to"):
                work = dist.isend(payload, peer, group=self._group(lane))
            assert work is not None  # None stands for "not a member of the group"
            self._in_flight.append(_InFlight(work, payload, peer, during))

    def receive(self, *, peer: int, lane: int, during: object) -> Boundary:
        """Take the next message of `peer` on a lane, laid out in memory as the sender had it.

        Tensors that need a gradient come back as leaves that need one.

        Raises:
            LostPeerError: nothing came within the timeout, or the peer is gone.
        """
        header = torch.zeros(_HEADER_LENGTH, dtype=torch.int64, device=self._ranks.wire)
        self._take(header, peer, lane, during)
        buffers, needs_gradient, is_tuple = _decode(header.tolist(), self._ranks.wire)
        received = []
        for buffer, needs in zip(buffers, needs_gradient, strict=True):
            if buffer.numel():
                self._take(_flat_bytes(buffer), peer, lane, during)
            received.append(buffer.to(self._device).requires_grad_(needs))
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


def _encode(tensors: list[Tensor], *, is_tuple: bool) -> list[int]:
    header = [len(tensors), int(is_tuple)]
    for tensor in tensors:
        header += [_DTYPES.index(tensor.dtype), int(tensor.requires_grad), tensor.ndim]
        header += [*tensor.shape, *tensor.stride()]
    if len(header) > _HEADER_LENGTH:
        raise ValueError(
            f"{len(tensors)} tensors between two stages need a header of {len(header)} numbers, at most "
            f"{_HEADER_LENGTH} fit; let the block before the cut hand over fewer tensors"
        )
    return header + [0] * (_HEADER_LENGTH - len(header))


def _decode(header: list[int], device: torch.device) -> tuple[list[Tensor], list[bool], bool]:
    num_tensors, is_tuple = header[:2]
    buffers, needs_gradient = [], []
    rest = header[2:]
    for _ in range(num_tensors):
        dtype, needs, ndim = rest[:3]
        sizes, strides = rest[3 : 3 + ndim], rest[3 + ndim : 3 + 2 * ndim]
        buffers.append(torch.empty_strided(sizes, strides, dtype=_DTYPES[dtype], device=device))
        needs_gradient.append(bool(needs))
        rest = rest[3 + 2 * ndim :]
    return buffers, needs_gradient, bool(is_tuple)


def _dense(tensor: Tensor) -> Tensor:
    """The tensor itself if it fills its memory without gaps, else a copy that does."""
    expected = 1
    for size, stride in sorted(zip(tensor.shape, tensor.stride(), strict=True), key=lambda axis: axis[1]):
        if size != 1 and stride != expected:
            return tensor.contiguous()
        expected *= size
    return tensor


def _flat_bytes(tensor: Tensor) -> Tensor:
    """The memory of a dense tensor, in the order it lies there, without a copy."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
