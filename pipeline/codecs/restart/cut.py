"""Restart intervals cut and joined at MCUs without loss: codes are copied as runs of bits, those of means rewritten.

The mean of a block is coded as its difference from the block before (ITU-T T.81, F.1.2.1), which at a cut is another
one; all other codes stand for themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.codecs.restart.huffman import Block, bits_of_difference
from pipeline.codecs.restart.intervals import IntervalHeader
from pipeline.codecs.restart.padding import as_coded_data, white_bits
from pipeline.codecs.restart.scan import CutTable


@dataclass(frozen=True)
class Run:
    """MCUs of one interval, from one of its cuts to the next."""

    data: bytes
    """The interval's coded data without stuffed bytes."""
    table: CutTable
    interval: int
    """Its number in the table."""
    cut: int
    """Number of the cut where the run begins."""

    @property
    def _is_last(self) -> bool:
        return self.cut + 1 == len(self.table.mcus[self.interval])

    @property
    def last_bit(self) -> int:
        if self._is_last:
            return int(self.table.last_bits[self.interval])
        return int(self.table.codes[self.interval, self.cut + 1, 0])

    @property
    def last_means(self) -> list[int]:
        table, own = self.table, self.interval
        means = table.last_means[own] if self._is_last else table.means_before[own, self.cut + 1]
        return [int(mean) for mean in means]

    def bits(self, firsts: Sequence[Block], means: Sequence[int]) -> str:
        """The run's bits after blocks of other means.

        Args:
            firsts: the first block of each component.
        """
        table, at, parts = self.table, (self.interval, self.cut), []
        starts, ends, own = table.codes[at].tolist(), table.ends[at].tolist(), table.means[at].tolist()
        for component, (block, end) in enumerate(zip(firsts, ends, strict=True)):
            until = starts[component + 1] if component + 1 < len(firsts) else self.last_bit
            parts += [bits_of_difference(block.dc, own[component] - means[component]), _slice(self.data, end, until)]
        return "".join(parts)


def joined_runs(header: IntervalHeader, runs: Sequence[Run], num_white: int) -> bytes:
    """Coded data of one interval from runs of others, and of white MCUs after them.

    Raises:
        JpegError: the tables have no code for a difference at a cut.
    """
    firsts = [block for block in header.blocks if block.is_first]
    means, bits = [0] * len(firsts), ""
    for run in runs:
        bits += run.bits(firsts, means)
        means = run.last_means
    return as_coded_data(bits + (white_bits(header, num_white, means) if num_white else ""))


def _slice(data: bytes, first: int, last: int) -> str:
    """Bits of bytes, as text."""
    if first == last:
        return ""
    at, end = first >> 3, (last + 7) >> 3
    whole = f"{int.from_bytes(data[at:end], 'big'):0{8 * (end - at)}b}"
    return whole[first - 8 * at : last - 8 * at]
