"""Steps of several plans on real ranks, measured under the same noise.

In a round every plan takes a step, in an order that rotates, so that no plan always follows the same other, and after
one of its own that is not measured: in a run, too, a step finds the heap as the same plan has left it. While a rank
computes, its CPU time is compared with the wall clock: where they differ, another program had the core, and the step is
taken again. Memory is counted in a step of its own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import nn

from training.engine.engine import Engine
from training.engine.executor import Batch, Loss
from training.engine.plan import Plan
from training.engine.ranks import Ranks
from training.engine.schedule import Action
from training.foundation.errors import BusyMachineError

LEAST_SHARE = 0.97
"""Least CPU time per wall-clock time of computations in a round that counts."""
WARM_UPS, FEWEST, ROUNDS, MOST_ROUNDS = 1, 3, 7, 25
BUDGET_S = 240.0
"""Time for all rounds, once there are a few."""
TRIES = 3
"""Steps of a plan in a round until one has the cores to itself."""
T = TypeVar("T")


@dataclass(frozen=True)
class Computed:
    """One computation of one rank; seconds since its step began."""

    action: Action
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Raced:
    """What was measured of one plan."""

    step_s: float
    """Median of the rounds that counted."""
    rounds_s: tuple[float, ...]
    live_bytes: tuple[int, ...]
    """Peak of each rank."""
    ranks: tuple[tuple[Computed, ...], ...]
    """What each rank computed in the last round that counted."""


@dataclass
class _Stopwatch:
    """The engine's meter on one rank."""

    device: torch.device
    computed: list[Computed] = field(default_factory=list)
    cpu_s: float = 0.0
    begin_s: float = 0.0

    def __call__(self, action: Action, computation: Callable[..., T]) -> Callable[..., T]:
        def timed(*args: object, **kwargs: object) -> T:
            start_s, cpu_s = self._now_s(), _cpu_s()
            result = computation(*args, **kwargs)
            self.cpu_s += _cpu_s() - cpu_s
            self.computed.append(Computed(action, start_s - self.begin_s, self._now_s() - self.begin_s))
            return result

        return timed

    def start(self) -> None:
        self.computed, self.cpu_s, self.begin_s = [], 0.0, self._now_s()

    def share(self, between_parts_s: float) -> float:
        """CPU time per wall-clock time; 1 where a device computes, which another program does not slow down.

        Args:
            between_parts_s: of the computations, in which they waited for other parts.
        """
        wall_s = sum(one.end_s - one.start_s for one in self.computed) - between_parts_s
        return self.cpu_s / wall_s if wall_s > 0 and self.device.type == "cpu" else 1.0

    def _now_s(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def _cpu_s() -> float:
    """CPU time spent computing: with one thread, the whole process, message threads included; else the main thread."""
    return time.process_time() if torch.get_num_threads() == 1 else time.thread_time()


@dataclass
class _Runner:
    """One plan at work on this rank."""

    plan: Plan
    watch: _Stopwatch
    engine: Engine
    live_bytes: tuple[int, ...] = ()
    rounds_s: list[float] = field(default_factory=list)
    last: tuple[Computed, ...] = ()


def race(
    plans: Mapping[str, Plan],
    make_blocks: Callable[[], Sequence[nn.Module]],
    batch: Batch,
    loss: Loss,
    ranks: Ranks,
    *,
    least_share: float = LEAST_SHARE,
) -> dict[str, Raced]:
    """Take steps of every plan; every rank calls it with the same and gets what was measured.

    Args:
        plans: of one number of ranks, by name.
        make_blocks: the network, anew for each engine (two for each plan, in their order), with the same weights on
            every rank.
        batch: of a whole step, the same for all plans.
        least_share: CPU time per wall-clock time of a round that counts.

    Raises:
        BusyMachineError: hardly any round counted.
    """
    runners = {name: _started(plan, make_blocks, batch, loss, ranks) for name, plan in plans.items()}
    good, end_s = 0, time.perf_counter() + BUDGET_S
    names = list(runners)
    for index in range(WARM_UPS + MOST_ROUNDS):
        shift = index % len(names)
        turns = {name: _turn(runners[name], batch, loss, ranks, least_share) for name in names[shift:] + names[:shift]}
        if index >= WARM_UPS and all(counts for _, counts in turns.values()):
            good += 1
            for name, (seconds, _) in turns.items():
                runners[name].rounds_s.append(seconds)
                runners[name].last = tuple(runners[name].watch.computed)
        is_late = ranks.broadcast_from_first(time.perf_counter() > end_s)
        if good >= ROUNDS or (is_late and index >= WARM_UPS + ROUNDS):
            break
    if good < FEWEST:
        raise BusyMachineError(
            f"only {good} of {index + 1 - WARM_UPS} rounds had the cores to themselves (CPU time of at least "
            f"{least_share:.0%} of the wall clock). End other programs, or give the ranks fewer threads."
        )
    return {name: _raced(runner, ranks) for name, runner in runners.items()}


def _started(
    plan: Plan, make_blocks: Callable[[], Sequence[nn.Module]], batch: Batch, loss: Loss, ranks: Ranks
) -> _Runner:
    """A plan after two steps: in the first, ranks learn the layout of messages, in the second memory is counted."""
    watch = _Stopwatch(plan.device)
    counting = Engine(make_blocks(), plan, ranks=ranks, count_bytes=True)
    for _ in range(2):
        counting.train_step(batch, loss)
    live_bytes = tuple(counting.peak_bytes()["live"])
    counting.close()
    return _Runner(plan, watch, Engine(make_blocks(), plan, ranks=ranks, meter=watch), live_bytes)


def _turn(runner: _Runner, batch: Batch, loss: Loss, ranks: Ranks, least_share: float) -> tuple[float, bool]:
    """Seconds of one step, until the last rank has ended, and whether every rank had its core."""
    runner.engine.train_step(batch, loss)
    for _ in range(TRIES):
        ranks.gather(None)
        runner.watch.start()
        start_s, waited_s = time.perf_counter(), runner.engine.between_parts_s
        runner.engine.train_step(batch, loss)
        shares = ranks.gather(runner.watch.share(runner.engine.between_parts_s - waited_s))
        seconds = time.perf_counter() - start_s
        if min(shares) >= least_share:
            return seconds, True
    return seconds, False


def _raced(runner: _Runner, ranks: Ranks) -> Raced:
    by_rank = ranks.gather((runner.rounds_s, runner.last))
    rounds_s = tuple(by_rank[0][0])
    runner.engine.close()
    return Raced(statistics.median(rounds_s), rounds_s, runner.live_bytes, tuple(last for _, last in by_rank))
