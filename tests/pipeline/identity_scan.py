"""Search every byte of a folder for a slide's identity: names, and pieces of its label and macro images.

Bytes are searched as stored, and again decoded: zarr arrays as pixels, Parquet as text, long runs of base64.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import tifffile
import zarr
from numpy.typing import NDArray
from PIL import Image

STRIP_BYTES, PIXEL_BYTES = 16, 96
"""Window lengths for encoded strips, and for 32 decoded pixels (a label has few colours: fewer prove nothing)."""
MIN_CHANGES = 4
"""A window of pixels with fewer changes of colour is plain paper or glass, as in every image."""
EVERY_ROW = 16
"""In decoded images only every n-th row is searched for: a copied image has them all."""
_TABLE_BITS = 24
_BLOCK = 4 * 2**20
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{24,}={0,2}")


class Windows:
    """Windows of one length, stored as hashes, to be found in other bytes.

    Args:
        step: search at every `step` bytes only; enough if all windows of much longer pieces are known.
    """

    def __init__(self, hashes: NDArray[np.uint64], length: int, *, step: int = 1) -> None:
        self._hashes, self._length, self._step = np.unique(hashes), length, step
        self._table = np.zeros(2**_TABLE_BITS, bool)
        self._table[self._hashes >> np.uint64(64 - _TABLE_BITS)] = True

    def __len__(self) -> int:
        return len(self._hashes)

    def count_in(self, content: bytes) -> int:
        """Number of windows of `content` that are among these."""
        count = 0
        for start in range(0, max(0, len(content) - self._length + 1), _BLOCK):
            hashes = _hashes(content[start : start + _BLOCK + self._length - 1], self._length, self._step)
            likely = hashes[self._table[hashes >> np.uint64(64 - _TABLE_BITS)]]
            at = np.searchsorted(self._hashes, likely)
            count += int((self._hashes[np.minimum(at, len(self._hashes) - 1)] == likely).sum())
        return count


def _hashes(piece: bytes, length: int, step: int = 1) -> NDArray[np.uint64]:
    """A 64-bit number per window of `length` bytes; two different windows share one by chance in 2^-64."""
    count = len(piece) - length + 1
    words = np.ndarray((len(piece) - 7,), "<u8", buffer=piece, strides=(1,))
    mixed = np.zeros(-(-count // step), np.uint64)
    for at in range(0, length, 8):
        mixed ^= words[at : at + count : step]
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _is_telling(row: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether each window of a row of pixels (x,c) holds enough changes of colour to identify the row."""
    changes = np.zeros(row.size, np.int64)
    changes[3::3] = (np.diff(row, axis=0) != 0).any(1)
    so_far = np.concatenate([[0], np.cumsum(changes)])
    return so_far[PIXEL_BYTES:] - so_far[:-PIXEL_BYTES] >= MIN_CHANGES


@dataclass(frozen=True)
class Identity:
    """Words, encoded strips and pixels that must not be found."""

    words: tuple[str, ...]
    strips: Windows
    """Windows of the encoded label and macro that are not also in the slide's own tiles. (The code of plain glass is
    the same in a macro and in a tile.)"""
    pixels: Windows
    """Windows of the decoded label and macro, interleaved."""


def identity_of(slides: list[Path], words: list[str]) -> Identity:
    strips: set[bytes] = set()
    tiles: set[bytes] = set()
    pixels = []
    for slide in slides:
        with tifffile.TiffFile(slide) as tiff:
            tiles.update(_segments(tiff, tiff.pages.first))
            for name in ("Label", "Macro"):
                page = associated_page(tiff, name)
                strips.update(map(_entropy_coded, _segments(tiff, page)))
                rows = page.asarray()[::EVERY_ROW]
                pixels += [_hashes(row.tobytes(), PIXEL_BYTES)[_is_telling(row)] for row in rows]
    ours, common = (np.concatenate([_hashes(piece, STRIP_BYTES) for piece in pieces]) for pieces in (strips, tiles))
    return Identity(
        tuple(words),
        Windows(np.setdiff1d(ours, common), STRIP_BYTES),
        Windows(np.concatenate(pixels), PIXEL_BYTES, step=8),
    )


def associated_page(tiff: tifffile.TiffFile, name: str) -> tifffile.TiffPage:
    (series,) = (series for series in tiff.series if series.name == name)
    return series.keyframe


def _segments(tiff: tifffile.TiffFile, page: tifffile.TiffPage) -> Iterator[bytes]:
    for at, count in zip(page.dataoffsets, page.databytecounts, strict=True):
        tiff.filehandle.seek(at)
        yield tiff.filehandle.read(count)


def _entropy_coded(strip: bytes) -> bytes:
    """JPEG strip without its headers, which any JPEG from the scanner shares; other strips unchanged."""
    if not strip.startswith(b"\xff\xd8"):
        return strip
    at = strip.index(b"\xff\xda")
    return strip[at + 2 + int.from_bytes(strip[at + 2 : at + 4], "big") :]


def aperio_words(slide: Path) -> list[str]:
    """Values of the description's fields that name a file, a person, a machine or a moment."""
    with tifffile.TiffFile(slide) as tiff:
        description = tiff.pages.first.description
    fields = dict(re.findall(r"\|([^|=]+?) = ([^|]+)", description))
    return [
        fields[key].strip() for key in ("ScanScope ID", "Filename", "Date", "Time", "User", "ImageID") if key in fields
    ]


def scan(folder: Path, identity: Identity) -> list[str]:
    """Everything that was found, one line per finding."""
    lines: list[str] = []
    for what, content, is_text in _contents(folder):
        folded = content.lower() if is_text else b""
        for word in identity.words:
            for coding in ("utf-8", "utf-16-le", "utf-16-be"):
                if word.lower().encode(coding) in folded:
                    lines.append(f"{what}: {word!r} in {coding}")
        for name, windows in (("strips", identity.strips), ("pixels", identity.pixels)):
            count = windows.count_in(content)
            if count:
                lines.append(f"{what}: {count} windows of the {name}")
    return lines


def _contents(folder: Path) -> Iterator[tuple[str, bytes, bool]]:
    """(description, bytes, whether names may be in them) of every file, raw and decoded."""
    for path in sorted(folder.rglob("*")):
        where = str(path.relative_to(folder))
        yield f"name of {where}", where.encode(), True
        if not path.is_file():
            continue
        raw = path.read_bytes()
        yield where, raw, True
        for number, blob in enumerate(_BASE64.findall(raw) if path.suffix in (".json", ".html", ".xml", ".md") else []):
            yield f"base64 {number} of {where}", _decoded(blob), True
        if path.suffix == ".parquet":
            yield f"rows of {where}", _table_text(path), True
        if path.suffix == ".png":
            yield f"pixels of {where}", np.asarray(Image.open(path).convert("RGB")).tobytes(), False
        if path.suffix == ".tiff":
            with tifffile.TiffFile(path) as tiff:
                for page in tiff.pages:
                    yield f"pixels of {where}", page.asarray().tobytes(), False
        if path.name == "zarr.json" and json.loads(raw)["node_type"] == "array":
            values = zarr.open_array(str(path.parent), mode="r")[...]
            planes_last = np.moveaxis(values, 0, -1) if values.ndim == 3 else values
            yield f"values of {where}", planes_last.tobytes(), False


def _decoded(blob: bytes) -> bytes:
    text = blob.rstrip(b"=")
    return base64.b64decode(text[: len(text) // 4 * 4])


def _table_text(path: Path) -> bytes:
    table = pq.read_table(path)
    metadata = b"".join(key + value for key, value in (table.schema.metadata or {}).items())
    frame: pd.DataFrame = table.to_pandas()
    return frame.to_csv().encode() + metadata
