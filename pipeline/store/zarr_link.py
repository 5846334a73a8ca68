"""zarr v3 codec `gemslide_link`: plain zarr reads a linked store through gemslide's own reader.

It stands in place of `sharding_indexed`. A shard says where its chunks are in the slide's file, and the project's
`links.json` says which file that is, so a linked store can be read in its project only. Others get an export.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from zarr.abc.codec import ArrayBytesCodecPartialDecodeMixin
from zarr.core.array_spec import ArraySpec as ZarrArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.core.common import JSON
from zarr.storage import LocalStore, StorePath

from pipeline.box import Box
from pipeline.store.format.layout import LINK_CODEC
from pipeline.store.reading.reader import StoreReader
from pipeline.store.zarr_codecs import READ_ONLY, ReadOnlyCodec
from training.foundation.errors import UnreadableError

_SHARD_PARTS = 4
"""Of a shard's path below its array: "c/0/ROW/COLUMN"."""


class LinkCodec(ReadOnlyCodec, ArrayBytesCodecPartialDecodeMixin):
    """Shards of pointers."""

    codec_name = LINK_CODEC

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        configuration = data.get("configuration")
        if not isinstance(configuration, dict):
            raise ValueError(f"{LINK_CODEC}: no configuration")
        return cls(configuration)

    async def _decode_partial_single(self, byte_getter: Any, selection: Any, chunk_spec: ZarrArraySpec) -> NDBuffer:
        if not isinstance(byte_getter, StorePath) or not isinstance(byte_getter.store, LocalStore):
            raise UnreadableError(
                f"{byte_getter}: a linked store is read in its project's folder, where links.json says which file it "
                "points at. Copy it with `gemslide export`."
            )
        path = Path(byte_getter.store.root) / byte_getter.path
        shape = chunk_spec.shape
        pixels = await asyncio.to_thread(_selected, path, tuple(selection), (int(shape[1]), int(shape[2])))
        return chunk_spec.prototype.nd_buffer.from_numpy_array(pixels)

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ZarrArraySpec) -> NDBuffer:
        raise TypeError(READ_ONLY)  # reading is by parts; zarr reads whole shards only to write into them


def _selected(shard: Path, selection: tuple[Any, ...], side_yx_px: tuple[int, int]) -> Any:
    """The selected part of a shard's pixels, c,y,x.

    Args:
        shard: its path, whether there is such a file or not.
        selection: one selector for each axis, in the shard's own pixels: slices, numbers or arrays of them.
    """
    array_dir, (row, column) = shard.parents[_SHARD_PARTS - 1], map(int, shard.parts[-2:])
    reader = _reader(array_dir.parents[1], (array_dir / "zarr.json").stat().st_mtime_ns)
    (top, bottom), (left, right) = _extent(selection[1], side_yx_px[0]), _extent(selection[2], side_yx_px[1])
    box = Box(column * side_yx_px[1] + left, row * side_yx_px[0] + top, right - left, bottom - top)
    pixels = reader.read_region(int(array_dir.name), box).transpose(2, 0, 1)
    return pixels[selection[0], _shifted(selection[1], top), _shifted(selection[2], left)]


def _extent(selector: Any, side_px: int) -> tuple[int, int]:
    """First position that a selector takes of an axis, and the one after its last."""
    taken = np.arange(side_px)[selector.ravel() if isinstance(selector, np.ndarray) else selector]
    return (int(np.min(taken)), int(np.max(taken)) + 1) if np.size(taken) else (0, 0)


def _shifted(selector: Any, start: int) -> Any:
    """A selector for what was read from `start` on."""
    if not isinstance(selector, slice):
        return selector - start
    first = 0 if selector.start is None else selector.start
    last = None if selector.stop is None else selector.stop - start
    return slice(max(0, first - start), last, selector.step)


@lru_cache(maxsize=16)
def _reader(store: Path, _version: int) -> StoreReader:
    return StoreReader(store)
