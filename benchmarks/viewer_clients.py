"""Who asks the viewer's server: readers on kept connections, and pages whose scripts run one after the other."""

from __future__ import annotations

import http.client
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect

READERS = 6


@dataclass(frozen=True)
class Level:
    """A level as a server offers it: how many tiles it has, and their links with {column} and {row}."""

    url: str
    link: str
    columns: int
    rows: int

    def links(self, count: int, seed: int) -> list[str]:
        """Links of whole tiles anywhere on the level."""
        places = np.random.default_rng(seed).integers(0, (self.columns, self.rows), (count, 2))
        return [self.link.format(column=column, row=row) for column, row in places]


class KeptConnection:
    """A connection that is kept, with next to no time spent on this side."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._connection = http.client.HTTPConnection(place.hostname or "", place.port)

    def milliseconds(self, link: str) -> float:
        """From the request to the last byte.

        Raises:
            RuntimeError: another answer than 200.
        """
        start_s = time.perf_counter()
        self._connection.request("GET", link)
        answer = self._connection.getresponse()
        answer.read()
        taken_ms = 1000 * (time.perf_counter() - start_s)
        if answer.status != 200:
            raise RuntimeError(f"{link}: {answer.status}")
        return taken_ms


def milliseconds(times_ms: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    return {"p50_ms": round(statistics.median(times_ms), 2), "p95_ms": round(float(np.quantile(times_ms, 0.95)), 2)}


def first_and_again(levels: dict[str, Level], count: int, seed: int) -> dict[str, dict[str, Any]]:
    """Each server's time for a tile that is asked for the first time and the second; the servers take turns."""
    connections = {who: KeptConnection(level.url) for who, level in levels.items()}
    links = {who: level.links(count, seed) for who, level in levels.items()}
    times: dict[str, tuple[list[float], list[float]]] = {who: ([], []) for who in levels}
    for index in range(count):
        for who, connection in connections.items():
            for each in times[who]:
                each.append(connection.milliseconds(links[who][index]))
    return {
        who: {"first": milliseconds(first), **{f"again_{key}": value for key, value in milliseconds(again).items()}}
        for who, (first, again) in times.items()
    }


def six_readers(level: Level, seconds: float, seed: int) -> dict[str, float]:
    """Tiles a second that six readers get who look at other places each, and how long one takes.

    Args:
        seed: another one, other tiles.
    """
    here, there = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=_read, args=(level, seconds, seed, there))
    process.start()
    there.close()  # a reader that fails ends the process, and this end is told
    times_ms: list[float] = here.recv()
    process.join()
    return {"tiles_per_s": round(len(times_ms) / seconds), **milliseconds(times_ms)}


def _read(level: Level, seconds: float, seed: int, result: Connection) -> None:
    """In a process of its own: the lock of the one that measures is not theirs."""
    times_ms: list[list[float]] = [[] for _ in range(READERS)]
    ends_s = time.perf_counter() + seconds

    def one(index: int) -> None:
        connection, links = KeptConnection(level.url), iter(level.links(100_000, READERS * seed + index))
        while time.perf_counter() < ends_s:
            times_ms[index].append(connection.milliseconds(next(links)))

    threads = [threading.Thread(target=one, args=(index,)) for index in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result.send([each for of_one in times_ms for each in of_one])


@dataclass
class OpenPage:
    """A page of the app without a browser: its script runs here as it would behind one."""

    connection: ClientConnection
    runs: int = field(default=0)

    def run(self, query: str) -> None:
        """Run the script once, from its start to its end."""
        self.connection.send(_rerun(query))
        while True:
            said = self.connection.recv()
            message = ForwardMsg()
            message.ParseFromString(said if isinstance(said, bytes) else said.encode())
            if message.WhichOneof("type") == "script_finished":
                self.runs += 1
                return


def _rerun(query: str) -> bytes:
    message = BackMsg()
    message.rerun_script.query_string = query
    serialized: bytes = message.SerializeToString()
    return serialized


@contextmanager
def open_page(url: str) -> Iterator[OpenPage]:
    """A page of the app at `url`."""
    with connect(f"ws{url[4:]}/_stcore/stream", origin=url, subprotocols=["streamlit"], max_size=None) as connection:  # type: ignore[arg-type]
        yield OpenPage(connection)


@contextmanager
def scripts_running(url: str, query: str) -> Iterator[Callable[[], int]]:
    """A page whose script begins again as soon as it has ended; gives how often it has run."""
    stop = threading.Event()
    with open_page(url) as page:
        page.run(query)

        def run_on() -> None:
            while not stop.is_set():
                page.run(query)

        thread = threading.Thread(target=run_on)
        thread.start()
        try:
            yield lambda: page.runs
        finally:
            stop.set()
            thread.join()
