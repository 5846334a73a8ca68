"""Live bytes of every rank, predicted without running the network.

The same executor, transport and counter as in a real run walk the schedule of one group of ranks on fake tensors, which
have shapes, strides and storages but no memory. So the prediction cannot drift away from the measurement.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from training.engine.executor import Batch, Executor, Loss, Step
from training.engine.feed import Feed
from training.engine.memory import LiveBytes
from training.engine.partition import fake_tensors, on_device, without_memory
from training.engine.plan import Plan
from training.engine.random_numbers import random_numbers_kept
from training.engine.ranks import Ranks
from training.engine.schedule import Action, Schedule
from training.engine.stage import StageCopy
from training.engine.stages import make_copies, named_stages
from training.engine.transport import Row, Transport
from training.parallel.division import SilentLink
from training.parallel.link import Piece


@dataclass(frozen=True)
class RankMemory:
    """Memory of one rank."""

    peak_bytes: int
    """The most live bytes at any moment of a step."""
    after_bytes: tuple[int, ...]
    """Live bytes after each action of the rank."""
    weight_bytes: int
    """Weights and buffers of all stages held. Their gradients take as much again for each node of the gradient sum."""


def predict_memory(blocks: Sequence[nn.Module], loss: Loss, batch: Batch, plan: Plan) -> list[RankMemory]:
    """Live bytes of each rank of the first group.

    Inputs read ahead are not counted: they wait in host memory. Compiled blocks, which choose what they keep, are
    counted as if they were not compiled.

    Args:
        blocks: the whole network; it is not changed.
        batch: only the first group's share is used, and of that only the shapes of the inputs (taken as float32) and
            the targets.
    """
    one_group = replace(plan, data_parallel=1, compiled=False)
    whole = plan.schedule(len(batch.shapes))
    last = whole.placement.num_replicas // plan.data_parallel - 1
    share = range(whole.microbatches_of(0).start, whole.microbatches_of(last).stop)
    # One for each rank, made in advance: fake tensors cannot be copied.
    shells = [without_memory(blocks, channels_last=plan.channels_last) for _ in range(plan.group_size)]
    with random_numbers_kept(plan.device), fake_tensors():
        fakes = [list(on_device(shell, plan.device)) for shell in shells]
        return _Group(fakes, loss, one_group).step(_FakeBatch(batch, share))


class _Group:
    """All ranks of one group in this process, on fake tensors."""

    def __init__(self, fakes: Sequence[Sequence[nn.Module]], loss: Loss, plan: Plan):
        self._loss, self._plan = loss, plan
        self._counters = [LiveBytes(enabled=True) for _ in range(plan.group_size)]
        mail: _Mail = defaultdict(deque)
        self._executors = []
        self._weight_bytes = []
        for rank, counter in enumerate(self._counters):
            ranks = Ranks(rank, plan.world_size, timeout_s=0.0, wire=plan.device)
            transport = Transport(ranks, plan.device, wire=_FakeWire(rank, plan.device, mail), counter=counter)
            copies = make_copies(
                plan,
                rank,
                named_stages(fakes[rank], plan, ranks),
                counter=counter,
                link=partial(_FakeLink, transport),
            )
            stages = {copy.stage: copy for copy in copies.values()}
            self._executors.append(
                Executor(
                    copies=copies,
                    transport=transport,
                    syncs={stage: _NoSync(copy) for stage, copy in stages.items()},
                    place=plan.place,
                    feed=Feed(),
                    counter=counter,
                )
            )
            held = [tensor for c in stages.values() for tensor in (*c.module.parameters(), *c.module.buffers())]
            self._weight_bytes.append(sum(tensor.numel() * tensor.element_size() for tensor in held))

    def step(self, batch: Batch) -> list[RankMemory]:
        """Run one step of all ranks, action by action, in an order in which no rank waits."""
        schedule = self._plan.schedule(len(batch.shapes))
        steps = [executor.begin(schedule, batch, self._loss) for executor in self._executors]
        after: list[list[int]] = [[] for _ in steps]
        done: set[Action] = set()
        while any(len(after[rank]) < len(step.actions) for rank, step in enumerate(steps)):
            for rank, step in enumerate(steps):
                if _is_ready(step, len(after[rank]), done):
                    self._executors[rank].do(step, len(after[rank]))
                    done.add(step.actions[len(after[rank])])
                    after[rank].append(self._counters[rank].now)
        for executor, step in zip(self._executors, steps, strict=True):
            executor.finish(step)
        return [
            RankMemory(counter.peak, tuple(bytes_after), weight_bytes)
            for counter, bytes_after, weight_bytes in zip(self._counters, after, self._weight_bytes, strict=True)
        ]


def _is_ready(step: Step, index: int, done: set[Action]) -> bool:
    if index == len(step.actions):
        return False
    return all(source in done for source in step.schedule.sources(step.actions[index]))


class _FakeBatch:
    """Some micro-batches of a batch, with targets but without inputs."""

    def __init__(self, batch: Batch, microbatches: Sequence[int]):
        self.shapes = [batch.shapes[microbatch] for microbatch in microbatches]
        self._batch, self._microbatches = batch, microbatches

    def inputs(self, microbatch: int) -> Tensor:
        return torch.empty(self.shapes[microbatch])

    def targets(self, microbatch: int) -> Any:
        return self._batch.targets(self._microbatches[microbatch])


class _NoSync:
    """Drops gradients and statistics where a real run adds them up: the counter leaves them out."""

    def __init__(self, copy: StageCopy):
        self._copy = copy

    def bring_together(self, action: Action, schedule: Schedule) -> None:
        return

    def finish_sum(self, scale: float) -> None:
        self._copy.forget()

    def update(self, num_microbatches: int) -> None:
        return

    def hand_round(self, action: Action) -> None:
        return


_Mail = defaultdict[tuple[int, int], deque[list[int]]]


class _FakeWire:
    """A wire that delivers headers only."""

    def __init__(self, rank: int, device: torch.device, mail: _Mail):
        self.device = device
        self._rank, self._mail = rank, mail

    def group(self, sends: Sequence[Row], receives: Sequence[Row]) -> tuple[list[Any], list[Any]]:
        return [_Arrived()] * len(sends), [_Arrived()] * len(receives)

    def send_first(self, header: list[int], rows: Sequence[Tensor], peer: int) -> list[Any]:
        self._mail[self._rank, peer].append(header)
        return []

    def receive_header(self, peer: int) -> list[int]:
        return self._mail[peer, self._rank].popleft()

    def receive_first(self, row: Tensor, peer: int) -> Any:
        return _Arrived()


class _FakeLink(SilentLink):
    """A link that delivers tensors of the right shapes."""

    def __init__(self, transport: Transport, ranks: Sequence[int]) -> None:
        super().__init__(len(ranks), ranks.index(transport.rank))
        self._transport = transport

    def swap(
        self, gives: Sequence[Mapping[int, Tensor]], takes: Sequence[Mapping[int, Piece]]
    ) -> list[dict[int, Tensor]]:
        self._transport.flush()  # as in a real run, where one group ends before the next
        return super().swap(gives, takes)


class _Arrived:
    def wait(self) -> None:
        return
