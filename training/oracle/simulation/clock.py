"""Simulated time: work that waits for moments, and what slows each other down while it goes on: messages that share
links, and ranks that compute beside each other."""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

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
class _Underway:
    """Something that goes on until nothing of it is left."""

    left: float
    """In any unit."""
    done: Moment
    s_per_unit: float = math.inf
    """At present."""
    end_s: float = math.inf
    """If nothing else begins or ends until then."""


Item = TypeVar("Item", bound=_Underway)


class _Sharing(ABC, Generic[Item]):
    """All that goes on at once, each as fast as the others let it."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._underway: list[Item] = []
        self._shared_at_s = 0.0

    @abstractmethod
    def _s_per_unit(self, item: Item) -> float:
        """How long one of them takes for a unit, beside all others."""

    def _begin(self, item: Item) -> None:
        self._underway.append(item)
        self._share()

    def _leave(self, item: Item) -> None:
        self._underway.remove(item)

    def _share(self) -> None:
        """Set how fast each goes from now until the next one begins or ends."""
        now_s = self._clock.now_s
        for item in self._underway:
            item.left -= (now_s - self._shared_at_s) / item.s_per_unit
            item.s_per_unit = self._s_per_unit(item)
            item.end_s = now_s + max(item.left, 0.0) * item.s_per_unit
        self._shared_at_s = now_s
        if self._underway:
            self._clock.call_at(min(item.end_s for item in self._underway), self._end)

    def _end(self) -> None:
        """End all that are due; none is if the speeds have changed in the meantime."""
        ended = [item for item in self._underway if item.end_s <= self._clock.now_s]
        if not ended:
            return
        for item in ended:
            self._leave(item)
            self._clock.come(item.done)
        self._share()


@dataclass(eq=False)
class _Flow(_Underway):
    """A message on its way; its units are bytes."""

    links: tuple[Link, ...] = ()


class Traffic(_Sharing[_Flow]):
    """All messages that are on their way."""

    def __init__(self, clock: Clock, network: Network):
        super().__init__(clock)
        self._network = network
        self._users: Counter[str] = Counter()

    def send(self, sender: int, receiver: int, num_bytes: float) -> Moment:
        """The moment in which a message that starts now has arrived; one without bytes is not sent."""
        links = self._network(sender, receiver) if num_bytes else ()
        flow = _Flow(num_bytes, Moment(), links=links)
        alpha_s = sum(link.alpha_s for link in links)
        if alpha_s:
            self._clock.call_at(self._clock.now_s + alpha_s, lambda: self._begin(flow))
        else:
            self._begin(flow)
        return flow.done

    def _begin(self, item: _Flow) -> None:
        if not any(link.beta_s_per_byte for link in item.links):
            self._clock.come(item.done)
            return
        self._users.update(link.name for link in item.links)
        super()._begin(item)

    def _leave(self, item: _Flow) -> None:
        super()._leave(item)
        self._users.subtract(link.name for link in item.links)

    def _s_per_unit(self, item: _Flow) -> float:
        return max(link.beta_s_per_byte * self._users[link.name] for link in item.links)


@dataclass(eq=False)
class _Computation(_Underway):
    """A rank that computes; its units are seconds that it takes while all ranks compute."""

    alone: float = 1.0


class Computing(_Sharing[_Computation]):
    """All ranks that compute."""

    def __init__(self, clock: Clock, num_ranks: int, groups: int = 1):
        """Begin with none.

        Args:
            groups: that do the same as these ranks at the same time.
        """
        super().__init__(clock)
        self._groups, self._others = groups, num_ranks * groups - 1

    def compute(self, seconds: float, alone: float) -> Moment:
        """The moment in which a rank has done what starts now.

        Args:
            seconds: while all other ranks compute, too.
            alone: factor of the time if all others wait; between, it is linear in the number that compute.
        """
        computation = _Computation(seconds, Moment(), alone=alone)
        self._begin(computation)
        return computation.done

    def _s_per_unit(self, item: _Computation) -> float:
        busy = (len(self._underway) * self._groups - 1) / self._others if self._others else 1.0
        return item.alone + (1.0 - item.alone) * busy
