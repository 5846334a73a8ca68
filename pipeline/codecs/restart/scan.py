"""Where MCUs begin in the coded data of restart intervals: all intervals are walked through at once, a code at a time.

Nothing says where in its bits an MCU begins; every code before it has to be read. Intervals do not depend on each
other, so that numpy reads the next code of thousands of them in one step. No pixel is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.restart.huffman import END_OF_BLOCK, PEEKED_BITS, SKIP_16, Block

_Ints = NDArray[np.int64]
_COEFFICIENTS = 64
_PADDING_BYTES, _LAST_PADDING_BYTES = 4, 16
"""After each interval, and after the last: the codes at which a damaged one is noticed may be beyond its end."""
_LONGEST_MEAN = 15
_NO_MORE = -1
"""In place of an MCU, after the last cut."""


@dataclass(frozen=True)
class CutTable:
    """The MCUs at which intervals are cut; int32 of shape (intervals, cuts, components), bits from an interval's start.

    An interval has as many cuts as `mcus` says, its first MCU included.
    """

    mcus: Sequence[tuple[int, ...]]
    codes: NDArray[np.int32]
    """Bit before the code of the mean of a component's first block there."""
    ends: NDArray[np.int32]
    """Bit after it."""
    means: NDArray[np.int32]
    """What it makes the mean."""
    means_before: NDArray[np.int32]
    last_bits: NDArray[np.int32]
    """End of the last MCU's bits, by interval."""
    last_means: NDArray[np.int32]
    """(intervals, components)"""
    damaged: dict[int, str]
    """By number of an interval: why it could not be walked through."""


def find_cuts(
    intervals: Sequence[bytes], blocks: Sequence[Block], num_mcus: int, mcus: Sequence[tuple[int, ...]]
) -> CutTable:
    """Walk through intervals.

    Args:
        intervals: coded data without stuffed bytes (0 after 0xFF) and markers.
        blocks: of an MCU.
        num_mcus: of an interval.
        mcus: of each interval, the MCUs at which it is cut, the first of them 0, rising.
    """
    walk = _Walk(intervals, blocks, num_mcus, mcus)
    while walk.step():
        pass
    return walk.table(mcus)


class _Walk:
    """The state of all intervals: next bit, MCU, block in it and coefficient, and the means so far."""

    def __init__(
        self, intervals: Sequence[bytes], blocks: Sequence[Block], num_mcus: int, mcus: Sequence[tuple[int, ...]]
    ) -> None:
        self._num_mcus, self._num_blocks = num_mcus, len(blocks)
        self._component_of = np.array([block.component for block in blocks], np.int64)
        self._is_first = np.array([block.is_first for block in blocks])
        self._take_data(intervals)
        self._take_tables(blocks)
        num, components, most = len(intervals), int(self._component_of.max()) + 1, max(map(len, mcus))
        self._wanted = np.full((num, most + 1), _NO_MORE, np.int64)
        for row, own in zip(self._wanted, mcus, strict=True):
            row[: len(own)] = own
        self._found = np.zeros((4, num, most, components), np.int32)
        self._means, self._last = np.zeros((num, components), np.int64), np.zeros(num, np.int64)
        self._damaged: dict[int, str] = {}
        self._who, self._bit = np.arange(num), self._starts.copy()
        self._mcu, self._block, self._at, self._cut = np.zeros((4, num), np.int64)

    def _take_data(self, intervals: Sequence[bytes]) -> None:
        """Join the intervals, and look at the 32 bits from each byte on as one number."""
        lengths = np.array([len(each) for each in intervals], np.int64)
        self._starts = np.concatenate([[0], np.cumsum(lengths + _PADDING_BYTES)[:-1]]) * 8
        self._stops = self._starts + lengths * 8
        padded = b"".join(each + bytes(_PADDING_BYTES) for each in intervals) + bytes(_LAST_PADDING_BYTES)
        # Four bytes from every byte on, without a copy.
        self._words = np.ndarray((len(padded) - 3,), ">u4", padded, strides=(1,))

    def _take_tables(self, blocks: Sequence[Block]) -> None:
        """Put the look-up tables one after the other, and note where that of each block begins."""
        tables = [table for block in blocks for table in (block.dc, block.ac)]
        distinct = list(dict.fromkeys(tables))
        self._codes = np.concatenate([table.by_next_bits() for table in distinct])
        begins = np.array([distinct.index(table) << PEEKED_BITS for table in tables], np.int64)
        self._dc_of, self._ac_of = begins[0::2], begins[1::2]

    def step(self) -> bool:
        """Read the next code of every interval. Returns whether any has more."""
        bit, block, at = self._bit, self._block, self._at
        is_mean = at == 0
        found = self._codes[np.where(is_mean, self._dc_of[block], self._ac_of[block]) + self._peek(bit)]
        length, symbol = (found >> 8).astype(np.int64), (found & 0xFF).astype(np.int64)
        size = np.where(is_mean, symbol, symbol & 15)
        # Past the end there are zeros, and then another interval's bits: an interval that gets there is damaged.
        if not length.all() or (bit > self._stops[self._who]).any():
            self._fail((length == 0) | (bit > self._stops[self._who]), "its bits are no codes")
        means = np.flatnonzero(is_mean)
        if len(means):
            self._take_means(means, bit[means] + length[means], length[means], symbol[means])
        self._bit = bit + length + size
        run = np.where(symbol == SKIP_16, 16, (symbol >> 4) + 1)
        self._at = at = np.where(is_mean, 1, np.where(symbol == END_OF_BLOCK, _COEFFICIENTS, at + run))
        ended = np.flatnonzero(at >= _COEFFICIENTS)
        if len(ended):
            self._end_blocks(ended)
        return self._drop_ended()

    def _peek(self, bit: _Ints) -> NDArray[np.uint32]:
        """The next 16 bits."""
        words = self._words[bit >> 3].astype(np.uint32)
        return np.asarray(words >> (PEEKED_BITS - (bit & 7)).astype(np.uint32) & np.uint32(0xFFFF))

    def _take_means(self, which: _Ints, at: _Ints, length: _Ints, size: _Ints) -> None:
        """Add the differences just coded to the means, and note those at cuts.

        Args:
            at: bit after the code, where the difference of `size` bits begins.
        """
        is_long = size > _LONGEST_MEAN
        if is_long.any():
            self._fail_at(which[is_long], "a mean differs by more than 15 bits")
            size = np.where(is_long, 0, size)
        raw = (self._peek(at) >> (PEEKED_BITS - size).astype(np.uint32)).astype(np.int64)
        is_negative = (raw >> np.maximum(size - 1, 0)) == 0
        value = np.where(size == 0, 0, np.where(is_negative, raw - (1 << size) + 1, raw))
        who, component = self._who[which], self._component_of[self._block[which]]
        before = self._means[who, component]
        after = self._means[who, component] = before + value
        cut = self._cut[which]
        noted = self._is_first[self._block[which]] & (self._wanted[who, cut] == self._mcu[which])
        if noted.any():
            where, start = (who[noted], cut[noted], component[noted]), self._starts[who[noted]]
            numbers = at - length, at + size
            for store, kept in zip(self._found[:2], numbers, strict=True):
                store[where] = kept[noted] - start
            for store, kept in zip(self._found[2:], (after, before), strict=True):
                store[where] = kept[noted]

    def _end_blocks(self, ended: _Ints) -> None:
        too_many = self._at[ended] > _COEFFICIENTS
        if too_many.any():
            self._fail_at(ended[too_many], "a block has more than 64 coefficients")
        self._at[ended] = 0
        block = self._block[ended] + 1
        is_new = block == self._num_blocks
        self._block[ended] = np.where(is_new, 0, block)
        new = ended[is_new]
        self._cut[new] += self._wanted[self._who[new], self._cut[new]] == self._mcu[new]
        self._mcu[new] += 1

    def _fail(self, is_damaged: NDArray[np.bool_], why: str) -> None:
        self._fail_at(np.flatnonzero(is_damaged), why)

    def _fail_at(self, which: _Ints, why: str) -> None:
        """Give intervals up."""
        for who in self._who[which].tolist():
            self._damaged.setdefault(who, why)
        self._mcu[which] = self._num_mcus

    def _drop_ended(self) -> bool:
        """Leave out intervals that have ended. Returns whether any is left."""
        is_going = self._mcu < self._num_mcus
        if is_going.all():
            return True
        self._last[self._who[~is_going]] = self._bit[~is_going]
        self._who, self._bit, self._mcu = self._who[is_going], self._bit[is_going], self._mcu[is_going]
        self._block, self._at, self._cut = self._block[is_going], self._at[is_going], self._cut[is_going]
        return bool(len(self._who))

    def table(self, mcus: Sequence[tuple[int, ...]]) -> CutTable:
        """What was found."""
        left = self._stops - self._last
        for who in np.flatnonzero((left < 0) | (left >= 8)).tolist():
            self._damaged.setdefault(who, f"{left[who]} bits follow its last MCU")
        last_bits, last_means = ((self._last - self._starts).astype(np.int32), self._means.astype(np.int32))
        codes, ends, means, means_before = self._found
        return CutTable(mcus, codes, ends, means, means_before, last_bits, last_means, self._damaged)
