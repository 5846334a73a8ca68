"""Clients of the viewer's server: readers on keep-alive connections, and pages whose scripts run in succession."""

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
    """A level as a server offers it: its number of tiles, and their links with {column} and {row}."""

    url: str
    link: str
    columns: int
    rows: int

    def links(self, count: int, seed: int) -> list[str]:
        """Links of whole tiles anywhere on the level."""
        places = np.random.default_rng(seed).integers(0, (self.columns, self.rows), (count, 2))
        return [self.link.format(column=column, row=row) for column, row in places]


class KeptConnection:
    """A keep-alive connection with almost no time spent on the client."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._connection = http.client.HTTPConnection(place.hostname or "", place.port)

    def milliseconds(self, link: str) -> float:
        """Milliseconds from the request to the last byte.

        Raises:
            RuntimeError: the status is not 200.
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
    """Time per server for the first and second request of a tile; the servers take turns."""
    connections = {who: KeptConnection(level.url) for who, level in levels.items()}
    links = {who: level.links(count, seed) for who, level in levels.items()}
    times: dict[str, tuple[list[float], list[float]]] = {who: ([], []) for who in levels}
    for index in range(count):
        for who, connection in connections.items():
            for times_ms in times[who]:
                times_ms.append(connection.milliseconds(links[who][index]))
    return {
        who: {"first": milliseconds(first), **{f"again_{key}": value for key, value in milliseconds(again).items()}}
        for who, (first, again) in times.items()
    }


def six_readers(level: Level, seconds: float, seed: int) -> dict[str, float]:
    """Tiles per second for six readers at different positions, and milliseconds per tile.

    Args:
        seed: chooses the tiles.
    """
    here, sending_end = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=_read, args=(level, seconds, seed, sending_end))
    process.start()
    sending_end.close()  # a reader that fails ends the process, which this end notices
    times_ms: list[float] = here.recv()
    process.join()
    return {"tiles_per_s": round(len(times_ms) / seconds), **milliseconds(times_ms)}


def _read(level: Level, seconds: float, seed: int, result: Connection) -> None:
    """Read in a separate process, which does not share the measuring process's lock."""
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
    result.send([time_ms for of_one in times_ms for time_ms in of_one])


@dataclass
class OpenPage:
    """A page of the app without a browser: its script runs here as it would behind a browser."""

    connection: ClientConnection
    runs: int = field(default=0)

    def run(self, query: str) -> None:
        """Run the script once, from its start to its end."""
        self.connection.send(_rerun(query))
        while True:
            content = self.connection.recv()
            message = ForwardMsg()
            message.ParseFromString(content if isinstance(content, bytes) else content.encode())
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
    """Open a page of the app at `url`."""
    with connect(f"ws{url[4:]}/_stcore/stream", origin=url, subprotocols=["streamlit"], max_size=None) as connection:  # type: ignore[arg-type]
        yield OpenPage(connection)


@contextmanager
def scripts_running(url: str, query: str) -> Iterator[Callable[[], int]]:
    """Run a page's script again as soon as it has ended; yield a function that returns the number of runs."""
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
