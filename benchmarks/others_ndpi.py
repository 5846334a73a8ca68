"""Tiles of an NDPI's finest level as opentile gives them, timed. Runs under wsidicomizer's own Python (see others.py).

    FOLDER/wsidicomizer/bin/python -I benchmarks/others_ndpi.py SLIDE [--tile-px 512]

Every tile once, in rows, as complete JPEG. Prints one JSON line: `seconds`, `tiles`, `tile_px`, `bytes`, `versions`.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from itertools import product
from pathlib import Path

from opentile import OpenTile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("slide", type=Path)
    parser.add_argument("--tile-px", type=int, default=512)
    options = parser.parse_args()
    with OpenTile.open(options.slide, tile_size=options.tile_px) as slide:
        level = slide.get_level(0)
        start = time.perf_counter()
        num_tiles = num_bytes = 0
        # Its own `get_all_tiles` asks for one column too many.
        for y, x in product(range(level.tiled_size.height), range(level.tiled_size.width)):
            num_tiles, num_bytes = num_tiles + 1, num_bytes + len(level.get_tile((x, y)))
        seconds = time.perf_counter() - start
        side = level.tile_size.width
    versions = {package: version(package) for package in ("opentile", "PyTurboJPEG", "tifffile")}
    print(
        json.dumps({"seconds": seconds, "tiles": num_tiles, "tile_px": side, "bytes": num_bytes, "versions": versions})
    )


if __name__ == "__main__":
    main()
