"""Cost of the checksum of each chunk: reading and ingest with and without it.

    .venv/bin/python -m benchmarks.checksum_cost [--folder DIR] [--side-px 20000] [--rounds 15] [--ingests 7]

A slide is made by `benchmarks.make_slide` and ingested; a second store has the same streams without checksums. Both are
read at the same random positions of level 0, on one thread, region by region in turns that change their order. The
figures are medians over rounds of ratios within a round, of processor time and of wall-clock time. Prints a JSON line
per figure; the committed ones are in benchmarks/results/checksum_cost.jsonl.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.machine import circumstances
from benchmarks.make_slide import make_slide
from pipeline.ingest import routes as plan
from pipeline.ingest import shards
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store.format.layout import ArraySpec
from pipeline.store.format.metadata import write_json
from pipeline.store.format.shard import write_shard
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.reader import StoreReader

REGIONS = {512: 192, 1024: 64}
"""Regions per round by their side in pixels."""
CHUNKS, RUN = 4000, 50
"""Chunks per round and per turn."""
Work = Callable[[], object]
Seconds = tuple[float, float]
"""Processor time and wall-clock time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gemslide-benchmarks")
    parser.add_argument("--side-px", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--ingests", type=int, default=7)
    given = parser.parse_args()
    conditions = circumstances("benchmarks.checksum_cost")
    for colour in ("rgb", "ycbcr"):
        slide, store, bare = prepare(given.folder, given.side_px, colour)
        figures = {
            **reading(store, bare, given.rounds),
            "ingest, with checksums ÷ without": ingesting(slide, given.folder, given.ingests),
        }
        for name, figure in figures.items():
            print(
                json.dumps({"figure": name, **figure, "slide": slide.name, **conditions}, ensure_ascii=False),
                flush=True,
            )


def prepare(folder: Path, side_px: int, colour: str) -> tuple[Path, Path, Path]:
    """Make the slide, its store, and a store of the same streams without checksums."""
    folder.mkdir(parents=True, exist_ok=True)
    slide = folder / f"{colour}-{side_px}.svs"
    if not slide.exists():
        make_slide(slide, side_px=side_px, colour=colour)
    store = Project(folder / "checksums").store_path(slide.stem)
    bare = Project(folder / "no-checksums").store_path(slide.stem)
    for old in (store, bare):
        shutil.rmtree(old, ignore_errors=True)
    ingest_slide(IngestRequest(slide, slide.stem), Project(folder / "checksums"), IngestConfig())
    shutil.copytree(store, bare)
    strip(StoreReader(store).levels[0].array, bare / "0/0")
    return slide, store, bare


def strip(array: ArrayReader, folder: Path) -> None:
    """Write an array's streams without their checksums."""
    spec, n = replace(array.spec, has_checksums=False), array.spec.shard_chunks
    for shard_row, shard_column in itertools.product(range(spec.shard_rows), range(spec.shard_columns)):
        streams = []
        rows, columns = (range(at * n, at * n + n) for at in (shard_row, shard_column))
        for row, column in itertools.product(rows, columns):
            stream = array.chunk(row, column) if row < spec.rows and column < spec.columns else None
            streams.append(() if stream is None else (stream,))
        write_shard(folder / spec.shard_key(shard_row, shard_column), streams, with_checksums=False)
    write_json(folder / "zarr.json", spec.to_zarr_json())


def reading(store: Path, bare: Path, num_rounds: int) -> dict[str, dict[str, object]]:
    """Measure reading of regions, and of chunks as the viewer sends them."""
    readers = StoreReader(store), StoreReader(bare)
    spec = readers[0].levels[0].array.spec
    random = np.random.default_rng(0)

    def regions(side_px: int, count: int) -> list[list[Work]]:
        corners = random.integers(0, (spec.width_px - side_px, spec.height_px - side_px), (count, 2)).tolist()
        return [[partial(reader.read_region, 0, x, y, side_px, side_px) for reader in readers] for x, y in corners]

    def chunks() -> list[list[Work]]:
        runs = random.integers(0, (spec.rows, spec.columns), (CHUNKS // RUN, RUN, 2)).tolist()
        return [[partial(read_chunks, array, run) for array in readers] for run in runs]

    figures = {}
    for side_px, count in REGIONS.items():
        rounds = [in_turns(regions(side_px, count)) for _ in range(num_rounds + 1)]
        figures[f"regions of {side_px} px, with checksums ÷ without"] = ratios(rounds[1:], count)
    rounds = [in_turns(chunks()) for _ in range(num_rounds + 1)]
    figures["chunks as they are stored, with checksums ÷ without"] = ratios(rounds[1:], CHUNKS)
    return figures


def read_chunks(reader: StoreReader, positions: list[list[int]]) -> None:
    for row, column in positions:
        reader.chunk(0, row, column)


def ingesting(slide: Path, folder: Path, num_rounds: int) -> dict[str, object]:
    def ingest(*, with_checksums: bool) -> None:
        project = Project(folder / "timed")
        shutil.rmtree(project.root, ignore_errors=True)
        with (
            patch.object(plan, "ArraySpec", partial(ArraySpec, has_checksums=with_checksums)),
            patch.object(shards, "write_shard", partial(write_shard, with_checksums=with_checksums)),
        ):
            ingest_slide(IngestRequest(slide, slide.stem), project, IngestConfig())

    works: list[Work] = [partial(ingest, with_checksums=True), partial(ingest, with_checksums=False)]
    rounds = [in_turns([works], number) for number in range(num_rounds + 1)]
    shutil.rmtree(folder / "timed", ignore_errors=True)
    return ratios(rounds[1:], 1)


def in_turns(pairs: list[list[Work]], first: int = 0) -> list[Seconds]:
    """Seconds of the first and second of all pairs, run one right after the other in alternating order."""
    seconds = [(0.0, 0.0), (0.0, 0.0)]
    for number, pair in enumerate(pairs, first):
        for index in (0, 1) if number % 2 else (1, 0):
            start = time.process_time(), time.perf_counter()
            pair[index]()
            processor, clock = seconds[index]
            seconds[index] = processor + time.process_time() - start[0], clock + time.perf_counter() - start[1]
    return seconds


def ratios(rounds: list[list[Seconds]], count: int) -> dict[str, object]:
    """Medians over rounds, and the microseconds of one item with checksums and without."""
    results: dict[str, object] = {}
    for clock, name in enumerate(("processor", "clock")):
        sorted_ratios = sorted(ours[clock] / without[clock] for ours, without in rounds)
        results[name] = {
            "ratio": round(statistics.median(sorted_ratios), 4),
            "ratios": [round(ratio, 4) for ratio in sorted_ratios],
            "us_each": [round(statistics.median(r[which][clock] for r in rounds) / count * 1e6, 1) for which in (0, 1)],
        }
    return results


if __name__ == "__main__":
    main()
