"""The stores of earlier versions that are kept under tests/golden, and what the tests ask of them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from pipeline.box import Box
from pipeline.store.chunks import encode_zstd
from pipeline.store.reader import StoreReader
from pipeline.store.shard import write_shard

GOLDEN = Path(__file__).parents[2] / "golden/store_v2"


def level_crcs(store: Path) -> list[int]:
    """CRC-32 of each level's pixels, uint8 (y, x, c)."""
    reader = StoreReader(store)
    return [
        zlib.crc32(reader.read_region(level.level, Box(0, 0, level.width_px, level.height_px)))
        for level in reader.levels
    ]


def as_version_1(store: Path) -> None:
    """Make a store of version 2 what version 1 was: no list of checksums, none in zstd chunks, less said of levels."""
    level = StoreReader(store).levels[2].array
    n, spec = level.spec.shard_chunks, level.spec
    pixels = [level.decoded_chunk(at // n, at % n) if at // n < spec.rows and at % n < spec.columns else None
              for at in range(n * n)]  # fmt: skip
    chunks = [() if chunk is None else (encode_zstd(chunk, with_checksum=False),) for chunk in pixels]
    write_shard(level.path / spec.shard_key(0, 0), chunks, with_checksums=False)
    (store / "OME/checksums.json").unlink()
    root, array = (json.loads((store / name / "zarr.json").read_text()) for name in ("", "0/2"))
    ours = root["attributes"]["gemslide"]
    ours["contract_version"] = 1
    ours["levels"] = [{k: v for k, v in level.items() if k not in ("quality", "rebuilt")} for level in ours["levels"]]
    del ours["bounds_px0"], ours["ingest"]["checksums_sha256"]
    array["codecs"][0]["configuration"]["codecs"][2]["configuration"]["checksum"] = False
    for name, content in (("", root), ("0/2", array)):
        (store / name / "zarr.json").write_text(json.dumps(content))
