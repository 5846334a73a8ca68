"""Paths inside a slide store, and the on-disk form of one level's array."""

from __future__ import annotations

import base64
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

from pipeline.codecs.tile_streams import TileRule
from pipeline.units import MAX_PLANES

CONTRACT_VERSION = 6
IMAGE = "0"
LABELS = "0/labels"
TISSUE = "0/labels/tissue"
DAMAGED = "0/labels/damaged"
"""Only if the slide was damaged."""
PREDICTIONS = "predictions"
QUALITY = "quality"
FEATURES = "features"
ATTENTION = "attention"
FILL_VALUE = 255

CHECKSUMS = "OME/checksums.json"
POINTERS = "OME/pointers.json"
"""Of a linked store: SHA-256 of each shard's records, by its path below the image."""
ZSTD_LEVEL = 1
"""On tissue, level 3 saves at most a tenth of the bytes, and takes two to three times as long."""

_REGISTERED_JPEG = "jpeg"
"""Proposed to zarr's registry; read, not written. Its chunks are complete JPEG, too."""
Codec = Literal["imagecodecs_jpeg", "imagecodecs_jpeg2k", "zstd"]

CHECKSUM_CODEC: dict[str, Any] = {"name": "crc32c"}
"""zarr's own codec: four bytes of CRC-32C, little-endian, after the output of the codecs before it."""
LINK_CODEC = "gemslide_link"
"""In place of `sharding_indexed`: chunks are tiles of the slide's file, and shards say where (`link_shard.py`)."""
MAX_TABLES_BYTES = 2**16
"""Of JPEG tables that the tiles of a level share."""
_BYTES: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
_ZSTD: dict[str, Any] = {"name": "zstd", "configuration": {"level": ZSTD_LEVEL, "checksum": True}}

_IMAGE_CODECS: dict[Codec, list[dict[str, Any]]] = {
    "imagecodecs_jpeg": [{"name": "imagecodecs_jpeg"}],
    "imagecodecs_jpeg2k": [{"name": "imagecodecs_jpeg2k"}],
    "zstd": [_BYTES, _ZSTD],
}

MAX_SIDE_PX = 2**21
"""Of a level. A 76 mm slide at the smallest pixel size that ingest accepts, 0.05 µm, has three quarters of it."""
MAX_CHUNK_PX = 2**14
MAX_SHARD_CHUNKS = 2**10
"""Along a shard's side."""


@dataclass(frozen=True)
class LinkSpec:
    """What makes the tiles of a slide's file complete chunks; see `TileRule`."""

    tables: bytes | None = None
    says_rgb: bool = False
    in_items: bool = False
    """Whether each is a DICOM frame's items with their headers."""


@dataclass(frozen=True)
class ArraySpec:
    """One level, of a stack one focal plane of it: c,y,x uint8 in shards of `shard_chunks` × `shard_chunks` square
    chunks."""

    width_px: int
    height_px: int
    chunk_px: int
    shard_chunks: int
    codec: Codec
    has_checksums: bool = True
    """Whether each chunk carries its CRC-32C; those of contract versions 1 and 2 do not."""
    link: LinkSpec | None = None
    """Of a level whose chunks are in the slide's file."""
    planes: int | None = None
    """Focal planes of a stack, whose array is c,z,y,x; None: c,y,x."""
    plane: int = 0
    """Number of the one that the shards are of, lowest first."""

    def at_plane(self, plane: int) -> ArraySpec:
        """The same level at another focal plane. Raises ValueError: it has none of this number."""
        if not 0 <= plane < (self.planes or 1):
            raise ValueError(f"focal plane {plane} of {self.planes or 1}")
        return replace(self, plane=plane)

    @property
    def tile_rule(self) -> TileRule:
        """How tiles of the slide's file become chunks. Raises ValueError: chunks are in the store."""
        if self.link is None or self.codec == "zstd":
            raise ValueError("its chunks are not in the slide's file")
        return TileRule(self.codec, (self.chunk_px, self.chunk_px), self.link.tables, self.link.says_rgb)

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

    @property
    def max_chunk_bytes(self) -> int:
        """More than any chunk's image takes, however badly compressed: a longer one is damaged, and not read."""
        return 4 * 3 * self.chunk_px**2 + 2**20

    def shard_key(self, shard_row: int, shard_column: int) -> str:
        """Path of a shard below the array's folder (zarr v3 default key encoding)."""
        plane = "" if self.planes is None else f"{self.plane}/"
        return f"c/0/{plane}{shard_row}/{shard_column}"

    def cells_of_shard(self, shard_row: int, shard_column: int) -> tuple[range, range]:
        """Rows and columns of the level's chunks that a shard covers."""
        n = self.shard_chunks
        rows = range(shard_row * n, min((shard_row + 1) * n, self.rows))
        return rows, range(shard_column * n, min((shard_column + 1) * n, self.columns))

    def to_zarr_json(self) -> dict[str, Any]:
        """The array's `zarr.json`: sharded, complete streams inside, index at the end."""
        shard_px = self.shard_chunks * self.chunk_px
        depth = [] if self.planes is None else [self.planes]
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [3, *depth, self.height_px, self.width_px],
            "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": self._block(shard_px)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": FILL_VALUE,
            "dimension_names": ["c", *("z" for _ in depth), "y", "x"],
            "attributes": {},
            "storage_transformers": [],
            "codecs": [self._sharding() if self.link is None else self._linking(self.link)],
        }

    def _block(self, side_px: int) -> list[int]:
        """Shape of a square of one plane."""
        return [3, side_px, side_px] if self.planes is None else [3, 1, side_px, side_px]

    def _sharding(self) -> dict[str, Any]:
        image = [_colours_last(self.planes is not None), *deepcopy(_IMAGE_CODECS[self.codec])]
        configuration = {
            "chunk_shape": self._block(self.chunk_px),
            "codecs": image + [CHECKSUM_CODEC] * self.has_checksums,
            "index_codecs": [_BYTES, CHECKSUM_CODEC],
            "index_location": "end",
        }
        return {"name": "sharding_indexed", "configuration": configuration}

    def _linking(self, link: LinkSpec) -> dict[str, Any]:
        configuration = {
            "chunk_shape": self._block(self.chunk_px),
            "codec": self.codec,
            "tables": None if link.tables is None else base64.b64encode(link.tables).decode(),
            "says_rgb": link.says_rgb,
            "in_items": link.in_items,
        }
        return {"name": LINK_CODEC, "configuration": configuration}

    @classmethod
    def from_zarr_json(cls, meta: Any) -> ArraySpec:
        """Read back what `to_zarr_json` wrote; of a stack, as its lowest plane.

        Raises:
            ValueError: a layout other than the contract's, or numbers out of range.
        """
        try:
            (sharding,) = meta["codecs"]
            _, *depth, height_px, width_px = meta["shape"]
            link = None
            if sharding["name"] == LINK_CODEC:
                codec, link, has_checksums = *_parse_link(sharding["configuration"]), True
            else:
                codec, has_checksums = _parse_codecs(sharding["configuration"]["codecs"], bool(depth))
            chunk_px = sharding["configuration"]["chunk_shape"][-1]
            shard_px = meta["chunk_grid"]["configuration"]["chunk_shape"][-1]
            planes = depth[0] if depth else None
            for name, size, most in (
                ("chunk", chunk_px, MAX_CHUNK_PX),
                ("shard", shard_px, MAX_CHUNK_PX * MAX_SHARD_CHUNKS),
                ("height", height_px, MAX_SIDE_PX),
                ("width", width_px, MAX_SIDE_PX),
            ):
                if type(size) is not int or not 1 <= size <= most:
                    raise ValueError(f"its {name} is {size!r} px, not a whole number from 1 to {most}")
            if planes is not None and not (type(planes) is int and 2 <= planes <= MAX_PLANES):
                raise ValueError(f"its focal planes are {planes!r:.40}, not 2 to {MAX_PLANES}")
            spec = cls(width_px, height_px, chunk_px, shard_px // chunk_px, codec, has_checksums, link, planes)
            if spec.shard_chunks > MAX_SHARD_CHUNKS:
                raise ValueError(f"{spec.shard_chunks} chunks along a shard, at most {MAX_SHARD_CHUNKS} are read")
            _check_rest(meta, spec.to_zarr_json())
        except (KeyError, ValueError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not an array of a slide store ({type(error).__name__}: {error})") from error
        return spec


def _colours_last(is_stack: bool) -> dict[str, Any]:
    """The codec that turns c,y,x, or c,z,y,x, into rows of pixels."""
    return {"name": "transpose", "configuration": {"order": [1, 2, 3, 0] if is_stack else [1, 2, 0]}}


def _parse_codecs(inner: Any, is_stack: bool) -> tuple[Codec, bool]:
    """The image codec of a chain of inner codecs, and whether a checksum ends the chain.

    Raises:
        ValueError: a chain that no version of the contract has.
    """
    has_checksums = bool(inner[-1:] == [CHECKSUM_CODEC])
    first, *chain = inner[:-1] if has_checksums else inner
    if first != _colours_last(is_stack):
        raise ValueError(f"its codecs are {inner!r:.200}")
    if chain[-1]["name"] == _REGISTERED_JPEG:
        colours = (chain[-1].get("configuration") or {}).get("encoded_color_space")
        if chain[:-1] or (colours is not None and str(colours).casefold() != "ycbcr"):
            raise ValueError(f"its codecs are {inner!r:.200}")
        return "imagecodecs_jpeg", has_checksums
    for codec, known in _IMAGE_CODECS.items():
        if chain[-1]["name"] == codec and chain[:-1] == known[:-1]:
            # How strongly zstd compressed, and whether it added a checksum of its own, makes no difference to reading.
            if codec != "zstd" and chain[-1].get("configuration"):
                raise ValueError(f"its {codec} chunks are not complete streams")
            return codec, has_checksums
    raise ValueError(f"its codecs are {inner!r:.200}")


def _parse_link(configuration: Any) -> tuple[Codec, LinkSpec]:
    """The image codec of a level that points at the slide's file, and what its tiles need.

    Raises:
        ValueError: not as `to_zarr_json` writes it.
    """
    codec, tables = configuration["codec"], configuration["tables"]
    says_rgb, in_items = configuration["says_rgb"], configuration["in_items"]
    if codec not in ("imagecodecs_jpeg", "imagecodecs_jpeg2k"):
        raise ValueError(f"its codec {codec!r:.50} is not that of a slide's tiles")
    if type(says_rgb) is not bool or type(in_items) is not bool:
        raise ValueError(f"says_rgb {says_rgb!r:.50}, in_items {in_items!r:.50}: neither true nor false")
    if tables is not None and (not isinstance(tables, str) or len(tables) > 2 * MAX_TABLES_BYTES):
        raise ValueError(f"its tables {tables!r:.50} are not those of JPEG")
    return codec, LinkSpec(None if tables is None else base64.b64decode(tables, validate=True), says_rgb, in_items)


def _check_rest(meta: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare everything that `ArraySpec` has no field for: data type, fill value, keys, the index.

    Raises:
        ValueError: a difference.
    """
    (sharding,), (own,) = meta["codecs"], expected["codecs"]
    parts = {name: (meta[name], expected[name]) for name in expected.keys() - {"codecs", "attributes"}}
    parts |= {name: (sharding["configuration"][name], own["configuration"][name]) for name in own["configuration"]}
    parts.pop("codecs", None)
    parts["name of its codec"] = sharding["name"], own["name"]
    for name, (value, required) in parts.items():
        if value != required:
            raise ValueError(f"its {name} is {value!r:.200}, not {required!r}")
