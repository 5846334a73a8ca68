"""What reading a slide from a bucket costs beside reading it from a folder, when each answer takes a while.

    .venv/bin/python -m benchmarks.bucket [--folder DIR] [--side-px 30000] [--delay-ms 5] [--rounds 5]

The slide is made by `benchmarks.make_slide` and ingested; the bucket is its folder, served on loopback by a process of
its own (`benchmarks.bucket_server`), each answer after the delay. Opening, a first tile, further tiles and regions of
1024 px are timed one by one, in milliseconds and as a multiple of the delay; then a DataLoader with as many workers as
there are cores reads tiles of 1024 px from the folder and from the bucket in turns. Pixels are compared.
Prints a JSON line; the committed ones are in benchmarks/results/bucket.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from benchmarks.ingest import ingest_seconds, made, store_of
from benchmarks.machine import circumstances
from pipeline.box import Box
from pipeline.store.reading import object_array
from pipeline.store.reading.reader import StoreReader

NUM_READS = 40
TILE_PX = 1024
NUM_TILES = 300
BUCKET = "scans"
T = TypeVar("T")


class Tiles(Dataset[torch.Tensor]):
    """Tiles at random places of a slide's finest level."""

    def __init__(self, reader: StoreReader, num_tiles: int, seed: int) -> None:
        self._reader = reader
        self.corners_xy = places(reader, num_tiles, seed)

    def __len__(self) -> int:
        return len(self.corners_xy)

    def __getitem__(self, index: int) -> torch.Tensor:
        x_px, y_px = map(int, self.corners_xy[index])
        return torch.from_numpy(self._reader.read_region(0, Box(x_px, y_px, TILE_PX, TILE_PX)))


def places(reader: StoreReader, count: int, seed: int) -> NDArray[np.int64]:
    """Top left corners, int64 (count, 2)."""
    width_px, height_px = reader.size_wh_px0
    return np.random.default_rng(seed).integers((0, 0), (width_px - TILE_PX, height_px - TILE_PX), (count, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gemslide-benchmarks")
    parser.add_argument("--side-px", type=int, default=30_000)
    parser.add_argument("--delay-ms", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    slide = made(given.folder, "ycbcr", given.side_px)
    ingest_seconds(slide, given.folder / "ingested")
    store = store_of(given.folder, slide)
    with _served(store.parent, given.delay_ms / 1e3):
        url = f"s3://{BUCKET}/{store.name}"
        line: dict[str, Any] = {"side_px": given.side_px, "store bytes": _bytes(store), "delay ms": given.delay_ms}
        line |= _one_by_one(url, store, given.delay_ms)
        line |= _loaded(url, store, given.rounds)
    print(json.dumps({**line, **circumstances("benchmarks.bucket")}, ensure_ascii=False), flush=True)


@contextmanager
def _served(folder: Path, delay_s: float) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.bucket_server", str(folder), str(delay_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        os.environ |= {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(process.stdout.readline())}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_SKIP_SIGNATURE": "true",
        }
        try:
            yield
        finally:
            process.terminate()


def _bytes(store: Path) -> int:
    return sum(path.stat().st_size for path in store.rglob("*") if path.is_file())


def _one_by_one(url: str, store: Path, delay_ms: float) -> dict[str, Any]:
    """Medians, ms; and how many delays fit into each."""
    here = StoreReader(store)
    StoreReader(url)  # the first one connects
    ms: dict[str, list[float]] = {"open": [], "first tile of a shard": [], "tile": [], "region 1024 px": []}
    for number in range(NUM_READS):
        there = _timed(ms["open"], partial(StoreReader, url))
        object_array._open_shard.cache_clear()
        x_px, y_px = map(int, places(here, 1, number)[0])
        t, n = there.levels[0].chunk_px, there.levels[0].array.spec.shard_chunks
        row, column = y_px // t, x_px // t
        beside = column + 1 if (column + 1) % n else column - 1
        first = _timed(ms["first tile of a shard"], partial(there.chunk, 0, row, column))
        second = _timed(ms["tile"], partial(there.chunk, 0, row, beside))
        box = Box(x_px, y_px, TILE_PX, TILE_PX)
        there.read_region(0, box)  # opens the shards around
        region = _timed(ms["region 1024 px"], partial(there.read_region, 0, box))
        if (first, second) != (here.chunk(0, row, column), here.chunk(0, row, beside)):
            raise SystemExit("chunks differ")
        if not np.array_equal(region, here.read_region(0, box)):
            raise SystemExit("pixels differ")
    medians = {name: statistics.median(values) for name, values in ms.items()}
    local: list[float] = []
    for number in range(NUM_READS):
        x_px, y_px = map(int, places(here, 1, number)[0])
        _timed(local, partial(here.read_region, 0, Box(x_px, y_px, TILE_PX, TILE_PX)))
    return {
        **{f"{name} ms": round(value, 1) for name, value in medians.items()},
        **{f"{name}, delays": round(value / delay_ms, 2) for name, value in medians.items()},
        "region 1024 px from the folder ms": round(statistics.median(local), 1),
    }


def _timed(ms: list[float], call: Callable[[], T]) -> T:
    start = time.perf_counter()
    result = call()
    ms.append((time.perf_counter() - start) * 1e3)
    return result


def _loaded(url: str, store: Path, rounds: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {"folder": [], "bucket": []}
    for number in range(rounds):
        order: Sequence[tuple[str, str | Path]] = (("folder", store), ("bucket", url))
        sums = {}
        for name, path in order[:: 1 if number % 2 else -1]:
            took, sums[name] = _loader_seconds(path, number)
            seconds[name].append(took)
        if sums["folder"] != sums["bucket"]:
            raise SystemExit("tiles differ")
    ratios = [far / near for far, near in zip(seconds["bucket"], seconds["folder"], strict=True)]
    return {
        "tiles a second from the folder": round(NUM_TILES / statistics.median(seconds["folder"]), 1),
        "tiles a second from the bucket": round(NUM_TILES / statistics.median(seconds["bucket"]), 1),
        "bucket ÷ folder": round(statistics.median(ratios), 2),
        "bucket ÷ folder, each": [round(ratio, 2) for ratio in ratios],
    }


def _loader_seconds(path: str | Path, seed: int) -> tuple[float, list[int]]:
    """Seconds for the tiles after the first batches, when all workers are there, and the sum of each tile."""
    tiles = Tiles(StoreReader(path), NUM_TILES + 20, seed)
    loader = DataLoader(tiles, batch_size=4, num_workers=os.cpu_count() or 1, multiprocessing_context="forkserver")
    sums: list[int] = []
    start = 0.0
    for number, batch in enumerate(loader):
        if number == 5:
            start = time.perf_counter()
        sums += batch.sum((1, 2, 3), dtype=torch.int64).tolist()
    return time.perf_counter() - start, sums


if __name__ == "__main__":
    main()
