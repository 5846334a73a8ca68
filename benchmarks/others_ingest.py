"""A slide converted to DICOM by wsidicomizer, timed. Runs under wsidicomizer's own Python (see others.py).

    FOLDER/wsidicomizer/bin/python -I benchmarks/others_ingest.py SLIDE OUT_FOLDER [--workers N]

All levels, with JPEG tiles copied without decoding, as by default; without thumbnail, label and macro, like ours. It
computes no checksum, compares no pixels and detects no tissue. It does not fsync either: that is done here and timed
separately, so that `seconds` (conversion and fsync) compares with an ingest that is safe on disk. opentile 0.22, which
wsidicomizer 0.26.1 requires, marks the JPEG of every Aperio slide as RGB; a copy of one in YCbCr has false colours.

Prints one JSON line: `name`, `version`, `seconds`, `convert_seconds`, `source_bytes`, `output_bytes`, `levels` (width,
height, transfer syntax), `peak_bytes`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pydicom
from wsidicomizer import WsiDicomizer


def main() -> None:
    options = _options()
    if options.output.exists():
        raise SystemExit(f"{options.output} exists. Name a folder that does not: what lies there is not overwritten.")
    start = time.perf_counter()
    files = WsiDicomizer.convert(
        options.slide,
        options.output,
        workers=options.workers,
        include_label=False,
        include_overview=False,
        include_thumbnail=False,
    )
    converted = time.perf_counter()
    for name in [*files, options.output]:
        _fsync(name)
    line = {
        "name": "wsidicomizer",
        "version": version("wsidicomizer"),
        "seconds": round(time.perf_counter() - start, 3),
        "convert_seconds": round(converted - start, 3),
        "source_bytes": options.slide.stat().st_size,
        "output_bytes": sum(Path(name).stat().st_size for name in files),
        "levels": sorted((_level(name) for name in files), key=lambda level: -level["width_px"]),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "workers": options.workers,
        "versions": {package: version(package) for package in ("wsidicomizer", "opentile", "wsidicom", "pydicom")},
    }
    print(json.dumps(line))


def _fsync(name: str | Path) -> None:
    handle = os.open(name, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _level(name: str) -> dict[str, Any]:
    header = pydicom.dcmread(name, stop_before_pixels=True)
    return {
        "width_px": header.TotalPixelMatrixColumns,
        "height_px": header.TotalPixelMatrixRows,
        "tile_px": [header.Columns, header.Rows],
        "transfer_syntax": header.file_meta.TransferSyntaxUID.name,
        "photometric": header.PhotometricInterpretation,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("slide", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    return parser.parse_args()


if __name__ == "__main__":
    main()
