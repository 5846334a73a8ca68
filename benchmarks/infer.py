"""Inference of a whole slide beside the network alone, in turns; and what a slide costs beyond its tiles.

    .venv/bin/python -m benchmarks.infer [--only WORD …] [--rounds 7]

`road` is `infer_slide` from the opened project to published results, all formats of the default; `predicting` is its
part from the first tile to the last probability. `alone` is the same network with the same batches on the same device,
with normalised tiles in memory. Each round measures both, in an order that changes; figures are medians over rounds.
`reader` compares the tiles that the reader hands to one consumer from two threads with two threads that only decode
the same chunks into memory with libjpeg-turbo. Prints a JSON line per measure; the committed ones are in
benchmarks/results/infer.jsonl.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.machine import circumstances
from benchmarks.make_slide import make_slide
from benchmarks.networks import predictor_of, resnet18, resnet110
from pipeline.codecs.images import decode_jpeg
from pipeline.config import InferConfig, IngestConfig
from pipeline.inference.blocks import BLOCK_BYTES, TileSource, plan_slide
from pipeline.inference.infer import infer_slide, slide_grid
from pipeline.inference.predictor import Predictor
from pipeline.inference.reading import TileFeed
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.store.reader import StoreReader
from training.augment import to_input
from training.inference import RunOn
from training.numerics import Numerics, Precision

CLASSES = 2
EVERY_TILE = InferConfig(min_tissue=0.0)
READER_SLIDE_PX = 24_576


@dataclass(frozen=True)
class Work:
    """A network on a slide."""

    name: str
    network: Callable[[int], nn.Module]
    tile_px: int
    slide_px: int
    precision: Precision = "fp32"
    device: str = "cpu"


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
            say(measure(work, slide_of(Path(folder), work.slide_px), options.rounds))
        if is_wanted("reader"):
            for tile_px in (224, 1024):
                say(measure_reader(slide_of(Path(folder), READER_SLIDE_PX), tile_px, options.rounds))


def say(line: dict[str, Any]) -> None:
    print(json.dumps({**line, **circumstances("benchmarks.infer")}), flush=True)


def slide_of(folder: Path, side_px: int) -> Project:
    """A project with one slide of this size, made once."""
    project = Project(folder / str(side_px))
    if not project.root.exists():
        project.root.mkdir(parents=True)
        source = project.root / "slide.svs"
        make_slide(source, side_px=side_px, colour="ycbcr")
        ingest_slide(IngestRequest(source, "S-1"), project, IngestConfig())
    return project


def measure(work: Work, project: Project, num_rounds: int) -> dict[str, Any]:
    """Tiles per second of the road, of its predicting, and of the network alone."""
    reader = StoreReader(project.store_path("S-1"))
    run_on = RunOn(work.device, Numerics(work.precision))
    predictor = predictor_of(
        work.network(CLASSES), "bench", tile_px=work.tile_px, mpp=reader.mpp0, num_classes=CLASSES, run_on=run_on
    )
    batches = _batches(reader, predictor, work.precision)
    alone(predictor, batches)  # warm
    rounds = [_round(project, predictor, batches, swap=bool(number % 2)) for number in range(num_rounds)]
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "benchmark": "infer",
        "work": work.name,
        "device": work.device,
        "road / alone": _median(found["road"] / found["alone"] for found in rounds),
        "predicting / alone": _median(found["predicting"] / found["alone"] for found in rounds),
        "road / alone, all rounds": sorted(round(found["road"] / found["alone"], 3) for found in rounds),
        "predicting / alone, all rounds": sorted(round(found["predicting"] / found["alone"], 3) for found in rounds),
        "alone tiles/s": _median(found["alone"] for found in rounds),
        "tiles": rounds[0]["tiles"],
        "batch": predictor.usual_batch_size,
        "seconds of the last round": rounds[-1]["seconds"],
        "peak memory of the process, MiB": peak_bytes // 2**20,
        "rounds": num_rounds,
    }


def _median(values: Iterator[float]) -> float:
    return round(statistics.median(values), 3)


def _batches(reader: StoreReader, predictor: Predictor, precision: Precision) -> list[torch.Tensor]:
    """Normalised tiles in memory, as many as the area of 12 batches of 32 tiles of 224 px, two batches at least."""
    size, mean, std = predictor.usual_batch_size, predictor._classifier.mean, predictor._classifier.std
    count = 12 if predictor.tile_px < 1000 else 6
    corners = slide_grid(reader, predictor).corners_xy0[: size * count]
    found = []
    for start in range(0, len(corners), size):
        tiles = [
            reader.read_square(0, int(x), int(y), predictor.tile_px, predictor.tile_px)
            for x, y in corners[start : start + size]
        ]
        images = to_input(np.stack(tiles), mean, std).to(predictor.run_on.device)
        found.append(images.to(torch.bfloat16) if precision == "bf16" else images)
    return [images for images in found if len(images) == size]


def alone(predictor: Predictor, batches: list[torch.Tensor]) -> float:
    """Tiles per second of nothing but the network."""
    network, is_gpu = predictor._classifier.forward_only.network, predictor.run_on.device.startswith("cuda")
    with torch.inference_mode():
        start = time.perf_counter()
        for images in batches:
            network(images)
        if is_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return sum(map(len, batches)) / seconds


def _round(project: Project, predictor: Predictor, batches: list[torch.Tensor], *, swap: bool) -> dict[str, Any]:
    """Half of the batches alone before and half after, so that a slow spell of the machine meets both."""
    half = len(batches) // 2
    before = alone(predictor, batches[:half] if not swap else batches)
    shutil.rmtree(project.store_path("S-1") / "predictions", ignore_errors=True)
    start = time.perf_counter()
    report = infer_slide("S-1", predictor, project, EVERY_TILE)
    road_s = time.perf_counter() - start
    after = alone(predictor, batches[half:] if not swap else batches)
    return {
        "alone": 2 / (1 / before + 1 / after),
        "road": report.num_tiles / road_s,
        "predicting": report.num_tiles / report.seconds["predict"],
        "tiles": report.num_tiles,
        "seconds": report.seconds,
    }


def measure_reader(project: Project, tile_px: int, num_rounds: int) -> dict[str, Any]:
    """The reader against two threads that decode each chunk of the slide once, and do nothing with it."""
    reader = StoreReader(project.store_path("S-1"))
    turns = {
        "reader": lambda: _read_all(reader, tile_px),
        "bare": lambda: _decode_all(reader, in_cache=False),
        "in cache": lambda: _decode_all(reader, in_cache=True),
    }
    rounds = []
    for number in range(num_rounds + 1):
        order = list(turns)[number % 3 :] + list(turns)[: number % 3]
        rounds.append({name: turns[name]() for name in order})
    ratios = sorted(round(found["reader"] / found["bare"], 3) for found in rounds[1:])  # the first warms
    return {
        "benchmark": "infer",
        "work": f"reader, tiles of {tile_px} px",
        "pixels/s, reader / two bare libjpeg threads": statistics.median(ratios),
        "all rounds": ratios,
        "reader / two threads that never leave the cache": _median(
            found["reader"] / found["in cache"] for found in rounds[1:]
        ),
        "rounds": num_rounds,
    }


def _read_all(reader: StoreReader, tile_px: int) -> float:
    """Pixels per second of all tiles of the slide."""
    columns, rows = (side // tile_px for side in reader.size_wh_px0)
    from pipeline.grid import TileGrid

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
    """Pixels per second of bare decoding; streams lie in memory.

    Args:
        in_cache: every chunk over the last one, so that pixels never leave the processor's cache; else side by side
            in as much memory as a block of tiles has.
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
