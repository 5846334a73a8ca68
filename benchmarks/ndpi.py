"""NDPI: tiles copied from restart intervals, beside opentile's and our own route of decoding.

    .venv/bin/python -m benchmarks.others              # once: opentile, in an environment of its own
    .venv/bin/python -m benchmarks.ndpi [--folder DIR] [--interval-px 256 512 3840] [--rounds 5]

For each width of intervals a slide of `benchmarks.make_ndpi` is made. On one core, with the file in the page cache,
there take turns: all tiles of level 0 from the reader, as they go into a shard; the same from opentile (as many as it
yields); and a corner of the level decoded and encoded as the decode route does it. Then the whole of `gemslide ingest`
is run, on all cores: its seconds, its peak memory, and the store's bytes over those of the file's levels. Figures are
medians over rounds. Prints a JSON line for each width; the committed ones are in benchmarks/results/ndpi.jsonl. Takes
five minutes.
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
from collections.abc import Callable
from itertools import product
from pathlib import Path

from benchmarks import others
from benchmarks.ingest import ingest_seconds
from benchmarks.machine import circumstances
from pipeline.box import Box
from pipeline.ingest.shards import encoded_chunk
from pipeline.settings.config import IngestConfig
from pipeline.slides.common.slide import EncodedLevel, NotCopied, Slide
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader

LEAST_SIDE_PX, DECODED_PX, TILE_PX = 15_000, 4096, 512
ROW_OF_SHARD = IngestConfig().shard_px


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gemslide-benchmarks")
    parser.add_argument("--interval-px", type=int, nargs="*", default=[256, 512, 3840])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    conditions = circumstances("benchmarks.ndpi")
    for interval_px in given.interval_px:
        side_px = -(-LEAST_SIDE_PX // (4 * interval_px)) * 4 * interval_px
        slide = given.folder / f"{side_px}-{interval_px}.ndpi"
        if not slide.exists():
            # In another process: a child's peak memory is counted from its parent's.
            arguments = [str(slide), "--side-px", str(side_px), "--interval-px", str(interval_px)]
            subprocess.run([sys.executable, "-m", "benchmarks.make_ndpi", *arguments], check=True)
        line = {"side_px": side_px, "interval_px": interval_px, **_on_one_core(slide, given.rounds)}
        line |= _ingested(slide, given.folder / "ingested")
        print(json.dumps({**line, **conditions}, ensure_ascii=False), flush=True)


def _on_one_core(path: Path, rounds: int) -> dict[str, object]:
    """Megapixels a second of each contender, and ours over theirs; of opentile why not, if it fails."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        opentile = others.ndpi_tiles(path, TILE_PX)
        contenders: dict[str, Callable[[], float]] = {
            "copied": lambda: _copied(path),
            "decoded": lambda: _decoded(path),
        }
        if not isinstance(opentile, str):
            contenders["opentile"] = lambda: _by_opentile(path)
        speeds = [{name: contend() / 1e6 for name, contend in contenders.items()} for _ in range(rounds)]
    finally:
        os.sched_setaffinity(0, cores)
    over = {
        f"copied ÷ {name}": round(statistics.median(each["copied"] / each[name] for each in speeds), 2)
        for name in contenders
        if name != "copied"
    }
    medians = {f"{name} MPix/s": round(statistics.median(each[name] for each in speeds), 1) for name in contenders}
    return {
        **medians,
        **over,
        "rounds": rounds,
        "opentile": opentile if isinstance(opentile, str) else opentile["versions"],
    }


def _copied(path: Path) -> float:
    """Pixels a second; the slide is opened again, so that no round profits from the one before."""
    with open_slide(path) as slide:
        level = slide.encoded_level(0)
        assert not isinstance(level, NotCopied), level.reason
        return slide.info.levels[0].width_px ** 2 / _seconds(lambda: _copy(level))


def _decoded(path: Path) -> float:
    with open_slide(path) as slide:
        return DECODED_PX**2 / _seconds(lambda: _decode(slide))


def _by_opentile(path: Path) -> float:
    line = others.ndpi_tiles(path, TILE_PX)
    assert not isinstance(line, str), line
    return float(line["tiles"] * line["tile_px"] ** 2 / line["seconds"])


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _copy(level: EncodedLevel) -> int:
    """All tiles, a shard's row at a time, joined as they are written."""
    at_once = max(1, ROW_OF_SHARD // level.tile_px)
    num_bytes = 0
    for row, first in product(range(level.rows), range(0, level.columns, at_once)):
        for stream in level.streams(row, range(first, min(first + at_once, level.columns))):
            num_bytes += len(b"".join(stream))
    return num_bytes


def _decode(slide: Slide) -> int:
    """A corner of tissue and glass, in chunks of the decode route."""
    t = IngestConfig().decode_chunk_px
    corners = product(range(0, DECODED_PX, t), repeat=2)
    return sum(len(encoded_chunk(slide.read_region(0, Box(x, y, t, t)), t, None)) for y, x in corners)


def _ingested(path: Path, folder: Path) -> dict[str, object]:
    """The whole of `gemslide ingest`."""
    seconds, peak_mib = ingest_seconds(path, folder)
    (store,) = folder.glob("slides/*.ome.zarr")
    levels = StoreReader(store).attributes.levels
    copied = [level.path for level in levels if level.route == "pass-through"]
    stored = sum(file.stat().st_size for name in copied for file in (store / "0" / name).rglob("*") if file.is_file())
    with open_slide(path) as slide:
        own = [slide.encoded_level(int(name)) for name in copied]
        source = sum(int(level.byte_counts().sum()) for level in own if not isinstance(level, NotCopied))
    return {
        "levels copied": len(copied),
        "ingest seconds": round(seconds, 2),
        "peak MiB": round(peak_mib),
        "store ÷ level bytes": round(stored / source, 4),
        "file MB": round(path.stat().st_size / 1e6),
    }


if __name__ == "__main__":
    main()
