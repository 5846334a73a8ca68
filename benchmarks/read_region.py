"""Speed of reading a slide: our reader, libjpeg-turbo alone, OpenSlide, tifffile with zarr-python, TIAToolbox.

    .venv/bin/python -m benchmarks.read_region [--folder DIR] [--side-px 100000] [--colour rgb|ycbcr] [--rounds 7]

A slide is made by `benchmarks.make_slide` and ingested (both kept in the folder). Regions of 1024 × 1024 px at level 0,
at random positions that no contender has read before in its process, are read as y,x,c arrays. Contenders take turns
within each round, so that all meet the same noise; figures are medians over rounds of ratios within a round. "libjpeg"
decodes the same chunks that the regions touch, from memory, one call per chunk, and keeps a region's pixels until all
are decoded; "libjpeg, thrown away" drops them at once, so that they never leave the cache. TIAToolbox's readers and
wsidicomizer's run in separate processes if `python -m benchmarks.others` has installed them, on one core, with ours on
the same positions right before and after. Prints a JSON line per figure; the committed ones are in
benchmarks/results/read_region.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import imagecodecs
import numpy as np
import openslide
import tifffile
import torch
import zarr
from torch.utils.data import DataLoader, Dataset

from benchmarks import others
from benchmarks.machine import circumstances
from benchmarks.make_slide import make_slide
from pipeline.box import Box
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store.reading.reader import StoreReader

SIDE_PX = 1024
REGIONS, FEWER = 64, 4
"""Regions per contender and round; OpenSlide and tifffile read a quarter of them."""
LOADER_BATCH, LOADER_TIMES = 4, 3
Corners = list[tuple[int, int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gemslide-benchmarks")
    parser.add_argument("--side-px", type=int, default=100_000)
    parser.add_argument("--colour", choices=("rgb", "ycbcr"), default="rgb")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    slide, store = prepare(given.folder, given.side_px, given.colour)
    rounds = Rounds(slide, store, given.side_px)
    conditions = circumstances("benchmarks.read_region")
    for name, figure in rounds.measure(given.rounds).items():
        print(json.dumps({"figure": name, **figure, "slide": slide.name, **conditions}, ensure_ascii=False), flush=True)
    for name in others.HOMES:
        if name != "wsidicom":  # reads DICOM only
            figure = beside(name, slide, store, given.side_px)
            print(json.dumps({**figure, "slide": slide.name, **conditions}, ensure_ascii=False), flush=True)


def prepare(folder: Path, side_px: int, colour: str) -> tuple[Path, Path]:
    """Make the slide and its store unless they exist."""
    folder.mkdir(parents=True, exist_ok=True)
    slide = folder / f"{colour}-{side_px}.svs"
    if not slide.exists():
        make_slide(slide, side_px=side_px, colour=colour)
    report = ingest_slide(IngestRequest(slide, slide.stem), Project(folder / "project"), IngestConfig())
    return slide, report.store


class Rounds:
    """Contenders that read the same positions in turns."""

    def __init__(self, slide: Path, store: Path, side_px: int) -> None:
        self._slide, self._store, self._side_px = slide, store, side_px
        self._reader = StoreReader(store)
        self._array = self._reader.levels[0].array
        self._openslide = openslide.OpenSlide(slide)
        with tifffile.TiffFile(slide) as tiff:
            self._zarr = zarr.open(tiff.pages.first.aszarr(), mode="r")
        self._random = np.random.default_rng(0)

    def measure(self, num_rounds: int) -> dict[str, dict[str, object]]:
        seconds: dict[str, list[float]] = {}
        mpix: list[float] = []
        for _ in range(num_rounds):
            corners = self._new_corners(REGIONS)
            streams = [self._streams(corner) for corner in corners]
            mpix.append(sum(map(len, streams)) * self._array.spec.chunk_px**2 / 1e6)
            for name, run in self._contenders(corners, streams).items():
                seconds.setdefault(name, []).append(timed(run))
        return self._figures(seconds, mpix)

    def _contenders(self, corners: Corners, streams: list[list[bytes]]) -> dict[str, Callable[[], float | None]]:
        """Contenders to time; one that does less, or starts its clock itself, returns its seconds for the whole."""
        few = corners[: REGIONS // FEWER]
        return {
            "libjpeg": lambda: decode_regions(streams),
            "libjpeg, thrown away": lambda: decode_and_drop(streams),
            "ours": lambda: self._ours(corners),
            "openslide": lambda: FEWER * timed(lambda: self._by_openslide(few)),
            "tifffile+zarr": lambda: FEWER * timed(lambda: self._by_tifffile(few)),
            "libjpeg, 2 threads": lambda: in_two(decode_regions, streams),
            "libjpeg, thrown away, 2 threads": lambda: in_two(decode_and_drop, streams),
            "ours, 2 threads": lambda: in_two(self._ours, corners),
            "ours, one region at a time on 2 threads": lambda: self._ours(corners, threads=2),
            "DataLoader, 2 workers": lambda: read_by_loader(self._store, corners),
        }

    def _figures(self, seconds: dict[str, list[float]], mpix: list[float]) -> dict[str, dict[str, object]]:
        def ratio(slow: str, fast: str) -> dict[str, object]:
            ratios = [a / b for a, b in zip(seconds[slow], seconds[fast], strict=True)]
            return {
                "ratio": round(statistics.median(ratios), 3),
                "ratios": [round(r, 3) for r in sorted(ratios)],
                "decoded_mpix_per_s": {
                    name: round(statistics.median(m / s for m, s in zip(mpix, seconds[name], strict=True)))
                    for name in (fast, slow)
                },
                "regions_per_s": round(REGIONS / statistics.median(seconds[fast]), 1),
            }

        return {
            "ours ÷ OpenSlide, regions per second": ratio("openslide", "ours"),
            "ours ÷ tifffile + zarr-python, regions per second": ratio("tifffile+zarr", "ours"),
            "ours ÷ libjpeg alone, MPix/s": ratio("libjpeg", "ours"),
            "ours ÷ libjpeg alone, thrown away, MPix/s": ratio("libjpeg, thrown away", "ours"),
            "two reader threads ÷ two libjpeg threads": ratio("libjpeg, 2 threads", "ours, 2 threads"),
            "two reader threads ÷ two libjpeg threads, thrown away": ratio(
                "libjpeg, thrown away, 2 threads", "ours, 2 threads"
            ),
            "one reader with threads=2 ÷ two libjpeg threads": ratio(
                "libjpeg, 2 threads", "ours, one region at a time on 2 threads"
            ),
            "DataLoader of 2 workers ÷ two libjpeg threads": ratio("libjpeg, 2 threads", "DataLoader, 2 workers"),
        }

    def _new_corners(self, count: int) -> Corners:
        places = self._random.integers(0, self._side_px - SIDE_PX, (count, 2))
        return [(int(x), int(y)) for x, y in places]

    def _streams(self, corner: tuple[int, int]) -> list[bytes]:
        t, (x, y) = self._array.spec.chunk_px, corner
        rows, columns = range(y // t, -(-(y + SIDE_PX) // t)), range(x // t, -(-(x + SIDE_PX) // t))
        streams = (self._array.chunk(row, column) for row in rows for column in columns)
        return [stream for stream in streams if stream]

    def _ours(self, corners: Corners, threads: int = 1) -> None:
        for x, y in corners:
            self._reader.read_region(0, Box(x, y, SIDE_PX, SIDE_PX), threads=threads)

    def _by_openslide(self, corners: Corners) -> None:
        for corner in corners:
            np.asarray(self._openslide.read_region(corner, 0, (SIDE_PX, SIDE_PX)).convert("RGB"))

    def _by_tifffile(self, corners: Corners) -> None:
        for x, y in corners:
            self._zarr[y : y + SIDE_PX, x : x + SIDE_PX]


def decode_regions(streams: Sequence[Sequence[bytes]]) -> None:
    for region in streams:
        _ = [imagecodecs.jpeg8_decode(stream) for stream in region]


def decode_and_drop(streams: Sequence[Sequence[bytes]]) -> None:
    for region in streams:
        for stream in region:
            imagecodecs.jpeg8_decode(stream)


def in_two(work: Callable[[Sequence], None], items: Sequence) -> None:
    """Process half of the items on each of two threads."""
    threads = [threading.Thread(target=work, args=(items[half::2],)) for half in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def timed(run: Callable[[], float | None]) -> float:
    start = time.perf_counter()
    own_seconds = run()
    return time.perf_counter() - start if own_seconds is None else own_seconds


class Regions(Dataset):
    """Training tiles, a batch at a time, read into the memory that torch's loader shares between its processes."""

    def __init__(self, store: Path, corners: Corners) -> None:
        self._array, self._corners = StoreReader(store).levels[0].array, corners

    def __len__(self) -> int:
        return len(self._corners)

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        shape = (len(indices), SIDE_PX, SIDE_PX, 3)
        storage = torch.UntypedStorage._new_shared(math.prod(shape))  # as in torch's own collate function
        batch = torch.empty(0, dtype=torch.uint8).set_(storage, 0, shape)
        for tile, index in zip(batch.numpy(), indices, strict=True):
            x, y = self._corners[index]
            self._array.read_region(Box(x, y, SIDE_PX, SIDE_PX), out=tile)
        return batch


def as_it_is(batch: torch.Tensor) -> torch.Tensor:
    return batch


def read_by_loader(store: Path, corners: Corners) -> float:
    """Seconds for all tiles once both workers deliver, to exclude the start of processes.

    Tiles that were ready before the clock started do not count.
    """
    tiles = corners * LOADER_TIMES
    loader = DataLoader(
        Regions(store, tiles), batch_size=LOADER_BATCH, num_workers=2, prefetch_factor=2, collate_fn=as_it_is
    )
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    start = time.perf_counter()
    num_tiles = sum(len(batch) for batch in batches)
    ready = 4 * LOADER_BATCH
    return (time.perf_counter() - start) / (num_tiles - ready) * len(corners)


def beside(name: str, slide: Path, store: Path, side_px: int) -> dict[str, object]:
    """Regions per second of another project's reader and of ours, on the same positions, one core each."""
    places = np.random.default_rng(1).integers(0, side_px - SIDE_PX, (REGIONS // 2, 2)).tolist()
    figure = f"ours ÷ {name}, regions per second"
    before = seconds_of_ours(store, places)
    theirs = others.read(name, slide, places, SIDE_PX, cores=1)
    if isinstance(theirs, str):
        return {"figure": figure, "reason": theirs}
    seconds = (before + seconds_of_ours(store, places)) / 2
    return {
        "figure": figure,
        "ratio": round(theirs["seconds"] / seconds, 2),
        "regions_per_s": round(len(places) / seconds, 1),
        "same_pixels": theirs["crc32"] == crc_of_ours(store, places),
        "theirs": theirs,
    }


def seconds_of_ours(store: Path, places: Corners) -> float:
    reader = StoreReader(store)
    start = time.perf_counter()
    for x, y in places:
        reader.read_region(0, Box(x, y, SIDE_PX, SIDE_PX))
    return time.perf_counter() - start


def crc_of_ours(store: Path, places: Corners) -> int:
    reader, crc = StoreReader(store), 0
    for x, y in places:
        crc = zlib.crc32(reader.read_region(0, Box(x, y, SIDE_PX, SIDE_PX)), crc)
    return crc


if __name__ == "__main__":
    main()
