"""Rounds of contenders under the same noise, and the choice of those that count.

In a round every contender does its work once. While it computes, its thread's CPU time is compared with the wall clock:
where they differ, another process had the core, and the round does not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

LEAST_SHARE = 0.97
"""Minimum share of wall-clock time for which a computation must have had a core."""
LEAST_ROUNDS, MOST_ROUNDS, WARM_UP = 9, 45, 2
BUSY = "machine busy"


@dataclass
class Compute:
    """Wall and CPU seconds of this thread while it computed."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    parts: dict[Any, list[float]] = field(default_factory=dict)
    """Wall seconds of each call, by computation."""

    @contextmanager
    def timed(self, key: Any) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.thread_time()
        yield
        seconds = time.perf_counter() - wall
        self.wall_s, self.cpu_s = self.wall_s + seconds, self.cpu_s + time.thread_time() - cpu
        self.parts.setdefault(key, []).append(seconds)

    def wrap(self, owner: Any, name: str, key: Callable[[Any], Any]) -> None:
        """Time every further call of a method."""
        method = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.timed((name, key(args[0] if args else None))):
                return method(*args, **kwargs)

        setattr(owner, name, timed)

    def take(self) -> Compute:
        """Return the counts so far and start counting again."""
        taken = Compute(self.wall_s, self.cpu_s, self.parts)
        self.wall_s, self.cpu_s, self.parts = 0.0, 0.0, {}
        return taken


@dataclass(frozen=True)
class Turn:
    """One contender in one round, on this rank."""

    seconds: float
    compute: Compute


def run_rounds(
    contenders: Mapping[str, Callable[[], Any]],
    compute: Compute,
    *,
    least: int = LEAST_ROUNDS,
    most: int = MOST_ROUNDS,
    judged: Sequence[str] = (),
) -> list[dict[str, Turn]]:
    """Run rounds; return the good ones, with contenders' turns by name. Every rank calls it and keeps the same rounds.

    The order rotates, so that no contender always follows the same neighbour.

    Args:
        judged: contenders that decide whether a round is good, if the others share their core with their own threads;
            by default all of them.
    """
    names, good = list(contenders), []
    for index in range(WARM_UP + most):
        shift = index % len(names)
        turns = {name: _turn(contenders[name], compute) for name in names[shift:] + names[:shift]}
        least_share = min(
            turn.compute.cpu_s / turn.compute.wall_s for turn in (turns[name] for name in judged or names)
        )
        if index >= WARM_UP and _least_of_all(least_share) >= LEAST_SHARE:
            good.append(turns)
        if len(good) >= least:
            break
    return good


def _turn(work: Callable[[], Any], compute: Compute) -> Turn:
    _meet()
    compute.take()
    start = time.perf_counter()
    work()
    _meet()
    return Turn(time.perf_counter() - start, compute.take())


def _meet() -> None:
    if dist.is_initialized():
        dist.barrier()


def _least_of_all(value: float) -> float:
    least = torch.tensor(value, dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(least, dist.ReduceOp.MIN)
    return least.item()


def ratio(upper: Sequence[float], lower: Sequence[float], *, least: int = 7) -> float | str:
    """Median of the ratios of each round; a word if too few rounds counted."""
    if len(upper) < least:
        return BUSY
    return round(statistics.median(a / b for a, b in zip(upper, lower, strict=True)), 3)
