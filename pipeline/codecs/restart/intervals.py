"""JPEG streams put together from restart intervals of a larger one, as bytes: nothing is decoded.

The coded data between two restart markers depend on nothing before them (ITU-T T.81, E.1.4), so intervals of one stream
make up another with the same tables, in any order. The markers count from 0 to 7, and have to be renumbered.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pipeline.codecs import jpeg
from pipeline.codecs.jpeg_header import JpegHeader
from pipeline.codecs.jpeg_segments import ANY_FRAME, EOI, Frame, JpegError, Segment, packed, read_frame, segments
from pipeline.codecs.restart.huffman import Block, HuffmanTable, tables_of

FIRST_RESTART, NUM_RESTARTS = 0xD0, 8
BLOCK_PX = 8
_SEQUENTIAL = (0xC0, 0xC1)
_RESTART_INTERVAL = 0xDD
_MARKER = re.compile(rb"\xff[\xd0-\xd7]")
_SIZE_AT = 5
"""Of height and width in a frame header: after marker, length and bits."""


@dataclass(frozen=True)
class IntervalHeader:
    """Everything before the coded data of a JPEG with restart intervals."""

    start: bytes
    """From SOI to the end of the scan's header."""
    frame: Frame
    header: JpegHeader
    num_mcus: int
    """MCUs in an interval."""
    _frame_at: int

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of an MCU, in order.

        Raises:
            JpegError: a table is missing.
        """
        *_, scan = segments(self.start)
        tables, used = tables_of(self.start), {scan.body[i]: scan.body[i + 1] for i in (1, 3, 5)}
        try:
            return tuple(
                Block(
                    number, index == 0, HuffmanTable(tables["DC", used[name] >> 4]),
                    HuffmanTable(tables["AC", used[name] & 15]), tables["quantisation", quantisation],
                )
                for number, (name, sampling, quantisation) in enumerate(self.frame.components)
                for index in range((sampling >> 4) * (sampling & 15))
            )  # fmt: skip
        except KeyError as error:
            raise JpegError(f"its {error} table is missing") from error

    @property
    def mcu_wh_px(self) -> tuple[int, int]:
        across, down = (max(factors) for factors in zip(*self.header.sampling, strict=True))
        return across * BLOCK_PX, down * BLOCK_PX

    @property
    def interval_wh_px(self) -> tuple[int, int]:
        """Size of an interval, if it lies in one row of MCUs."""
        width_px, height_px = self.mcu_wh_px
        return self.num_mcus * width_px, height_px

    @property
    def reach_xy_px(self) -> tuple[int, int]:
        """Pixels beside a cut whose chroma libjpeg interpolates from beyond it: one, where chroma is halved.

        It interpolates factors of two only; others are repeated.
        """
        return int(self.mcu_wh_px[0] == 2 * BLOCK_PX), int(self.mcu_wh_px[1] == 2 * BLOCK_PX)

    def head(self, width_px: int, height_px: int, num_mcus: int | None = None) -> bytes:
        """The bytes before the coded data of a complete stream of another size, which says what its colours are.

        Args:
            num_mcus: MCUs in its restart intervals; as many as here.
        """
        at = self._frame_at + _SIZE_AT
        sized = self.start[:at] + struct.pack(">HH", height_px, width_px) + self.start[at + 4 :]
        if num_mcus is not None:
            own, other = (packed(_RESTART_INTERVAL, struct.pack(">H", each)) for each in (self.num_mcus, num_mcus))
            sized = sized.replace(own, other, 1)
        return jpeg.parse(sized + EOI).head(is_rgb=False)


def read_interval_header(start: bytes) -> IntervalHeader:
    """Read the start of a stream, which ends with its scan's header.

    Raises:
        JpegError: not a sequential JPEG of three 8-bit components in one scan, with restart intervals.
    """
    header = jpeg.read_header(start)
    parts = list(segments(start))
    frames = [part for part in parts if part.marker in ANY_FRAME]
    if len(frames) != 1 or frames[0].marker not in _SEQUENTIAL:
        raise JpegError("it is not a baseline JPEG")
    frame = read_frame(frames[0])
    if len(frame.components) != 3 or frame.bits != 8 or parts[-1].body[0] != 3:
        raise JpegError("it is not of three 8-bit components in one scan")
    if parts[-1].end != len(start):
        raise JpegError("its header does not end where its first restart interval is said to begin")
    num_mcus = _restart_interval(parts)
    if not num_mcus:
        raise JpegError("it has no restart intervals")
    return IntervalHeader(start, frame, header, num_mcus, frames[0].at)


def _restart_interval(parts: Sequence[Segment]) -> int:
    stated = [int.from_bytes(part.body, "big") for part in parts if part.marker == _RESTART_INTERVAL]
    return stated[-1] if stated else 0


def split(coded: bytes) -> list[bytes]:
    """Coded data of the intervals, without markers, from that of a complete stream."""
    return _MARKER.split(coded.removesuffix(EOI))


def joined(head: bytes, intervals: Sequence[bytes]) -> bytes:
    """A complete stream from its head and the coded data of its intervals, without their markers."""
    parts = [head]
    for index, interval in enumerate(intervals):
        parts += [interval, bytes([0xFF, FIRST_RESTART + index % NUM_RESTARTS])]
    return b"".join([*parts[:-1], EOI])
