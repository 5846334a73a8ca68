"""The processes of one training run and the two channels between them.

`data` carries large messages: boundaries, gradients, weights. It is one communicator over all ranks, used only in
groups of messages whose order check.py has proven, because NCCL guarantees nothing more. `control` is always gloo in
CPU memory, for message layouts, losses and states. Both are warmed up at once with a tiny collective: backends connect
lazily, and might otherwise do so crosswise.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch's stubs do not export it

from training.foundation.errors import GemslideError
from training.foundation.words.counts import counted

_ADDRESS = "gemslide/address"
_GLOO_THREAD = "gloo_tcp_loop"
"""Name of the threads that move gloo's messages."""
_PATIENCE_S, _PAUSE_S = 2.0, 0.1


class LostPeerError(GemslideError):
    """Another rank did not answer in time, or has died."""

    code = "lost_peer"
    peer = -1
    """The rank that did not answer; -1 if it could be any."""


class MixedRanksError(GemslideError):
    """The ranks of one run do not agree on something that all must share."""

    code = "mixed_ranks"


@dataclass(frozen=True)
class Ranks:
    """This process among the others."""

    rank: int
    num_ranks: int
    timeout_s: float
    """A peer that is silent for longer counts as lost."""
    wire: torch.device
    """Device that tensors must be on to be sent over `data`: cpu for gloo, the accelerator for nccl."""
    data: dist.ProcessGroup | None = None
    control: dist.ProcessGroup | None = None
    """None for a process on its own."""

    def broadcast_from_first(self, value: Any) -> Any:
        """The first rank's object, on every rank; every rank calls it.

        Raises:
            LostPeerError: the first rank is gone or too slow, or lost another one.
        """
        if self.num_ranks == 1:
            return value
        holder = [value]
        with self._answered(0):
            dist.broadcast_object_list(holder, src=0, group=self.control)
        return holder[0]

    def gather(self, value: Any) -> list[Any]:
        """Every rank's object, by rank; every rank calls it and gets all.

        Raises:
            LostPeerError: another rank is gone or too slow.
        """
        if self.num_ranks == 1:
            return [value]
        holder = [None] * self.num_ranks
        with self._answered(-1):
            dist.all_gather_object(holder, value, group=self.control)
        return holder

    @contextmanager
    def _answered(self, peer: int) -> Iterator[None]:
        """Explain an error of the backend while this rank waits for another; -1 if it could be any."""
        try:
            yield
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            peer = -1 if peer == self.rank else peer
            who = "another rank" if peer < 0 else f"rank {peer}"
            lost = LostPeerError(
                f"rank {self.rank} waits for {who}, which did not answer within {self.timeout_s:g} s, "
                f"or is gone: {reason:.300}."
            )
            lost.peer = peer
            raise lost from error

    def close(self) -> None:
        """Leave the process groups; the other ranks do the same."""
        if self.control is not None:
            dist.destroy_process_group()
            # Released here, their threads end now: one that freed a tensor while Python exits would abort it.
            object.__setattr__(self, "data", None)
            object.__setattr__(self, "control", None)


def alone() -> Ranks:
    """A process on its own, for the strategy `single`; needs no torch.distributed."""
    return Ranks(0, 1, timeout_s=0.0, wire=torch.device("cpu"))


def connect_ranks(
    *,
    timeout_s: float,
    device: torch.device | None = None,
    backend: Literal["gloo", "nccl"] | None = None,
    init_method: str = "env://",
    rank: int = -1,
    num_ranks: int = -1,
) -> Ranks:
    """Join the other processes of the run. Every rank calls this once, at the same point.

    Args:
        timeout_s: longest time for any message; it must exceed the longest wait of a rank, about one whole step.
        device: that of this process; the CPU if omitted.
        backend: transport of large messages; None for nccl between GPUs, otherwise gloo. NCCL needs a GPU for each
            rank: ranks that share one use "gloo", and messages go through pinned host memory.
        init_method: "env://" under torchrun; a "file://" address also needs `rank` and `num_ranks`.

    Raises:
        ValueError: the timeout is not positive and finite.
        LostPeerError: the others did not connect within the timeout.
        MixedRanksError: they compute on other devices, or send in another way.
    """
    if not 0 < timeout_s < float("inf"):
        raise ValueError(f"timeout_s must be positive and finite, got {timeout_s}; 600 suits most runs")
    device = device or torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)  # torch's default for tensors that it makes itself
    backend = backend or ("nccl" if device.type == "cuda" else "gloo")
    wire = device if backend == "nccl" else torch.device("cpu")
    timeout = timedelta(seconds=timeout_s)
    with _explained(timeout_s):
        if init_method == "env://" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            store = _own_store(rank, timeout)
            dist.init_process_group("gloo", store=store, timeout=timeout, rank=rank, world_size=num_ranks)
        else:
            dist.init_process_group("gloo", init_method=init_method, timeout=timeout, rank=rank, world_size=num_ranks)
        _check_alike({"device": device.type, "backend": backend})
        data = dist.new_group(timeout=timeout, backend=backend)
        control = dist.new_group(timeout=timeout, backend="gloo")
        dist.all_reduce(torch.zeros(1, device=wire), group=data)
        dist.all_reduce(torch.zeros(1), group=control)
    _let_message_threads_wait()
    return Ranks(dist.get_rank(), dist.get_world_size(), timeout_s, wire, data, control)


def _let_message_threads_wait() -> None:
    """Keep gloo's threads from taking the core of a thread that computes, when a message arrives.

    They would take it even from one that is about to send and holds gloo's lock, and then spin for that lock, for some
    milliseconds: where ranks have one core each, parts took a third longer (docs/explanation/parts.md). Under
    SCHED_BATCH a thread that wakes up does not interrupt another; it runs at once if the core is idle.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return
    for thread in Path("/proc/self/task").iterdir():
        try:
            if (thread / "comm").read_text().startswith(_GLOO_THREAD):
                os.sched_setscheduler(int(thread.name), os.SCHED_BATCH, os.sched_param(0))
        except OSError:  # it has ended, or a sandbox forbids the call: messages only take longer
            continue


def _check_alike(mine: dict[str, str]) -> None:
    """Compare over gloo what the groups of the run depend on, before NCCL would wait for ranks that it cannot have.

    Raises:
        MixedRanksError: ranks differ.
    """
    by_rank: list[dict[str, str]] = [{}] * dist.get_world_size()
    dist.all_gather_object(by_rank, mine)
    refuse_mixed(by_rank)


def refuse_mixed(by_rank: Sequence[Mapping[str, object]]) -> None:
    """Refuse ranks that differ from the first.

    Args:
        by_rank: for each rank the values that all must share, by name.

    Raises:
        MixedRanksError: with the name, the values and the ranks.
    """
    first = by_rank[0]
    for name in first:
        others = [rank for rank, values in enumerate(by_rank) if values.get(name) != first[name]]
        if others:
            raise MixedRanksError(
                f"the ranks of one run must share {name}, but it is {first[name]!r} on rank 0 and "
                f"{by_rank[others[0]].get(name)!r} on {counted(len(others), 'other', 'others')}, such as rank "
                f"{others[0]}. Start all of them in the same way, on machines of one kind."
            )


def _own_store(rank: int, timeout: timedelta) -> TCPStore:
    """A store for these processes only, announced through torchrun's.

    torchrun's own outlives a restart (in torch 2.13, unless TORCH_DISABLE_SHARE_RDZV_TCP_STORE is set): gloo would find
    the addresses of dead processes in it. If it still holds the address of a dead store, nothing answers there, and the
    address is read again.
    """
    host, end_s = os.environ["MASTER_ADDR"], time.monotonic() + timeout.total_seconds()
    shared = TCPStore(host, int(os.environ["MASTER_PORT"]), is_master=False, timeout=timeout)
    if rank == 0:
        own = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        shared.set(_ADDRESS, str(own.port))
        return own
    while True:
        port = int(shared.get(_ADDRESS))
        if _answers(host, port) or time.monotonic() > end_s:
            return TCPStore(host, port, is_master=False, timeout=timeout)
        time.sleep(_PAUSE_S)


def _answers(host: str, port: int) -> bool:
    """Whether anything listens there. A failed attempt by the store itself would fill the log with stack traces."""
    try:
        with socket.create_connection((host, port), timeout=_PATIENCE_S):
            return True
    except OSError:
        return False


@contextmanager
def _explained(timeout_s: float) -> Iterator[None]:
    """Explain an error of the backend to people."""
    try:
        yield
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise LostPeerError(
            f"the ranks of this run did not all connect within {timeout_s:g} s: {reason:.300}. Check the logs of the "
            "others; across several machines, also MASTER_ADDR and GLOO_SOCKET_IFNAME."
        ) from error
