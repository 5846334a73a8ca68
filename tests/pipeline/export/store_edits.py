"""Edits of a slide store: bytes of a file, metadata, chunks of a shard with valid checksums, records of its index."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.store.format.shard import MISSING, index_bytes, with_checksum, write_shard

Chunks = list[bytes | None]
Record = list[int]
"""Offset and byte count of a chunk."""


def edit_bytes(path: Path, edit: Callable[[bytearray], bytearray | None]) -> None:
    content = bytearray(path.read_bytes())
    path.write_bytes(edit(content) or content)


def flip(path: Path, at: int, bit: int = 0) -> None:
    def flipped(content: bytearray) -> None:
        content[at] ^= 1 << bit

    edit_bytes(path, flipped)


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def edit_root(store: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    edit_json(store / "zarr.json", lambda content: edit(content["attributes"]["gemslide"]))


def num_chunks(shard: Path) -> int:
    """Of a shard, from the metadata of its array."""
    meta = json.loads((shard.parents[3] / "zarr.json").read_text())
    side_px = meta["chunk_grid"]["configuration"]["chunk_shape"][-1]
    return (side_px // meta["codecs"][0]["configuration"]["chunk_shape"][-1]) ** 2


def records(shard: Path) -> list[Record]:
    content = shard.read_bytes()
    return np.frombuffer(content[-index_bytes(num_chunks(shard)) : -4], "<u8").reshape(-1, 2).tolist()


def edit_index(shard: Path, edit: Callable[[list[Record]], object]) -> None:
    """Edit a shard's index; its checksum is valid again."""
    edited = records(shard)
    length = index_bytes(len(edited))
    edit(edited)
    index = b"".join(with_checksum([np.asarray(edited, "<u8").tobytes()]))
    shard.write_bytes(shard.read_bytes()[:-length] + index)


def edit_chunks(shard: Path, edit: Callable[[Chunks], object]) -> None:
    """Edit a shard's chunks, given without their checksums; all checksums are valid again."""
    content = shard.read_bytes()
    chunks: Chunks = [
        None if offset == int(MISSING) else content[offset : offset + count - 4] for offset, count in records(shard)
    ]
    edit(chunks)
    write_shard(shard, [() if chunk is None else (chunk,) for chunk in chunks])
