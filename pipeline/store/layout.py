"""Where things lie inside a slide store, and what one level's array looks like on disk."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

CONTRACT_VERSION = 2
READABLE_VERSIONS = {1, 2}
"""Version 1 has no checksums and no JPEG 2000; all else is the same."""
IMAGE = "0"
LABELS = "0/labels"
TISSUE = "0/labels/tissue"
PREDICTIONS = "predictions"
QUALITY = "quality"
FILL_VALUE = 255

CHECKSUMS = "OME/checksums.json"
ZSTD_LEVEL = 1
"""Of tissue's pixels level 3 saves a tenth of the bytes at most, and takes two to three times as long."""

Codec = Literal["imagecodecs_jpeg", "imagecodecs_jpeg2k", "zstd"]

_INNER_CODECS: dict[Codec, list[dict[str, Any]]] = {
    "imagecodecs_jpeg": [
        {"name": "transpose", "configuration": {"order": [1, 2, 0]}},
        {"name": "imagecodecs_jpeg"},
    ],
    "imagecodecs_jpeg2k": [
        {"name": "transpose", "configuration": {"order": [1, 2, 0]}},
        {"name": "imagecodecs_jpeg2k"},
    ],
    "zstd": [
        {"name": "transpose", "configuration": {"order": [1, 2, 0]}},
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "zstd", "configuration": {"level": ZSTD_LEVEL, "checksum": True}},
    ],
}


@dataclass(frozen=True)
class ArraySpec:
    """One level: c,y,x uint8 in shards of `shard_chunks` × `shard_chunks` square chunks."""

    width_px: int
    height_px: int
    chunk_px: int
    shard_chunks: int
    codec: Codec

    @property
    def columns(self) -> int:
        return -(-self.width_px // self.chunk_px)

    @property
    def rows(self) -> int:
        return -(-self.height_px // self.chunk_px)

    @property
    def shard_columns(self) -> int:
        return -(-self.columns // self.shard_chunks)

    @property
    def shard_rows(self) -> int:
        return -(-self.rows // self.shard_chunks)

    def shard_key(self, shard_row: int, shard_column: int) -> str:
        """Path of a shard below the array's folder (zarr v3 default key encoding)."""
        return f"c/0/{shard_row}/{shard_column}"

    def to_zarr_json(self) -> dict[str, Any]:
        """The array's `zarr.json`: sharded, complete streams inside, index at the end."""
        shard_px = self.shard_chunks * self.chunk_px
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [3, self.height_px, self.width_px],
            "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, shard_px, shard_px]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": FILL_VALUE,
            "dimension_names": ["c", "y", "x"],
            "attributes": {},
            "storage_transformers": [],
            "codecs": [
                {
                    "name": "sharding_indexed",
                    "configuration": {
                        "chunk_shape": [3, self.chunk_px, self.chunk_px],
                        "codecs": deepcopy(_INNER_CODECS[self.codec]),
                        "index_codecs": [
                            {"name": "bytes", "configuration": {"endian": "little"}},
                            {"name": "crc32c"},
                        ],
                        "index_location": "end",
                    },
                }
            ],
        }

    @classmethod
    def from_zarr_json(cls, meta: dict[str, Any]) -> ArraySpec:
        """Read back what `to_zarr_json` wrote.

        Raises:
            ValueError: another layout than the contract's.
        """
        try:
            (sharding,) = meta["codecs"]
            inner = sharding["configuration"]["codecs"]
            by_name = {part["name"]: part.get("configuration") for part in inner}
            codec = next(name for name in _INNER_CODECS if name in by_name)
            if codec != "zstd" and by_name[codec]:
                raise ValueError(f"its {codec} chunks are no complete streams")
            chunk_px = sharding["configuration"]["chunk_shape"][2]
            shard_px = meta["chunk_grid"]["configuration"]["chunk_shape"][2]
            _, height_px, width_px = meta["shape"]
        except (KeyError, ValueError, StopIteration, IndexError, TypeError) as error:
            raise ValueError(f"not an array of a slide store ({type(error).__name__}: {error})") from error
        return cls(width_px, height_px, chunk_px, shard_px // chunk_px, codec)
