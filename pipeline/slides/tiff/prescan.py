"""Prescan of a TIFF's tags that trusts nothing: OpenSlide aborts the process on one that claims too many values."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.slides.common.reading import disk_errors, read_at

_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_MAX_PAGES = 10_000
_TAGS_AT_ONCE = 1000
_MAX_OFFSET = 2**62
"""Past the end of every file; the system refuses positions near 2**63."""
_COMPRESSION = 259
MCU_STARTS, _MCU_STARTS_HIGH = 65426, 65432
"""Tags of Hamamatsu: lower and upper halves of where the restart intervals of a JPEG begin."""
_MAX_INTERVALS = 20_000_000
_MAX_HEADER_BYTES = 2**20
"""Bytes before the first restart interval."""
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

    def first_of(self, kind: int, value: int) -> int:
        """The number in the field that was read as a tag's value or position."""
        field = struct.pack(self.order + self.tag[-1], value)
        return int.from_bytes(field[: _TYPE_BYTES.get(kind, 1)], "little" if self.order == "<" else "big")


def prescan_tags(path: Path) -> bool:
    """Whether no tag of a TIFF claims far more bytes than the file has; True if it is not a TIFF.

    Raises:
        UnreadableError: the disk or the network fails.
    """
    return _all_pages(path, _page_fits)


def intervals_fit(path: Path) -> bool:
    """Whether no page of a TIFF lists restart intervals that cannot be: tifffile reads all bytes before the first one,
    and makes two numbers of each.

    Raises:
        UnreadableError: the disk or the network fails.
    """
    return _all_pages(path, _intervals_fit)


def compressions(path: Path) -> set[int]:
    """Compressions that the pages of a TIFF state; none if it is no TIFF.

    tifffile would list the tiles of every page first, which takes a tenth of a second for a million.

    Raises:
        UnreadableError: the disk or the network fails.
    """
    stated: set[int] = set()

    def note(layout: _Layout, descriptor: int, start: int, num_tags: int, _: int) -> bool:
        tags = _tags(layout, descriptor, start, num_tags)
        stated.update(layout.first_of(kind, value) for code, kind, _, value in tags if code == _COMPRESSION)
        return True

    _all_pages(path, note)
    return stated


_Check = Callable[["_Layout", int, int, int, int], bool]
"""Whether a page may be read: layout, descriptor, position of its tags, their number, and the bytes allowed."""


def _all_pages(path: Path, fits: _Check) -> bool:
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
            if num_tags[0] * tag_bytes > allowed or not fits(layout, descriptor, start, num_tags[0], allowed):
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
    tags = _tags(layout, descriptor, start, num_tags)
    return all(count * _TYPE_BYTES.get(kind, 1) <= allowed_bytes for _, kind, count, _ in tags)


def _intervals_fit(layout: _Layout, descriptor: int, start: int, num_tags: int, _: int) -> bool:
    for index, (code, _, count, value) in enumerate(_tags(layout, descriptor, start, num_tags)):
        if code not in (MCU_STARTS, _MCU_STARTS_HIGH):
            continue
        at, first = value, value
        if count > 1:
            if layout.tag == "HHII" and layout.offset == "Q":
                # The upper halves of the tags' values follow the position of the next page.
                upper_at = start + num_tags * struct.calcsize(layout.order + layout.tag) + 8 + 4 * index
                at += (layout.read(descriptor, upper_at, "I") or (0,))[0] << 32
            first = (layout.read(descriptor, at, "I") or (0,))[0]
        if count > _MAX_INTERVALS or first > (_MAX_HEADER_BYTES if code == MCU_STARTS else 0):
            return False
    return True


def _tags(layout: _Layout, descriptor: int, start: int, num_tags: int) -> Iterator[tuple[int, ...]]:
    """Code, type, count and value or position of each of a page's tags, as far as the file goes."""
    tag_bytes = struct.calcsize(layout.order + layout.tag)
    for first in range(0, num_tags, _TAGS_AT_ONCE):
        num_bytes = min(_TAGS_AT_ONCE, num_tags - first) * tag_bytes
        data = read_at(descriptor, num_bytes, start + first * tag_bytes, layout.name)
        yield from struct.iter_unpack(layout.order + layout.tag, data[: len(data) // tag_bytes * tag_bytes])
        if len(data) < num_bytes:
            return
