"""Time and memory of `gemslide register` on two slides of 100,000 × 100,000 px with the tissue of a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray

from benchmarks.registration_pairs import restained
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig

SIDE_PX, MPP0, TILE_PX = 100_000, 0.25, 256
SOURCE_MPP = 0.5
TURNS = {"one": 0.0, "other": 37.0}
LIGHT = (242, 242, 242)
_POLL_S = 0.01

Pixels = NDArray[np.uint8]


def measure_large(source: Path, folder: Path, *, times: int = 5) -> Iterator[dict[str, Any]]:
    """Wall seconds and peak memory of the command, its interpreter's start included."""
    project = Project(folder / "large")
    for name, degrees in TURNS.items():
        if not project.store_path(name).exists():
            path = folder / f"{name}-{SIDE_PX}.tiff"
            _write(path, source, degrees)
            ingest_slide(IngestRequest(path, name), project, IngestConfig())
            path.unlink()
    command = [sys.executable, "-m", "pipeline", "register", *TURNS, "--dry-run", "--json"]
    runs = [_run([*command, "--project", str(project.root)]) for _ in range(times)]
    yield {
        "figure": "two slides of 100,000 × 100,000 px", "seconds": [round(seconds, 2) for seconds, _, _ in runs],
        "peak_mib": [round(peak / 2**20) for _, peak, _ in runs], "result": runs[0][2],
    }  # fmt: skip


def _run(command: list[str]) -> tuple[float, int, dict[str, Any]]:
    """Wall seconds, peak resident bytes and result. The peak includes every thread and library."""
    start = time.perf_counter()
    read, write = os.pipe()
    with subprocess.Popen(command, stdout=write) as process:
        os.close(write)
        peak = 0
        while process.poll() is None:
            peak = max(peak, _peak_of(process.pid))
            time.sleep(_POLL_S)
    seconds = time.perf_counter() - start
    with os.fdopen(read) as output:
        return seconds, peak, json.loads(output.read().splitlines()[-1])


def _peak_of(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _write(path: Path, source: Path, degrees: float) -> None:
    """Write a pyramid whose levels each show the source's tissue, turned, in the middle of much glass."""
    with tifffile.TiffFile(source) as tiff, tifffile.TiffWriter(path, bigtiff=True) as writer:
        for level, shrink in enumerate((1, 4, 16, 64)):
            side = SIDE_PX // shrink
            finest = min(range(len(tiff.pages)), key=lambda page: abs(4**page / (shrink / 2) - 1))
            pixels, source_mpp = tiff.pages[finest].asarray(), SOURCE_MPP * 4**finest
            writer.write(
                _tiles(pixels, side, MPP0 * shrink / source_mpp, degrees), shape=(side, side, 3), dtype=np.uint8,
                tile=(TILE_PX, TILE_PX), photometric="ycbcr", subsampling=(2, 2), compression="jpeg", metadata=None,
                subfiletype=1 if level else 0, resolution=(1e4 / (MPP0 * shrink),) * 2, resolutionunit="CENTIMETER",
            )  # fmt: skip


def _tiles(pixels: Pixels, side: int, scale: float, degrees: float) -> Iterator[bytes]:
    height, width = pixels.shape[:2]
    turn = cv2.getRotationMatrix2D((0, 0), degrees, scale)
    blank = _jpeg(np.full((TILE_PX, TILE_PX, 3), LIGHT, np.uint8))
    count = -(-side // TILE_PX)
    random = np.random.default_rng(0)
    for row in range(count):
        for column in range(count):
            middle = np.array([column + 0.5, row + 0.5]) * TILE_PX - side / 2
            reach = TILE_PX * scale
            x, y = turn[:, :2] @ middle + (width / 2, height / 2)
            if not (-reach < x < width + reach and -reach < y < height + reach):
                yield blank
                continue
            half = np.array([TILE_PX / 2, TILE_PX / 2])
            shift = np.array([x, y]) - turn[:, :2] @ half
            matrix = np.column_stack([turn[:, :2], shift])
            left, top = max(0, int(x - reach) - 2), max(0, int(y - reach) - 2)
            part = pixels[top : int(y + reach) + 3, left : int(x + reach) + 3]
            matrix[:, 2] -= left, top
            flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
            tile = cv2.warpAffine(part, matrix, (TILE_PX, TILE_PX), flags=flags, borderValue=LIGHT)
            yield _jpeg(restained(tile, "PAS", random) if degrees else tile)


def _jpeg(tile: Pixels) -> bytes:
    return bytes(imagecodecs.jpeg8_encode(np.ascontiguousarray(tile), level=80, subsampling="420"))
