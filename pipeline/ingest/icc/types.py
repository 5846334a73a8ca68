"""Data of ICC tags, cut to exactly what their type needs (ICC.1:2022, clause 10).

A tag's table entry may claim more bytes than its data have, and types have fields nobody reads; both can hold text.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

_PARAMETERS_OF_FUNCTION = {0: 1, 1: 3, 2: 4, 3: 5, 4: 7}
_MOST_INPUTS = 16


def exact(data: bytes) -> bytes | None:
    """A tag's data without anything that colours are not computed from; None if that cannot be determined."""
    rebuild = _TYPES.get(data[:4])
    try:
        return None if rebuild is None else rebuild(data)
    except (struct.error, IndexError, OverflowError):
        return None


def _cut(data: bytes, length: int, *, cleared: tuple[int, ...] = ()) -> bytes | None:
    """The first bytes, with the four reserved ones after the type's name (and others) cleared."""
    if not 8 <= length <= len(data):
        return None
    kept = bytearray(data[:length])
    for at in (4, 5, 6, 7, *cleared):
        kept[at] = 0
    return bytes(kept)


def _one_xyz(data: bytes) -> bytes | None:
    return _cut(data, 20)


def _matrix_of_numbers(data: bytes) -> bytes | None:
    """s15Fixed16Array, here only of `chad`: 3 × 3 numbers."""
    return _cut(data, 8 + 9 * 4)


def _curve(data: bytes) -> bytes | None:
    (count,) = struct.unpack_from(">I", data, 8)
    return _cut(data, 12 + 2 * count)


def _parametric_curve(data: bytes) -> bytes | None:
    (function,) = struct.unpack_from(">H", data, 8)
    if function not in _PARAMETERS_OF_FUNCTION:
        return None
    return _cut(data, 12 + 4 * _PARAMETERS_OF_FUNCTION[function], cleared=(10, 11))


def _table_8(data: bytes) -> bytes | None:
    inputs, outputs, grid = struct.unpack_from(">3B", data, 8)
    if inputs > _MOST_INPUTS:
        return None
    return _cut(data, 48 + 256 * inputs + grid**inputs * outputs + 256 * outputs, cleared=(11,))


def _table_16(data: bytes) -> bytes | None:
    inputs, outputs, grid = struct.unpack_from(">3B", data, 8)
    first, last = struct.unpack_from(">HH", data, 48)
    if inputs > _MOST_INPUTS:
        return None
    return _cut(data, 52 + 2 * (first * inputs + grid**inputs * outputs + last * outputs), cleared=(11,))


def _chromaticities(data: bytes) -> bytes | None:
    (channels,) = struct.unpack_from(">H", data, 8)
    return _cut(data, 12 + 8 * channels)


def _code_points(data: bytes) -> bytes | None:
    return _cut(data, 12)


def _elements(data: bytes) -> bytes | None:
    """lutAToB and lutBToA: curves, a matrix and a table at offsets of their own, repacked one after the other."""
    inputs, outputs = data[8], data[9]
    at_b, at_matrix, at_m, at_table, at_a = struct.unpack_from(">5I", data, 12)
    to_pcs = data[:4] == b"mAB "
    elements = [
        _curves(data, at_b, outputs if to_pcs else inputs),
        data[at_matrix : at_matrix + 48] if at_matrix else b"",
        _curves(data, at_m, outputs if to_pcs else inputs),
        _table(data, at_table, inputs, outputs),
        _curves(data, at_a, inputs if to_pcs else outputs),
    ]
    offsets, body = [], b""
    for at, element in zip((at_b, at_matrix, at_m, at_table, at_a), elements, strict=True):
        if element is None or (at and not element):
            return None
        offsets.append(32 + len(body) if at else 0)
        body += element + bytes(-len(element) % 4)
    if at_matrix and len(elements[1] or b"") != 48:
        return None
    return data[:4] + bytes(4) + bytes([inputs, outputs, 0, 0]) + struct.pack(">5I", *offsets) + body


def _curves(data: bytes, at: int, count: int) -> bytes | None:
    """That many consecutive curves, each padded to four bytes; b"" if there are none."""
    kept = b""
    for _ in range(count if at else 0):
        kind = data[at : at + 4]
        curve = exact(data[at:]) if kind in (b"curv", b"para") else None
        if curve is None:
            return None
        filled = len(curve) + -len(curve) % 4
        kept += curve.ljust(filled, b"\0")
        at += filled
    return kept


def _table(data: bytes, at: int, inputs: int, outputs: int) -> bytes | None:
    if not at:
        return b""
    grid, bytes_each = data[at : at + _MOST_INPUTS], data[at + 16]
    if inputs > _MOST_INPUTS or bytes_each not in (1, 2):
        return None
    length = 20 + math.prod(grid[:inputs]) * outputs * bytes_each
    if at + length > len(data):
        return None
    head = grid[:inputs].ljust(_MOST_INPUTS, b"\0") + bytes([bytes_each, 0, 0, 0])
    return head + data[at + 20 : at + length]


_TYPES: dict[bytes, Callable[[bytes], bytes | None]] = {
    b"XYZ ": _one_xyz,
    b"sf32": _matrix_of_numbers,
    b"curv": _curve,
    b"para": _parametric_curve,
    b"mft1": _table_8,
    b"mft2": _table_16,
    b"mAB ": _elements,
    b"mBA ": _elements,
    b"chrm": _chromaticities,
    b"cicp": _code_points,
}
