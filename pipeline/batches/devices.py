"""Devices that compute blocks: this process with one of them, or a process for each of several."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Generic, Protocol, TypeVar

from pipeline.batches.block_runner import BlockRunner, Seconds
from pipeline.batches.blocks import Block
from pipeline.batches.journal import BatchResult
from pipeline.batches.network import Load, TileNetwork
from pipeline.batches.where import RunOn, available_devices, default_device, use_threads
from pipeline.errors import ProcessFailedError
from pipeline.jobs.worker_process import begin_worker
from pipeline.store.reading.threads import CORES
from training.foundation.errors import BadRecipeError, GemslideError
from training.foundation.words.spelling import nearest

BLOCKS_AHEAD = 3
"""Blocks that a device holds: one in progress, one being read, one to follow."""


Network = TypeVar("Network", bound=TileNetwork)
Network_co = TypeVar("Network_co", bound=TileNetwork, covariant=True)


class Devices(Protocol[Network_co]):
    """One or more devices that compute blocks."""

    @property
    def network(self) -> Network_co:
        """The network, for its metadata."""

    @property
    def seconds(self) -> Seconds:
        """Time breakdown of all work so far, over all devices."""

    turn: threading.Lock
    """Lock that a caller of `results` holds until the last result: slides take turns."""

    def results(self, blocks: Iterator[Block]) -> Iterator[BatchResult]:
        """Results of all batches, as they arrive.

        Raises:
            CorruptTileError, UnreadableError: the store. ImplausibleOutputError: the network.
            ProcessFailedError: a device's process has ended.
        """


def named_devices(names: str) -> tuple[str, ...]:
    """The requested devices: "cpu", "cuda", "cuda:0,cuda:1", or "cuda:0+cuda:1" for one network over two.

    Args:
        names: as typed; "auto" is the first GPU, where there is one, and the CPU elsewhere.

    Raises:
        BadRecipeError: this machine has no such device.
    """
    if names == "auto":
        return (default_device(),)
    known = available_devices()
    groups = (group.split("+") for group in names.split(","))
    return tuple("+".join(_known(part.strip(), names, known) for part in group) for group in groups)


def _known(name: str, typed: str, known: list[str]) -> str:
    if name == "cuda" and "cuda:0" in known:
        return "cuda:0"
    if name in known:
        return name
    raise BadRecipeError(
        f"--devices {typed}: there is no {name!r} on this machine. There are: {', '.join(known)}."
        + (f" Did you mean {near[0]}?" if (near := nearest(name, known, most=1)) else "")
    )


class OneDevice(Generic[Network]):
    """One device, used by this process."""

    def __init__(self, network: Network, *, threads: int = CORES) -> None:
        self.network, self._threads = network, threads
        self.seconds, self.turn = Seconds(), threading.Lock()

    def results(self, blocks: Iterator[Block]) -> Iterator[BatchResult]:
        """See `Devices`."""
        before = self.seconds
        with BlockRunner(self.network, threads=self._threads) as work:
            for result in work.results(lambda _: next(blocks, None)):
                self.seconds = before + work.seconds
                yield result


class ManyDevices(AbstractContextManager["ManyDevices[Network]"], Generic[Network]):
    """One process per device. Each is given blocks as it finishes others, so that even one slide is spread over all.

    Use as a context manager; processes of this machine start with the first block.

    Args:
        load: opens the network, here (on the CPU, for its metadata) and in each process.
        others: pipes to devices of other processes that already `serve`.
    """

    def __init__(
        self, load: Callable[[RunOn], Network], run_on: tuple[RunOn, ...], others: Sequence[Connection] = ()
    ) -> None:
        self.network = load(replace(run_on[0], device="cpu"))
        self.network.devices = tuple(setup.device for setup in run_on)
        share = max(1, CORES // len(run_on))
        self._workers = [_Worker(setup.device, _Starter(load, setup, share)) for setup in run_on]
        self._workers += [_Worker(f"of rank {number}", other) for number, other in enumerate(others, start=1)]
        self.turn = threading.Lock()
        self._job = 0

    @property
    def seconds(self) -> Seconds:
        """See `Devices`."""
        return sum((worker.seconds for worker in self._workers), Seconds())

    def results(self, blocks: Iterator[Block]) -> Iterator[BatchResult]:
        """See `Devices`."""
        self._job += 1
        try:
            yield from self._results(blocks)
        except BaseException:
            for worker in self._workers:
                worker.drop()
            raise

    def _results(self, blocks: Iterator[Block]) -> Iterator[BatchResult]:
        while True:
            for worker in self._workers:
                while worker.has_room and (block := next(blocks, None)) is not None:
                    worker.send(replace(block, job=self._job))
            busy = {worker.connection: worker for worker in self._workers if worker.connection and worker.is_busy}
            if not busy:
                return
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                result = busy[connection].receive(self._job)
                if result:
                    yield result

    def end(self) -> None:
        """End the processes of this machine, and disconnect from the others."""
        for worker in self._workers:
            worker.end()

    def __exit__(self, *exc: object) -> None:
        self.end()


@dataclass
class _Starter:
    """Starts and holds a device's process."""

    load: Load
    run_on: RunOn
    threads: int
    process: multiprocessing.process.BaseProcess | None = None

    def start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        work = (theirs, self.load, self.run_on, self.threads)
        self.process = context.Process(target=_serve_parent, args=work, daemon=True)
        self.process.start()
        theirs.close()
        return ours

    def exit_code(self) -> int | None:
        if self.process:
            self.process.join()
        return self.process.exitcode if self.process else None

    def end(self) -> None:
        if self.process:
            self.process.kill()
            self.process.join()


class _Worker:
    """A device in another process, and the batches assigned to it."""

    def __init__(self, name: str, process: _Starter | Connection) -> None:
        self._name, self._process = name, process
        self._outstanding: deque[set[int]] = deque()
        self._earlier = self._now = Seconds()
        self.connection = process if isinstance(process, Connection) else None

    @property
    def seconds(self) -> Seconds:
        return self._earlier + self._now

    @property
    def has_room(self) -> bool:
        return len(self._outstanding) < BLOCKS_AHEAD

    @property
    def is_busy(self) -> bool:
        return bool(self._outstanding)

    def send(self, block: Block) -> None:
        if self.connection is None:
            assert isinstance(self._process, _Starter)
            self.connection = self._process.start()
        try:
            self.connection.send(block)
        except OSError as error:
            raise self._crashed() from error
        self._outstanding.append(set(block.batches))

    def receive(self, job: int) -> BatchResult | None:
        """Receive a result; None for one of an abandoned job."""
        assert self.connection
        try:
            received = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._crashed() from error
        if received is None:  # another rank has left
            raise self._crashed()
        of_job, message, self._now = received
        if of_job != job:
            return None
        if isinstance(message, Exception):
            raise message
        assert isinstance(message, BatchResult)
        self._outstanding[0].discard(message.number)
        if not self._outstanding[0]:
            self._outstanding.popleft()
        return message

    def drop(self) -> None:
        """Drop all outstanding blocks, since their slide has been abandoned."""
        self._outstanding.clear()
        if isinstance(self._process, _Starter):
            self.end()

    def _crashed(self) -> ProcessFailedError:
        code = self._process.exit_code() if isinstance(self._process, _Starter) else None
        return ProcessFailedError(
            f"the process of device {self._name} crashed or was stopped (exit code {code}). Finished batches are kept: "
            "run again. If memory ran out, use a smaller [infer] batch_size."
        )

    def end(self) -> None:
        if isinstance(self._process, _Starter):
            self._process.end()
        if self.connection:
            self.connection.close()
        self.connection = None
        self._outstanding.clear()
        self._earlier, self._now = self._earlier + self._now, Seconds()


def _serve_parent(connection: Connection, load: Load, run_on: RunOn, threads: int) -> None:
    begin_worker()
    use_threads(threads)
    serve(connection, load, run_on, threads=threads)


def serve(connection: Connection, load: Load, run_on: RunOn, *, threads: int) -> None:
    """Compute the blocks that arrive, until the other end is closed. Errors in one slide are sent there."""
    incoming: queue.SimpleQueue[Block | None] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, incoming), daemon=True).start()
    is_open = True

    def take(may_wait: bool) -> Block | None:
        nonlocal is_open
        try:
            block = incoming.get(block=may_wait)
        except queue.Empty:
            return None
        is_open = is_open and block is not None
        return block

    try:
        network = load(run_on)
    except GemslideError as error:
        while (block := incoming.get()) is not None:
            connection.send((block.job, error, Seconds()))
        return
    earlier = Seconds()
    with suppress(BrokenPipeError, ConnectionResetError):  # the other end has gone
        while is_open:
            with BlockRunner(network, threads=threads) as work:
                try:
                    for result in work.results(take):
                        connection.send((result.job, result, earlier + work.seconds))
                except (BrokenPipeError, ConnectionResetError):
                    raise
                except (GemslideError, OSError) as error:  # in this slide: a failing disk, say
                    connection.send((work.job, error, earlier + work.seconds))
                earlier += work.seconds


def _receive(connection: Connection, incoming: queue.SimpleQueue[Block | None]) -> None:
    is_open = True
    while is_open:
        try:
            block = connection.recv()
        except (EOFError, OSError):
            block = None
        incoming.put(block)
        is_open = block is not None
