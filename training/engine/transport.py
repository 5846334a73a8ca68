"""Messages between two ranks.

Boundaries (activations one way, their gradients the other) may change shape from one micro-batch to the next. The first
message of a kind carries a header that says how its tensors lie in memory; both sides remember it by the shape of the
micro-batch, and from then on the receiver can ask for a message before it needs it, while it computes. One boundary is
asked for ahead and one sent is under way at most, so what they hold is small and known.

Sums and weights go as one row of bytes whose length both sides know.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from training.engine.layout import HEADER_LENGTH, BoundaryLayout, lay_out
from training.engine.memory import LiveBytes
from training.engine.ranks import SYNC, Ranks
from training.engine.stage import Boundary
from training.foundation.errors import GemslideError


class LostPeerError(GemslideError):
    """Another rank did not answer in time, or is gone."""

    code = "lost_peer"


class Work(Protocol):
    """A transfer under way."""

    def wait(self) -> Any: ...


class Wire(Protocol):
    """Moves flat rows of bytes between ranks, in order, without waiting."""

    device: torch.device

    def send(self, row: Tensor, peer: int, lane: int) -> Work: ...

    def receive(self, row: Tensor, peer: int, lane: int) -> Work: ...

    def send_header(self, numbers: list[int], peer: int, lane: int) -> Work: ...

    def receive_header(self, peer: int, lane: int) -> list[int]: ...


class GroupWire:
    """The wire of a real run: torch.distributed."""

    def __init__(self, ranks: Ranks):
        self.device = ranks.wire
        self._groups = ranks.groups

    def send(self, row: Tensor, peer: int, lane: int) -> Work:
        return _present(dist.isend(row, peer, group=self._groups[lane]))

    def receive(self, row: Tensor, peer: int, lane: int) -> Work:
        return _present(dist.irecv(row, peer, group=self._groups[lane]))

    def send_header(self, numbers: list[int], peer: int, lane: int) -> Work:
        header = torch.tensor(numbers, dtype=torch.int64, device=self.device)
        return _Keeping(self.send(header, peer, lane), header)

    def receive_header(self, peer: int, lane: int) -> list[int]:
        header = torch.zeros(HEADER_LENGTH, dtype=torch.int64, device=self.device)
        self.receive(header, peer, lane).wait()
        return [int(number) for number in header.tolist()]


@dataclass(frozen=True)
class Route:
    """Where a boundary goes to or comes from."""

    peer: int
    lane: int
    kind: Hashable
    """What decides its layout: messages of one kind between two ranks all lie in memory alike."""
    during: object
    """The action it serves, named in errors."""


@dataclass(frozen=True)
class _Asked:
    """A boundary asked for ahead."""

    route: Route
    layout: BoundaryLayout
    rows: list[Tensor]
    works: list[Work]


@dataclass(frozen=True)
class _InFlight:
    """A row on its way. It keeps the tensor: the backend reads it until the wait returns."""

    work: Work
    row: Tensor | None
    peer: int
    during: object


class Transport:
    """Sends and receives for one rank."""

    def __init__(self, ranks: Ranks, device: torch.device, *, wire: Wire | None = None, counter: LiveBytes):
        self._ranks = ranks
        self._device = device
        self._wire = wire or GroupWire(ranks)
        self._counter = counter
        self._layouts: dict[tuple[int, int, Hashable], BoundaryLayout] = {}
        self._asked: _Asked | None = None
        self._boundaries: list[_InFlight] = []
        self._rows: list[_InFlight] = []

    # --- boundaries --------------------------------------------------------------------------------

    def send(self, value: Boundary, route: Route) -> None:
        """Send a boundary without waiting for its arrival; its memory stays until the next one is sent.

        Raises:
            LostPeerError: the message before was not taken in time, or the peer is gone.
            ValueError: the layout cannot be described, or differs from that of earlier messages of its kind.
        """
        self._flush(self._boundaries)
        layout, rows = lay_out(value)
        known = self._layouts.get((route.peer, route.lane, route.kind))
        header = layout.header() if known is None else []
        if known is not None and known != layout:
            raise ValueError(
                f"{route.during} gave {layout}, but {known} before for inputs of the same shape; what goes from "
                "stage to stage may depend on the shape of the network's input only. Cut elsewhere."
            )
        self._layouts[route.peer, route.lane, route.kind] = layout
        with self._naming(route.peer, route.during, "sending to"):
            if header:
                work = self._wire.send_header(header, route.peer, route.lane)
                self._boundaries.append(_InFlight(work, None, route.peer, route.during))
            for row in rows:
                on_wire = row.to(self._wire.device)
                self._counter.hold([on_wire])
                work = self._wire.send(on_wire, route.peer, route.lane) if len(row) else _NOTHING
                self._boundaries.append(_InFlight(work, on_wire, route.peer, route.during))

    def ask(self, route: Route) -> None:
        """Let a boundary come in while this rank computes. Once at a time; the first of a kind cannot come early."""
        layout = self._layouts.get((route.peer, route.lane, route.kind))
        if self._asked is None and layout is not None:
            self._asked = self._begin(route, layout)
            self._counter.hold(self._asked.rows)

    def receive(self, route: Route) -> Boundary:
        """Wait for a boundary, laid out in memory as the sender had it.

        Tensors that need a gradient come back as leaves that need one.

        Raises:
            LostPeerError: nothing came within the timeout, or the peer is gone.
        """
        if self._asked is not None and self._asked.route == route:
            asked, self._asked = self._asked, None
            self._counter.release(asked.rows)
        else:
            asked = self._begin(route, self._layout(route))
        with self._naming(route.peer, route.during, "waiting for"):
            for work in asked.works:
                work.wait()
        pairs = zip(asked.layout.tensors, asked.rows, strict=True)
        received = tuple(layout.arrange(row.to(self._device)) for layout, row in pairs)
        return received if asked.layout.is_tuple else received[0]

    def _layout(self, route: Route) -> BoundaryLayout:
        key = (route.peer, route.lane, route.kind)
        if key not in self._layouts:
            with self._naming(route.peer, route.during, "waiting for"):
                self._layouts[key] = BoundaryLayout.of_header(self._wire.receive_header(route.peer, route.lane))
        return self._layouts[key]

    def _begin(self, route: Route, layout: BoundaryLayout) -> _Asked:
        rows = [torch.empty(t.num_bytes, dtype=torch.uint8, device=self._wire.device) for t in layout.tensors]
        with self._naming(route.peer, route.during, "waiting for"):
            works = [self._wire.receive(row, route.peer, route.lane) for row in rows if len(row)]
        return _Asked(route, layout, rows, works)

    # --- rows of known length ----------------------------------------------------------------------

    def send_row(self, row: Tensor, *, peer: int, during: object) -> None:
        """Send bytes of a length that the receiver knows, without waiting for their arrival."""
        self._flush(self._rows)
        on_wire = row.to(self._wire.device)
        with self._naming(peer, during, "sending to"):
            self._rows.append(_InFlight(self._wire.send(on_wire, peer, SYNC), on_wire, peer, during))

    def receive_row(self, num_bytes: int, *, peer: int, during: object) -> Tensor:
        """Wait for bytes."""
        row = torch.empty(num_bytes, dtype=torch.uint8, device=self._wire.device)
        with self._naming(peer, during, "waiting for"):
            self._wire.receive(row, peer, SYNC).wait()
        return row.to(self._device)

    def flush(self) -> None:
        """Wait until everything sent has been taken, and release it."""
        self._flush(self._boundaries)
        self._flush(self._rows)

    def _flush(self, in_flight: list[_InFlight]) -> None:
        while in_flight:
            message = in_flight.pop(0)
            with self._naming(message.peer, message.during, "sending to"):
                message.work.wait()
            if message.row is not None and in_flight is self._boundaries:
                self._counter.release([message.row])

    # --- all ranks ---------------------------------------------------------------------------------

    def sum_over_ranks(self, vector: Tensor, *, during: object) -> Tensor:
        """Add up a vector over all ranks. Exact where only one rank has a non-zero entry."""
        if self._ranks.num_ranks == 1:
            return vector
        on_wire = vector.to(self._wire.device)
        with self._naming(None, during, "adding up with"):
            dist.all_reduce(on_wire, group=self._ranks.sync_group)
        return on_wire.cpu()

    def broadcast(self, tensor: Tensor, *, source: int, during: object) -> Tensor:
        """Give every rank the source's tensor; the others pass one of the same size."""
        if self._ranks.num_ranks == 1 or not tensor.numel():
            return tensor
        on_wire = tensor.to(self._wire.device)
        with self._naming(source, during, "sharing what belongs to"):
            dist.broadcast(on_wire, source, group=self._ranks.sync_group)
        return on_wire.to(self._device)

    def share(self, value: Any, *, source: int, during: object) -> Any:
        """Give every rank the source's object; the others pass None."""
        shared = [value]
        if self._ranks.num_ranks > 1:
            with self._naming(source, during, "sharing what belongs to"):
                dist.broadcast_object_list(shared, source, group=self._ranks.sync_group)
        return shared[0]

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
class _Keeping:
    """A work that keeps what it sends."""

    work: Work
    tensor: Tensor

    def wait(self) -> Any:
        return self.work.wait()


class _Done:
    """Nothing to wait for."""

    def wait(self) -> None:
        return None


_NOTHING = _Done()


def _present(work: dist.Work | None) -> Work:
    assert work is not None  # None stands for "not a member of the group"
    return work
