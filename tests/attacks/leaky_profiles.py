"""Colour profiles built by hand from the ICC specification: honest ones of every type, and the same with texts."""

from __future__ import annotations

import struct

import numpy as np

_RESERVED = bytes(4)
_CURVE = b"curv" + _RESERVED + struct.pack(">I3H", 3, 0, 20_000, 65_535)
_PARAMETRIC = b"para" + _RESERVED + struct.pack(">HHi", 0, 0, round(2.2 * 65_536))
_IDENTITY = struct.pack(">9i", *(65_536 if i % 4 == 0 else 0 for i in range(9)))
_GRID = 3
_NODES = np.stack(np.meshgrid(*[np.arange(_GRID)] * 3, indexing="ij"), -1).reshape(-1, 3) / (_GRID - 1)
_LAB = np.stack([_NODES.mean(1), 0.5 + (_NODES[:, 0] - _NODES[:, 1]) / 3, 0.5 + (_NODES[:, 1] - _NODES[:, 2]) / 3], -1)
"""Some Lab value per R, G, B node, 0 to 1: not plausible, but different everywhere."""
_RAMP = np.linspace(0, 255, 256).astype(np.uint8).tobytes()
_MFT1 = (
    b"mft1" + _RESERVED + bytes([3, 3, _GRID, 0]) + _IDENTITY + 3 * _RAMP
    + (_LAB * 255).astype(np.uint8).tobytes() + 3 * _RAMP
)  # fmt: skip
_MFT2 = (
    b"mft2" + _RESERVED + bytes([3, 3, _GRID, 0]) + _IDENTITY + struct.pack(">HH", 2, 2)
    + 3 * struct.pack(">HH", 0, 65_535) + (_LAB * 65_280).astype(">u2").tobytes() + 3 * struct.pack(">HH", 0, 65_535)
)  # fmt: skip
_STRAIGHT = b"curv" + _RESERVED + struct.pack(">I", 0)
_CLUT = bytes([_GRID] * 3).ljust(16, b"\0") + bytes([2, 0, 0, 0]) + (_LAB * 65_535).astype(">u2").tobytes() + bytes(2)
_MAB = (
    b"mAB " + _RESERVED + bytes([3, 3, 0, 0])
    + struct.pack(">5I", 32, 0, 0, 32 + 3 * len(_STRAIGHT), 32 + 3 * len(_STRAIGHT) + len(_CLUT))
    + 3 * _STRAIGHT + _CLUT + 3 * _PARAMETRIC
)  # fmt: skip

TYPES: dict[str, bytes] = {
    "XYZ ": b"XYZ " + _RESERVED + struct.pack(">3i", 40_000, 30_000, 3_000),
    "sf32": b"sf32" + _RESERVED + _IDENTITY,
    "curv": _CURVE,
    "para": _PARAMETRIC,
    "mft1": _MFT1,
    "mft2": _MFT2,
    "mAB ": _MAB,
    "mBA ": b"mBA " + _MAB[4:],
    "chrm": b"chrm" + _RESERVED + struct.pack(">HH6I", 3, 1, 1, 2, 3, 4, 5, 6),
    "cicp": b"cicp" + _RESERVED + bytes([1, 13, 0, 1]),
}
"""Data of one tag per type, without a byte too many."""


def with_text_behind(data: bytes, text: bytes) -> bytes:
    """A tag's data with a text that its table entry claims as part of it."""
    return data + text


def profile_of(kind: str, *, text: bytes = b"") -> bytes:
    """A profile whose colours are computed from one type of data, with a text behind the data of every tag."""
    if kind in ("curv", "para"):
        tags = dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), TYPES[kind])
        for name, xyz in ((b"rXYZ", (28_578, 14_581, 912)), (b"gXYZ", (25_241, 46_981, 6_362)),
                          (b"bXYZ", (9_376, 3_972, 46_799))):  # fmt: skip
            tags[name] = b"XYZ " + _RESERVED + struct.pack(">3i", *xyz)
        return assembled(tags, b"XYZ ", text)
    return assembled({b"A2B0": TYPES[kind]}, b"Lab ", text)


def assembled(tags: dict[bytes, bytes], connection_space: bytes, text: bytes) -> bytes:
    """A scanner's profile of version 4 with these tags, and a white point."""
    tags = {b"wtpt": b"XYZ " + _RESERVED + struct.pack(">3I", 0xF6D6, 0x10000, 0xD32D), **tags}
    at = 128 + 4 + 12 * len(tags)
    table, body = struct.pack(">I", len(tags)), b""
    for name, data in tags.items():
        leaky = with_text_behind(data, text)
        table += struct.pack(">4sII", name, at + len(body), len(leaky))
        body += leaky + bytes(-len(leaky) % 4)
    header = struct.pack(">I4sI4s4s4s", at + len(body), b"lcms", 0x04300000, b"scnr", b"RGB ", connection_space)
    header += bytes(12) + b"acsp" + bytes(28) + struct.pack(">III", 0xF6D6, 0x10000, 0xD32D)
    return header.ljust(128, b"\0") + table + body


def header_with(profile: bytes, text: bytes) -> bytes:
    """The profile with a text wherever its header is not read: CMM, date, platform, flags, maker, attributes, rest."""
    header = bytearray(profile[:128])
    for start, stop in ((4, 8), (10, 12), (24, 36), (40, 64), (80, 128)):
        header[start:stop] = (text * 9)[: stop - start]
    return bytes(header) + profile[128:]
