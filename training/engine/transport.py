"""Messages between ranks, in the groups that exchange.py defines.

Boundaries (activations one way, their gradients the other) may change shape from one micro-batch to the next. The first
message of a kind goes over the control channel with a header that gives the memory layout of its tensors; both sides
remember that by the shape of the micro-batch, and from then on messages of that kind go over the data channel, whose
order is proven. What is sent is held only until the next message is ready.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from training.engine.boundary import Boundary
from training.engine.layout import HEADER_LENGTH, BoundaryLayout, lay_out
from training.engine.memory import LiveBytes
from training.engine.ranks import LostPeerError, Ranks


class Work(Protocol):
    """A transfer under way."""

    def wait(self) -> Any: ...


Row = tuple[Tensor, int]
"""Bytes in one dimension, and the rank that they are sent to or received from."""


class Wire(Protocol):
    """Moves rows of bytes between ranks, without waiting."""

    device: torch.device
    """Device that the rows of a group are on."""

    def group(self, sends: Sequence[Row], receives: Sequence[Row]) -> tuple[list[Work], list[Work]]:
        """Start one group on the data channel. Between two ranks rows arrive in order."""

    def send_first(self, header: list[int], rows: Sequence[Tensor], peer: int) -> list[Work]:
        """Send a message of a new kind on the control channel."""

    def receive_header(self, peer: int) -> list[int]: ...

    def receive_first(self, row: Tensor, peer: int) -> Work: ...


class GroupWire:
    """The wire of a real run: torch.distributed."""

    def __init__(self, ranks: Ranks):
        self.device = ranks.wire
        self._ranks = ranks  # its groups end when it is closed: none is kept here

    def group(self, sends: Sequence[Row], receives: Sequence[Row]) -> tuple[list[Work], list[Work]]:
        ops = [dist.P2POp(dist.isend, row, peer, self._ranks.data) for row, peer in sends]
        ops += [dist.P2POp(dist.irecv, row, peer, self._ranks.data) for row, peer in receives]
        works: list[Work] = list(dist.batch_isend_irecv(ops)) if ops else []
        if len(works) < len(ops):
            works *= len(ops)  # NCCL: one for the whole group
        return works[: len(sends)], works[len(sends) :]

    def send_first(self, header: list[int], rows: Sequence[Tensor], peer: int) -> list[Work]:
        tensors = [torch.tensor(header, dtype=torch.int64), *(row.cpu() for row in rows if len(row))]
        return [_Keeping(_present(dist.isend(tensor, peer, group=self._ranks.control)), tensor) for tensor in tensors]

    def receive_header(self, peer: int) -> list[int]:
        header = torch.zeros(HEADER_LENGTH, dtype=torch.int64)
        _present(dist.irecv(header, peer, group=self._ranks.control)).wait()
        return [int(number) for number in header.tolist()]

    def receive_first(self, row: Tensor, peer: int) -> Work:
        return _present(dist.irecv(row, peer, group=self._ranks.control))


@dataclass(frozen=True)
class Route:
    """Source or destination of a boundary."""

    peer: int
    kind: Hashable
    """Key of its layout: messages of one kind between two ranks all have the same memory layout."""
    during: object
    """The action it serves, named in errors."""


@dataclass(frozen=True)
class Received:
    """A boundary from another rank."""

    route: Route
    value: Boundary
    heights: tuple[int | None, ...]
    """Rows of each whole tensor, where this is a part of them."""


@dataclass(frozen=True)
class _Offered:
    """A boundary that is ready to be sent."""

    route: Route
    rows: list[Tensor]


@dataclass(frozen=True)
class _InFlight:
    """Rows in transit, kept because the backend reads them until the wait returns."""

    works: Sequence[Work]
    rows: Sequence[Tensor]
    route: Route


class Transport:
    """Sends and receives for one rank."""

    def __init__(self, ranks: Ranks, device: torch.device, *, wire: Wire | None = None, counter: LiveBytes):
        self._ranks = ranks
        self._device = device
        self.wire = wire or GroupWire(ranks)
        self._counter = counter
        self._layouts: dict[tuple[str, int, Hashable], BoundaryLayout] = {}
        self._offered: dict[Hashable, _Offered] = {}
        self._in_flight: list[_InFlight] = []
        self._is_offering = False
        """Whether something was offered for the next group."""
        self.during: object = ""
        """The action under way, to name in errors of messages between parts."""
        self.between_parts_s = 0.0
        """Time so far in messages between parts, and waiting for them."""

    @property
    def rank(self) -> int:
        """The rank that it sends and receives for."""
        return self._ranks.rank

    # --- boundaries --------------------------------------------------------------------------------

    def offer(
        self, message: Hashable, value: Boundary, route: Route, heights: Sequence[int | None] | None = None
    ) -> None:
        """Prepare a boundary for the group that `exchange` will name; earlier messages must have arrived.

        Args:
            heights: rows of each whole tensor, if these are parts of them.

        Raises:
            LostPeerError: the previous message was not received in time, or the peer is gone.
            ValueError: the layout cannot be described, or differs from that of earlier messages of its kind.
        """
        if not self._is_offering:  # to wait for one of several would keep the others from their receivers
            self.flush()
        self._is_offering = True
        layout, rows = lay_out(value, heights)
        known = self._layouts.setdefault(("to", route.peer, route.kind), layout)
        if known != layout:
            raise ValueError(
                f"{route.during} gave {layout}, but {known} before for inputs of the same shape; what is passed "
                "between stages may depend only on the shape of the network's input. Cut elsewhere."
            )
        on_wire = [self._to_wire(row) for row in rows]
        self._counter.hold(on_wire)
        if known is not layout:
            self._offered[message] = _Offered(route, on_wire)
            return
        header = layout.header()
        with self._naming(route, "sending to"):
            works = self.wire.send_first(header, on_wire, route.peer)
        self._in_flight.append(_InFlight(works, on_wire, route))

    def exchange(self, gives: Sequence[Hashable], takes: Sequence[Route]) -> list[Received]:
        """Send what was offered under these names and wait for what is due, in one group.

        Returns:
            boundaries in their senders' memory layout. Tensors that need a gradient are leaves.

        Raises:
            LostPeerError: nothing came within the timeout, or a peer is gone.
        """
        self._is_offering = False
        if not gives:
            self.flush()  # the previous group must have ended; if there are gives, `offer` has seen to that
        offered = [self._offered.pop(message) for message in gives if message in self._offered]
        layouts = [self._layouts.get(("from", route.peer, route.kind)) for route in takes]
        pairs = [(route, layout) for route, layout in zip(takes, layouts, strict=True) if layout is not None]
        rows = [self._rows_for(layout) for _, layout in pairs]
        sends = [(row, give.route.peer) for give in offered for row in give.rows if len(row)]
        receives = [(row, route.peer) for (route, _), mine in zip(pairs, rows, strict=True) for row in mine if len(row)]
        with self._naming(_common_route((*takes, *(give.route for give in offered))), "meeting"):
            sent, coming = self.wire.group(sends, receives)
        for give in offered:
            count = sum(len(row) > 0 for row in give.rows)
            self._in_flight.append(_InFlight(sent[:count], give.rows, give.route))
            sent = sent[count:]
        return self._arrived(takes, pairs, rows, coming)

    def _arrived(
        self,
        takes: Sequence[Route],
        known: Sequence[tuple[Route, BoundaryLayout]],
        rows: Sequence[list[Tensor]],
        coming: list[Work],
    ) -> list[Received]:
        received = {}
        for (route, layout), mine in zip(known, rows, strict=True):
            with self._naming(route, "waiting for"):
                for _ in range(sum(len(row) > 0 for row in mine)):
                    coming.pop(0).wait()
            received[route] = layout, mine
        for route in takes:
            if route not in received:
                received[route] = self._first(route)
        return [
            Received(route, self._arrange(*received[route]), tuple(t.height for t in received[route][0].tensors))
            for route in takes
        ]

    def _first(self, route: Route) -> tuple[BoundaryLayout, list[Tensor]]:
        with self._naming(route, "waiting for"):
            layout = BoundaryLayout.from_header(self.wire.receive_header(route.peer))
        self._layouts["from", route.peer, route.kind] = layout
        rows = [torch.empty(tensor.num_bytes, dtype=torch.uint8) for tensor in layout.tensors]
        with self._naming(route, "waiting for"):
            for row in rows:
                if len(row):
                    self.wire.receive_first(row, route.peer).wait()
        return layout, rows

    def _rows_for(self, layout: BoundaryLayout) -> list[Tensor]:
        return [self._empty_row(tensor.num_bytes) for tensor in layout.tensors]

    def _arrange(self, layout: BoundaryLayout, rows: Sequence[Tensor]) -> Boundary:
        tensors = tuple(
            tensor.arrange(row.to(self._device, non_blocking=True))
            for tensor, row in zip(layout.tensors, rows, strict=True)
        )
        return tensors if layout.is_tuple else tensors[0]

    def flush(self) -> None:
        """Wait until everything sent has been received, and release it."""
        while self._in_flight:
            message = self._in_flight.pop(0)
            with self._naming(message.route, "sending to"):
                for work in message.works:
                    work.wait()
            self._counter.release(message.rows)

    # --- rows of known length, between all ranks that hold a stage -----------------------------------

    def swap(self, rows: Mapping[int, Tensor], num_bytes: Mapping[int, int], *, during: object) -> dict[int, Tensor]:
        """Send each peer its row and receive one from each, in one group; all sides know the lengths.

        Args:
            rows: by peer, uint8; the same tensor may go to several.
            num_bytes: by peer, the length of its row.
        """
        self.flush()
        unique = {id(row): row if row.device == self.wire.device else self._to_wire(row) for row in rows.values()}
        sends = [(unique[id(row)], peer) for peer, row in rows.items() if len(row)]
        coming = {peer: self._empty_row(count) for peer, count in num_bytes.items()}
        receives = [(row, peer) for peer, row in coming.items() if len(row)]
        routes = [Route(peer, None, during) for _, peer in (*receives, *sends)]
        with self._naming(_common_route(routes), "meeting"):
            sent, received = self.wire.group(sends, receives)
        for work, route in zip((*received, *sent), routes, strict=True):
            with self._naming(route, "exchanging with"):
                work.wait()
        return {peer: row.to(self._device) for peer, row in coming.items()}

    # --- all ranks, over the control channel ---------------------------------------------------------

    def sum_over_ranks(self, vector: Tensor, *, during: object) -> Tensor:
        """Add up a CPU vector over all ranks. Exact where only one rank has a non-zero entry."""
        if self._ranks.num_ranks == 1:
            return vector
        total = vector.cpu()
        with self._naming(Route(-1, None, during), "adding up with"):
            dist.all_reduce(total, group=self._ranks.control)
        return total

    def broadcast(self, tensor: Tensor, *, source: int, during: object) -> Tensor:
        """Give every rank the source's tensor, in CPU memory; the others pass one of the same size."""
        tensor = tensor.cpu()
        if self._ranks.num_ranks > 1 and tensor.numel():
            with self._naming(Route(source, None, during), "sharing what belongs to"):
                dist.broadcast(tensor, source, group=self._ranks.control)
        return tensor

    def share(self, value: Any, *, during: object) -> list[Any]:
        """Every rank's object, by rank, on every rank."""
        if self._ranks.num_ranks == 1:
            return [value]
        shared = [None] * self._ranks.num_ranks
        with self._naming(Route(-1, None, during), "sharing with"):
            dist.all_gather_object(shared, value, group=self._ranks.control)
        return shared

    def _empty_row(self, num_bytes: int) -> Tensor:
        staged = self._device.type == "cuda" and self.wire.device.type == "cpu"
        return torch.empty(num_bytes, dtype=torch.uint8, device=self.wire.device, pin_memory=staged)

    def _to_wire(self, row: Tensor) -> Tensor:
        """Copy through pinned memory if a GPU's ranks communicate over gloo."""
        return row if row.device == self.wire.device else self._empty_row(len(row)).copy_(row)

    @contextmanager
    def _naming(self, route: Route, doing: str) -> Iterator[None]:
        """Turn an error of the backend, which knows only addresses, into one that names ranks and work.

        Errors of the device itself (out of memory, an assertion in a kernel) are left unchanged.
        """
        try:
            yield
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except RuntimeError as error:
            other = "the other ranks" if route.peer < 0 else f"rank {route.peer}"
            lost = LostPeerError(
                f"rank {self._ranks.rank} in ({route.during}), {doing} {other}: no answer within "
                f"{self._ranks.timeout_s:g} s, or the connection broke. Check the log of {other} first; "
                f"if it was only slow, raise the timeout. ({error})"
            )
            lost.peer = route.peer
            raise lost from error


def _common_route(routes: Sequence[Route]) -> Route:
    """Route to name when a group of messages fails as a whole; without a peer if there are several."""
    during = routes[0].during if routes else ""
    peers = {route.peer for route in routes}
    return Route(peers.pop() if len(peers) == 1 else -1, None, during)


@dataclass(frozen=True)
class _Keeping:
    """A transfer that keeps what it sends."""

    work: Work
    tensor: Tensor

    def wait(self) -> Any:
        return self.work.wait()


def _present(work: dist.Work | None) -> Work:
    assert work is not None  # None stands for "not a member of the group"
    return work
