"""White coded data in the tables of a given JPEG (ITU-T T.81, annex F): for what a tile has beyond its image."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.codecs.jpeg_segments import JpegError
from pipeline.codecs.restart.huffman import END_OF_BLOCK, Block, bits_of_difference
from pipeline.codecs.restart.intervals import IntervalHeader

_MIDDLE_TO_WHITE = 127 * 8
"""A block's mean counts from 128, and its coefficient is 8 times that."""


def white_interval(header: IntervalHeader, num_mcus: int | None = None) -> bytes:
    """Coded data of a white restart interval, without a marker.

    Args:
        num_mcus: MCUs in it; as many as in the header's.

    Raises:
        JpegError: the tables have no code for it.
    """
    return as_coded_data(white_bits(header, num_mcus or header.num_mcus, [0] * len(header.frame.components)))


def white_bits(header: IntervalHeader, num_mcus: int, means_before: Sequence[int]) -> str:
    """Bits of white MCUs that follow on blocks of the given quantised means.

    Raises:
        JpegError: the tables have no code for it.
    """
    is_rgb = header.header.holds_rgb()
    wanted = [
        _steps_to_white(block.quantisation) if block.component == 0 or is_rgb else 0
        for block in header.blocks
        if block.is_first
    ]
    first = "".join(
        _block(block, wanted[block.component] - means_before[block.component] if block.is_first else 0)
        for block in header.blocks
    )
    return first + "".join(_block(block, 0) for block in header.blocks) * (num_mcus - 1)


def _block(block: Block, difference: int) -> str:
    if END_OF_BLOCK not in block.ac.codes:
        raise JpegError("its tables have no code for an empty block")
    return bits_of_difference(block.dc, difference) + block.ac.codes[END_OF_BLOCK]


def as_coded_data(bits: str) -> bytes:
    """Bits as bytes of coded data, filled up with ones; a byte of ones is followed by 0."""
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")


def _steps_to_white(quantisation: bytes) -> int:
    """Quantised mean of a block that decodes to 255, or is clipped to it."""
    step = int.from_bytes(quantisation[1:3], "big") if quantisation[0] >> 4 else quantisation[1]
    if not step:
        raise JpegError("a quantisation step of 0")
    return -(-_MIDDLE_TO_WHITE // step)
