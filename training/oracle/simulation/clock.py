"""Simulated time: work that waits for moments, and messages that share links while they are on their way."""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from training.oracle.simulation.links import Link, Network

Work = Iterator["Moment"]
"""A generator that yields each moment it waits for."""


@dataclass(eq=False)
class Moment:
    """Something that happens once."""

    has_come: bool = False
    waiting: list[Work] = field(default_factory=list)


class Clock:
    """Runs work, always what is due next."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._ready: deque[Work] = deque()

    def start(self, work: Work) -> None:
        """Let work begin as soon as the clock runs."""
        self._ready.append(work)

    def call_at(self, time_s: float, action: Callable[[], None]) -> None:
        """Call a function at a time; those of one time in the order of these calls."""
        heapq.heappush(self._due, (time_s, next(self._order), action))

    def come(self, moment: Moment) -> None:
        """Let a moment happen now: whatever waits for it goes on."""
        moment.has_come = True
        self._ready.extend(moment.waiting)
        moment.waiting.clear()

    def after(self, seconds: float) -> Moment:
        """The moment that comes after some time."""
        moment = Moment()
        self.call_at(self.now_s + seconds, lambda: self.come(moment))
        return moment

    def run(self) -> None:
        """Run until nothing is due. Work that still waits then waits forever."""
        while True:
            while self._ready:
                self._go_on(self._ready.popleft())
            if not self._due:
                return
            self.now_s, _, action = heapq.heappop(self._due)
            action()

    def _go_on(self, work: Work) -> None:
        for moment in work:
            if not moment.has_come:
                moment.waiting.append(work)
                return


@dataclass(eq=False)
class _Flow:
    """A message on its way."""

    links: tuple[Link, ...]
    bytes_left: float
    arrived: Moment
    bytes_per_s: float = 0.0
    end_s: float = math.inf


class Traffic:
    """All messages that are on their way."""

    def __init__(self, clock: Clock, network: Network):
        self._clock, self._network = clock, network
        self._flows: list[_Flow] = []
        self._users: Counter[str] = Counter()
        self._shared_at_s = 0.0

    def send(self, sender: int, receiver: int, num_bytes: float) -> Moment:
        """The moment in which a message that starts now has arrived; one without bytes is not sent."""
        links = self._network(sender, receiver) if num_bytes else ()
        flow = _Flow(links, num_bytes, Moment())
        alpha_s = sum(link.alpha_s for link in links)
        if alpha_s:
            self._clock.call_at(self._clock.now_s + alpha_s, lambda: self._begin(flow))
        else:
            self._begin(flow)
        return flow.arrived

    def _begin(self, flow: _Flow) -> None:
        if not any(link.beta_s_per_byte for link in flow.links):
            self._clock.come(flow.arrived)
            return
        self._flows.append(flow)
        self._users.update(link.name for link in flow.links)
        self._share()

    def _share(self) -> None:
        """Give every message its part of its slowest link, from now until the next one begins or ends."""
        now_s = self._clock.now_s
        for flow in self._flows:
            flow.bytes_left -= flow.bytes_per_s * (now_s - self._shared_at_s)
            s_per_byte = max(link.beta_s_per_byte * self._users[link.name] for link in flow.links)
            flow.bytes_per_s = 1.0 / s_per_byte
            flow.end_s = now_s + max(flow.bytes_left, 0.0) * s_per_byte
        self._shared_at_s = now_s
        if self._flows:
            self._clock.call_at(min(flow.end_s for flow in self._flows), self._end)

    def _end(self) -> None:
        """Let all messages arrive that end now; none does if the links have been shared out anew in the meantime."""
        ended = [flow for flow in self._flows if flow.end_s <= self._clock.now_s]
        if not ended:
            return
        for flow in ended:
            self._flows.remove(flow)
            self._users.subtract(link.name for link in flow.links)
            self._clock.come(flow.arrived)
        self._share()
