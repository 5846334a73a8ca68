"""Huffman tables of a JPEG as codes and as look-up tables (ITU-T T.81, annexes C and F)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.jpeg_segments import JpegError, Key, definitions, segments

END_OF_BLOCK, SKIP_16 = 0x00, 0xF0
PEEKED_BITS = 16
"""No code is longer."""
_NUM_LENGTHS = 16


@dataclass(frozen=True)
class HuffmanTable:
    """One table, by its segment's content: counts of codes by length, then symbols."""

    body: bytes

    @cached_property
    def codes(self) -> dict[int, str]:
        """Bits by symbol."""
        found: dict[int, str] = {}
        code, at = 0, 1 + _NUM_LENGTHS
        for length in range(1, _NUM_LENGTHS + 1):
            for symbol in self.body[at : at + self.body[length]]:
                found[symbol] = f"{code:0{length}b}"
                code += 1
            at += self.body[length]
            code <<= 1
        return found

    def by_next_bits(self) -> NDArray[np.uint16]:
        """Length of the code times 256, plus its symbol, by the next 16 bits; 0 where no code begins like this."""
        table = np.zeros(2**PEEKED_BITS, np.uint16)
        for symbol, bits in self.codes.items():
            shift = PEEKED_BITS - len(bits)
            first = int(bits, 2) << shift
            table[first : first + 2**shift] = len(bits) << 8 | symbol
        return table


@dataclass(frozen=True)
class Block:
    """A block of an MCU: its component, from 0, whether it is that one's first in the MCU, and its tables."""

    component: int
    is_first: bool
    dc: HuffmanTable
    ac: HuffmanTable
    quantisation: bytes


def tables_of(start: bytes) -> dict[Key, bytes]:
    """Definitions before a scan, by what they define."""
    return {key: body for segment in segments(start) for key, body in definitions(segment)}


def bits_of_difference(table: HuffmanTable, difference: int) -> str:
    """A mean's difference from the one before it: the code of its length, then the number; ones' complement if below 0.

    Raises:
        JpegError: the table has no code for it.
    """
    length = abs(difference).bit_length()
    if length not in table.codes:
        raise JpegError(f"its tables have no code for a difference of {difference}")
    if not length:
        return table.codes[length]
    return table.codes[length] + f"{difference if difference > 0 else difference + 2**length - 1:0{length}b}"
