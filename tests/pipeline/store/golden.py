"""The project kept under tests/golden, and compact checksums of a store's pixels."""

from __future__ import annotations

import zlib
from pathlib import Path

from pipeline.box import Box
from pipeline.store.reading.reader import StoreReader

GOLDEN = Path(__file__).parents[2] / "golden" / "project"


def level_crcs(store: Path) -> list[int]:
    """CRC-32 of each level's pixels, uint8 (y, x, c)."""
    reader = StoreReader(store)
    return [
        zlib.crc32(reader.read_region(level.level, Box(0, 0, level.width_px, level.height_px)))
        for level in reader.levels
    ]
