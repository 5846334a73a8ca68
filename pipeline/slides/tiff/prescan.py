"""Prescan of a TIFF's tags that trusts nothing: OpenSlide aborts the process on one that claims too many values."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from pipeline.slides.common.reading import disk_errors, read_at

_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_MAX_PAGES = 10_000
_MAX_OFFSET = 2**62
"""Past the end of every file; the system refuses positions near 2**63."""
_HARMLESS_BYTES = 256 * 2**20
"""A claim this small can be allocated; if it is false, that shows when it is read."""


@dataclass(frozen=True)
class _Layout:
    """Layout of pages: number of tags, one tag, offset of the next page (TIFF 6.0, BigTIFF, NDPI)."""

    order: str
    num_tags: str
    tag: str
    offset: str
    name: str
    """Name of the file, for messages."""

    def read(self, descriptor: int, at: int, fields: str) -> tuple[int, ...] | None:
        """Numbers at a position; None past the end of the file. Raises UnreadableError."""
        size = struct.calcsize(self.order + fields)
        data = read_at(descriptor, size, at, self.name) if 0 <= at < _MAX_OFFSET else b""
        return struct.unpack(self.order + fields, data) if len(data) == size else None


def prescan_tags(path: Path) -> bool:
    """Whether no tag of a TIFF claims far more bytes than the file has; True if it is not a TIFF.

    Raises:
        UnreadableError: the disk or the network fails.
    """
    with disk_errors(path.name), path.open("rb") as stream:
        descriptor = stream.fileno()
        allowed = max(os.fstat(descriptor).st_size, _HARMLESS_BYTES)
        layout = _layout(read_at(descriptor, 4, 0, path.name), path)
        if layout is None:
            return True
        at = layout.read(descriptor, 8 if layout.num_tags == "Q" else 4, layout.offset)
        seen: set[int] = set()
        while at and at[0] and at[0] not in seen and len(seen) < _MAX_PAGES:
            seen.add(at[0])
            num_tags = layout.read(descriptor, at[0], layout.num_tags)
            start = at[0] + struct.calcsize(layout.order + layout.num_tags)
            tag_bytes = struct.calcsize(layout.order + layout.tag)
            if num_tags is None:
                break
            if num_tags[0] * tag_bytes > allowed or not _page_fits(layout, descriptor, start, num_tags[0], allowed):
                return False
            at = layout.read(descriptor, start + num_tags[0] * tag_bytes, layout.offset)
    return True


def _layout(head: bytes, path: Path) -> _Layout | None:
    order = {b"II": "<", b"MM": ">"}.get(head[:2])
    if order is None or len(head) < 4:
        return None
    (version,) = struct.unpack(order + "H", head[2:])
    if version == 43:
        return _Layout(order, "Q", "HHQQ", "Q", path.name)
    # NDPI is classic TIFF with pages linked by eight bytes, so that a file may be larger than 4 GiB.
    is_ndpi = path.suffix.lower() == ".ndpi"
    return _Layout(order, "H", "HHII", "Q" if is_ndpi else "I", path.name) if version == 42 else None


def _page_fits(layout: _Layout, descriptor: int, start: int, num_tags: int, allowed_bytes: int) -> bool:
    tag_bytes = struct.calcsize(layout.order + layout.tag)
    for index in range(num_tags):
        tag = layout.read(descriptor, start + index * tag_bytes, layout.tag)
        if tag is None:
            break
        _, kind, count, _ = tag
        if count * _TYPE_BYTES.get(kind, 1) > allowed_bytes:
            return False
    return True
