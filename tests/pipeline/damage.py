"""Slides damaged in known places: tiles overwritten, swapped or lost with the end of the file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import tifffile

from tests.pipeline.make import overwrite_tag, overwrite_tile, tile_bytes

OFFSETS, BYTE_COUNTS = 324, 325
KINDS = ("zeros", "random", "another tile")


def damage_tiles(path: Path, tiles: Iterable[int], kind: str, *, page: int = 0) -> set[tuple[int, int]]:
    """Damage tiles of a TIFF, by index. Return them as (row, column).

    Args:
        kind: "zeros" in place of the tile; "random" bytes after its first 64, so that it stays a JPEG; "another tile",
            about a sixth of the slide further on, which leaves no trace in the bytes.
    """
    random = np.random.default_rng(0)
    with tifffile.TiffFile(path) as tiff:
        offsets, counts = list(tiff.pages[page].dataoffsets), list(tiff.pages[page].databytecounts)
        columns = -(-tiff.pages[page].imagewidth // tiff.pages[page].tilewidth)
    for tile in tiles:
        length = tile_bytes(path, tile, page=page)
        if kind == "zeros":
            overwrite_tile(path, tile, bytes(length), page=page)
        elif kind == "random":
            overwrite_tile(path, tile, random.integers(0, 256, length - 64, np.uint8).tobytes(), page=page, at=64)
        else:
            other = (tile + len(offsets) // 6 + columns // 2) % len(offsets)
            overwrite_tag(path, OFFSETS, int(offsets[other]), page=page, index=tile)
            overwrite_tag(path, BYTE_COUNTS, int(counts[other]), page=page, index=tile)
    return {divmod(tile, columns) for tile in tiles}


def move_finest_to_the_end(path: Path) -> int:
    """Move the finest level's tiles to the end, as in cloud-optimised TIFFs. Return their offset."""
    with tifffile.TiffFile(path) as tiff:
        offsets, counts = list(tiff.pages[0].dataoffsets), list(tiff.pages[0].databytecounts)
    content = path.read_bytes()
    start = at = len(content)
    moved = []
    for index, (offset, count) in enumerate(zip(offsets, counts, strict=True)):
        overwrite_tag(path, OFFSETS, at, index=index)
        moved.append(content[offset : offset + count])
        at += count
    with path.open("ab") as stream:
        stream.write(b"".join(moved))
    return start
