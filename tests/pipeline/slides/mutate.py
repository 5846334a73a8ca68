"""Damage to slide files, as from broken copies, broken scanners and malicious people."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import tifffile

EXTREMES = [0, 1, 2, 3, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]
_BYTES_OF_TYPE = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 16: 8}
_OFFSETS, _COUNTS = {273, 324}, {279, 325}
_EXPLICIT_VR = re.compile(
    rb"[\x00-\xff]{4}(AE|AS|AT|CS|DA|DS|DT|FD|FL|IS|LO|LT|OB|OV|OW|PN|SH|SL|SQ|SS|ST|SV|TM|UI|UL|UN|US|UT|UV)"
)
_LONG_VR = {b"OB", b"OV", b"OW", b"SQ", b"UN", b"UT", b"SV", b"UV"}


@dataclass(frozen=True)
class Tag:
    """Location of a TIFF tag."""

    code: int
    entry: int
    value: int
    bytes_each: int
    count: int


@dataclass(frozen=True)
class Anatomy:
    """Locations of the parts of an undamaged file."""

    content: bytes
    byteorder: str = "little"
    is_big: bool = False
    tags: list[Tag] = field(default_factory=list)
    tiles: list[tuple[int, int]] = field(default_factory=list)
    """First byte and byte count of each tile."""
    next_pages: list[int] = field(default_factory=list)
    elements: list[tuple[int, int]] = field(default_factory=list)
    """For DICOM: offset of each element's length, and its bytes."""


Damage = Callable[[bytearray, Anatomy, random.Random], str]


def anatomy_of(path: Path) -> Anatomy:
    """Locate the parts of an undamaged TIFF or DICOM file."""
    content = path.read_bytes()
    if content[128:132] == b"DICM":
        matches = [(m.end(), 4 if m.group(1) in _LONG_VR else 2) for m in _EXPLICIT_VR.finditer(content, 132)]
        elements = [(at + 2, 4) if length == 4 else (at, 2) for at, length in matches]
        return Anatomy(content, elements=elements, tiles=_items(content))
    with tifffile.TiffFile(path) as tiff:
        pages = [page.aspage() for page in tiff.pages]
        tags = [
            Tag(tag.code, tag.offset, tag.valueoffset, _BYTES_OF_TYPE.get(int(tag.dtype), 1), tag.count)
            for page in pages
            for tag in page.tags
        ]
        tiles = [(o, n) for page in pages for o, n in zip(page.dataoffsets, page.databytecounts, strict=False) if n > 0]
        order = "little" if tiff.byteorder == "<" else "big"
        fmt = tiff.tiff
        next_pages = [page.offset + fmt.tagnosize + len(page.tags) * fmt.tagsize for page in pages]
        return Anatomy(content, order, tiff.is_bigtiff, tags, tiles, next_pages)


def _items(content: bytes) -> list[tuple[int, int]]:
    """Frames of encapsulated DICOM."""
    frames, at = [], content.rfind(b"\xe0\x7f\x10\x00")
    while (at := content.find(b"\xfe\xff\x00\xe0", at)) >= 0:
        (count,) = struct.unpack_from("<I", content, at + 4)
        if count:
            frames.append((at + 8, count))
        at += 8 + count
    return frames


def damaged(anatomy: Anatomy, draw: random.Random) -> tuple[bytes, str]:
    """The file with one to three kinds of damage, and a description of them."""
    content = bytearray(anatomy.content)
    kinds = [kind for kind, needs in _KINDS if needs(anatomy)]
    chosen = [draw.choice(kinds) for _ in range(draw.choice([1, 1, 1, 2, 3]))]
    chosen.sort(key=lambda kind: kind is _cut)  # the other kinds need the original content
    done = [kind(content, anatomy, draw) for kind in chosen]
    return bytes(content), "; ".join(done)


def _put(content: bytearray, at: int, value: int, length: int, byteorder: str) -> None:
    content[at : at + length] = (value % 256**length).to_bytes(length, byteorder)


def _flip_bits(content: bytearray, _: Anatomy, draw: random.Random) -> str:
    places = [draw.randrange(len(content)) for _ in range(draw.choice([1, 2, 8]))]
    for at in places:
        content[at] ^= 1 << draw.randrange(8)
    return f"bits flipped at {places}"


def _cut(content: bytearray, _: Anatomy, draw: random.Random) -> str:
    length = max(1, draw.choice([draw.randrange(1, len(content)), len(content) - draw.randrange(1, 40)]))
    del content[length:]
    return f"cut to {length} bytes"


def _overwrite(content: bytearray, _: Anatomy, draw: random.Random) -> str:
    at, length = draw.randrange(len(content)), draw.choice([4, 64, 512, 4096])
    length = min(length, len(content) - at)
    fill = draw.choice([b"\0", b"\xff", None])
    content[at : at + length] = draw.randbytes(length) if fill is None else fill * length
    return f"{length} bytes at {at} overwritten with {fill or 'noise'}"


def _change_value(content: bytearray, anatomy: Anatomy, draw: random.Random) -> str:
    tag = draw.choice(anatomy.tags)
    index, value = draw.randrange(tag.count), draw.choice(EXTREMES)
    if draw.random() < 0.3:
        value = draw.randrange(1, 2000)
    _put(content, tag.value + index * tag.bytes_each, value, tag.bytes_each, anatomy.byteorder)
    return f"tag {tag.code}[{index}] = {value}"


def _change_entry(content: bytearray, anatomy: Anatomy, draw: random.Random) -> str:
    """Change a tag's code, type, count, or value offset."""
    tag, wide = draw.choice(anatomy.tags), 8 if anatomy.is_big else 4
    part, at, length = draw.choice(
        [("code", 0, 2), ("type", 2, 2), ("count", 4, wide), ("count", 4, wide), ("offset", 4 + wide, wide)]
    )
    value = draw.randrange(20) if part == "type" else draw.choice([*EXTREMES, draw.randrange(70000)])
    _put(content, tag.entry + at, value, length, anatomy.byteorder)
    return f"{part} of tag {tag.code} = {value}"


def _swap_tiles(content: bytearray, anatomy: Anatomy, draw: random.Random) -> str:
    """Swap two offsets or two byte counts."""
    tag = draw.choice([tag for tag in anatomy.tags if tag.code in _OFFSETS | _COUNTS])
    first, second = (tag.value + draw.randrange(tag.count) * tag.bytes_each for _ in "ab")
    n = tag.bytes_each
    content[first : first + n], content[second : second + n] = content[second : second + n], content[first : first + n]
    return f"values of tag {tag.code} at {first} and {second} swapped"


def _change_next_page(content: bytearray, anatomy: Anatomy, draw: random.Random) -> str:
    at = draw.choice(anatomy.next_pages)
    value = draw.choice([*EXTREMES, len(content) - 3, *(offset for offset in anatomy.next_pages), 8, 16])
    _put(content, at, value, 8 if anatomy.is_big else 4, anatomy.byteorder)
    return f"next page at {at} = {value}"


def _change_tile_head(content: bytearray, anatomy: Anatomy, draw: random.Random) -> str:
    """Change bytes in the first 100 of a tile, where JPEG and JPEG 2000 keep sizes, sampling and tables."""
    offset, count = draw.choice(anatomy.tiles)
    at = offset + draw.randrange(min(count, 100))
    length = draw.choice([1, 2, 4])
    value = draw.choice([*EXTREMES, draw.randrange(2**32)])
    _put(content, at, value, length, "big")
    return f"tile head at {at} = {value} ({length} bytes)"


def _change_marker(content: bytearray, anatomy: Anatomy, draw: random.Random) -> str:
    """Change a marker of a JPEG or JPEG 2000 stream, or its length."""
    offset, count = draw.choice(anatomy.tiles)
    markers = [at for at in range(offset, offset + count - 3) if content[at] == 0xFF and content[at + 1] > 0x4E]
    if not markers:
        return "no marker there"
    at = draw.choice(markers[:20])
    if draw.random() < 0.5:
        content[at + 1] = draw.choice([0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xDB, 0xDD, 0xDA, 0xD8, 0xD9, 0xFE, 0x51, 0x90, 0])
    else:
        _put(content, at + 2, draw.choice([0, 1, 2, 3, 0xFFFF, draw.randrange(2**16)]), 2, "big")
    return f"marker at {at} changed"


def _change_length(content: bytearray, anatomy: Anatomy, draw: random.Random) -> str:
    """Change the length of a DICOM element."""
    at, length = draw.choice(anatomy.elements)
    value = draw.choice([0, 1, 2, 3, 8, 255, 65535, 2**31, 2**32 - 2, 2**32 - 1])
    _put(content, at, value, length, "little")
    return f"element length at {at} = {value}"


def _change_element(content: bytearray, anatomy: Anatomy, draw: random.Random) -> str:
    """Change the first value bytes of a DICOM element."""
    at, length = draw.choice(anatomy.elements)
    value = draw.choice([*EXTREMES, draw.randrange(2**32)])
    _put(content, at + length, value, draw.choice([1, 2, 4]), "little")
    return f"element value at {at + length} = {value}"


_KINDS: list[tuple[Damage, Callable[[Anatomy], object]]] = [
    (_flip_bits, lambda a: True), (_cut, lambda a: True), (_overwrite, lambda a: True),
    (_change_value, lambda a: a.tags), (_change_value, lambda a: a.tags), (_change_value, lambda a: a.tags),
    (_change_entry, lambda a: a.tags), (_change_entry, lambda a: a.tags), (_swap_tiles, lambda a: a.tags),
    (_change_next_page, lambda a: a.next_pages), (_change_tile_head, lambda a: a.tiles),
    (_change_marker, lambda a: a.tiles), (_change_length, lambda a: a.elements),
    (_change_element, lambda a: a.elements), (_change_element, lambda a: a.elements),
]  # fmt: skip
"""Ways to damage a file, and the parts that each needs."""
