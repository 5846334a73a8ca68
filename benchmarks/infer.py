"""Inference of a whole slide against the network alone, in turns; and the cost of a slide beyond its tiles.

    .venv/bin/python -m benchmarks.infer [--only WORD …] [--rounds 7]

`road` is `infer_slide` from the opened project to published results, all formats of the default; `predicting` is its
part from the first tile to the last probability. `alone` is the same network with the same batches on the same device,
with normalised tiles in memory. Both run in turns of a quarter second (`benchmarks.slices`); figures are medians over
rounds of one slide each. `reader` compares the tiles that the reader's two threads deliver to one consumer with two
threads that only decode the same chunks into memory with libjpeg-turbo. Prints a JSON line per measure; the committed
ones are in benchmarks/results/infer.jsonl.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.infer_work import Work, measure_in_turns, median, slide_of
from benchmarks.machine import circumstances
from benchmarks.networks import resnet18, resnet110
from pipeline.batches.blocks import BLOCK_BYTES, TileSource, plan_slide
from pipeline.batches.reading import TileFeed
from pipeline.codecs.images import decode_jpeg
from pipeline.grid import TileGrid
from pipeline.project import Project
from pipeline.store.reading.reader import StoreReader

READER_SLIDE_PX = 12_288
PASSES = 9
"""Passes over the slide per round, in turns of a fifth of a second each."""
WORKS = (
    Work("ResNet-18, 224 px", resnet18, 224, 12_288),
    Work("ResNet-18, 224 px, bf16", resnet18, 224, 12_288, "bf16"),
    Work("ResNet-110-v2, 1024 px", resnet110, 1024, 3_072),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="measures whose name holds one of these words")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()

    def is_wanted(name: str) -> bool:
        return not options.only or any(word in name for word in options.only)

    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as folder:
        for work in filter(lambda work: is_wanted(work.name), WORKS):
            say(measure_in_turns(work, slide_of(Path(folder), work.slide_px), options.rounds))
        if is_wanted("reader"):
            for tile_px in (224, 1024):
                say(measure_reader(slide_of(Path(folder), READER_SLIDE_PX), tile_px, options.rounds))


def say(line: dict[str, Any]) -> None:
    print(json.dumps({**line, **circumstances("benchmarks.infer")}), flush=True)


def measure_reader(project: Project, tile_px: int, num_rounds: int) -> dict[str, Any]:
    """Compare the reader with two threads that decode each chunk of the slide once and discard it."""
    reader = StoreReader(project.store_path("S-1"))
    turns = {
        "reader": lambda: _read_all(reader, tile_px),
        "bare": lambda: _decode_all(reader, in_cache=False),
        "in cache": lambda: _decode_all(reader, in_cache=True),
    }
    rounds = []
    for _ in range(num_rounds + 1):
        seconds = dict.fromkeys(turns, 0.0)
        for number in range(PASSES):
            for name in list(turns)[number % 3 :] + list(turns)[: number % 3]:
                seconds[name] += 1 / turns[name]()
        rounds.append({name: 1 / spent for name, spent in seconds.items()})
    ratios = sorted(round(rates["reader"] / rates["bare"], 3) for rates in rounds[1:])  # the first warms up
    return {
        "benchmark": "infer",
        "work": f"reader, tiles of {tile_px} px",
        "pixels/s, reader / two bare libjpeg threads": statistics.median(ratios),
        "all rounds": ratios,
        "reader / two threads that never leave the cache": median(
            rates["reader"] / rates["in cache"] for rates in rounds[1:]
        ),
        "rounds": num_rounds,
    }


def _read_all(reader: StoreReader, tile_px: int) -> float:
    """Pixels per second of all tiles of the slide."""
    columns, rows = (side // tile_px for side in reader.size_wh_px0)
    grid = TileGrid(columns, rows, tile_px, tile_px, tile_px, reader.mpp0)
    source, chosen = TileSource(reader.path, 0, tile_px, tile_px, None), np.arange(columns * rows)
    batch_size = max(1, 32 * 224**2 // tile_px**2)
    plan = plan_slide(source, grid, chosen, glass=chosen[:0], batch_size=batch_size)
    start, pixels = time.perf_counter(), 0
    with TileFeed(threads=2) as feed:
        blocks = plan.blocks()
        while True:
            while feed.has_room and (block := next(blocks, None)) is not None:
                feed.add(block)
            if feed.is_empty:
                break
            pixels += feed.next().tiles_nhwc.size // 3
    return pixels / (time.perf_counter() - start)


def _decode_all(reader: StoreReader, *, in_cache: bool) -> float:
    """Pixels per second of bare decoding from streams in memory.

    Args:
        in_cache: decode every chunk over the last one, so that pixels never leave the processor's cache; otherwise
            side by side in as much memory as a block of tiles.
    """
    array = reader.levels[0].array
    rows, columns, side = array.spec.rows, array.spec.columns, array.spec.chunk_px
    streams = [stream for row in range(rows) for stream in array.chunks(row, range(columns)) if stream]

    def decode(part: list[bytes], memory: NDArray[np.uint8]) -> None:
        for number, stream in enumerate(part):
            decode_jpeg(stream, out=memory[number % len(memory)])

    held = 1 if in_cache else BLOCK_BYTES // (3 * side**2)
    memories = [np.zeros((held, side, side, 3), np.uint8) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        start = time.perf_counter()
        list(pool.map(decode, (streams[::2], streams[1::2]), memories))
        seconds = time.perf_counter() - start
    return rows * columns * side**2 / seconds


if __name__ == "__main__":
    main()
