"""Where each frame says it lies: the per-frame functional groups, of which there may be hundreds of thousands."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pydicom
from pydicom.dataset import Dataset

_COLUMN, _ROW, _HEIGHT, _OPTICAL_PATH = 0x0048021E, 0x0048021F, 0x0040074A, 0x00480106
_WANTED = {_COLUMN, _ROW, _HEIGHT, _OPTICAL_PATH}
_LONG_LENGTH = {b"OB", b"OD", b"OF", b"OL", b"OV", b"OW", b"SQ", b"SV", b"UC", b"UN", b"UR", b"UT", b"UV"}
_ITEMS = 0xFFFE
_UNDEFINED_LENGTH = 0xFFFFFFFF


@dataclass
class FramePositions:
    """What the groups say, frame by frame. Positions count from 1, as in the file."""

    columns_px: list[int | None] = field(default_factory=list)
    rows_px: list[int | None] = field(default_factory=list)
    heights: set[float] = field(default_factory=set)
    """Different z offsets: more than one means several focal planes."""
    optical_paths: set[str] = field(default_factory=set)
    first: Dataset = field(default_factory=Dataset)
    """The first frame's groups."""

    def add(self, item: Dataset) -> None:
        """Take in the next frame's groups."""
        if not self.columns_px:
            self.first = item
        place = first_item(item, "PlanePositionSlideSequence")
        column = place.get("ColumnPositionInTotalImagePixelMatrix")
        row = place.get("RowPositionInTotalImagePixelMatrix")
        self.columns_px.append(None if column is None else int(column))
        self.rows_px.append(None if row is None else int(row))
        height = place.get("ZOffsetInSlideCoordinateSystem")
        if height is not None:
            self.heights.add(float(height))
        optical_path = first_item(item, "OpticalPathIdentificationSequence").get("OpticalPathIdentifier")
        if optical_path is not None:
            self.optical_paths.add(str(optical_path))

    def add_encoded(self, item: bytes) -> None:
        """The same from an item's own bytes (explicit VR, little endian), ten times as fast as through pydicom.

        Raises:
            ValueError: they do not hold together.
        """
        found = _scan(item)
        self.columns_px.append(_position(found.get(_COLUMN)))
        self.rows_px.append(_position(found.get(_ROW)))
        if found.get(_HEIGHT):
            self.heights.add(float(found[_HEIGHT]))
        if _OPTICAL_PATH in found:
            self.optical_paths.add(found[_OPTICAL_PATH].decode("latin-1").strip(" \0"))


def first_item(ds: Dataset, keyword: str) -> Dataset:
    """The first item of a sequence; an empty data set where there is none."""
    items = ds.get(keyword)
    return items[0] if isinstance(items, pydicom.Sequence) and items else Dataset()


def _scan(item: bytes) -> dict[int, bytes]:
    """Values of the wanted elements, at whatever depth: sequences and their items are stepped into, not over."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(item):
        try:
            group, element, kind, length = struct.unpack_from("<HH2sH", item, at)
            at += 8
            if group == _ITEMS:
                continue
            if kind in _LONG_LENGTH:
                (length,) = struct.unpack_from("<L", item, at)
                at += 4
        except struct.error as error:
            raise ValueError(f"a frame's groups end inside an element, at byte {at} of {len(item)}") from error
        if kind == b"SQ":
            continue
        if length == _UNDEFINED_LENGTH or at + length > len(item):
            raise ValueError(f"an element of a frame's groups claims {length} bytes at byte {at} of {len(item)}")
        tag = group << 16 | element
        if tag in _WANTED:
            found[tag] = item[at : at + length]
        at += length
    return found


def _position(value: bytes | None) -> int | None:
    if not value:
        return None
    if len(value) != 4:
        raise ValueError(f"a frame's position has {len(value)} bytes")
    return int.from_bytes(value, "little", signed=True)
