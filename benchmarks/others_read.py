"""Regions of a slide through another project's reader, timed. Runs under that project's own Python (see others.py).

    FOLDER/tiatoolbox/bin/python -I benchmarks/others_read.py SLIDE POSITIONS.json SIDE_PX [--reader NAME] [--cores N]

POSITIONS.json is a list of `[x, y]`: top left corners at level 0 of squares inside the slide. Two other positions are
read first and not counted. Each region becomes a numpy array (y, x, 3) of uint8; only the reading is timed, not the
checksum. `--cores` limits the process to that many cores: some readers use their own threads. Readers keep their
default caches, so positions should not repeat.

Prints one JSON line: `name`, `version`, `regions`, `seconds`, and the `crc32` of all pixels in the order read.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import zlib
from collections.abc import Callable
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

Read = Callable[[int, int, int], Any]
"""(x_px0, y_px0, side_px) → image."""


def tiatoolbox(slide: str) -> Read:
    """TIAToolbox's default: its OpenSlide reader for a slide that OpenSlide supports."""
    from tiatoolbox.wsicore.wsireader import WSIReader

    reader = WSIReader.open(slide, post_proc=None)
    return lambda x, y, side: reader.read_rect((x, y), (side, side), resolution=0, units="level")


def tiatoolbox_tiff(slide: str) -> Read:
    """TIAToolbox's TIFF reader (tifffile and zarr, threads, a cache of decoded tiles), which has to be named."""
    from tiatoolbox.wsicore.wsireader import TIFFWSIReader

    reader = TIFFWSIReader(slide, post_proc=None)
    return lambda x, y, side: reader.read_rect((x, y), (side, side), resolution=0, units="level")


def wsidicomizer(slide: str) -> Read:
    """The slide file itself, seen as DICOM. 0.26.1 treats every Aperio JPEG as RGB, so YCbCr has false colours."""
    from wsidicomizer import WsiDicomizer

    wsi = WsiDicomizer.open(slide)
    return lambda x, y, side: wsi.read_region((x, y), 0, (side, side))


def wsidicom(slide: str) -> Read:
    """A folder of DICOM instances, as others_ingest.py writes it."""
    from wsidicom import WsiDicom

    wsi = WsiDicom.open(Path(slide))
    return lambda x, y, side: wsi.read_region((x, y), 0, (side, side))


READERS = {
    "tiatoolbox": (tiatoolbox, ("tiatoolbox", "openslide-python", "openslide-bin")),
    "tiatoolbox-tiff": (tiatoolbox_tiff, ("tiatoolbox", "tifffile", "zarr", "imagecodecs")),
    "wsidicomizer": (wsidicomizer, ("wsidicomizer", "opentile", "wsidicom", "pillow")),
    "wsidicom": (wsidicom, ("wsidicom", "pydicom", "pillow")),
}
"""Function to open with, and relevant packages; the first one gives the version."""


def main() -> None:
    options = _options()
    if options.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    corners = json.loads(options.positions.read_text())
    open_reader, packages = READERS[options.reader]
    read = open_reader(options.slide)
    _timed(read, _between(corners[:3]), options.side_px)
    line = {
        "name": options.reader,
        "version": version(packages[0]),
        "regions": len(corners),
        "side_px": options.side_px,
        **_timed(read, corners, options.side_px),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {package: version(package) for package in packages},
    }
    print(json.dumps(line))


def _between(corners: list[list[int]]) -> list[list[int]]:
    """Positions half-way between successive corners: inside the slide without knowing its size."""
    return [[(x + next_x) // 2, (y + next_y) // 2] for (x, y), (next_x, next_y) in pairwise(corners)]


def _timed(read: Read, corners_xy_px0: list[list[int]], side_px: int) -> dict[str, Any]:
    """Seconds of wall and processor, and the pixels' crc32."""
    wall_s = processor_s = 0.0
    crc32 = 0
    for x, y in corners_xy_px0:
        start, start_processor = time.perf_counter(), time.process_time()
        pixels = np.asarray(read(x, y, side_px))
        wall_s += time.perf_counter() - start
        processor_s += time.process_time() - start_processor
        if pixels.shape != (side_px, side_px, 3) or pixels.dtype != np.uint8:
            raise SystemExit(
                f"Region x={x}, y={y} came as {pixels.shape} {pixels.dtype}, not ({side_px}, {side_px}, 3) uint8."
            )
        crc32 = zlib.crc32(np.ascontiguousarray(pixels), crc32)
    return {"seconds": round(wall_s, 4), "processor_seconds": round(processor_s, 4), "crc32": crc32}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("slide")
    parser.add_argument("positions", type=Path)
    parser.add_argument("side_px", type=int)
    parser.add_argument("--reader", choices=READERS, default="tiatoolbox")
    parser.add_argument("--cores", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    main()
