"""Time limits of a connection: for its headers, for reading the answer, and between requests.

uvicorn itself only limits the rest between two requests. It never ends a client that sends its headers a byte at
a time, or that does not read what it asked for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pathology_app.callers.addresses import neighbourhood

MAX_WAITING = 100
"""Connections whose headers have not arrived yet. Beyond this, the oldest are ended: a flood of them keeps nobody out.
"""
MAX_OPEN = 160
"""Connections without a WebSocket. Beyond this, one of the address that has most is ended: one that waits for a request
before one that is being answered, oldest first."""
FAIR_SHARE = 24
"""Connections of one address up to which those being answered are left alone; a browser opens 6."""
GRACE_S = 1.0
"""Before that, a connection may simply not have been read yet."""
ARRIVED_S = 0.01
"""Delay before room is made: requests that have already arrived in a burst of connections are read first."""


@dataclass(frozen=True)
class Timeouts:
    """In seconds."""

    headers_s: float = 10.0
    """From the connection, or from a further request's first byte, to the end of the request's headers."""
    answer_s: float = 120.0
    """From there until the answer is read; long enough for Streamlit's own scripts over a slow connection."""
    idle_s: int = 15
    """Between two requests on one connection."""


class TimedProtocol(H11Protocol):
    """uvicorn's protocol on h11 (which limits the size of headers, too), with the timeouts kept."""

    timeouts: ClassVar[Timeouts] = Timeouts()
    waiting: ClassVar[dict[TimedProtocol, float]] = {}
    """Those that wait for headers, oldest first, and since when."""
    open: ClassVar[dict[TimedProtocol, str]] = {}
    """All without a WebSocket, oldest first, and from which address."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.open[self] = neighbourhood(str(peer[0])) if isinstance(peer, tuple) else ""
        if len(self.open) > MAX_OPEN:
            self.loop.call_later(ARRIVED_S, self._make_room)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        is_between_requests = self.cycle is None or self.cycle.response_complete
        if is_between_requests and self not in self.waiting:
            self._expect_headers()
        cycle = self.cycle
        super().data_received(data)
        if self.cycle is not cycle:
            self._end_in(self.timeouts.answer_s)

    def on_response_complete(self) -> None:
        cycle = self.cycle
        super().on_response_complete()
        if self.cycle is not cycle:  # a request that was waiting after the last one
            self._end_in(self.timeouts.answer_s)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._cancel()
        self.open.pop(self, None)
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        self.open.pop(self, None)
        super().connection_lost(exc)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> None:
        """End a connection if there are still too many; called once for each one beyond the limit."""
        if len(self.open) <= MAX_OPEN:
            return
        most, number = Counter(self.open.values()).most_common(1)[0]
        alike = [other for other, address in self.open.items() if address == most]
        idle = [other for other in alike if not other._is_answering]
        if idle or number > FAIR_SHARE:
            oldest = (idle or alike)[0]
            self.open.pop(oldest)
            oldest.transport.abort()

    def _expect_headers(self) -> None:
        now_s = self.loop.time()
        self._end_in(self.timeouts.headers_s)
        self.waiting[self] = now_s
        for oldest, since_s in list(self.waiting.items())[:-MAX_WAITING]:
            if now_s - since_s > GRACE_S:
                del self.waiting[oldest]
                oldest.transport.abort()

    def _end_in(self, seconds: float) -> None:
        self._cancel()
        # Not closed gracefully: that would wait for a client that does not read.
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _cancel(self) -> None:
        self.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def protocol_with(timeouts: Timeouts) -> type[asyncio.Protocol]:
    """A protocol class for uvicorn's `Config(http=…)`, which makes the instances itself."""
    return type("TimedProtocol", (TimedProtocol,), {"timeouts": timeouts, "waiting": {}, "open": {}})
