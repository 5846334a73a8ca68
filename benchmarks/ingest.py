"""Ingest of a 100,000 × 100,000 px slide compared with a plain file copy, and the decode route with plain libraries.

    .venv/bin/python -m benchmarks.ingest [--folder DIR] [--side-px 100000] [--rounds 5] [--skip-pixels]

Slides are made by `benchmarks.make_slide` and kept in the folder. In every round `cp` of the file with an fsync, and
`gemslide ingest` as typed by a user (start, tissue mask, gate, SHA-256 and metadata included) take turns; the file is
in the page cache for both. The figure is the median over rounds of their ratio; memory is the process's peak. Then
every chunk of every passed level is decoded and compared with tifffile's own decode of the same tile. The decode route
(JPEG tiles of a slide into lossless zstd) is compared with tifffile and zarr-python doing the same, shard by shard, on
a smaller slide. Prints a JSON line per figure; the committed ones are in benchmarks/results/ingest.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import tifffile
import zarr
from zarr.codecs import ZstdCodec

from benchmarks import others
from benchmarks.machine import circumstances
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store.format.layout import ZSTD_LEVEL
from pipeline.store.reading.reader import LevelArray, StoreReader

DECODE_SIDE_PX = 12_288
SHARD_PX, CHUNK_PX = IngestConfig().decode_shard_px, IngestConfig().decode_chunk_px


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gemslide-benchmarks")
    parser.add_argument("--side-px", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip-pixels", action="store_true", help="Leave out the comparison of all pixels.")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    conditions = circumstances("benchmarks.ingest")
    for colour in ("rgb", "ycbcr"):
        slide = made(given.folder, colour, given.side_px)
        figure = beside_copy(slide, given.folder, given.rounds)
        if not given.skip_pixels:
            figure["compared_with_tifffile"] = compare_pixels(slide, store_of(given.folder, slide))
        print(json.dumps({"figure": "ingest ÷ cp + fsync", **figure, **conditions}, ensure_ascii=False), flush=True)
    rgb = made(given.folder, "rgb", given.side_px)
    print(
        json.dumps({"figure": "beside wsidicomizer", **beside_wsidicomizer(rgb, given.folder), **conditions}),
        flush=True,
    )
    figure = decode_route(made(given.folder, "ycbcr", min(DECODE_SIDE_PX, given.side_px)), given.folder, given.rounds)
    print(
        json.dumps({"figure": "decode route ÷ tifffile + zarr", **figure, **conditions}, ensure_ascii=False), flush=True
    )


def made(folder: Path, colour: str, side_px: int) -> Path:
    slide = folder / f"{colour}-{side_px}.svs"
    if not slide.exists():
        # In another process: a command's peak memory is counted from that of the process that starts it.
        arguments = [str(slide), "--side-px", str(side_px), "--colour", colour]
        subprocess.run(
            [sys.executable, "-m", "benchmarks.make_slide", *arguments], stdout=subprocess.DEVNULL, check=True
        )
    return slide


def store_of(folder: Path, slide: Path) -> Path:
    return Project(folder / "ingested").store_path(slide.stem)


def beside_copy(slide: Path, folder: Path, rounds: int) -> dict[str, object]:
    copied, ingested, peak_mib = [], [], 0.0
    for _ in range(rounds):
        copied.append(copy_seconds(slide, folder / "copy.bin"))
        seconds, mib = ingest_seconds(slide, folder / "ingested")
        ingested.append(seconds)
        peak_mib = max(peak_mib, mib)
    store_bytes = sum(path.stat().st_size for path in store_of(folder, slide).rglob("*") if path.is_file())
    ratios = [ours / plain for ours, plain in zip(ingested, copied, strict=True)]
    with tifffile.TiffFile(slide) as tiff:
        tables, size = len(tiff.pages.first.jpegtables), tiff.pages.first.shape[:2]
    return {
        "slide": slide.name,
        "size_px": list(size),
        "slide_bytes": slide.stat().st_size,
        "jpeg_tables_bytes": tables,
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in sorted(ratios)],
        "ingest_s": round(statistics.median(ingested), 2),
        "copy_s": round(statistics.median(copied), 2),
        "peak_mib": round(peak_mib),
        "store_to_slide_bytes": round(store_bytes / slide.stat().st_size, 4),
    }


def beside_wsidicomizer(slide: Path, folder: Path) -> dict[str, object]:
    """Convert the same slide to DICOM by wsidicomizer, copying tiles: no hash, no mask, no comparison of pixels."""
    target = folder / "dicom"
    shutil.rmtree(target, ignore_errors=True)
    copied = copy_seconds(slide, folder / "copy.bin")
    theirs = others.convert(slide, target)
    shutil.rmtree(target, ignore_errors=True)
    if isinstance(theirs, str):
        return {"slide": slide.name, "reason": theirs}
    seconds, _ = ingest_seconds(slide, folder / "ingested")
    return {"slide": slide.name, "copy_s": round(copied, 2), "ingest_s": round(seconds, 2), "theirs": theirs}


def settle() -> None:
    """Let the disk and the memory settle, so that both contenders start under equal conditions.

    A virtual machine returns freed memory to its host within seconds, and the next process to take it pays for that:
    one that starts right after a large deletion would be several times as fast.
    """
    os.sync()
    time.sleep(4)


def copy_seconds(slide: Path, target: Path) -> float:
    target.unlink(missing_ok=True)
    settle()
    start = time.perf_counter()
    subprocess.run(["cp", "--reflink=never", str(slide), str(target)], check=True)
    subprocess.run(["sync", str(target)], check=True)
    seconds = time.perf_counter() - start
    target.unlink()
    return seconds


def ingest_seconds(slide: Path, project: Path) -> tuple[float, float]:
    """Wall time of `gemslide ingest`, and its peak memory in MiB."""
    shutil.rmtree(project, ignore_errors=True)
    return verb_seconds("ingest", str(slide), "--project", str(project), "--json")


def verb_seconds(*arguments: str) -> tuple[float, float]:
    """Wall time of a `gemslide` command as typed by a user, and its peak memory in MiB."""
    settle()
    command = [str(Path(sys.executable).with_name("gemslide")), *arguments]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return seconds, usage.ru_maxrss / 1024


def compare_pixels(slide: Path, store: Path) -> dict[str, int]:
    """Decode every tile of every passed level from file and store; return the number of tiles and of differences."""
    reader, counts = StoreReader(store), {"tiles": 0, "different": 0}
    with tifffile.TiffFile(slide) as tiff, ThreadPoolExecutor(os.cpu_count()) as pool:
        pages = [page for page in tiff.pages if page.is_tiled]
        for level, attributes in zip(reader.levels, reader.attributes.levels, strict=True):
            if attributes.route != "pass-through":
                continue
            page = pages[level.level].aspage()
            grid = [(row, column) for row in range(level.rows) for column in range(level.columns)]
            matches = list(pool.map(partial(same_pixels, tiff, page, level), grid))
            counts["tiles"] += len(matches)
            counts["different"] += matches.count(False)
    return counts


def same_pixels(tiff: tifffile.TiffFile, page: tifffile.TiffPage, level: LevelArray, position: tuple[int, int]) -> bool:
    row, column = position
    index = row * level.columns + column
    raw = os.pread(tiff.filehandle.fileno(), page.databytecounts[index], page.dataoffsets[index])
    expected = page.decode(raw, index, jpegtables=page.jpegtables)[0][0]
    chunk = level.array.decoded_chunk(row, column)
    return np.array_equal(chunk[: expected.shape[0], : expected.shape[1]], expected)


def decode_route(slide: Path, folder: Path, rounds: int) -> dict[str, object]:
    with tifffile.TiffFile(slide) as tiff:
        mpix = sum(page.imagewidth * page.imagelength for page in tiff.pages if page.is_tiled) / 1e6
    config = IngestConfig(pass_through=False)
    ours, plain = [], []
    for _ in range(rounds):
        shutil.rmtree(folder / "decoded", ignore_errors=True)
        start = time.perf_counter()
        ingest_slide(IngestRequest(slide, "decoded"), Project(folder / "decoded"), config)
        ours.append(time.perf_counter() - start)
        shutil.rmtree(folder / "plain.zarr", ignore_errors=True)
        start = time.perf_counter()
        with_plain_libraries(slide, folder / "plain.zarr")
        plain.append(time.perf_counter() - start)
    ratios = [theirs / own for theirs, own in zip(plain, ours, strict=True)]
    return {
        "slide": slide.name,
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in sorted(ratios)],
        "mpix_per_s": {"ours": round(mpix / statistics.median(ours)), "plain": round(mpix / statistics.median(plain))},
    }


def with_plain_libraries(slide: Path, target: Path) -> None:
    """Read every level through tifffile's zarr store and write it with zarr-python: the same shards and codec."""
    with tifffile.TiffFile(slide) as tiff:
        for level, page in enumerate(page for page in tiff.pages if page.is_tiled):
            source = zarr.open(page.aszarr(), mode="r")
            height, width, _ = source.shape
            array = zarr.create_array(
                store=str(target / str(level)), shape=(3, height, width), dtype="uint8", fill_value=255,
                chunks=(3, CHUNK_PX, CHUNK_PX), shards=(3, SHARD_PX, SHARD_PX),
                compressors=[ZstdCodec(level=ZSTD_LEVEL, checksum=True)],
            )  # fmt: skip
            for y in range(0, height, SHARD_PX):
                for x in range(0, width, SHARD_PX):
                    region = source[y : y + SHARD_PX, x : x + SHARD_PX]
                    array[:, y : y + SHARD_PX, x : x + SHARD_PX] = np.moveaxis(region, -1, 0)


if __name__ == "__main__":
    main()
