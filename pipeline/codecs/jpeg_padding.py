"""White coded data in the tables of a given JPEG (ITU-T T.81, annex F): for what a tile has beyond its image."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.codecs.jpeg_segments import JpegError, Key, definitions, segments
from pipeline.codecs.restart_intervals import IntervalHeader

_LENGTHS = 16
_END_OF_BLOCK = 0
_MIDDLE_TO_WHITE = 127 * 8
"""A block's mean counts from 128, and its coefficient is 8 times that."""
_Codes = dict[int, str]
"""Bits by symbol."""


def white_interval(header: IntervalHeader) -> bytes:
    """Coded data of a white restart interval, without a marker.

    Raises:
        JpegError: the tables have no code for it.
    """
    tables = {key: body for segment in segments(header.start) for key, body in definitions(segment)}
    try:
        first, further = (_mcu(header, tables, is_first=is_first) for is_first in (True, False))
    except KeyError as error:
        raise JpegError(f"its tables have no code for a white block ({error})") from error
    bits = first + further * (header.num_mcus - 1)
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")


def _mcu(header: IntervalHeader, tables: dict[Key, bytes], *, is_first: bool) -> str:
    return "".join(_blocks(header, tables, is_first=is_first))


def _blocks(header: IntervalHeader, tables: dict[Key, bytes], *, is_first: bool) -> Iterator[str]:
    """Bits of the blocks of an MCU: the first one of a component states its mean, the others that it stays the same."""
    is_rgb, used = header.header.holds_rgb(), header.tables_of_scan
    for number, (name, sampling, quantisation) in enumerate(header.frame.components):
        dc, ac = (_codes(tables[kind, table]) for kind, table in zip(("DC", "AC"), used[name], strict=True))
        mean = _steps_to_white(tables["quantisation", quantisation]) if number == 0 or is_rgb else 0
        for block in range((sampling >> 4) * (sampling & 15)):
            yield _difference(dc, mean if is_first and block == 0 else 0) + ac[_END_OF_BLOCK]


def _difference(dc: _Codes, value: int) -> str:
    """A mean's code: its number of bits, then these; what is not negative needs no complement."""
    return dc[value.bit_length()] + (f"{value:b}" if value else "")


def _steps_to_white(quantisation: bytes) -> int:
    """Quantised mean of a block that decodes to 255, or is clipped to it."""
    step = int.from_bytes(quantisation[1:3], "big") if quantisation[0] >> 4 else quantisation[1]
    if not step:
        raise JpegError("a quantisation step of 0")
    return -(-_MIDDLE_TO_WHITE // step)


def _codes(table: bytes) -> _Codes:
    """Canonical Huffman codes of a table: counts by length, then symbols (T.81, annex C)."""
    codes: _Codes = {}
    code, at = 0, 1 + _LENGTHS
    for length in range(1, _LENGTHS + 1):
        for symbol in table[at : at + table[length]]:
            codes[symbol] = f"{code:0{length}b}"
            code += 1
        at += table[length]
        code <<= 1
    return codes
